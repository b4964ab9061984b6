package lakelog.oracle;

import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * Puts messages whose records all have one size with the released store, into one queue.
 *
 * <p>{@code --store DIR [--count 10] [--mark a] [--pause-ms 20] [--exit halt|shutdown]
 * [property=value ...]}. Bodies begin with the mark. For each message a line: its place, size, queue
 * offset and store time. Halt ends the process as a kill would.
 */
public final class PutSame {
    private static final int BODY_BYTES = 200;
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private PutSame() {
    }

    public static void main(String[] args) {
        Exit.with(() -> run(new Options(args)));
    }

    static int run(Options options) throws Exception {
        Path directory = Path.of(options.required("store")).toAbsolutePath();
        DefaultMessageStore store = Stores.open(directory, options.store(), new SystemClock());
        JsonLines out = new JsonLines();
        for (int i = 0; i < options.number("count", 10); i++) {
            PutMessageResult result = store.putMessage(message(options.text("mark", "a") + i % 10));
            if (!result.isOk()) {
                throw new IllegalStateException(result.toString());
            }
            out.print(JsonLines.object(
                    "offset", result.getAppendMessageResult().getWroteOffset(),
                    "size", result.getAppendMessageResult().getWroteBytes(),
                    "queueOffset", result.getAppendMessageResult().getLogicsOffset(),
                    "storeTimestamp", result.getAppendMessageResult().getStoreTimestamp()));
            Thread.sleep(options.number("pause-ms", 20));
        }
        Stores.awaitDispatch(store);
        out.flush();
        if (options.text("exit", "halt").equals("shutdown")) {
            store.shutdown();
        }
        return 0;
    }

    private static MessageExtBrokerInner message(String mark) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic("t");
        message.setQueueId(0);
        message.setBody(mark.repeat(BODY_BYTES / mark.length()).getBytes(StandardCharsets.US_ASCII));
        message.setKeys(mark);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
        return message;
    }
}
