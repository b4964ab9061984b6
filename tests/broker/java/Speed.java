package lakelog.broker;

import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Measures how fast one client sends and consumes messages of 1 KiB, and prints the messages a second
 * of each way. Arguments: name server, number of messages of each way.
 */
public final class Speed {
    private static final int WINDOW = 512;
    private static final byte[] BODY = new byte[1024];
    private static DefaultMQProducer producer;

    private Speed() {
    }

    private static void print(String way, int count, long begun) {
        double seconds = (System.nanoTime() - begun) / 1e9;
        System.out.printf("{\"way\":\"%s\",\"per_s\":%.1f}%n", way, count / seconds);
        System.out.flush();
    }

    private static Message message(int number) {
        return new Message("Speed", "T", "k" + number, BODY);
    }

    private static void synchronously(int threads, int count) throws Exception {
        AtomicInteger left = new AtomicInteger(count);
        CountDownLatch ended = new CountDownLatch(threads);
        for (int i = 0; i < threads; i++) {
            new Thread(() -> {
                try {
                    for (int n = left.getAndDecrement(); n > 0; n = left.getAndDecrement()) {
                        producer.send(message(n));
                    }
                    ended.countDown();
                } catch (Exception error) {
                    error.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
            }).start();
        }
        ended.await();
    }

    private static void asynchronously(int count) throws Exception {
        Semaphore window = new Semaphore(WINDOW);
        for (int i = 0; i < count; i++) {
            window.acquire();
            producer.send(message(i), new SendCallback() {
                @Override
                public void onSuccess(SendResult sent) {
                    window.release();
                }

                @Override
                public void onException(Throwable error) {
                    error.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
            });
        }
        window.acquire(WINDOW);
    }

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[1]);
        new Random(1).nextBytes(BODY);
        producer = new DefaultMQProducer("speed");
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(20_000);
        producer.setPollNameServerInterval(500);
        producer.start();
        while (true) {
            try {
                producer.send(message(0));
                break;
            } catch (Exception starting) {
                Thread.sleep(100);
            }
        }
        synchronously(16, count / 2); // warms both up
        int sent = 1 + count / 2;
        for (int threads : new int[] {1, 16, 64}) {
            long begun = System.nanoTime();
            synchronously(threads, count);
            print("sync_" + threads, count, begun);
            sent += count;
        }
        long begun = System.nanoTime();
        asynchronously(count);
        print("async", count, begun);
        sent += count;
        consume(sent);
        Runtime.getRuntime().halt(0);
    }

    private static void consume(int count) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("SpeedGroup");
        consumer.setNamesrvAddr(producer.getNamesrvAddr());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe("Speed", "*");
        CountDownLatch left = new CountDownLatch(count);
        long[] begun = new long[1];
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            synchronized (begun) {
                begun[0] = begun[0] == 0 ? System.nanoTime() : begun[0];
            }
            messages.forEach(each -> left.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        left.await();
        print("consume", count, begun[0]);
    }
}
