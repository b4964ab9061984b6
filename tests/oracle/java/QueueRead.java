package lakelog.oracle;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;

/** Reads every queue from its first message to its last, as a consumer would. */
final class QueueRead {
    private final DefaultMessageStore store;
    private final JsonLines out;

    QueueRead(DefaultMessageStore store, JsonLines out) {
        this.store = store;
        this.out = out;
    }

    void run() {
        Map<String, Map<Integer, ConsumeQueueInterface>> topics = new TreeMap<>();
        store.getConsumeQueueTable().forEach((topic, queues) -> topics.put(topic, new TreeMap<>(queues)));
        topics.values().forEach(queues -> queues.values().forEach(this::describe));
        topics.values().forEach(queues -> queues.values().forEach(this::messages));
    }

    private void describe(ConsumeQueueInterface queue) {
        out.print(JsonLines.object(
                "kind", "queue",
                "topic", queue.getTopic(),
                "queueId", queue.getQueueId(),
                "cqType", queue.getCQType().toString(),
                "minOffset", queue.getMinOffsetInQueue(),
                "maxOffset", queue.getMaxOffsetInQueue(),
                "maxPhysicOffset", queue.getMaxPhysicOffset()));
    }

    private void messages(ConsumeQueueInterface queue) {
        long offset = queue.getMinOffsetInQueue();
        while (offset < queue.getMaxOffsetInQueue()) {
            GetMessageResult result = store.getMessage(
                    "oracle", queue.getTopic(), queue.getQueueId(), offset, 32, null);
            if (result.getStatus() == GetMessageStatus.FOUND) {
                found(queue, result);
            } else {
                failed(queue, offset, result);
            }
            result.release();
            if (result.getNextBeginOffset() <= offset) {
                return;
            }
            offset = result.getNextBeginOffset();
        }
    }

    private void found(ConsumeQueueInterface queue, GetMessageResult result) {
        for (int i = 0; i < result.getMessageMapedList().size(); i++) {
            ByteBuffer record = result.getMessageMapedList().get(i).getByteBuffer();
            MessageExt message = Records.decode(record);
            if (message == null) {
                long offset = result.getMessageQueueOffset().get(i);
                print(queue, offset, "UNDECODABLE", offset + 1);
                continue;
            }
            Map<String, Object> line = Records.whole(message, record);
            unit(line, queue, result.getMessageQueueOffset().get(i));
            out.print(line);
        }
    }

    private void unit(Map<String, Object> line, ConsumeQueueInterface queue, long offset) {
        line.put("cqTopic", queue.getTopic());
        line.put("cqQueueId", queue.getQueueId());
        line.put("cqOffset", offset);
        CqUnit unit = queue.get(offset);
        if (unit != null) {
            line.put("cqPos", unit.getPos());
            line.put("cqSize", unit.getSize());
            line.put("tagsCode", unit.getTagsCode());
            line.put("batchNum", unit.getBatchNum());
        }
    }

    private void failed(ConsumeQueueInterface queue, long offset, GetMessageResult result) {
        print(queue, offset, result.getStatus().toString(), result.getNextBeginOffset());
    }

    private void print(ConsumeQueueInterface queue, long offset, String status, long next) {
        out.print(JsonLines.object(
                "kind", "msgerr",
                "topic", queue.getTopic(),
                "queueId", queue.getQueueId(),
                "offset", offset,
                "status", status,
                "next", next));
    }
}
