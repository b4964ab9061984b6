package lakelog.broker;

import java.io.PrintStream;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/** Sends with users, or requests a reply; one result a line. */
public final class Tools {
    private static final PrintStream OUT = System.out;

    public static void main(String[] args) {
        int code = 0;
        try {
            run(args);
        } catch (Exception error) {
            error.printStackTrace();
            code = 1;
        }
        OUT.flush();
        Runtime.getRuntime().halt(code); // threads of clients would keep the process
    }

    private static void run(String[] args) throws Exception {
        String[] rest = Arrays.copyOfRange(args, 2, args.length);
        switch (args[0]) {
            case "send":
                for (String user : rest) {
                    send(args[1], user);
                }
                break;
            default:
                request(args[1]);
        }
    }

    /** Sends as "key:secret:topic", without a user if the key is empty. */
    private static void send(String server, String user) throws Exception {
        String[] parts = user.split(":");
        RPCHook hook = parts[0].isEmpty()
            ? null : new AclClientRPCHook(new SessionCredentials(parts[0], parts[1]));
        DefaultMQProducer producer = new DefaultMQProducer("senders", hook);
        producer.setInstanceName(user);
        producer.setNamesrvAddr(server);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(60_000);
        producer.start();
        String outcome;
        try {
            Message message = new Message(parts[2], "TagA", "key", "body".getBytes());
            outcome = producer.send(message).getSendStatus().name();
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            if (cause instanceof MQBrokerException) {
                outcome = "code " + ((MQBrokerException) cause).getResponseCode();
            } else {
                boolean unknown = error.getMessage().startsWith("No route info");
                outcome = unknown ? "no route" : error.toString();
            }
        }
        OUT.println("sent " + user + " " + outcome);
        producer.shutdown();
    }

    private static void request(String server) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("asking");
        producer.setNamesrvAddr(server);
        producer.start();
        producer.send(new Message("questions", "ignored".getBytes()), 60_000);
        DefaultMQProducer replying = new DefaultMQProducer("replying");
        replying.setInstanceName("replying");
        replying.setNamesrvAddr(server);
        replying.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("answering");
        consumer.setNamesrvAddr(server);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("questions", "asked");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (Message each : messages) {
                try {
                    byte[] body = ("reply to " + new String(each.getBody())).getBytes();
                    replying.send(MessageUtil.createReplyMessage(each, body), 60_000);
                } catch (Exception error) {
                    // the producer's heartbeat may still be under way
                    OUT.println("failed to answer: " + error);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        // Others than this overload end when the request is sent, in 5.3.1 and later: the client
        // releases the waiting thread, or calls back, before the reply (issues 9292 and 9319).
        CompletableFuture<Message> reply = new CompletableFuture<>();
        producer.request(
            new Message("questions", "asked", "question".getBytes()),
            (queues, message, argument) -> queues.get(0),
            null,
            new RequestCallback() {
                @Override
                public void onSuccess(Message message) {
                    reply.complete(message);
                }

                @Override
                public void onException(Throwable error) {
                    reply.completeExceptionally(error);
                }
            },
            90_000);
        Message answer = reply.get();
        OUT.println("answer " + new String(answer.getBody()));
    }
}
