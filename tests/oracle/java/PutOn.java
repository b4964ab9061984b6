package lakelog.oracle;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * Puts with the released store until it is killed; every eighth put is a batch.
 *
 * <p>{@code --store DIR [--threads 2] [--pause-ms 1] [--batch 16]}, the settings of SeededMessages,
 * {@code [property=value ...]}. For each put that was acknowledged one line, written at once: where
 * its records begin in the log, how many bytes they have, and how many they are.
 */
public final class PutOn {
    private final Options options;
    private final DefaultMessageStore store;
    private final SeededMessages messages;
    private final FileOutputStream out = new FileOutputStream(FileDescriptor.out);
    private int made;

    private PutOn(Options options) throws Exception {
        this.options = options;
        Path directory = Path.of(options.required("store")).toAbsolutePath();
        this.store = Stores.open(directory, options.store(), new SystemClock());
        this.messages = new SeededMessages(options);
    }

    public static void main(String[] args) {
        Exit.with(() -> new PutOn(new Options(args)).run());
    }

    private int run() throws Exception {
        Thread[] threads = new Thread[options.number("threads", 2)];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() -> Exit.with(this::putOn));
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return 1;
    }

    private int putOn() throws Exception {
        while (true) {
            PutMessageResult result = put();
            if (!result.isOk()) {
                throw new IllegalStateException(result.toString());
            }
            tell(result.getAppendMessageResult());
            Thread.sleep(options.number("pause-ms", 1));
        }
    }

    private PutMessageResult put() throws Exception {
        MessageExtBrokerInner message = next();
        return message instanceof MessageExtBatch
                ? store.putMessages((MessageExtBatch) message)
                : store.putMessage(message);
    }

    private synchronized MessageExtBrokerInner next() throws Exception {
        long now = System.currentTimeMillis();
        return made++ % 8 == 7 ? messages.batch(options.number("batch", 16), now) : messages.next(now);
    }

    private void tell(AppendMessageResult result) throws IOException {
        String line = result.getWroteOffset() + " " + result.getWroteBytes() + " " + result.getMsgNum() + "\n";
        out.write(line.getBytes(StandardCharsets.US_ASCII));
    }
}
