package lakelog.oracle;

import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.store.DefaultMessageStore;

/** How long the store takes over a directory that has messages; the times are from its making. */
final class BenchLoad {
    private BenchLoad() {
    }

    static Map<String, Object> run(Path directory, Properties properties) throws Exception {
        long startNs = System.nanoTime();
        DefaultMessageStore store = Stores.make(directory, properties, new SystemClock());
        if (!store.load()) {
            throw new IllegalStateException("load() refused " + directory);
        }
        double loadedMs = millisecondsSince(startNs);
        store.start();
        double startedMs = millisecondsSince(startNs);
        Stores.awaitDispatch(store);
        return JsonLines.object(
                "load_ms", loadedMs,
                "start_ms", startedMs,
                "dispatched_ms", millisecondsSince(startNs),
                "max_offset", store.getMaxPhyOffset());
    }

    private static double millisecondsSince(long startNs) {
        return (System.nanoTime() - startNs) / 1e6;
    }
}
