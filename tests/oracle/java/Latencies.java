package lakelog.oracle;

import java.util.Arrays;

/** How long each operation took; safe to add to from several threads. */
final class Latencies {
    private long[] nanoseconds;
    private int count;

    Latencies(int expected) {
        nanoseconds = new long[Math.max(16, expected)];
    }

    void addSince(long startNs) {
        long took = System.nanoTime() - startNs;
        synchronized (this) {
            if (count == nanoseconds.length) {
                nanoseconds = Arrays.copyOf(nanoseconds, 2 * count);
            }
            nanoseconds[count++] = took;
        }
    }

    synchronized int count() {
        return count;
    }

    /** Sorts, so call it when all have been added. */
    synchronized double quantileUs(double quantile) {
        Arrays.sort(nanoseconds, 0, count);
        return nanoseconds[(int) (quantile * (count - 1))] / 1e3;
    }
}
