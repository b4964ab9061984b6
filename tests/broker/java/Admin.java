package lakelog.broker;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs the commands of mqadmin in a file, one a line, at a name server and a broker.
 *
 * The line "send" sends a message, "members" starts a consumer and a producer and waits until the
 * message is consumed, and "leave" ends them. The words {broker}, {client}, {id} and {place} are
 * the broker's address, the consumer's name, and both ids of the message.
 */
public final class Admin {
    private static final PrintStream OUT = System.out;
    private static final String TOPIC = "orders";
    private static final String GROUP = "readers";

    private final String names;
    private final String broker;
    private DefaultMQPushConsumer consumer;
    private DefaultMQProducer producer;
    private String client = "";
    private SendResult sent;

    private Admin(String names, String broker) {
        this.names = names;
        this.broker = broker;
    }

    public static void main(String[] args) {
        int code = 0;
        try {
            Thread main = Thread.currentThread();
            Thread waker = new Thread(() -> wake(main));
            waker.setDaemon(true);
            waker.start();
            List<String> lines = Files.readAllLines(Path.of(args[0]));
            Admin admin = new Admin(args[1], args[2]);
            for (String line : lines) {
                admin.run(line);
            }
        } catch (Exception error) {
            error.printStackTrace(OUT);
            code = 1;
        }
        OUT.flush();
        Runtime.getRuntime().halt(code); // threads of clients would keep the process
    }

    /** Ends the wait of 3 seconds with which each command closes its client. */
    private static void wake(Thread main) {
        while (true) {
            if (has(main.getStackTrace(), "NettyRemotingClient", "shutdown")) {
                Thread.getAllStackTraces().forEach((thread, stack) -> {
                    boolean waits = has(stack, "LinkedBlockingQueue", "poll");
                    if (waits && thread.getName().startsWith("NettyEventExecutor")) {
                        thread.interrupt();
                    }
                });
            }
            try {
                Thread.sleep(50);
            } catch (InterruptedException error) {
                return;
            }
        }
    }

    private static boolean has(StackTraceElement[] stack, String type, String method) {
        return Arrays.stream(stack).anyMatch(each ->
            each.getClassName().endsWith(type) && each.getMethodName().equals(method));
    }

    private void run(String line) throws Exception {
        switch (line) {
            case "send":
                send();
                break;
            case "members":
                members();
                break;
            case "leave":
                consumer.shutdown();
                producer.shutdown();
                break;
            default:
                command(line);
        }
    }

    private void command(String line) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(bytes);
        System.setOut(stream);
        System.setErr(stream);
        String filled = line.replace("{broker}", broker).replace("{client}", client);
        if (sent != null) {
            filled = filled.replace("{id}", sent.getMsgId());
            filled = filled.replace("{place}", sent.getOffsetMsgId());
        }
        MQAdminStartup.main0((filled + " -n " + names).split(" "), null);
        stream.flush();
        OUT.println("### " + line);
        OUT.println(new String(bytes.toByteArray(), StandardCharsets.UTF_8).trim());
    }

    private void send() throws Exception {
        producer = new DefaultMQProducer("sellers");
        producer.setNamesrvAddr(names);
        producer.setInstanceName("sellers" + names);
        producer.start();
        Message message = new Message(TOPIC, "TagA", "key1", "body".getBytes());
        MessageQueue queue = new MessageQueue(TOPIC, "broker-a", 0);
        sent = producer.send(message, queue, 60_000);
        while (producer.maxOffset(queue) == 0 || find(sent.getMsgId()) == null) {
            Thread.sleep(20); // it is acknowledged before it is in its queue and in the index
        }
    }

    private Message find(String id) {
        try {
            return producer.viewMessage(TOPIC, id);
        } catch (Exception error) {
            return null;
        }
    }

    private void members() throws Exception {
        consumer = new DefaultMQPushConsumer(GROUP);
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName("readers" + names);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.start();
        client = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        DefaultMQAdminExt tool = new DefaultMQAdminExt();
        tool.setNamesrvAddr(names);
        tool.setInstanceName("tool" + names);
        tool.start();
        MessageQueue queue = new MessageQueue(TOPIC, "broker-a", 0);
        long end = System.currentTimeMillis() + 120_000;
        while (System.currentTimeMillis() < end) {
            try {
                ConsumeStats found = tool.examineConsumeStats(GROUP, TOPIC);
                if (found.getOffsetTable().get(queue).getConsumerOffset() == 1) {
                    break;
                }
            } catch (Exception error) {
                // the group has no offset yet
            }
            Thread.sleep(100);
        }
        tool.shutdown();
    }
}
