package lakelog.oracle;

import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;

/** What the benchmark puts: one tag, one key of its own, over four queues of one topic. */
final class BenchMessages {
    static final String TOPIC = "bench";
    static final int QUEUES = 4;
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);
    private final byte[] body;

    BenchMessages(byte[] body) {
        this.body = body;
    }

    static String key(int index) {
        return "k" + index;
    }

    MessageExtBrokerInner one(int index) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        Map<String, String> properties = new HashMap<>();
        properties.put(MessageConst.PROPERTY_TAGS, "TagA");
        properties.put(MessageConst.PROPERTY_KEYS, key(index));
        MessageAccessor.setProperties(message, properties);
        message.setPropertiesString(MessageDecoder.messageProperties2String(properties));
        message.setBody(body);
        address(message, index);
        return message;
    }

    /** Encoded as the client encodes it before it sends. */
    MessageExtBatch batch(int index, int size) {
        List<Message> messages = new ArrayList<>(size);
        for (int i = 0; i < size; i++) {
            messages.add(new Message(TOPIC, "TagA", key(index * size + i), body));
        }
        MessageExtBatch batch = new MessageExtBatch();
        MessageAccessor.setProperties(batch, new HashMap<>());
        batch.setBody(MessageDecoder.encodeMessages(messages));
        address(batch, index);
        return batch;
    }

    private static void address(MessageExt message, int index) {
        message.setTopic(TOPIC);
        message.setQueueId(index % QUEUES);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
    }
}
