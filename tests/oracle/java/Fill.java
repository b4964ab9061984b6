package lakelog.oracle;

import java.nio.file.Path;
import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * Writes messages with the released store; the same options write the same log.
 *
 * <p>{@code --store DIR [--count 100] [--batch 1] [--seed 1] [--topics 2] [--queues 2] [--body-min 0]
 * [--body-max 200] [--undispatched 0] [--start-ms 1700000000000] [--step-ms 1]
 * [--exit shutdown|halt] [property=value ...]}. The last {@code undispatched} puts reach the log
 * but neither queues nor index. Halt ends the process as a kill would, abort file left behind.
 */
public final class Fill {
    private final Options options;
    private final StepClock clock;
    private final DefaultMessageStore store;
    private final SeededMessages messages;

    private Fill(Options options) throws Exception {
        this.options = options;
        this.clock = new StepClock(Long.parseLong(options.text("start-ms", "1700000000000")),
                options.number("step-ms", 1));
        Path directory = Path.of(options.required("store")).toAbsolutePath();
        this.store = Stores.open(directory, options.store(), clock);
        this.messages = new SeededMessages(options);
    }

    public static void main(String[] args) {
        Exit.with(() -> run(new Options(args)));
    }

    static int run(Options options) throws Exception {
        return new Fill(options).run();
    }

    private int run() throws Exception {
        int undispatched = options.number("undispatched", 0);
        put(options.number("count", 100) - undispatched);
        Stores.awaitDispatch(store);
        long dispatched = store.getMaxPhyOffset();
        if (undispatched > 0) {
            Stores.reput(store).shutdown();
            put(undispatched);
        }
        report(dispatched);
        if (options.text("exit", "shutdown").equals("shutdown")) {
            store.shutdown();
        }
        return 0;
    }

    private void put(int count) throws Exception {
        int batchSize = options.number("batch", 1);
        for (int i = 0; i < count; i++) {
            clock.step();
            PutMessageResult result = batchSize == 1
                    ? store.putMessage(messages.next(clock.now()))
                    : store.putMessages(messages.batch(batchSize, clock.now()));
            if (!result.isOk()) {
                throw new IllegalStateException(result.toString());
            }
        }
    }

    private void report(long dispatched) {
        Map<String, Object> line = JsonLines.object("kind", "filled",
                "maxPhyOffset", store.getMaxPhyOffset(), "dispatchedOffset", dispatched);
        JsonLines out = new JsonLines();
        out.print(line);
        out.flush();
    }
}
