package lakelog.broker;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
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
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/**
 * Produces and consumes in every way of the client, and prints a line of JSON with the outcome of each
 * scenario: its name and a text without ids and times. Argument: the name server.
 */
public final class Clients {
    private static final int PATIENCE_MS = 60_000;
    private static String server;
    private static DefaultMQProducer producer;
    private static int instances;

    private Clients() {
    }

    /** A part of the program. */
    private interface Scenario {
        Object run() throws Exception;
    }

    private static void scenario(String name, Scenario work) {
        String outcome;
        try {
            outcome = String.valueOf(work.run());
        } catch (Throwable error) {
            outcome = failure(error);
        }
        String text = outcome.replace("\\", "\\\\").replace("\"", "'").replace("\n", " ");
        System.out.printf("{\"scenario\":\"%s\",\"outcome\":\"%s\"}%n", name, text);
        System.out.flush();
    }

    private static String failure(Throwable error) {
        int code = error instanceof MQBrokerException ? ((MQBrokerException) error).getResponseCode()
                : error instanceof MQClientException ? ((MQClientException) error).getResponseCode() : 0;
        return error.getClass().getSimpleName() + " " + code;
    }

    private static boolean until(Callable<Boolean> isSo) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (!isSo.call()) {
            if (System.currentTimeMillis() > end) {
                throw new TimeoutException(); // which no outcome may be
            }
            Thread.sleep(5);
        }
        return true;
    }

    private static Message message(String topic, String tag, String key, String body) {
        return new Message(topic, tag, key, body.getBytes(StandardCharsets.UTF_8));
    }

    private static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static Set<String> bodies(String prefix, int count) {
        Set<String> all = new TreeSet<>();
        for (int i = 0; i < count; i++) {
            all.add(prefix + i);
        }
        return all;
    }

    private static void send(String topic, String tag, String prefix, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            producer.send(message(topic, tag, prefix + i, prefix + i));
        }
    }

    private static DefaultMQPushConsumer push(String group) {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(group);
        made.setNamesrvAddr(server);
        made.setInstanceName("i" + instances++);
        made.setHeartbeatBrokerInterval(1_000);
        made.setPollNameServerInterval(500);
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return made;
    }

    private static DefaultMQPushConsumer into(Collection<String> got, DefaultMQPushConsumer made) throws Exception {
        made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(each -> got.add(body(each)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        made.start();
        return made;
    }

    /** How many queues a consumer has. */
    private static int held(DefaultMQPushConsumer consumer) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().size();
    }

    public static void main(String[] args) {
        int code = 0;
        try {
            run(args[0]);
        } catch (Throwable error) {
            error.printStackTrace();
            code = 1;
        }
        Runtime.getRuntime().halt(code); // threads of clients would keep the process
    }

    private static void run(String names) throws Exception {
        server = names;
        producer = new DefaultMQProducer("clients");
        producer.setNamesrvAddr(server);
        producer.setSendMsgTimeout(10_000);
        producer.setPollNameServerInterval(500);
        producer.start();
        until(() -> {
            try {
                producer.send(message("Warm", "T", "k", "warm"));
                return true;
            } catch (MQClientException | MQBrokerException | RemotingException starting) {
                return false;
            }
        });
        sends();
        consumes();
        pulls();
        returns();
        lookUps();
    }

    private static void sends() throws Exception {
        scenario("sync", () -> {
            Set<String> ids = new HashSet<>();
            Map<String, Integer> statuses = new TreeMap<>();
            Map<Integer, List<Long>> offsets = new TreeMap<>();
            for (int i = 0; i < 40; i++) {
                SendResult sent = producer.send(message("Sends", "T", "k" + i, "sync " + i));
                ids.add(sent.getMsgId());
                statuses.merge(sent.getSendStatus() + " " + sent.getRegionId() + " " + sent.isTraceOn(), 1,
                        Integer::sum);
                offsets.computeIfAbsent(sent.getMessageQueue().getQueueId(), any -> new ArrayList<>())
                        .add(sent.getQueueOffset());
            }
            boolean contiguous = offsets.values().stream()
                    .allMatch(each -> each.get(0) == 0 && each.get(each.size() - 1) == each.size() - 1);
            return statuses + " ids " + ids.size() + " queues " + offsets.size() + " " + contiguous;
        });
        scenario("async", () -> {
            CountDownLatch left = new CountDownLatch(200);
            AtomicInteger failed = new AtomicInteger();
            for (int i = 0; i < 200; i++) {
                producer.send(message("Async", "T", "k" + i, "async " + i), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult sent) {
                        left.countDown();
                    }

                    @Override
                    public void onException(Throwable error) {
                        failed.incrementAndGet();
                        left.countDown();
                    }
                });
            }
            left.await(PATIENCE_MS, TimeUnit.MILLISECONDS);
            return left.getCount() + " left, failed " + failed;
        });
        scenario("one-way", () -> {
            Set<String> got = ConcurrentHashMap.newKeySet();
            DefaultMQPushConsumer consumer = push("OneWayGroup");
            producer.send(message("OneWay", "T", "k", "first"));
            for (int i = 0; i < 100; i++) {
                producer.sendOneway(message("OneWay", "T", "k" + i, "one-way " + i));
            }
            consumer.subscribe("OneWay", "*");
            into(got, consumer);
            boolean all = until(() -> got.size() == 101);
            consumer.shutdown();
            return all + " " + got.size();
        });
        scenario("batch", () -> {
            List<Message> all = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                all.add(message("Batches", "T", "b" + i, "batch " + i));
            }
            SendResult sent = producer.send(all);
            SendResult next = producer.send(all, sent.getMessageQueue());
            return sent.getSendStatus() + " " + sent.getMsgId().split(",").length + " "
                    + sent.getOffsetMsgId().split(",").length + " " + sent.getQueueOffset() + " " + next.getQueueOffset();
        });
        for (String topic : Arrays.asList("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC",
                "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "OFFSET_MOVED_EVENT",
                "%RETRY%nobody", "TBW102")) {
            scenario("send to " + topic, () -> producer.send(message(topic, "T", "k", "x")).getSendStatus());
        }
        scenario("compressed", () -> {
            char[] text = new char[20_000];
            Arrays.fill(text, 'z');
            SendResult sent = producer.send(message("Compressed", "T", "k", new String(text)));
            return producer.viewMessage("Compressed", sent.getOffsetMsgId()).getBody().length;
        });
        scenario("too large", () -> {
            producer.setMaxMessageSize(16 << 20);
            byte[] body = new byte[5 << 20];
            new java.util.Random(1).nextBytes(body);
            return producer.send(new Message("Large", "T", body)).getSendStatus();
        });
        scenario("long property", () -> {
            Message made = message("LongProperty", "T", "k", "x");
            made.putUserProperty("p", String.join("", Collections.nCopies(33_000, "p")));
            return producer.send(made).getSendStatus();
        });
    }

    private static void consumes() throws Exception {
        scenario("concurrently", () -> {
            Set<String> got = ConcurrentHashMap.newKeySet();
            DefaultMQPushConsumer consumer = push("SendsGroup");
            consumer.subscribe("Sends", "*");
            into(got, consumer);
            boolean all = until(() -> got.equals(bodies("sync ", 40)));
            consumer.shutdown();
            return all;
        });
        scenario("two members, one leaves", () -> {
            Set<String> one = ConcurrentHashMap.newKeySet();
            Set<String> two = ConcurrentHashMap.newKeySet();
            send("Shared", "T", "warm ", 1);
            DefaultMQPushConsumer first = push("SharedGroup");
            DefaultMQPushConsumer second = push("SharedGroup");
            first.subscribe("Shared", "*");
            second.subscribe("Shared", "*");
            into(one, first);
            into(two, second);
            int queues = producer.fetchPublishMessageQueues("Shared").size() + 1; // and one of the retry topic
            boolean balanced = until(() -> held(first) + held(second) == queues
                    && Math.min(held(first), held(second)) == queues / 2);
            send("Shared", "T", "both ", 64);
            Set<String> union = new HashSet<>();
            boolean all = until(() -> {
                union.addAll(one);
                union.addAll(two);
                return union.containsAll(bodies("both ", 64));
            });
            boolean shared = one.size() >= 20 && two.size() >= 20;
            second.shutdown();
            send("Shared", "T", "alone ", 64);
            boolean rest = until(() -> one.containsAll(bodies("alone ", 64)));
            first.shutdown();
            return balanced + " " + all + " " + shared + " " + rest;
        });
        scenario("orderly", () -> {
            Map<String, List<Integer>> got = new ConcurrentHashMap<>();
            AtomicInteger count = new AtomicInteger();
            for (int i = 0; i < 100; i++) {
                producer.send(message("Orderly", "T", "k", "" + i),
                        (queues, sent, key) -> queues.get((Integer) key % queues.size()), i % 3);
            }
            DefaultMQPushConsumer consumer = push("OrderlyGroup");
            consumer.subscribe("Orderly", "*");
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                for (MessageExt each : messages) {
                    if (each.getReconsumeTimes() == 0 && body(each).equals("50")) {
                        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                    }
                    got.computeIfAbsent("" + each.getQueueId(), any -> Collections.synchronizedList(new ArrayList<>()))
                            .add(Integer.parseInt(body(each)));
                    count.incrementAndGet();
                }
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
            boolean all = until(() -> count.get() >= 100);
            consumer.shutdown();
            boolean inOrder = got.values().stream().allMatch(each -> {
                List<Integer> sorted = new ArrayList<>(each);
                Collections.sort(sorted);
                return sorted.equals(each);
            });
            return all + " " + count + " " + inOrder + " " + got.size();
        });
        scenario("broadcast", () -> {
            List<Set<String>> got = new ArrayList<>();
            List<DefaultMQPushConsumer> members = new ArrayList<>();
            send("Broadcast", "T", "all ", 20);
            for (int i = 0; i < 2; i++) {
                DefaultMQPushConsumer consumer = push("BroadcastGroup");
                consumer.setMessageModel(MessageModel.BROADCASTING);
                consumer.subscribe("Broadcast", "*");
                got.add(ConcurrentHashMap.newKeySet());
                members.add(into(got.get(i), consumer));
            }
            boolean all = until(() -> got.stream().allMatch(each -> each.equals(bodies("all ", 20))));
            members.forEach(DefaultMQPushConsumer::shutdown);
            return all;
        });
        scenario("tags", () -> {
            for (int i = 0; i < 30; i++) {
                producer.send(message("Tags", "Tag" + i % 3, "k", "tag " + i));
            }
            ConcurrentLinkedQueue<String> got = new ConcurrentLinkedQueue<>();
            DefaultMQPushConsumer consumer = push("TagsGroup");
            consumer.subscribe("Tags", "Tag1 || Tag2");
            into(got, consumer);
            until(() -> got.size() >= 20);
            producer.send(message("Tags", "Tag0", "k", "no"));
            producer.send(message("Tags", "Tag1", "k", "last"));
            until(() -> got.contains("last"));
            consumer.shutdown();
            return new TreeSet<>(got);
        });
        scenario("SQL92", () -> {
            for (int i = 0; i < 30; i++) {
                Message made = message("Sql", "T" + i % 2, "k", "sql " + i);
                made.putUserProperty("number", "" + i);
                producer.send(made);
            }
            ConcurrentLinkedQueue<String> got = new ConcurrentLinkedQueue<>();
            DefaultMQPushConsumer consumer = push("SqlGroup");
            consumer.subscribe("Sql", MessageSelector.bySql("number BETWEEN 5 AND 24 AND TAGS = 'T1'"));
            into(got, consumer);
            until(() -> got.size() >= 10);
            Message made = message("Sql", "T1", "k", "last");
            made.putUserProperty("number", "6");
            producer.send(message("Sql", "T0", "k", "no"));
            producer.send(made);
            until(() -> got.contains("last"));
            consumer.shutdown();
            return new TreeSet<>(got);
        });
        scenario("wrong SQL92", () -> {
            DefaultMQPushConsumer consumer = push("WrongSqlGroup");
            consumer.subscribe("Sql", MessageSelector.bySql("number >> 5"));
            into(new HashSet<>(), consumer);
            return "started";
        });
    }

    private static String pulled(PullResult found) {
        return found.getPullStatus() + " " + (found.getMsgFoundList() == null ? 0 : found.getMsgFoundList().size()) + " "
                + found.getNextBeginOffset() + " " + found.getMinOffset() + " " + found.getMaxOffset();
    }

    @SuppressWarnings("deprecation")
    private static void pulls() throws Exception {
        List<Message> ten = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            ten.add(message("Pulls", "T" + i % 2, "k" + i, "pull " + i));
        }
        MessageQueue queue = producer.send(ten).getMessageQueue();
        DefaultMQPullConsumer classic = new DefaultMQPullConsumer("ClassicGroup");
        classic.setNamesrvAddr(server);
        classic.setInstanceName("classic");
        classic.start();
        scenario("classic queues", () -> classic.fetchSubscribeMessageQueues("Pulls").size());
        MessageQueue empty = new MessageQueue("Pulls", queue.getBrokerName(), (queue.getQueueId() + 1) % 4);
        MessageQueue absent = new MessageQueue("Pulls", queue.getBrokerName(), 99);
        for (long offset : new long[] {0, 3, 9, 10, 11, 50, -1}) {
            scenario("pull at " + offset, () -> pulled(classic.pull(queue, "*", offset, 4)));
            scenario("pull of an empty queue at " + offset, () -> pulled(classic.pull(empty, "*", offset, 4)));
        }
        scenario("pull of a tag", () -> pulled(classic.pull(queue, "T1", 0, 32)));
        scenario("pull of a tag that is not there", () -> pulled(classic.pull(queue, "nothing", 0, 32)));
        scenario("pull of an absent queue", () -> pulled(classic.pull(absent, "*", 0, 4)));
        scenario("offset of a new group", () -> classic.fetchConsumeOffset(queue, true));
        scenario("committed offset", () -> {
            classic.updateConsumeOffset(queue, 7);
            classic.getOffsetStore().persist(queue);
            until(() -> classic.fetchConsumeOffset(queue, true) == 7); // saved by a one-way request
            return classic.fetchConsumeOffset(queue, true);
        });
        scenario("lite assign", () -> {
            DefaultLitePullConsumer lite = new DefaultLitePullConsumer("LiteAssignGroup");
            lite.setNamesrvAddr(server);
            lite.setInstanceName("lite1");
            lite.start();
            lite.assign(Collections.singletonList(queue));
            Set<String> got = new TreeSet<>();
            until(() -> { // the client may lose a seek while a pull of it is under way
                lite.seek(queue, 6);
                got.clear();
                for (int i = 0; i < 20 && got.size() < 4; i++) {
                    lite.poll(200).forEach(each -> got.add(body(each)));
                }
                return got.size() == 4;
            });
            boolean committed = until(() -> {
                lite.commitSync();
                return lite.committed(queue) == 10;
            });
            lite.shutdown();
            return got + " " + committed;
        });
        scenario("lite subscribe", () -> {
            DefaultLitePullConsumer lite = new DefaultLitePullConsumer("LiteSubscribeGroup");
            lite.setNamesrvAddr(server);
            lite.setInstanceName("lite2");
            lite.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            lite.subscribe("Pulls", "T0");
            lite.start();
            Set<String> got = new TreeSet<>();
            until(() -> {
                lite.poll(200).forEach(each -> got.add(body(each)));
                return got.size() >= 5;
            });
            lite.shutdown();
            return got;
        });
        classic.shutdown();
    }

    private static void returns() throws Exception {
        scenario("retries", () -> {
            List<String> got = Collections.synchronizedList(new ArrayList<>());
            producer.send(message("Returned", "T", "k", "again"));
            DefaultMQPushConsumer consumer = push("ReturnedGroup");
            consumer.subscribe("Returned", "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                MessageExt each = messages.get(0);
                got.add(each.getTopic() + " " + each.getReconsumeTimes());
                context.setDelayLevelWhenNextConsume(1);
                return each.getReconsumeTimes() < 2 ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                        : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            until(() -> got.size() >= 3);
            consumer.shutdown();
            return got;
        });
        scenario("dead letters", () -> {
            AtomicInteger tries = new AtomicInteger();
            producer.send(message("Dead", "T", "k", "dead"));
            DefaultMQPushConsumer consumer = push("DeadGroup");
            consumer.setMaxReconsumeTimes(1);
            consumer.subscribe("Dead", "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                tries.incrementAndGet();
                context.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
            consumer.start();
            DefaultMQPullConsumer reader = new DefaultMQPullConsumer("DeadReaders");
            reader.setNamesrvAddr(server);
            reader.setInstanceName("dead");
            reader.start();
            List<String> found = new ArrayList<>();
            MessageQueue queue = new MessageQueue("%DLQ%DeadGroup",
                    producer.fetchPublishMessageQueues("Dead").get(0).getBrokerName(), 0);
            until(() -> {
                try {
                    return reader.maxOffset(queue) >= 1;
                } catch (MQClientException absent) {
                    return false;
                }
            });
            found.add("tries " + tries);
            try {
                for (MessageExt each : reader.pull(queue, "*", 0, 4).getMsgFoundList()) {
                    found.add(each.getTopic() + " " + each.getReconsumeTimes() + " " + each.getProperty("DLQ_ORIGIN_TOPIC")
                            + " " + each.getProperty("RETRY_TOPIC") + " " + body(each));
                }
            } catch (MQClientException | MQBrokerException error) {
                found.add(failure(error));
            }
            consumer.shutdown();
            reader.shutdown();
            return found;
        });
    }

    private static void lookUps() throws Exception {
        SendResult sent = producer.send(message("LookUps", "T", "the-key", "look"));
        MessageQueue queue = sent.getMessageQueue();
        scenario("query", () -> {
            until(() -> {
                try {
                    return !producer.queryMessage("LookUps", "the-key", 8, 0, Long.MAX_VALUE).getMessageList().isEmpty();
                } catch (MQClientException absent) {
                    return false;
                }
            });
            return body(producer.queryMessage("LookUps", "the-key", 8, 0, Long.MAX_VALUE).getMessageList().get(0));
        });
        scenario("query of no key", () -> producer.queryMessage("LookUps", "none", 8, 0, Long.MAX_VALUE));
        scenario("view by offset id", () -> body(producer.viewMessage("LookUps", sent.getOffsetMsgId())));
        scenario("view by unique id", () -> body(producer.viewMessage("LookUps", sent.getMsgId())));
        scenario("bounds", () -> producer.minOffset(queue) + " " + producer.maxOffset(queue));
        long stored = producer.viewMessage("LookUps", sent.getOffsetMsgId()).getStoreTimestamp();
        for (long shift : new long[] {-1_000_000, -1, 0, 1, 1_000_000}) {
            scenario("offset by time " + shift, () -> producer.searchOffset(queue, stored + shift));
        }
        scenario("earliest time", () -> producer.earliestMsgStoreTime(queue) == stored);
    }
}
