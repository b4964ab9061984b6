package lakelog.broker;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages that are delivered later, and consumes. It reads commands from its standard input
 * and prints a line of JSON for each event. Arguments: name server, topic. Commands:
 *
 * <pre>
 * delay LEVEL BODY       timer MS BODY      recall HANDLE BODY
 * transaction OUTCOME BODY    OUTCOME is commit, rollback or unknown; a producer that is asked about
 *                        BODY later says the outcome behind its last dash
 * consume
 * </pre>
 */
public final class Later {
    private static String topic;

    private Later() {
    }

    private static synchronized void say(String event, String body, String more) {
        System.out.printf("{\"event\":\"%s\",\"body\":\"%s\",\"at\":%d%s}%n", event, body,
                System.currentTimeMillis(), more);
        System.out.flush();
    }

    private static LocalTransactionState outcome(String name) {
        switch (name) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    public static void main(String[] args) throws Exception {
        topic = args[1];
        TransactionMQProducer producer = new TransactionMQProducer(topic + "_producers");
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(10_000);
        producer.setPollNameServerInterval(500);
        producer.setHeartbeatBrokerInterval(500);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object name) {
                return outcome((String) name);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String body = new String(message.getBody(), StandardCharsets.US_ASCII);
                say("checked", body, ",\"topic\":\"" + message.getTopic() + "\"");
                return outcome(body.substring(body.lastIndexOf('-') + 1));
            }
        });
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(topic + "_consumers");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            String body = words[words.length - 1];
            try {
                if (words[0].equals("consume")) {
                    consume(consumer, args[0]);
                    say("consuming", "", "");
                } else if (words[0].equals("recall")) {
                    producer.recallMessage(topic, words[1]);
                    say("recalled", body, "");
                } else {
                    send(producer, words, body);
                }
            } catch (Exception error) {
                say("refused", body, ",\"error\":\"" + String.valueOf(error.getMessage())
                        .replaceAll("[^A-Za-z0-9 .]", " ") + "\"");
            }
        }
        consumer.shutdown();
        producer.shutdown();
        System.exit(0);
    }

    private static void send(TransactionMQProducer producer, String[] words, String body)
            throws Exception {
        Message message = new Message(topic, "tag", body, body.getBytes(StandardCharsets.US_ASCII));
        message.putUserProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", "1");
        long begun = System.currentTimeMillis();
        long due = 0;
        SendResult result;
        if (words[0].equals("transaction")) {
            result = producer.sendMessageInTransaction(message, words[1]);
        } else if (words[0].equals("delay")) {
            message.setDelayTimeLevel(Integer.parseInt(words[1]));
            result = producer.send(message);
        } else {
            due = System.currentTimeMillis() + Long.parseLong(words[1]);
            message.setDeliverTimeMs(due);
            result = producer.send(message);
        }
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.getSendStatus().name());
        }
        say("sent", body, ",\"begun\":" + begun + ",\"due\":" + due
                + ",\"handle\":\"" + result.getRecallHandle() + "\"");
    }

    private static void consume(DefaultMQPushConsumer consumer, String server) throws Exception {
        consumer.setNamesrvAddr(server);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(500);
        consumer.setHeartbeatBrokerInterval(500);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                say("got", new String(each.getBody(), StandardCharsets.US_ASCII), ",\"stored\":"
                        + each.getStoreTimestamp() + ",\"place\":\"" + each.getQueueId() + " "
                        + each.getQueueOffset() + "\"");
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }
}
