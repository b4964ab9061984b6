package lakelog.features;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * RemotingFeatures NAMESERVER: prints "= FEATURE: yes", or what happened instead; no line for a feature that this
 * version of the client lacks. It is compiled with each version.
 */
public final class RemotingFeatures {
    private static final int PATIENCE_S = 60;
    private static String server;
    private static DefaultMQProducer producer;
    private static int instances;

    private RemotingFeatures() {
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
        } catch (NoSuchMethodException absent) {
            return;
        } catch (Throwable error) {
            said = String.valueOf(error).replace('\n', ' ');
        }
        System.out.println("= " + name + ": " + said);
        System.out.flush();
    }

    private static Object[] pair(Object expected, Object found) {
        return new Object[] {expected, found};
    }

    private static Message message(String topic, String tag, String body) {
        return new Message(topic, tag, "key-" + body, body.getBytes(StandardCharsets.UTF_8));
    }

    private static String body(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static Set<String> set(String... texts) {
        return new TreeSet<>(Arrays.asList(texts));
    }

    private static void make(String topic) throws Exception {
        producer.send(message(topic, "first", "first")); // the topic exists before a consumer starts
    }

    private static DefaultMQPushConsumer consumer(String topic) throws Exception {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(topic + "-readers");
        made.setNamesrvAddr(server);
        made.setInstanceName("i" + instances++);
        made.setPollNameServerInterval(500);
        made.setHeartbeatBrokerInterval(500);
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return made;
    }

    private static BlockingQueue<MessageExt> into(DefaultMQPushConsumer consumer) throws Exception {
        BlockingQueue<MessageExt> got = new LinkedBlockingQueue<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            got.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return got;
    }

    /** Bodies until the last one comes; the one that made the topic is left out. */
    private static Set<String> until(BlockingQueue<MessageExt> got, String... last) throws Exception {
        Set<String> found = new TreeSet<>();
        for (MessageExt each; !found.containsAll(Arrays.asList(last));) {
            each = got.poll(PATIENCE_S, TimeUnit.SECONDS);
            if (each == null) {
                found.add("(no more)");
                break;
            }
            if (!body(each).equals("first")) {
                found.add(body(each));
            }
        }
        return found;
    }

    private static Object[] selected(String topic, MessageSelector selector) throws Exception {
        for (int i = 0; i < 8; i++) {
            Message made = message(topic, "t" + i % 2, "m" + i);
            made.putUserProperty("n", "" + i);
            producer.send(made);
        }
        DefaultMQPushConsumer consumer = consumer(topic);
        consumer.subscribe(topic, selector);
        BlockingQueue<MessageExt> got = into(consumer);
        Set<String> found = until(got, "m5", "m7");
        consumer.shutdown();
        return pair(set("m5", "m7"), found);
    }

    private static Object[] delayed(String topic, Message made, long leastMs) throws Exception {
        make(topic);
        DefaultMQPushConsumer consumer = consumer(topic);
        consumer.subscribe(topic, "*");
        BlockingQueue<MessageExt> got = into(consumer);
        long begun = System.currentTimeMillis();
        producer.send(made);
        Set<String> found = until(got, body(made));
        boolean isEarly = System.currentTimeMillis() < begun + leastMs;
        consumer.shutdown();
        return pair(set(body(made)) + ", early false", found + ", early " + isEarly);
    }

    private static Object call(Object target, String name, Class<?> kind, Object value) throws Exception {
        return target.getClass().getMethod(name, kind).invoke(target, value);
    }

    public static void main(String[] arguments) throws Exception {
        server = arguments[0];
        producer = new DefaultMQProducer("senders");
        producer.setNamesrvAddr(server);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        sends();
        consumes();
        later();
        fails();
        newer(Arrays.asList(arguments).subList(1, arguments.length));
        System.out.println("= end: reached");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void sends() {
        feature("send", () -> {
            SendResult sent = producer.send(message("Sends", "t", "one"));
            CountDownLatch done = new CountDownLatch(1);
            producer.send(message("Sends", "t", "two"), new org.apache.rocketmq.client.producer.SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    done.countDown();
                }

                @Override
                public void onException(Throwable error) {
                }
            });
            producer.sendOneway(message("Sends", "t", "three"));
            DefaultMQPushConsumer consumer = consumer("Sends");
            consumer.subscribe("Sends", "*");
            Set<String> found = until(into(consumer), "one", "two", "three");
            consumer.shutdown();
            return pair(SendStatus.SEND_OK + " true " + set("one", "two", "three"),
                    sent.getSendStatus() + " " + done.await(PATIENCE_S, TimeUnit.SECONDS) + " " + found);
        });
        feature("batch", () -> {
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                batch.add(message("Batches", "t", "b" + i));
            }
            producer.send(batch);
            DefaultMQPushConsumer consumer = consumer("Batches");
            consumer.subscribe("Batches", "*");
            Set<String> found = until(into(consumer), "b0", "b1", "b2");
            consumer.shutdown();
            return pair(set("b0", "b1", "b2"), found);
        });
        feature("keys", () -> {
            producer.send(message("Keys", "t", "look"));
            for (long end = System.currentTimeMillis() + PATIENCE_S * 1000; System.currentTimeMillis() < end;) {
                try {
                    return pair("look", body(producer.queryMessage("Keys", "key-look", 8, 0, Long.MAX_VALUE).getMessageList().get(0)));
                } catch (org.apache.rocketmq.client.exception.MQClientException absent) {
                    Thread.sleep(50); // not in the index yet
                }
            }
            return pair("look", "nothing");
        });
    }

    private static void consumes() {
        feature("tags", () -> {
            producer.send(message("Tags", "t2", "m0"));
            for (int i = 5; i < 9; i++) {
                producer.send(message("Tags", "t" + i % 2, "m" + i));
            }
            DefaultMQPushConsumer consumer = consumer("Tags");
            consumer.subscribe("Tags", "t1 || t3");
            Set<String> found = until(into(consumer), "m5", "m7");
            consumer.shutdown();
            return pair(set("m5", "m7"), found);
        });
        feature("SQL filters", () -> selected("Sql", MessageSelector.bySql("n > 4 AND TAGS = 't1'")));
        feature("orderly", () -> {
            List<String> order = Collections.synchronizedList(new ArrayList<>());
            List<String> expected = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                producer.send(message("Orders", "t", "" + i), (queues, sent, key) -> queues.get(0), null);
                expected.add("" + i);
            }
            CountDownLatch all = new CountDownLatch(20);
            DefaultMQPushConsumer consumer = consumer("Orders");
            consumer.subscribe("Orders", "*");
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                for (MessageExt each : messages) {
                    order.add(body(each));
                    all.countDown();
                }
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
            all.await(PATIENCE_S, TimeUnit.SECONDS);
            consumer.shutdown();
            return pair(expected, order);
        });
        feature("broadcast", () -> {
            make("News");
            List<BlockingQueue<MessageExt>> got = new ArrayList<>();
            for (int i = 0; i < 2; i++) {
                DefaultMQPushConsumer consumer = consumer("News");
                for (java.lang.reflect.Method each : consumer.getClass().getMethods()) {
                    if (each.getName().equals("setMessageModel")) { // its package changed in 5.0
                        each.invoke(consumer, each.getParameterTypes()[0].getField("BROADCASTING").get(null));
                    }
                }
                consumer.subscribe("News", "*");
                got.add(into(consumer));
            }
            producer.send(message("News", "t", "n"));
            return pair(set("n") + " " + set("n"), until(got.get(0), "n") + " " + until(got.get(1), "n"));
        });
        feature("request-reply", RemotingFeatures::requestReply);
    }

    private static Object[] requestReply() throws Exception {
        make("Questions");
        DefaultMQProducer replying = new DefaultMQProducer("replying");
        replying.setInstanceName("replying");
        replying.setNamesrvAddr(server);
        replying.start();
        DefaultMQPushConsumer consumer = consumer("Questions");
        consumer.subscribe("Questions", "asked");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                try {
                    replying.send(MessageUtil.createReplyMessage(each, ("re " + body(each)).getBytes()), 20_000);
                } catch (Exception error) { // the producer's heartbeat may still be under way
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        BlockingQueue<String> answers = new LinkedBlockingQueue<>();
        producer.request(message("Questions", "asked", "why"), (queues, sent, key) -> queues.get(0), null,
                new RequestCallback() {
                    @Override
                    public void onSuccess(Message reply) {
                        answers.add(body(reply));
                    }

                    @Override
                    public void onException(Throwable error) {
                        answers.add(String.valueOf(error));
                    }
                }, PATIENCE_S * 1000);
        Object found = answers.poll(PATIENCE_S, TimeUnit.SECONDS);
        consumer.shutdown();
        return pair("re why", String.valueOf(found));
    }

    private static void later() {
        feature("delayed", () -> {
            Message made = message("Levels", "t", "late");
            made.setDelayTimeLevel(1);
            return delayed("Levels", made, 1_000);
        });
        feature("timed", () -> {
            Message made = message("Times", "t", "due");
            call(made, "setDelayTimeMs", long.class, 1_500L);
            return delayed("Times", made, 1_500);
        });
        feature("recall", () -> {
            make("Recalls");
            Message made = message("Recalls", "t", "recalled");
            call(made, "setDelayTimeMs", long.class, 3_000L);
            SendResult sent = producer.send(made);
            Object handle = sent.getClass().getMethod("getRecallHandle").invoke(sent);
            producer.getClass().getMethod("recallMessage", String.class, String.class).invoke(producer, "Recalls", handle);
            Message last = message("Recalls", "t", "last");
            call(last, "setDelayTimeMs", long.class, 4_500L);
            producer.send(last);
            DefaultMQPushConsumer consumer = consumer("Recalls");
            consumer.subscribe("Recalls", "*");
            Set<String> found = until(into(consumer), "last");
            consumer.shutdown();
            return pair(set("last"), found);
        });
        feature("transactions", RemotingFeatures::transactions);
    }

    private static Object[] transactions() throws Exception {
        make("Halves");
        Set<String> checked = Collections.synchronizedSet(new TreeSet<>());
        TransactionMQProducer ending = new TransactionMQProducer("ending");
        ending.setNamesrvAddr(server);
        ending.setInstanceName("ending");
        ending.setHeartbeatBrokerInterval(500);
        ending.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message half, Object argument) {
                return (LocalTransactionState) argument;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt half) {
                checked.add(body(half));
                return body(half).equals("open-yes") ? LocalTransactionState.COMMIT_MESSAGE
                        : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        ending.start();
        ending.sendMessageInTransaction(message("Halves", "t", "committed"), LocalTransactionState.COMMIT_MESSAGE);
        ending.sendMessageInTransaction(message("Halves", "t", "rolled"), LocalTransactionState.ROLLBACK_MESSAGE);
        ending.sendMessageInTransaction(message("Halves", "t", "open-no"), LocalTransactionState.UNKNOW);
        ending.sendMessageInTransaction(message("Halves", "t", "open-yes"), LocalTransactionState.UNKNOW);
        DefaultMQPushConsumer consumer = consumer("Halves");
        consumer.subscribe("Halves", "*");
        Set<String> found = until(into(consumer), "committed", "open-yes");
        consumer.shutdown();
        ending.shutdown();
        return pair(set("committed", "open-yes") + " true", found + " " + checked.contains("open-yes"));
    }

    private static void fails() {
        feature("retries", () -> {
            ConcurrentLinkedQueue<Integer> times = new ConcurrentLinkedQueue<>();
            CountDownLatch done = new CountDownLatch(3);
            producer.send(message("Retries", "t", "again"));
            DefaultMQPushConsumer consumer = consumer("Retries");
            consumer.subscribe("Retries", "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                times.add(messages.get(0).getReconsumeTimes());
                done.countDown();
                context.setDelayLevelWhenNextConsume(1);
                return times.size() < 3 ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                        : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            done.await(PATIENCE_S, TimeUnit.SECONDS);
            consumer.shutdown();
            return pair("[0, 1, 2]", times.toString());
        });
        feature("dead letters", () -> {
            producer.send(message("Deaths", "t", "dead"));
            DefaultMQPushConsumer consumer = consumer("Deaths");
            consumer.setMaxReconsumeTimes(1);
            consumer.subscribe("Deaths", "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
            consumer.start();
            DefaultMQPushConsumer reader = consumer("Undertakers");
            reader.subscribe("%DLQ%Deaths-readers", "*");
            Set<String> found = until(into(reader), "dead");
            consumer.shutdown();
            reader.shutdown();
            return pair(set("dead"), found);
        });
    }

    /** Those of later versions. POPPED is a topic whose group pops. */
    private static void newer(List<String> popped) {
        feature("pop", () -> {
            DefaultMQPushConsumer consumer = consumer(popped.get(0));
            call(consumer, "setClientRebalance", boolean.class, false);
            make(popped.get(0));
            producer.send(message(popped.get(0), "t", "p"));
            consumer.subscribe(popped.get(0), "*");
            Set<String> found = until(into(consumer), "p");
            consumer.shutdown();
            return pair(set("p"), found);
        });
        feature("priority", () -> {
            Message made = message("Jobs", "t", "high");
            call(made, "setPriority", int.class, 3);
            int high = producer.send(made).getMessageQueue().getQueueId();
            Message other = message("Jobs", "t", "low");
            call(other, "setPriority", int.class, 0);
            return pair("3 0", high + " " + producer.send(other).getMessageQueue().getQueueId());
        });
    }
}
