package lakelog.oracle;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Runs one operation many times over some threads, and says how fast that went. */
final class Load {
    /** One numbered operation, from the making of its message to its result. */
    interface Operation {
        void run(int index) throws Exception;

        /** Waits for what the runs have left under way. */
        default void finish() throws Exception {
        }

        /** Runs and adds how long that took, or lets it be added when what it began has its result. */
        default void run(int index, Latencies latencies) throws Exception {
            long startNs = System.nanoTime();
            run(index);
            latencies.addSince(startNs);
        }
    }

    private static final long FOR_EVER_NS = 1L << 60;

    private final int threads;
    private final Operation operation;
    /** The same threads throughout: the store keeps buffers for each that it has met. */
    private final ExecutorService pool;

    Load(int threads, Operation operation) {
        this.threads = threads;
        this.operation = operation;
        this.pool = Executors.newFixedThreadPool(threads);
    }

    /** Repeats small loads until the time is over: the compiler is then done with the hot code. */
    void warmUp(int chunk, long milliseconds) throws Exception {
        long deadline = System.nanoTime() + milliseconds * 1_000_000;
        while (System.nanoTime() < deadline) {
            measure(chunk, 1, 0);
        }
    }

    /** The figures of one run: each operation counts for so many messages of so many bytes. */
    Map<String, Object> measure(int count, int messagesEach, int bodyBytes) throws Exception {
        return measure(count, FOR_EVER_NS, messagesEach, bodyBytes);
    }

    /** The same for as many operations as are begun within the time. */
    Map<String, Object> measureFor(long milliseconds, int messagesEach, int bodyBytes) throws Exception {
        return measure(Integer.MAX_VALUE, milliseconds * 1_000_000, messagesEach, bodyBytes);
    }

    private Map<String, Object> measure(int count, long mostNs, int messagesEach, int bodyBytes)
            throws Exception {
        Latencies latencies = new Latencies(Math.min(count, 1 << 16));
        long startNs = System.nanoTime();
        spread(count, startNs + mostNs, latencies);
        operation.finish();
        double seconds = (System.nanoTime() - startNs) / 1e9;
        double messages = (double) latencies.count() * messagesEach;
        return JsonLines.object(
                "messages", (long) messages,
                "seconds", seconds,
                "msgs_s", messages / seconds,
                "mb_s", messages * bodyBytes / seconds / 1e6,
                "p50_us", latencies.quantileUs(0.50),
                "p99_us", latencies.quantileUs(0.99));
    }

    private void spread(int count, long deadline, Latencies latencies)
            throws InterruptedException, ExecutionException {
        List<Future<?>> workers = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            int first = thread;
            workers.add(pool.submit(() -> {
                for (long index = first; index < count && System.nanoTime() < deadline; index += threads) {
                    operation.run((int) index, latencies);
                }
                return null;
            }));
        }
        for (Future<?> worker : workers) {
            worker.get();
        }
    }
}
