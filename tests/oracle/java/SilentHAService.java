package lakelog.oracle;

import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.ha.DefaultHAService;

/**
 * Replication that opens a socket for a SYNC_MASTER only: the stock service listens on every address
 * of the machine.
 */
public class SilentHAService extends DefaultHAService {
    @Override
    public void start() throws Exception {
        if (isWanted()) {
            super.start();
        }
    }

    @Override
    public void shutdown() {
        if (isWanted()) {
            super.shutdown();
        }
    }

    /** Others are lone masters, which have nobody to wait for. */
    private boolean isWanted() {
        return defaultMessageStore.getMessageStoreConfig().getBrokerRole() == BrokerRole.SYNC_MASTER;
    }
}
