package lakelog.oracle;

import java.util.Arrays;
import java.util.concurrent.atomic.AtomicInteger;

/** How long each of a known number of operations took; safe to add to from several threads. */
final class Latencies {
    private final long[] nanoseconds;
    private final AtomicInteger count = new AtomicInteger();

    Latencies(int capacity) {
        nanoseconds = new long[capacity];
    }

    void addSince(long startNs) {
        nanoseconds[count.getAndIncrement()] = System.nanoTime() - startNs;
    }

    /** Sorts, so call it when all have been added. */
    double quantileUs(double quantile) {
        Arrays.sort(nanoseconds, 0, count.get());
        return nanoseconds[(int) (quantile * (count.get() - 1))] / 1e3;
    }
}
