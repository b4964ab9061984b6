package lakelog.oracle;

import org.apache.rocketmq.store.ha.DefaultHAService;

/** Replication that opens no socket: the stock service listens on every address of the machine. */
public class SilentHAService extends DefaultHAService {
    @Override
    public void start() {
        // No listener, no threads: a lone master has nobody to wait for.
    }

    @Override
    public void shutdown() {
        // Nothing was started.
    }
}
