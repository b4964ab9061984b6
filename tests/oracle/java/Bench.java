package lakelog.oracle;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * Measures the released store in an empty directory; prints one JSON line.
 *
 * <p>{@code --store DIR --mode append|batch|copies|reput|read|query|bytime|latency [--count 200000 | --ms MS]
 * [--body 1024] [--threads 1] [--flush ASYNC|SYNC] [--inflight 1] [--n 32] [--warm-ms 2000]
 * [property=value ...]}. The making of the messages is part of what is measured. Puts go on until
 * the time is over where one is given. {@code --mode copies} waits for a slave before, and measures
 * puts by 1 and by 16 threads that all must be copied. {@code --mode load} opens a directory that has messages.
 * {@code --mode reopen --warm DIR --begin NAME --end NAME} opens one and shuts it down, between calls
 * that look for two names, and does the same with another directory before.
 */
public final class Bench {
    /** The default refuses a batch above 4 MiB. */
    private static final String BATCH_LIMIT_BYTES = Integer.toString(16 << 20);

    private Bench() {
    }

    public static void main(String[] args) {
        Exit.with(() -> run(new Options(args)));
    }

    private static int run(Options options) throws Exception {
        String mode = options.required("mode");
        Properties properties = options.store();
        properties.putIfAbsent("flushDiskType", options.text("flush", "ASYNC") + "_FLUSH");
        if (mode.equals("batch")) {
            properties.putIfAbsent("maxMessageSize", BATCH_LIMIT_BYTES);
        }
        Path directory = Path.of(options.required("store")).toAbsolutePath();
        Map<String, Object> line = JsonLines.object("bench", mode);
        if (mode.equals("load")) {
            line.putAll(BenchLoad.run(directory, properties));
        } else if (mode.equals("reopen")) {
            BenchLoad.reopen(Path.of(options.required("warm")).toAbsolutePath(), properties);
            Files.exists(Path.of(options.required("begin")));
            line.putAll(BenchLoad.reopen(directory, properties));
            Files.exists(Path.of(options.required("end")));
        } else {
            DefaultMessageStore store = Stores.open(directory, properties, new SystemClock());
            line.putAll(measure(mode, options, store));
        }
        JsonLines out = new JsonLines();
        out.print(line);
        out.flush();
        return 0;
    }

    private static Map<String, Object> measure(String mode, Options options, DefaultMessageStore store)
            throws Exception {
        byte[] body = new byte[options.number("body", 1024)];
        new Random(1).nextBytes(body);
        int count = options.number("count", 200_000);
        return switch (mode) {
            case "append" -> new BenchWrite(options, store, body).append(count);
            case "copies" -> new BenchWrite(options, store, body).copies();
            case "batch" -> new BenchWrite(options, store, body).batch(count);
            case "reput" -> new BenchRead(store, body).reput(count);
            case "read" -> new BenchRead(store, body).read(count);
            case "query" -> new BenchRead(store, body).query(count);
            case "bytime" -> new BenchRead(store, body).byTime(count);
            case "latency" -> new BenchRead(store, body).latency(count);
            default -> throw new IllegalArgumentException("no benchmark " + mode);
        };
    }
}
