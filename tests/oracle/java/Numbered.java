package lakelog.oracle;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;

/**
 * Puts numbered messages with the released store, or reads them; the counterpart of
 * tests.bench.comparison.child, whose lines it writes.
 *
 * <p>{@code --store DIR [--mode put|read] [--first 0] [--count 0] [--pause-us 0] [property=value ...]}.
 */
public final class Numbered {
    private static final int REPEATED = 85;
    private static final int DIGITS = 12;
    private static final int QUEUES = 4;
    private static final String TOPIC = "numbered";
    private final Options options;
    private final DefaultMessageStore store;
    private final SeededMessages messages;
    private final FileOutputStream out = new FileOutputStream(FileDescriptor.out);

    private Numbered(Options options) throws Exception {
        this.options = options;
        this.messages = new SeededMessages(options);
        long start = System.nanoTime();
        Path directory = Path.of(options.required("store")).toAbsolutePath();
        this.store = Stores.open(directory, options.store(), new SystemClock());
        tell("open " + (System.nanoTime() - start) / 1e9);
    }

    public static void main(String[] args) {
        Exit.with(() -> new Numbered(new Options(args)).run());
    }

    private int run() throws Exception {
        Stores.awaitDispatch(store);
        if (options.text("mode", "put").equals("read")) {
            read();
            tell("end");
            return 0;
        }
        int first = options.number("first", 0);
        int count = options.number("count", 0);
        for (int number = first; count == 0 || number < first + count; number++) {
            put(number);
        }
        Stores.awaitDispatch(store);
        store.shutdown();
        return 0;
    }

    private void put(int number) throws Exception {
        String refused;
        try {
            PutMessageResult result = store.putMessage(message(number));
            refused = result.getPutMessageStatus() == PutMessageStatus.PUT_OK
                    ? null : result.getPutMessageStatus().toString();
        } catch (Throwable problem) {
            refused = problem.toString();
        }
        long now = System.nanoTime();
        tell(refused == null ? "ack " + number + " " + now : "no " + number + " " + now + " " + refused);
        long pauseUs = refused == null ? options.number("pause-us", 0) : 1000;
        if (pauseUs > 0) {
            Thread.sleep(pauseUs / 1000, (int) (pauseUs % 1000) * 1000);
        }
    }

    private MessageExtBrokerInner message(int number) throws IOException {
        MessageExtBrokerInner message = messages.next(System.currentTimeMillis());
        message.setTopic(TOPIC);
        message.setQueueId(number % QUEUES);
        message.setBody(body(number).getBytes(StandardCharsets.US_ASCII));
        return message;
    }

    private static String body(int number) {
        return String.format("%0" + DIGITS + "d", number).repeat(REPEATED);
    }

    private void read() throws IOException {
        Map<Integer, ConsumeQueueInterface> queues = new TreeMap<>();
        if (store.getConsumeQueueTable().containsKey(TOPIC)) {
            queues.putAll(store.getConsumeQueueTable().get(TOPIC));
        }
        for (ConsumeQueueInterface queue : queues.values()) {
            read(queue);
        }
    }

    private void read(ConsumeQueueInterface queue) throws IOException {
        long offset = queue.getMinOffsetInQueue();
        while (offset < queue.getMaxOffsetInQueue()) {
            GetMessageResult result = store.getMessage("oracle", TOPIC, queue.getQueueId(), offset, 32, null);
            if (result.getStatus() == GetMessageStatus.FOUND) {
                for (SelectMappedBufferResult record : result.getMessageMapedList()) {
                    found(queue.getQueueId(), Records.decode(record.getByteBuffer()));
                }
            } else {
                tell("error queue " + queue.getQueueId() + ": " + result.getStatus());
            }
            result.release();
            if (result.getNextBeginOffset() <= offset) {
                return;
            }
            offset = result.getNextBeginOffset();
        }
    }

    private void found(int queue, MessageExt message) throws IOException {
        if (message == null) {
            tell("error queue " + queue + ": a record that the client's decoder refuses");
            return;
        }
        byte[] bytes = message.getBody();
        String text = bytes == null ? "" : new String(bytes, StandardCharsets.ISO_8859_1);
        boolean sound = text.length() == DIGITS * REPEATED
                && text.substring(0, DIGITS).chars().allMatch(Character::isDigit)
                && text.equals(text.substring(0, DIGITS).repeat(REPEATED));
        tell(sound ? "m " + queue + " " + Long.parseLong(text.substring(0, DIGITS)) : "bad " + queue);
    }

    private void tell(String line) throws IOException {
        out.write((line + "\n").getBytes(StandardCharsets.UTF_8));
    }
}
