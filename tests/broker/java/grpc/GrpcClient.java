package lakelog.broker;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;

/** GrpcClient ENDPOINT ssl|plain: prints one line per outcome, the same for every broker. */
public class GrpcClient {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Duration INVISIBLE = Duration.ofSeconds(15);

    private static void say(String name, Object value) {
        System.out.println("= " + name + ": " + value);
        System.out.flush();
    }

    private static void await(BooleanSupplier isSo) throws InterruptedException {
        long end = System.currentTimeMillis() + 90_000;
        while (!isSo.getAsBoolean() && System.currentTimeMillis() < end) {
            Thread.sleep(10);
        }
    }

    private static String text(MessageView message) {
        ByteBuffer body = message.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static Map<String, FilterExpression> subscription(String topic, String text, FilterExpressionType type) {
        return Collections.singletonMap(topic, new FilterExpression(text, type));
    }

    public static void main(String[] arguments) {
        int code = 0;
        try {
            run(arguments[0], arguments[1]);
            say("end", "reached");
        } catch (Throwable error) {
            error.printStackTrace();
            code = 1;
        }
        Runtime.getRuntime().halt(code);
    }

    private static void run(String endpoint, String security) throws Exception {
        ClientConfiguration configuration = ClientConfiguration.newBuilder().setEndpoints(endpoint)
            .setRequestTimeout(Duration.ofSeconds(10)).enableSsl(security.equals("ssl")).build();
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics("normal", "ordered").build();
        Set<String> sent = new TreeSet<>();
        for (int i = 0; i < 20; i++) {
            sent.add(producer.send(message("normal", "m" + i).setTag("t" + i % 2).setKeys("k" + i)
                .addProperty("n", "" + i).build()).getMessageId().toString());
        }
        List<CompletableFuture<SendReceipt>> later = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            later.add(producer.sendAsync(message("normal", "a" + i).setTag("a").build()));
        }
        for (CompletableFuture<SendReceipt> each : later) {
            sent.add(each.get(30, TimeUnit.SECONDS).getMessageId().toString());
        }
        say("sent", sent.size());
        push(configuration, sent);
        simple(configuration, producer);
        fifo(configuration, producer);
        try {
            producer.send(message("normal", "x").setMessageGroup("g").build());
            say("a message of another type", "was sent");
        } catch (ClientException | IllegalArgumentException error) {
            say("a message of another type", "was refused");
        }
        producer.close();
    }

    private static void push(ClientConfiguration configuration, Set<String> sent) throws Exception {
        Set<String> got = ConcurrentHashMap.newKeySet();
        Set<String> failed = ConcurrentHashMap.newKeySet();
        // It is not closed: that waits for the end of the requests that poll.
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup("pushing").setSubscriptionExpressions(subscription("normal", "*", FilterExpressionType.TAG))
            .setMessageListener(message -> {
                if (text(message).equals("m3") && message.getDeliveryAttempt() == 1) {
                    failed.add(text(message));
                    return ConsumeResult.FAILURE;
                }
                if (text(message).equals("m3")) {
                    failed.add("again " + message.getDeliveryAttempt());
                }
                got.add(message.getMessageId().toString());
                return ConsumeResult.SUCCESS;
            }).build();
        await(() -> got.size() == sent.size());
        say("push consumer", got.equals(sent) + " " + new TreeSet<>(failed));
    }

    private static SimpleConsumer simpleConsumer(
        ClientConfiguration configuration, String group, Map<String, FilterExpression> subscription) throws Exception {
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(3)).setSubscriptionExpressions(subscription).build();
    }

    private static void simple(ClientConfiguration configuration, Producer producer) throws Exception {
        for (String[] each : new String[][] {{"tags", "t1", "TAG"}, {"properties", "n > 16", "SQL92"}}) {
            FilterExpressionType type = FilterExpressionType.valueOf(each[2]);
            int count = each[0].equals("tags") ? 10 : 3;
            try (SimpleConsumer consumer = simpleConsumer(configuration, each[0], subscription("normal", each[1], type))) {
                Set<String> bodies = new TreeSet<>();
                long end = System.currentTimeMillis() + 60_000;
                while (bodies.size() < count && System.currentTimeMillis() < end) {
                    for (MessageView message : consumer.receive(16, INVISIBLE)) {
                        bodies.add(text(message));
                        consumer.ack(message);
                    }
                }
                say(each[0], bodies);
            }
        }
        try (SimpleConsumer consumer = simpleConsumer(configuration, "tags", subscription("normal", "late", FilterExpressionType.TAG))) {
            producer.send(message("normal", "once more").setTag("late").build());
            MessageView first = next(consumer);
            consumer.changeInvisibleDuration(first, Duration.ofSeconds(10));
            MessageView second = next(consumer);
            say("changed", text(second) + ", attempt " + second.getDeliveryAttempt());
            consumer.ack(second);
        }
    }

    private static MessageView next(SimpleConsumer consumer) throws Exception {
        long end = System.currentTimeMillis() + 60_000;
        while (System.currentTimeMillis() < end) {
            List<MessageView> got = consumer.receive(1, INVISIBLE);
            if (!got.isEmpty()) {
                return got.get(0);
            }
        }
        throw new IllegalStateException("no message came");
    }

    private static void fifo(ClientConfiguration configuration, Producer producer) throws Exception {
        ConcurrentLinkedQueue<String> order = new ConcurrentLinkedQueue<>();
        for (int i = 0; i < 20; i++) {
            producer.send(message("ordered", "" + i).setMessageGroup("one").build());
        }
        // It is not closed: that waits for the end of the requests that poll.
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup("ordering").setSubscriptionExpressions(subscription("ordered", "*", FilterExpressionType.TAG))
            .setMessageListener(message -> {
                order.add(text(message));
                return ConsumeResult.SUCCESS;
            }).build();
        await(() -> order.size() >= 20);
        say("ordered", order);
    }
}
