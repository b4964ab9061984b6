package lakelog.broker;

import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** PopMember NAMESRV TOPIC GROUP: a push consumer in pop mode gets 40 messages, one of them twice. */
public class PopMember {
    public static void main(String[] arguments) throws Exception {
        int code = 0;
        try {
            run(arguments[0], arguments[1], arguments[2]);
        } catch (Throwable error) {
            error.printStackTrace();
            code = 1;
        }
        Runtime.getRuntime().halt(code);
    }

    private static void run(String names, String topic, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producing");
        producer.setNamesrvAddr(names);
        producer.start();
        for (int i = 0; i < 40; i++) {
            producer.send(new Message(topic, "t", ("m" + i).getBytes(StandardCharsets.UTF_8)));
        }
        Set<String> done = ConcurrentHashMap.newKeySet();
        Set<String> attempts = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setClientRebalance(false);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                String body = new String(each.getBody(), StandardCharsets.UTF_8);
                if (body.equals("m7")) {
                    attempts.add(each.getTopic() + " " + each.getReconsumeTimes());
                    if (each.getReconsumeTimes() == 0) {
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                }
                done.add(body);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.start();
        long end = System.currentTimeMillis() + 90_000;
        while (done.size() < 40 && System.currentTimeMillis() < end) {
            Thread.sleep(10);
        }
        // Neither is shut down: that waits for the end of the requests that poll.
        System.out.println("= done: " + done.size());
        System.out.println("= attempts: " + new TreeSet<>(attempts));
        System.out.flush();
        System.in.read(); // the last acknowledgement may be on its way
    }
}
