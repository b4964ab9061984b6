package lakelog.oracle;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;

/** Messages that depend on a seed and nothing else: IPv4 and IPv6 hosts, tags, keys, bodies. */
final class SeededMessages {
    private static final String[] TAGS = {null, "TagA", "TagB", "\u6807\u7b7e"};
    private final Random random;
    private final Options options;
    private int made;

    SeededMessages(Options options) {
        this.options = options;
        this.random = new Random(options.number("seed", 1));
    }

    MessageExtBrokerInner next(long bornMs) throws UnknownHostException {
        Message content = content(topic());
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(content.getTopic());
        message.setBody(content.getBody());
        message.setFlag(random.nextInt());
        MessageAccessor.setProperties(message, content.getProperties());
        message.setPropertiesString(MessageDecoder.messageProperties2String(content.getProperties()));
        origin(message, bornMs);
        return message;
    }

    /** A batch goes to one queue of one topic. */
    MessageExtBatch batch(int size, long bornMs) throws UnknownHostException {
        String topic = topic();
        List<Message> contents = new ArrayList<>();
        for (int i = 0; i < size; i++) {
            contents.add(content(topic));
        }
        MessageExtBatch batch = new MessageExtBatch();
        batch.setTopic(topic);
        batch.setBody(MessageDecoder.encodeMessages(contents));
        MessageAccessor.setProperties(batch, new HashMap<>());
        origin(batch, bornMs);
        return batch;
    }

    private String topic() {
        return "topic-" + random.nextInt(options.number("topics", 2));
    }

    private Message content(String topic) {
        int shortest = options.number("body-min", 0);
        byte[] body = new byte[shortest + random.nextInt(options.number("body-max", 200) - shortest + 1)];
        random.nextBytes(body);
        Message message = new Message(topic, body);
        String tag = TAGS[random.nextInt(TAGS.length)];
        if (tag != null) {
            message.setTags(tag);
        }
        message.setKeys("key-" + made + " shared-" + made % 10);
        made++;
        return message;
    }

    private void origin(MessageExt message, long bornMs) throws UnknownHostException {
        message.setQueueId(random.nextInt(options.number("queues", 2)));
        message.setBornTimestamp(bornMs);
        message.setBornHost(host());
        message.setStoreHost(host());
    }

    private InetSocketAddress host() throws UnknownHostException {
        byte[] address = new byte[random.nextInt(4) == 0 ? 16 : 4];
        random.nextBytes(address);
        address[0] = 10;
        return new InetSocketAddress(InetAddress.getByAddress(address), 1024 + random.nextInt(60_000));
    }
}
