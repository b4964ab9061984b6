package lakelog.oracle;

import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * Single puts of which a bounded number is under way: each takes a slot and its result frees it.
 * A latency is that of the result, from the making of the message; finish() waits for the last one.
 */
final class InFlight implements Load.Operation {
    private final DefaultMessageStore store;
    private final BenchMessages messages;
    private final int limit;
    private final Semaphore slots;
    private final AtomicReference<PutMessageResult> failure = new AtomicReference<>();

    InFlight(DefaultMessageStore store, BenchMessages messages, int limit) {
        this.store = store;
        this.messages = messages;
        this.limit = limit;
        this.slots = new Semaphore(limit);
    }

    @Override
    public void run(int index) throws InterruptedException {
        run(index, new Latencies(1));
    }

    @Override
    public void run(int index, Latencies latencies) throws InterruptedException {
        slots.acquire();
        long startNs = System.nanoTime();
        store.asyncPutMessage(messages.one(index)).thenAccept(result -> finished(result, startNs, latencies));
    }

    @Override
    public void finish() throws InterruptedException {
        slots.acquire(limit);
        slots.release(limit);
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get().toString());
        }
    }

    private void finished(PutMessageResult result, long startNs, Latencies latencies) {
        latencies.addSince(startNs);
        if (!result.isOk()) {
            failure.set(result);
        }
        slots.release();
    }
}
