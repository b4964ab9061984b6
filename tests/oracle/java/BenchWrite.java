package lakelog.oracle;

import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;

/** The writing benchmarks: single puts, puts in flight, batches. */
final class BenchWrite {
    private static final int WARM_CHUNK_MESSAGES = 2_048;
    private final Options options;
    private final DefaultMessageStore store;
    private final byte[] body;
    private final BenchMessages messages;

    BenchWrite(Options options, DefaultMessageStore store, byte[] body) {
        this.options = options;
        this.store = store;
        this.body = body;
        this.messages = new BenchMessages(body);
    }

    Map<String, Object> append(int count) throws Exception {
        int inFlight = options.number("inflight", 1);
        return run(count, 1, inFlight == 1 ? this::put : new InFlight(store, messages, inFlight));
    }

    Map<String, Object> batch(int count) throws Exception {
        int size = options.number("n", 32);
        return run(count / size, size, index -> check(store.putMessages(messages.batch(index, size))));
    }

    /** Puts that wait for a slave, by one thread and by several. */
    Map<String, Object> copies() throws Exception {
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (store.putMessage(messages.one(0)).getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("no slave came");
            }
        }
        Map<String, Object> line = JsonLines.object();
        for (int threads : new int[] {1, 16}) {
            Load load = new Load(threads, this::putCopied);
            load.measureFor(options.number("warm-ms", 2_000), 1, body.length);
            Map<String, Object> row = load.measureFor(options.number("ms", 2_000), 1, body.length);
            line.put("p50_us_" + threads, row.get("p50_us"));
            line.put("p99_us_" + threads, row.get("p99_us"));
            line.put("puts_s_" + threads, row.get("msgs_s"));
        }
        return line;
    }

    private void putCopied(int index) {
        PutMessageResult result = store.putMessage(messages.one(index));
        if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            throw new IllegalStateException(result.toString());
        }
    }

    private Map<String, Object> run(int count, int messagesEach, Load.Operation operation)
            throws Exception {
        Load load = new Load(options.number("threads", 1), operation);
        load.warmUp(Math.max(1, WARM_CHUNK_MESSAGES / messagesEach), options.number("warm-ms", 2_000));
        Stores.awaitDispatch(store);
        if (options.has("ms")) {
            return load.measureFor(options.number("ms", 0), messagesEach, body.length);
        }
        return load.measure(count, messagesEach, body.length);
    }

    private void put(int index) {
        check(store.putMessage(messages.one(index)));
    }

    private static void check(PutMessageResult result) {
        if (!result.isOk()) {
            throw new IllegalStateException(result.toString());
        }
    }
}
