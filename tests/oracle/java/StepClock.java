package lakelog.oracle;

import org.apache.rocketmq.common.SystemClock;

/** A clock that its owner moves, so that the same seed writes the same bytes. */
final class StepClock extends SystemClock {
    private final long stepMs;
    private volatile long nowMs;

    StepClock(long startMs, long stepMs) {
        this.nowMs = startMs;
        this.stepMs = stepMs;
    }

    @Override
    public long now() {
        return nowMs;
    }

    void step() {
        nowMs += stepMs;
    }
}
