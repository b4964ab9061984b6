package lakelog.oracle;

import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

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
