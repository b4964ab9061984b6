package lakelog.features;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * GrpcFeatures ENDPOINT: prints "= FEATURE: yes", or what happened instead. Consumers are not closed: that waits for
 * the end of the requests that poll.
 */
public final class GrpcFeatures {
    private static final int PATIENCE_S = 60;
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Set<String> CHECKED = Collections.synchronizedSet(new TreeSet<>());
    private static ClientConfiguration configuration;
    private static Producer producer;

    private GrpcFeatures() {
    }

    /** Returns what should be, and what is. */
    private interface Feature {
        Object[] run() throws Exception;
    }

    private static void feature(String name, Feature work) {
        String said;
        try {
            Object[] pair = work.run();
            said = pair[0].equals(pair[1]) ? "yes" : "not " + pair[0] + ", but " + pair[1];
        } catch (Throwable error) {
            said = String.valueOf(error).replace('\n', ' ');
        }
        System.out.println("= " + name + ": " + said);
        System.out.flush();
    }

    private static Object[] pair(Object expected, Object found) {
        return new Object[] {expected, found};
    }

    private static Set<String> set(String... texts) {
        return new TreeSet<>(Arrays.asList(texts));
    }

    private static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static String body(MessageView message) {
        return StandardCharsets.UTF_8.decode(message.getBody()).toString();
    }

    private static BlockingQueue<String> into(String group, String topic, FilterExpression filter, MessageListener before)
            throws Exception {
        BlockingQueue<String> got = new LinkedBlockingQueue<>();
        PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setSubscriptionExpressions(Collections.singletonMap(topic, filter)).setMessageListener(each -> {
                ConsumeResult result = before == null ? ConsumeResult.SUCCESS : before.consume(each);
                if (result == ConsumeResult.SUCCESS) {
                    got.add(body(each));
                }
                return result;
            }).build();
        return got;
    }

    private static BlockingQueue<String> tagged(String group, String topic, String tag) throws Exception {
        return into(group, topic, new FilterExpression(tag, FilterExpressionType.TAG), null);
    }

    private static Set<String> until(BlockingQueue<String> got, String... last) throws Exception {
        Set<String> found = new TreeSet<>();
        while (!found.containsAll(Arrays.asList(last))) {
            String each = got.poll(PATIENCE_S, TimeUnit.SECONDS);
            if (each == null) {
                found.add("(no more)");
                break;
            }
            found.add(each);
        }
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        configuration = ClientConfiguration.newBuilder().setEndpoints(arguments[0])
            .setRequestTimeout(Duration.ofSeconds(10)).enableSsl(false).build();
        producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics("normal", "ordered", "delayed", "half", "jobs", "chats")
            .setTransactionChecker(half -> {
                CHECKED.add(body(half));
                return body(half).equals("open-yes") ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
            }).build();
        filters();
        later();
        fails();
        newer();
        System.out.println("= end: reached");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void filters() {
        feature("send", () -> {
            producer.send(message("normal", "one").setTag("sends").build());
            producer.sendAsync(message("normal", "two").setTag("sends").build()).get(PATIENCE_S, TimeUnit.SECONDS);
            return pair(set("one", "two"), until(tagged("sending", "normal", "sends"), "one", "two"));
        });
        feature("tags", () -> {
            for (int i = 4; i < 8; i++) {
                producer.send(message("normal", "m" + i).setTag("t" + i % 2).setKeys("k" + i).addProperty("n", "" + i).build());
            }
            return pair(set("m5", "m7"), until(tagged("tags", "normal", "t1||t3"), "m5", "m7"));
        });
        feature("SQL filters", () -> pair(set("m6", "m7"),
            until(into("sql", "normal", new FilterExpression("n > 5", FilterExpressionType.SQL92), null), "m6", "m7")));
        feature("orderly", () -> {
            List<String> expected = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                producer.send(message("ordered", "" + i).setMessageGroup("one").build());
                expected.add("" + i);
            }
            BlockingQueue<String> got = tagged("ordering", "ordered", "*");
            List<String> order = new ArrayList<>();
            for (String each; order.size() < 20 && (each = got.poll(PATIENCE_S, TimeUnit.SECONDS)) != null;) {
                order.add(each);
            }
            return pair(expected, order);
        });
        feature("pop", () -> {
            producer.send(message("normal", "popped").setTag("pops").build());
            try (SimpleConsumer consumer = simple("popping", "normal", "pops")) {
                MessageView first = next(consumer);
                consumer.changeInvisibleDuration(first, Duration.ofSeconds(10));
                MessageView second = next(consumer);
                consumer.ack(second);
                return pair("popped 2", body(second) + " " + second.getDeliveryAttempt());
            }
        });
    }

