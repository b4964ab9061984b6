package lakelog.oracle;

import java.nio.file.Files;
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

    /** Opens and shuts down; what is read is counted up to behind the start. */
    static Map<String, Object> reopen(Path directory, Properties properties) throws Exception {
        double readKib = readKib();
        long pages = pages();
        long startNs = System.nanoTime();
        DefaultMessageStore store = Stores.open(directory, properties, new SystemClock());
        double openMs = millisecondsSince(startNs);
        double openReadKib = readKib() - readKib;
        long openPages = pages() - pages;
        store.shutdown();
        return JsonLines.object(
                "open_ms", openMs,
                "close_ms", millisecondsSince(startNs) - openMs,
                "read_kib", openReadKib,
                "pages", openPages);
    }

    /** What system calls of this process have read, in KiB. */
    private static double readKib() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/io"))) {
            if (line.startsWith("rchar: ")) {
                return Long.parseLong(line.substring("rchar: ".length())) / 1024.0;
            }
        }
        throw new IllegalStateException("the kernel does not count what is read");
    }

    /** Pages that this process has touched for the first time: minflt of proc(5). */
    private static long pages() throws Exception {
        String stat = Files.readString(Path.of("/proc/self/stat"));
        String[] behindName = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        return Long.parseLong(behindName[7]);
    }

    private static double millisecondsSince(long startNs) {
        return (System.nanoTime() - startNs) / 1e6;
    }
}
