package lakelog.oracle;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/**
 * Opens a store directory in place with the released store, lets it load, recover and dispatch, and
 * prints what it then sees: store, queue, msg, rec, blank and query lines. Exit 3: load() refused.
 *
 * <p>{@code --store DIR [--exit halt|shutdown] [property=value ...]}; shutdown leaves the directory
 * as a stopped broker would, halt is quicker and for copies.
 */
public final class Dump {
    private static final int REFUSED = 3;
    private static final int QUERY_LIMIT = 64;

    private Dump() {
    }

    public static void main(String[] args) {
        Exit.with(() -> run(new Options(args)));
    }

    static int run(Options options) throws Exception {
        Path directory = Path.of(options.required("store")).toAbsolutePath();
        boolean abort = Files.exists(directory.resolve("abort"));
        DefaultMessageStore store = Stores.make(directory, options.store(), new SystemClock());
        boolean loaded = store.load();
        if (loaded) {
            store.start();
            Stores.awaitDispatch(store);
        }
        JsonLines out = new JsonLines();
        out.print(summary(store, loaded, abort));
        if (loaded) {
            contents(store, out);
        }
        out.flush();
        if (loaded && options.text("exit", "halt").equals("shutdown")) {
            store.shutdown();
        } else if (loaded) {
            Stores.reput(store).shutdown(); // it wakes up each millisecond
            new Thread(store::shutdown).start(); // takes seconds; else all its threads go on
        }
        return loaded ? 0 : REFUSED;
    }

    private static Map<String, Object> summary(DefaultMessageStore store, boolean loaded, boolean abort)
            throws Exception {
        return JsonLines.object(
                "kind", "store",
                "loaded", loaded,
                "abortFilePresent", abort,
                "minPhyOffset", store.getMinPhyOffset(),
                "maxPhyOffset", store.getMaxPhyOffset(),
                "confirmOffset", store.getConfirmOffset(),
                "maxPhyOffsetInConsumeQueue", store.getQueueStore().getMaxPhyOffsetInConsumeQueue());
    }

    private static void contents(DefaultMessageStore store, JsonLines out) {
        new QueueRead(store, out).run();
        LogScan scan = new LogScan(store, out);
        scan.run();
        for (Map.Entry<String, Set<String>> topic : scan.keys.entrySet()) {
            for (String key : topic.getValue()) {
                out.print(JsonLines.object("kind", "query", "topic", topic.getKey(), "key", key,
                        "physOffsets", query(store, topic.getKey(), key)));
            }
        }
    }

    private static List<Long> query(DefaultMessageStore store, String topic, String key) {
        QueryMessageResult result = store.queryMessage(topic, key, QUERY_LIMIT, 0, Long.MAX_VALUE);
        List<Long> offsets = new ArrayList<>();
        for (SelectMappedBufferResult record : result.getMessageMapedList()) {
            offsets.add(record.getByteBuffer().getLong(28));
        }
        result.release();
        return offsets;
    }
}