    private static SimpleConsumer simple(String group, String topic, String tag) throws Exception {
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(3)).setSubscriptionExpressions(
                Collections.singletonMap(topic, new FilterExpression(tag, FilterExpressionType.TAG))).build();
    }

    private static MessageView next(SimpleConsumer consumer) throws Exception {
        for (long end = System.currentTimeMillis() + PATIENCE_S * 1000; System.currentTimeMillis() < end;) {
            List<MessageView> got = consumer.receive(1, Duration.ofSeconds(30));
            if (!got.isEmpty()) {
                return got.get(0);
            }
        }
        throw new IllegalStateException("no message came");
    }

    private static void later() {
        feature("timed", () -> {
            long due = System.currentTimeMillis() + 2_000;
            producer.send(message("delayed", "late").setTag("times").setDeliveryTimestamp(due).build());
            Set<String> found = until(tagged("delaying", "delayed", "times"), "late");
            return pair(set("late") + ", early false", found + ", early " + (System.currentTimeMillis() < due - 1_000));
        });
        feature("recall", () -> {
            long due = System.currentTimeMillis() + 4_000;
            SendReceipt sent = producer.send(message("delayed", "recalled").setTag("recalls").setDeliveryTimestamp(due).build());
            producer.recallMessage("delayed", sent.getRecallHandle());
            producer.send(message("delayed", "last").setTag("recalls").setDeliveryTimestamp(due + 1_500).build());
            return pair(set("last"), until(tagged("recalling", "delayed", "recalls"), "last"));
        });
        feature("transactions", () -> {
            for (String each : new String[] {"committed", "rolled", "open-no", "open-yes"}) {
                Transaction transaction = producer.beginTransaction();
                producer.send(message("half", each).build(), transaction);
                if (each.equals("committed")) {
                    transaction.commit();
                } else if (each.equals("rolled")) {
                    transaction.rollback();
                }
            }
            Set<String> found = until(tagged("halves", "half", "*"), "committed", "open-yes");
            return pair(set("committed", "open-yes") + " true", found + " " + CHECKED.contains("open-yes"));
        });
    }

    private static void fails() {
        feature("retries", () -> {
            List<Integer> attempts = Collections.synchronizedList(new ArrayList<>());
            producer.send(message("normal", "again").setTag("retries").build());
            BlockingQueue<String> got = into("retrying", "normal", new FilterExpression("retries", FilterExpressionType.TAG), each -> {
                attempts.add(each.getDeliveryAttempt());
                return attempts.size() < 2 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            });
            return pair(set("again") + " [1, 2]", until(got, "again") + " " + attempts);
        });
        feature("dead letters", () -> {
            producer.send(message("ordered", "dead").setTag("deaths").setMessageGroup("g").build());
            into("dying", "ordered", new FilterExpression("deaths", FilterExpressionType.TAG), each -> ConsumeResult.FAILURE);
            return pair(set("dead"), until(tagged("burying", "%DLQ%dying", "*"), "dead"));
        });
    }

    private static void newer() {
        feature("priority", () -> {
            for (int i = 0; i < 4; i++) {
                producer.send(message("jobs", "p" + i).setPriority(i).build());
            }
            List<String> order = new ArrayList<>();
            try (SimpleConsumer consumer = simple("working", "jobs", "*")) {
                while (order.size() < 4) {
                    MessageView each = next(consumer);
                    order.add(body(each));
                    consumer.ack(each);
                }
            }
            return pair("[p3, p2, p1, p0]", order.toString());
        });
        feature("Lite topics", () -> {
            BlockingQueue<String> got = new LinkedBlockingQueue<>();
            LitePushConsumer consumer = PROVIDER.newLitePushConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup("chatting").bindTopic("chats").setMessageListener(each -> {
                    got.add(each.getLiteTopic().orElse("none") + " " + body(each));
                    return ConsumeResult.SUCCESS;
                }).build();
            consumer.subscribeLite("ann");
            for (String each : new String[] {"bob", "ann"}) {
                producer.send(message("chats", "to " + each).setLiteTopic(each).build());
            }
            Set<String> found = until(got, "ann to ann");
            consumer.subscribeLite("bob");
            consumer.unsubscribeLite("ann");
            producer.send(message("chats", "late").setLiteTopic("ann").build());
            found.addAll(until(got, "bob to bob"));
            return pair(set("ann to ann", "bob to bob"), found);
        });
    }
}
