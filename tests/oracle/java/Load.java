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
    }

    private final int threads;
    private final Operation operation;

    Load(int threads, Operation operation) {
        this.threads = threads;
        this.operation = operation;
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
        Latencies latencies = new Latencies(count);
        long startNs = System.nanoTime();
        spread(count, latencies);
        operation.finish();
        double seconds = (System.nanoTime() - startNs) / 1e9;
        double messages = (double) count * messagesEach;
        return JsonLines.object(
                "messages", (long) messages,
                "seconds", seconds,
                "msgs_s", messages / seconds,
                "mb_s", messages * bodyBytes / seconds / 1e6,
                "p50_us", latencies.quantileUs(0.50),
                "p99_us", latencies.quantileUs(0.99));
    }

    private void spread(int count, Latencies latencies) throws InterruptedException, ExecutionException {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<?>> workers = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            int first = thread;
            workers.add(pool.submit(() -> {
                for (int index = first; index < count; index += threads) {
                    long startNs = System.nanoTime();
                    operation.run(index);
                    latencies.addSince(startNs);
                }
                return null;
            }));
        }
        for (Future<?> worker : workers) {
            worker.get();
        }
        pool.shutdown();
    }
}
