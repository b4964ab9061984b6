package lakelog.broker;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Pulls all messages of a topic, and commits the offset after each pull.
 *
 * <p>Arguments: name server, "fill", number of messages to put; or name server, messages of a pull, the
 * number of this process, number of processes. It prints that it is ready, waits for a line, and prints
 * its figures as JSON.
 */
public final class Pull {
    private static final String TOPIC = "Bench";
    private static final int BODY_BYTES = 200;
    private static final int BATCH = 100;
    private static final int ATTEMPTS = 60;

    private Pull() {
    }

    public static void main(String[] args) throws Exception {
        if (args[1].equals("fill")) {
            fill(args[0], Integer.parseInt(args[2]));
        } else {
            pull(args[0], Integer.parseInt(args[1]), Integer.parseInt(args[2]), Integer.parseInt(args[3]));
        }
        System.exit(0);
    }

    private static void fill(String server, int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("BenchProducer");
        producer.setNamesrvAddr(server);
        producer.start();
        for (int sent = 0, failed = 0; sent < count;) {
            List<Message> batch = new ArrayList<>();
            for (int i = sent; i < Math.min(sent + BATCH, count); i++) {
                batch.add(new Message(TOPIC, new byte[BODY_BYTES]));
            }
            try {
                producer.send(batch);
                sent += batch.size();
            } catch (MQClientException early) { // a broker registers after a delay
                if (++failed == ATTEMPTS) {
                    throw early;
                }
                Thread.sleep(500);
            }
        }
    }

    @SuppressWarnings("deprecation")
    private static void pull(String server, int most, int number, int processes) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("BenchGroup");
        consumer.setNamesrvAddr(server);
        consumer.setInstanceName("pull" + number);
        consumer.start();
        Map<MessageQueue, Long> offsets = new HashMap<>();
        for (MessageQueue each : consumer.fetchSubscribeMessageQueues(TOPIC)) {
            if (each.getQueueId() % processes == number) {
                offsets.put(each, 0L);
            }
        }
        System.out.println("ready");
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        long messages = 0;
        long end = System.currentTimeMillis();
        while (!offsets.isEmpty()) {
            for (MessageQueue queue : new ArrayList<>(offsets.keySet())) {
                PullResult found = consumer.pull(queue, "*", offsets.get(queue), most);
                if (found.getPullStatus() == PullStatus.FOUND) {
                    messages += found.getMsgFoundList().size();
                    offsets.put(queue, found.getNextBeginOffset());
                    consumer.updateConsumeOffset(queue, found.getNextBeginOffset());
                    consumer.getOffsetStore().persist(queue);
                    end = System.currentTimeMillis();
                } else {
                    offsets.remove(queue);
                }
            }
        }
        System.out.println("{\"messages\": " + messages + ", \"end_s\": " + end / 1e3 + "}");
    }
}
