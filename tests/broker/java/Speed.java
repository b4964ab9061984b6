package lakelog.broker;

import java.io.DataInputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSysResponseCode;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeaderV2;
import org.apache.rocketmq.remoting.protocol.header.SendMessageResponseHeader;

/**
 * Measures how fast one client sends and consumes messages of 1 KiB, in several ways.
 *
 * <p>Arguments: name server, number of messages of each way. Before a way it prints its name and waits
 * for a line, so that the server can be measured; after it, the messages and the seconds.
 */
public final class Speed {
    private static final int WINDOW = 512;
    private static final int BATCH = 32;
    private static final int TOPICS = 64;
    private static final int CONNECTIONS = 200;
    private static final int STALLED_MS = 5_000;
    private static final byte[] BODY = new byte[1024];
    private static DefaultMQProducer producer;
    private static int count;
    private static int sent;
    private static int measured;

    private Speed() {
    }

    private interface Work {
        /** Returns the time of its end, as of System.nanoTime. */
        long run() throws Exception;
    }

    private interface Send {
        void send(int number) throws Exception;
    }

    private static void measure(String way, int messages, Work work) throws Exception {
        System.out.printf("{\"begin\":\"%s\"}%n", way);
        System.out.flush();
        System.in.read();
        long begun = System.nanoTime();
        measured = messages;
        double seconds = (work.run() - begun) / 1e9;
        System.out.printf("{\"way\":\"%s\",\"messages\":%d,\"seconds\":%.6f}%n", way, measured, seconds);
        System.out.flush();
        System.in.read();
    }

    private static Message message(String topic, int number) {
        return new Message(topic, "T", "k" + number, BODY);
    }

    private static void inThreads(int threads, int messages, Send work) throws Exception {
        AtomicInteger left = new AtomicInteger(messages);
        CountDownLatch ended = new CountDownLatch(threads);
        for (int i = 0; i < threads; i++) {
            new Thread(() -> {
                try {
                    for (int n = left.getAndDecrement(); n > 0; n = left.getAndDecrement()) {
                        work.send(n);
                    }
                    ended.countDown();
                } catch (Exception error) {
                    fail(error);
                }
            }).start();
        }
        ended.await();
    }

    private static void fail(Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
    }

    private static void sendUntilTaken(String topic, int number) throws Exception {
        while (true) {
            try {
                producer.send(message(topic, number));
                return;
            } catch (MQBrokerException error) {
                if (!error.toString().contains("busy")) {
                    throw error;
                }
            }
        }
    }

    private static long synchronously(int threads, int messages) throws Exception {
        inThreads(threads, messages, n -> sendUntilTaken("Speed", n));
        sent += messages;
        return System.nanoTime();
    }

    private static long asynchronously() throws Exception {
        Semaphore window = new Semaphore(WINDOW);
        for (int i = 0; i < count; i++) {
            window.acquire();
            send(message("Speed", i), window);
        }
        window.acquire(WINDOW);
        sent += count;
        return System.nanoTime();
    }

    /** A broker that is busy refuses messages; they are sent again, so that all are in the log. */
    private static void send(Message message, Semaphore window) throws Exception {
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                window.release();
            }

