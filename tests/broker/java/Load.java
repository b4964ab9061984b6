package lakelog.broker;

import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages of all kinds and consumes them, as a push consumer and as one in pop mode. Each
 * acknowledged send, and each message before the answer of its listener, is a line of JSON in a
 * journal. Arguments: name server, topic, suffix of the groups, first letters of bodies, journal,
 * milliseconds between sends, span of timers in milliseconds. The line "stop" on the standard input
 * ends the sending.
 *
 * <p>The kind of a message is behind the last dash of its body: "later" succeeds the second time,
 * "dead" never; "asked" and "never" are transactions without an outcome until the broker asks,
 * which then is commit and rollback.
 */
public final class Load {
    private static final String[] KINDS = {
        "plain", "later", "delay", "timer", "commit", "rollback", "asked", "never", "plain", "dead"};
    private static FileOutputStream journal;
    private static String topic;
    private static long span;
    private static volatile boolean sends = true;

    private Load() {
    }

    private static synchronized void note(String line) {
        try {
            journal.write((line + "\n").getBytes(StandardCharsets.US_ASCII));
        } catch (java.io.IOException error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1); // without its journal the run says nothing
        }
    }

    private static String kind(Message message) {
        String body = new String(message.getBody(), StandardCharsets.US_ASCII);
        return body.substring(body.lastIndexOf('-') + 1);
    }

    private static LocalTransactionState outcome(Message message, boolean isAsked) {
        switch (kind(message)) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            case "asked":
                return isAsked ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.UNKNOW;
            default:
                return isAsked ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
        }
    }

    public static void main(String[] args) throws Exception {
        topic = args[1];
        journal = new FileOutputStream(args[4], true);
        span = Long.parseLong(args[6]);
        consume(args[0], "push-" + args[2], false);
        consume(args[0], "pop-" + args[2], true);
        TransactionMQProducer producer = producer(args[0]);
        Thread sending = new Thread(() -> send(producer, args[3], Long.parseLong(args[5])));
        sending.start();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            sends = false;
            sending.join();
            note("{\"event\":\"stopped\"}");
        }
        Runtime.getRuntime().halt(0);
    }

    private static TransactionMQProducer producer(String server) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("producers");
        producer.setNamesrvAddr(server);
        producer.setRetryTimesWhenSendFailed(0); // a failed send is stored at most once
        producer.setSendMsgTimeout(10_000);
        producer.setPollNameServerInterval(500);
        producer.setHeartbeatBrokerInterval(500);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object nothing) {
                return outcome(message, false);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return outcome(message, true);
            }
        });
        producer.start();
        return producer;
    }

    private static void send(TransactionMQProducer producer, String letters, long pause) {
        for (int n = 0; sends; n++) {
            String kind = KINDS[n % KINDS.length];
            String body = letters + "-" + n + "-" + kind;
            Message message = new Message(topic, "tag", body, body.getBytes(StandardCharsets.US_ASCII));
            long begun = System.currentTimeMillis();
            long due = kind.equals("delay") ? begun + 1_000 : 0;
            try {
                SendResult result;
                if (Arrays.asList("commit", "rollback", "asked", "never").contains(kind)) {
                    message.putUserProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", "1");
                    result = producer.sendMessageInTransaction(message, null);
                } else {
                    if (kind.equals("delay")) {
                        message.setDelayTimeLevel(1);
                    } else if (kind.equals("timer")) {
                        due = begun + (n * 37L) % span;
                        message.setDeliverTimeMs(due);
                    }
                    result = producer.send(message);
                }
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    note("{\"event\":\"sent\",\"body\":\"" + body + "\",\"due\":" + due + ",\"at\":"
                            + System.currentTimeMillis() + "}");
                }
                Thread.sleep(pause);
            } catch (Exception refused) {
                pauseAfter(refused, body, due);
            }
        }
    }

    private static void pauseAfter(Exception refused, String body, long due) {
        note("{\"event\":\"failed\",\"body\":\"" + body + "\",\"due\":" + due + ",\"why\":\""
                + String.valueOf(refused.getMessage()).replaceAll("[^A-Za-z0-9 .]", " ") + "\"}");
        try {
            Thread.sleep(50);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private static void consume(String server, String group, boolean pops) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(server);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(500);
        consumer.setHeartbeatBrokerInterval(500);
        consumer.setPersistConsumerOffsetInterval(1_000);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        if (pops) {
            consumer.setClientRebalance(false);
            consumer.setPopInvisibleTime(5_000);
            Field delays = DefaultMQPushConsumerImpl.class.getDeclaredField("popDelayLevel");
            delays.setAccessible(true);
            Arrays.fill((int[]) delays.get(consumer.getDefaultMQPushConsumerImpl()), 1);
            consumer.setMaxReconsumeTimes(Integer.MAX_VALUE); // the client drops a message after 16
        } else {
            consumer.setMaxReconsumeTimes(2);
        }
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                answer(group, messages.get(0), context, pops));
        consumer.start();
    }

    private static ConsumeConcurrentlyStatus answer(String group, MessageExt message,
            ConsumeConcurrentlyContext context, boolean pops) {
        String kind = kind(message);
        boolean fails = kind.equals("dead") || kind.equals("later") && message.getReconsumeTimes() == 0;
        String[] handle = pops ? String.valueOf(message.getProperty("POP_CK")).split(" ") : null;
        boolean isPopped = handle != null && handle.length > 4;
        String source = context.getMessageQueue().getTopic();
        if (isPopped && !handle[4].equals("0")) { // the client names the topic of a retry otherwise
            source = "%RETRY%" + group + (handle[4].equals("1") ? "_" : "+") + topic;
        }
        note("{\"event\":\"got\",\"group\":\"" + group + "\",\"body\":\""
                + new String(message.getBody(), StandardCharsets.US_ASCII)
                + "\",\"times\":" + message.getReconsumeTimes() + ",\"fails\":" + fails
                + ",\"topic\":\"" + source
                + "\",\"queue\":" + message.getQueueId() + ",\"offset\":" + message.getQueueOffset()
                + ",\"place\":" + message.getCommitLogOffset()
                + ",\"stored\":" + message.getStoreTimestamp()
                + ",\"popped\":" + (isPopped ? handle[1] : "0")
                + ",\"invisible\":" + (isPopped ? handle[2] : "0")
                + ",\"at\":" + System.currentTimeMillis() + "}");
        if (!fails) {
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
        context.setDelayLevelWhenNextConsume(1);
        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
    }
}
