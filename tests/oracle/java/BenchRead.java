package lakelog.oracle;

import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;

/** The benchmarks over a log that is written first: dispatch, reading by queue, look-up by key. */
final class BenchRead {
    private static final int READ_AT_ONCE = 32;
    private final DefaultMessageStore store;
    private final byte[] body;
    private final BenchMessages messages;

    BenchRead(DefaultMessageStore store, byte[] body) {
        this.store = store;
        this.body = body;
        this.messages = new BenchMessages(body);
    }

    /** Queues and index from records that wait in the log; the dispatch code is warmed by as many. */
    Map<String, Object> reput(int count) throws Exception {
        write(count);
        Stores.awaitDispatch(store);
        Stores.reput(store).shutdown();
        long fromOffset = store.getMaxPhyOffset();
        write(count);
        ServiceThread reput = reputFrom(fromOffset);
        return new Load(1, index -> {
            reput.start();
            Stores.awaitDispatch(store);
        }).measure(1, count, body.length);
    }

    /** Every message of every queue, decoded. */
    Map<String, Object> read(int count) throws Exception {
        write(count);
        Stores.awaitDispatch(store);
        Load load = new Load(1, index -> {
            long offset = 0;
            while (offset < store.getMaxOffsetInQueue(BenchMessages.TOPIC, index)) {
                offset = readSome(index, offset);
            }
        });
        load.measure(BenchMessages.QUEUES, 1, 0);
        return load.measure(BenchMessages.QUEUES, count / BenchMessages.QUEUES, body.length);
    }

    Map<String, Object> query(int count) throws Exception {
        write(count);
        Stores.awaitDispatch(store);
        String[] keys = new Random(1).ints(count, 0, count).mapToObj(BenchMessages::key).toArray(String[]::new);
        Load load = new Load(1, index -> find(keys[index]));
        load.measure(count, 1, 0);
        return load.measure(count, 1, body.length);
    }

    /** Offsets by store time, anywhere between the first message and the last. */
    Map<String, Object> byTime(int count) throws Exception {
        write(count);
        Stores.awaitDispatch(store);
        long first = store.getEarliestMessageTime(BenchMessages.TOPIC, 0);
        int span = (int) Math.max(1, System.currentTimeMillis() - first);
        Random random = new Random(1);
        Load load = new Load(1, index -> store.getOffsetInQueueByTime(
                BenchMessages.TOPIC, index % BenchMessages.QUEUES, first + random.nextInt(span)));
        load.measure(count, 1, 0);
        return load.measure(count, 1, body.length);
    }

    /** From the put of a message until its queue shows it; one message at a time. */
    Map<String, Object> latency(int count) throws Exception {
        Load load = new Load(1, index -> {
            long before = store.getMaxOffsetInQueue(BenchMessages.TOPIC, index % BenchMessages.QUEUES);
            store.putMessage(messages.one(index));
            while (store.getMaxOffsetInQueue(BenchMessages.TOPIC, index % BenchMessages.QUEUES) == before) {
                Thread.onSpinWait();
            }
        });
        load.measure(count, 1, 0);
        return load.measure(count, 1, body.length);
    }

    private void write(int count) {
        for (int index = 0; index < count; index++) {
            store.putMessage(messages.one(index));
        }
    }

    private long readSome(int queueId, long offset) {
        GetMessageResult result = store.getMessage(
                "bench", BenchMessages.TOPIC, queueId, offset, READ_AT_ONCE, null);
        for (ByteBuffer record : result.getMessageBufferList()) {
            if (Records.decode(record) == null) {
                throw new IllegalStateException("undecodable record in queue " + queueId);
            }
        }
        result.release();
        return result.getNextBeginOffset();
    }

    private void find(String key) {
        QueryMessageResult result = store.queryMessage(
                BenchMessages.TOPIC, key, READ_AT_ONCE, 0, Long.MAX_VALUE);
        if (result.getMessageMapedList().isEmpty()) {
            throw new IllegalStateException("nothing found for " + key);
        }
        result.release();
    }

    /** A second dispatch thread for the store; the first one cannot be started again. */
    private ServiceThread reputFrom(long offset) throws ReflectiveOperationException {
        Class<?> type = Class.forName("org.apache.rocketmq.store.DefaultMessageStore$ReputMessageService");
        Constructor<?> constructor = type.getDeclaredConstructor(DefaultMessageStore.class);
        constructor.setAccessible(true);
        ServiceThread reput = (ServiceThread) constructor.newInstance(store);
        Method start = type.getDeclaredMethod("setReputFromOffset", long.class);
        start.setAccessible(true);
        start.invoke(reput, offset);
        Stores.reputField().set(store, reput);
        return reput;
    }
}