            @Override
            public void onException(Throwable error) {
                if (!error.toString().contains("busy")) {
                    fail(error);
                }
                try {
                    Thread.sleep(1);
                    send(message, window);
                } catch (Exception refused) {
                    fail(refused);
                }
            }
        });
    }

    /** Ends when the last message is in a queue; a busy broker drops some, which do not count. */
    private static long oneWay(List<MessageQueue> queues) throws Exception {
        long before = stored(queues);
        for (int i = 0; i < count; i++) {
            producer.sendOneway(message("OneWay", i));
        }
        long now = 0;
        long last = System.nanoTime();
        while (now < count) {
            long found = stored(queues) - before;
            if (found > now) {
                now = found;
                last = System.nanoTime();
            } else if (System.nanoTime() - last > STALLED_MS * 1_000_000L) {
                measured = (int) now;
                break;
            }
            Thread.sleep(1);
        }
        return last;
    }

    private static long stored(List<MessageQueue> queues) throws Exception {
        long all = 0;
        for (MessageQueue each : queues) {
            all += producer.maxOffset(each);
        }
        return all;
    }

    private static long inBatches() throws Exception {
        for (int i = 0; i < count; i += BATCH) {
            List<Message> batch = new ArrayList<>();
            for (int j = i; j < Math.min(count, i + BATCH); j++) {
                batch.add(message("Speed", j));
            }
            producer.send(batch);
        }
        sent += count;
        return System.nanoTime();
    }

    private static long overConnections() throws Exception {
        SendResult known = producer.send(message("Speed", 0));
        sent += 1 + count;
        String address = producer.getDefaultMQProducerImpl().getMqClientFactory()
            .findBrokerAddressInPublish(known.getMessageQueue().getBrokerName());
        String[] parts = address.split(":");
        CountDownLatch ready = new CountDownLatch(CONNECTIONS);
        CountDownLatch ended = new CountDownLatch(CONNECTIONS);
        AtomicInteger left = new AtomicInteger(count);
        for (int i = 0; i < CONNECTIONS; i++) {
            int queue = i % 4;
            new Thread(() -> {
                try (Socket socket = new Socket(parts[0], Integer.parseInt(parts[1]))) {
                    socket.setTcpNoDelay(true);
                    DataInputStream in = new DataInputStream(socket.getInputStream());
                    ready.countDown();
                    ready.await();
                    for (int n = left.getAndDecrement(); n > 0; n = left.getAndDecrement()) {
                        while (!exchange(socket.getOutputStream(), in, queue)) {
                            Thread.sleep(1);
                        }
                    }
                    ended.countDown();
                } catch (Exception error) {
                    fail(error);
                }
            }).start();
        }
        ended.await();
        return System.nanoTime();
    }

    /** Returns false if the broker is busy, and has refused the message. */
    private static boolean exchange(OutputStream out, DataInputStream in, int queue) throws Exception {
        SendMessageRequestHeader header = new SendMessageRequestHeader();
        header.setProducerGroup("speed");
        header.setTopic("Speed");
        header.setDefaultTopic("TBW102");
        header.setDefaultTopicQueueNums(4);
        header.setQueueId(queue);
        header.setSysFlag(0);
        header.setBornTimestamp(System.currentTimeMillis());
        header.setFlag(0);
        header.setProperties("TAGS\u0001T\u0002WAIT\u0001true");
        header.setReconsumeTimes(0);
        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.SEND_MESSAGE_V2,
            SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(header));
        request.setBody(BODY);
        out.write(request.encode().array());
        byte[] answer = new byte[in.readInt()];
        in.readFully(answer);
        RemotingCommand response = RemotingCommand.decode(ByteBuffer.wrap(answer));
        boolean isBusy = response.getCode() == RemotingSysResponseCode.SYSTEM_BUSY;
        if ((response.getCode() != 0 && !isBusy) || response.getOpaque() != request.getOpaque()) {
            throw new IllegalStateException(response.toString());
        }
        if (!isBusy) {
            response.decodeCommandCustomHeader(SendMessageResponseHeader.class);
        }
        return !isBusy;
    }

    private static long consume(String group, boolean pops) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(producer.getNamesrvAddr());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.setClientRebalance(!pops);
        consumer.subscribe("Speed", "*");
        CountDownLatch left = new CountDownLatch(sent);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(each -> left.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        left.await();
        long end = System.nanoTime();
        consumer.suspend();
        return end;
    }

    private static void start(String names) throws Exception {
        new Random(1).nextBytes(BODY);
        producer = new DefaultMQProducer("speed");
        producer.setNamesrvAddr(names);
        producer.setSendMsgTimeout(20_000);
        producer.setPollNameServerInterval(500);
        producer.start();
        while (true) {
            try {
                producer.send(message("Speed", 0));
                sent++;
                return;
            } catch (Exception starting) {
                Thread.sleep(100);
            }
        }
    }

    public static void main(String[] args) {
        try {
            run(args);
        } catch (Exception error) {
            fail(error);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(String[] args) throws Exception {
        count = Integer.parseInt(args[1]);
        start(args[0]);
        synchronously(16, count); // warms both up
        producer.send(message("OneWay", 0));
        List<MessageQueue> queues = producer.fetchPublishMessageQueues("OneWay");
        for (int i = 0; i < TOPICS; i++) {
            producer.send(message("Speed" + i, 0));
        }
        for (int threads : new int[] {1, 16, 64}) {
            measure("sync_" + threads, count, () -> synchronously(threads, count));
        }
        measure("async", count, Speed::asynchronously);
        measure("oneway", count, () -> oneWay(queues));
        measure("batch", count, Speed::inBatches);
        measure("topics", count, () -> {
            inThreads(16, count, n -> sendUntilTaken("Speed" + n % TOPICS, n));
            return System.nanoTime();
        });
        measure("connections", count, Speed::overConnections);
        measure("push", sent, () -> consume("Pushed", false));
        measure("pop", sent, () -> consume("Popped", true));
    }
}
