package lakelog.takeover;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer. It prints a line of JSON for each message, and leaves its group when its standard
 * input ends. Arguments: name server, group, topic, and three bodies: of a message that fails once, of
 * one that always fails, and of one that fails and is the last that it handles.
 */
public final class GroupMember {
    private static final int MOST_RETRIES = 1;

    private GroupMember() {
    }

    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(MOST_RETRIES);
        consumer.setPollNameServerInterval(500);
        consumer.subscribe(args[2], "*");
        String once = args[3];
        String always = args[4];
        String last = args[5];
        CountDownLatch never = new CountDownLatch(1);
        boolean[] isOver = {false};
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            String body = new String(message.getBody(), StandardCharsets.US_ASCII);
            synchronized (isOver) {
                if (!isOver[0]) {
                    System.out.printf(
                            "{\"topic\":\"%s\",\"queue\":%d,\"offset\":%d,\"body\":%s,\"retries\":%d}%n",
                            message.getTopic(), message.getQueueId(), message.getQueueOffset(), body,
                            message.getReconsumeTimes());
                    isOver[0] = body.equals(last);
                    boolean fails = isOver[0] || always.equals(body)
                            || once.equals(body) && message.getReconsumeTimes() == 0;
                    return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                            : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                }
            }
            while (true) { // any return, on an interrupt too, would move the group's offset
                try {
                    never.await();
                } catch (InterruptedException shutdown) {
                    continue;
                }
            }
        });
        consumer.start();
        while (System.in.read() >= 0) {
            // until it ends
        }
        consumer.shutdown();
        System.exit(0);
    }
}
