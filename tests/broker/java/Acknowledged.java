package lakelog.broker;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends from many threads until a send fails, and prints the body of each acknowledged message.
 * Arguments: name server, topic, first letters of bodies, number of threads.
 */
public final class Acknowledged {
    private Acknowledged() {
    }

    private static synchronized void print(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("acknowledged");
        producer.setNamesrvAddr(args[0]);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        Thread[] threads = new Thread[Integer.parseInt(args[3])];
        for (int i = 0; i < threads.length; i++) {
            String letters = args[2] + "-" + i + "-";
            threads[i] = new Thread(() -> {
                try {
                    for (int n = 0;; n++) {
                        String body = letters + n;
                        SendResult sent = producer.send(
                                new Message(args[1], "T", "k" + body, body.getBytes(StandardCharsets.UTF_8)));
                        if (sent.getSendStatus() == SendStatus.SEND_OK) {
                            print("ok " + body);
                        }
                    }
                } catch (Exception ended) {
                    // The broker was killed.
                }
            });
            threads[i].start();
        }
        for (Thread each : threads) {
            each.join();
        }
        Runtime.getRuntime().halt(0);
    }
}
