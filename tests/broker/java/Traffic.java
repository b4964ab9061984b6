package lakelog.broker;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends and consumes in every way of the remoting client, and prints one line of JSON for each
 * scenario: its name and an outcome that does not depend on times and ports. Arguments: name
 * server, prefix of the topics, and optionally the only
 * scenario to run.
 */
public final class Traffic {
    private static final int PATIENCE_MS = 40_000;
    private static String server;
    private static String prefix;
    private static DefaultMQProducer producer;
    private static String only;

    private Traffic() {
    }

    private interface Scenario {
        Object run(String topic) throws Exception;
    }

    private static void run(String name, Scenario scenario) {
        if (only != null && !only.equals(name)) {
            return;
        }
        String outcome;
        try {
            outcome = String.valueOf(scenario.run(prefix + name));
        } catch (MQBrokerException error) {
            outcome = "broker error " + error.getResponseCode();
        } catch (Throwable error) {
            outcome = error.toString();
        }
        System.out.printf("{\"scenario\":\"%s\",\"outcome\":\"%s\"}%n", name,
                outcome.replaceAll("[\\\\\"\\n\\t]", " "));
        System.out.flush();
    }

    private static boolean await(Callable<Boolean> isSo) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (System.currentTimeMillis() < end) {
            if (isSo.call()) {
                return true;
            }
            Thread.sleep(5);
        }
        return isSo.call();
    }

    private static Message message(String topic, String tag, String body) {
        return new Message(topic, tag, "key-" + body, body.getBytes(StandardCharsets.UTF_8));
    }

    private static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static DefaultMQPushConsumer push(String group) {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(group);
        made.setNamesrvAddr(server);
        made.setInstanceName(group + System.nanoTime());
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        made.setPollNameServerInterval(500);
        made.setHeartbeatBrokerInterval(500);
        return made;
    }

    private static DefaultMQPushConsumer collecting(String group, String topic, String tags,
            Collection<String> got) throws Exception {
        DefaultMQPushConsumer made = push(group);
        made.subscribe(topic, tags);
        return started(made, got);
    }

    private static DefaultMQPushConsumer started(DefaultMQPushConsumer made,
            Collection<String> got) throws Exception {
        made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                got.add(body(each));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        made.start();
        return made;
    }

    private static List<String> bodies(String kind, int count) {
        List<String> made = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            made.add(String.format("%s-%03d", kind, i));
        }
        return made;
    }

    private static String missing(Collection<String> wanted, Collection<String> got) {
        Set<String> lost = new TreeSet<>(wanted);
        lost.removeAll(got);
        Set<String> more = new TreeSet<>(got);
        more.removeAll(wanted);
        return wanted.size() + " sent, lost " + lost + ", more " + more;
    }

    private static void sendAll(String topic, String tag, Collection<String> bodies)
            throws Exception {
        for (String each : bodies) {
            SendResult result = producer.send(message(topic, tag, each));
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException(result.toString());
            }
        }
    }

    private static Object sends(String topic) throws Exception {
        Set<String> sent = ConcurrentHashMap.newKeySet();
        List<String> sync = bodies("sync ä", 40);
        sendAll(topic, "S", sync);
        sent.addAll(sync);
        for (String each : bodies("one-way", 40)) {
            producer.sendOneway(message(topic, "O", each));
            sent.add(each);
        }
        CountDownLatch latch = new CountDownLatch(40);
        for (String each : bodies("async", 40)) {
            producer.send(message(topic, "A", each), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent.add(each);
                    latch.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    latch.countDown();
                }
            });
        }
        latch.await();
        List<Message> batch = new ArrayList<>();
        for (String each : bodies("batch", 20)) {
            batch.add(message(topic, "B", each));
            sent.add(each);
        }
        SendResult result = producer.send(batch);
        byte[] large = new byte[200_000];
        Arrays.fill(large, (byte) 'x');
        producer.send(new Message(topic, large));
        sent.add(new String(large, StandardCharsets.US_ASCII));
        List<String> got = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = collecting(topic + "_c", topic, "*", got);
        await(() -> got.containsAll(sent));
        consumer.shutdown();
        return missing(sent, got) + ", handed out " + got.size() + ", ids of a batch "
                + result.getMsgId().split(",").length + " " + result.getOffsetMsgId().split(",").length;
    }

    private static Object members(String topic) throws Exception {
        Set<String> one = ConcurrentHashMap.newKeySet();
        Set<String> other = ConcurrentHashMap.newKeySet();
        sendAll(topic, "T", bodies("before", 1));
        DefaultMQPushConsumer first = collecting(topic + "_c", topic, "*", one);
        await(() -> one.size() == 1);
        DefaultMQPushConsumer second = collecting(topic + "_c", topic, "*", other);
        List<String> sent = new ArrayList<>();
        boolean shared = await(() -> {
            List<String> more = bodies("round " + sent.size(), 8);
            sendAll(topic, "T", more);
            sent.addAll(more);
            await(() -> one.size() + other.size() > sent.size());
            return !other.isEmpty();
        });
        first.shutdown();
        List<String> last = bodies("last", 16);
        sendAll(topic, "T", last);
        boolean taken = await(() -> other.containsAll(last));
        second.shutdown();
        return "shared " + shared + ", taken over " + taken;
    }

    private static Object orderly(String topic) throws Exception {
        Map<Integer, List<Integer>> got = new ConcurrentHashMap<>();
        AtomicInteger count = new AtomicInteger();
        for (int i = 0; i < 120; i++) {
            producer.send(message(topic, "T" + i % 3, "" + i),
                    (queues, each, number) -> queues.get((Integer) number % 4), i);
        }
        DefaultMQPushConsumer consumer = push(topic + "_c");
        consumer.subscribe(topic, "T0 || T1");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt each : messages) {
                got.computeIfAbsent(each.getQueueId(), key ->
                        Collections.synchronizedList(new ArrayList<>()))
                        .add(Integer.parseInt(body(each)));
                count.incrementAndGet();
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        await(() -> count.get() >= 80);
        consumer.shutdown();
        return new TreeMap<>(got);
    }

    private static Object broadcast(String topic) throws Exception {
        List<String> sent = bodies("all", 20);
        sendAll(topic, "T", bodies("warm", 1));
        List<Set<String>> got = new ArrayList<>();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            got.add(ConcurrentHashMap.newKeySet());
            DefaultMQPushConsumer made = push(topic + "_c");
            made.setMessageModel(org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel.BROADCASTING);
            made.subscribe(topic, "*");
            consumers.add(started(made, got.get(i)));
        }
        sendAll(topic, "T", sent);
        await(() -> got.get(0).containsAll(sent) && got.get(1).containsAll(sent));
        consumers.forEach(DefaultMQPushConsumer::shutdown);
        return got.get(0).containsAll(sent) + " " + got.get(1).containsAll(sent);
    }

    private static Object litePull(String topic) throws Exception {
        List<String> sent = bodies("lite", 50);
        sendAll(topic, "T", sent);
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(topic + "_c");
        consumer.setNamesrvAddr(server);
        consumer.setInstanceName(topic);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.start();
        Set<String> got = new TreeSet<>();
        await(() -> {
            consumer.poll(200).forEach(each -> got.add(body(each)));
            return got.containsAll(sent);
        });
        consumer.commitSync();
        consumer.shutdown();
        DefaultLitePullConsumer assigned = new DefaultLitePullConsumer(topic + "_a");
        assigned.setNamesrvAddr(server);
        assigned.setInstanceName(topic + "a");
        assigned.start();
        Collection<MessageQueue> queues = assigned.fetchMessageQueues(topic);
        assigned.assign(queues);
        for (MessageQueue each : queues) {
            assigned.seekToBegin(each);
        }
        Set<String> again = new TreeSet<>();
        await(() -> {
            assigned.poll(200).forEach(each -> again.add(body(each)));
            return again.containsAll(sent);
        });
        assigned.shutdown();
        return missing(sent, got) + "; assigned: " + missing(sent, again);
    }

    private static Object pull(String topic) throws Exception {
        sendAll(topic, "T", bodies("warm", 1));
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(topic + "_c");
        consumer.setNamesrvAddr(server);
        consumer.setInstanceName(topic);
        consumer.start();
        List<Object> found = new ArrayList<>();
        MessageQueue queue = producer.fetchPublishMessageQueues(topic).stream()
                .filter(each -> each.getQueueId() == 0).findFirst().get();
        for (String each : bodies("pull", 5)) {
            producer.send(message(topic, each.endsWith("3") ? "Other" : "T", each), queue);
        }
        long end = producer.maxOffset(queue);
        for (long offset : new long[] {0, 2, end, end + 1, end + 100, -1}) {
            PullResult result = consumer.pull(queue, "T", offset, 2);
            List<String> got = new ArrayList<>();
            if (result.getMsgFoundList() != null) {
                result.getMsgFoundList().forEach(each -> got.add(body(each)));
            }
            found.add(offset - end + ": " + result.getPullStatus() + " " + got + " "
                    + (result.getNextBeginOffset() - end) + " " + result.getMinOffset());
        }
        found.add(consumer.pull(queue, "None", 0, 2).getPullStatus());
        consumer.shutdown();
        // The first message went to a queue of the client's choice.
        return String.valueOf(found).replace("warm-000, ", "").replaceAll(" -6| -5", " first");
    }

    private static Object tags(String topic) throws Exception {
        for (int i = 0; i < 60; i++) {
            producer.send(message(topic, "T" + i % 3, String.format("%02d", i)));
        }
        Set<String> got = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = collecting(topic + "_c", topic, "T0 || T2", got);
        await(() -> got.size() >= 40);
        consumer.shutdown();
        return new TreeSet<>(got);
    }

    private static Object filters(String topic) throws Exception {
        for (int i = 0; i < 40; i++) {
            Message each = message(topic, "T", String.format("%02d", i));
            each.putUserProperty("a", "" + i);
            each.putUserProperty("region", i % 2 == 0 ? "eu" : "us");
            producer.send(each);
        }
        Set<String> got = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = push(topic + "_c");
        consumer.subscribe(topic, MessageSelector.bySql("a > 9 AND region = 'eu'"));
        started(consumer, got);
        await(() -> got.size() >= 15);
        consumer.shutdown();
        String refused = "accepted";
        DefaultMQPushConsumer wrong = push(topic + "_w");
        try {
            wrong.subscribe(topic, MessageSelector.bySql("a > > 9"));
            started(wrong, got);
        } catch (MQClientException error) {
            refused = "code " + error.getResponseCode();
        }
        wrong.shutdown();
        return new TreeSet<>(got) + " " + refused;
    }

    private static Object retries(String topic) throws Exception {
        sendAll(topic, "T", bodies("again", 1));
        List<String> tries = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = push(topic + "_c");
        consumer.subscribe(topic, "*");
        consumer.setMaxReconsumeTimes(2);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt each = messages.get(0);
            tries.add(each.getReconsumeTimes() + " " + each.getTopic().equals(topic));
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        await(() -> tries.size() >= 3);
        List<String> dead = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer letters = push(topic + "_d");
        letters.subscribe("%DLQ%" + topic + "_c", "*");
        letters.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                dead.add(body(each) + " " + each.getReconsumeTimes() + " "
                        + each.getProperty("RETRY_TOPIC").equals(topic) + " "
                        + (each.getProperty("ORIGIN_MESSAGE_ID") != null));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        letters.start();
        await(() -> !dead.isEmpty());
        consumer.shutdown();
        letters.shutdown();
        return tries + " " + dead;
    }

    private static Object lookUps(String topic) throws Exception {
        long before = System.currentTimeMillis();
        SendResult sent = producer.send(message(topic, "T", "found"));
        List<Object> found = new ArrayList<>();
        MessageQueue queue = sent.getMessageQueue();
        await(() -> producer.maxOffset(queue) == sent.getQueueOffset() + 1);
        await(() -> {
            try {
                return producer.queryMessage(topic, "key-found", 9, 0, before + 60_000)
                        .getMessageList().size() == 1;
            } catch (MQClientException error) {
                return false; // not in the index yet
            }
        });
        QueryResult result = producer.queryMessage(topic, "key-found", 9, 0, before + 60_000);
        found.add(body(result.getMessageList().get(0)));
        found.add(body(producer.viewMessage(topic, sent.getOffsetMsgId())));
        found.add(body(producer.viewMessage(topic, sent.getMsgId())));
        found.add(producer.minOffset(queue) + " " + producer.maxOffset(queue));
        found.add(producer.searchOffset(queue, 0));
        found.add(producer.searchOffset(queue, before + 3_600_000));
        found.add(producer.earliestMsgStoreTime(queue) >= before);
        try {
            producer.queryMessage(topic, "absent", 9, 0, before + 60_000);
            found.add("found");
        } catch (MQClientException error) {
            found.add("code " + error.getResponseCode());
        }
        return found;
    }

    private static Object refusals(String topic) throws Exception {
        List<Object> found = new ArrayList<>();
        for (String each : new String[] {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC",
            "rmq_sys_wheel_timer", "%RETRY%nobody", "bad topic!", topic + "/x"}) {
            try {
                producer.send(message(each, "T", "refused"));
                found.add(each.replace(topic, "") + " accepted");
            } catch (MQBrokerException error) {
                found.add(each.replace(topic, "") + " broker " + error.getResponseCode());
            } catch (MQClientException error) {
                found.add(each.replace(topic, "") + " client");
            }
        }
        try {
            producer.send(message(topic, "T", "warm"));
            Message large = new Message(topic, new byte[5 << 20]);
            producer.setMaxMessageSize(16 << 20);
            producer.send(large);
            found.add("large accepted");
        } catch (MQBrokerException error) {
            found.add("large: broker " + error.getResponseCode());
        }
        try {
            MessageQueue beyond = new MessageQueue(topic, producer.fetchPublishMessageQueues(topic)
                    .get(0).getBrokerName(), 99);
            producer.send(message(topic, "T", "beyond"), beyond);
            found.add("queue 99 accepted");
        } catch (MQBrokerException error) {
            found.add("queue 99: broker " + error.getResponseCode());
        }
        return found;
    }

    private static Object goesOn(String topic) throws Exception {
        sendAll(topic, "T", bodies("first", 8));
        Set<String> one = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer first = collecting(topic + "_c", topic, "*", one);
        await(() -> one.size() == 8);
        first.shutdown();
        sendAll(topic, "T", bodies("second", 8));
        List<String> two = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer second = collecting(topic + "_c", topic, "*", two);
        await(() -> two.size() >= 8);
        second.shutdown();
        return new TreeSet<>(two);
    }

    public static void main(String[] args) throws Exception {
        server = args[0];
        prefix = args[1];
        only = args.length > 2 ? args[2] : null;
        producer = new DefaultMQProducer(prefix + "_producers");
        producer.setNamesrvAddr(server);
        producer.setSendMsgTimeout(10_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setPollNameServerInterval(500);
        producer.start();
        await(() -> {
            try {
                return producer.send(message(prefix + "Ready", "T", "x")) != null;
            } catch (MQClientException | MQBrokerException error) {
                return false; // the broker registers soon
            }
        });
        run("sends", Traffic::sends);
        run("members", Traffic::members);
        run("orderly", Traffic::orderly);
        run("broadcast", Traffic::broadcast);
        run("litePull", Traffic::litePull);
        run("pull", Traffic::pull);
        run("tags", Traffic::tags);
        run("filters", Traffic::filters);
        run("retries", Traffic::retries);
        run("lookUps", Traffic::lookUps);
        run("goesOn", Traffic::goesOn);
        run("refusals", Traffic::refusals);
        System.exit(0);
    }
}
