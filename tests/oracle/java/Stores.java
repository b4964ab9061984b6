package lakelog.oracle;

import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Makes the released DefaultMessageStore over a directory, with what a broker would hand it. */
final class Stores {
    private Stores() {
    }

    /** Not yet loaded. The clock stamps the records; everything else in the store lives in real time. */
    static DefaultMessageStore make(Path directory, Properties properties, SystemClock clock)
            throws Exception {
        BrokerConfig broker = broker();
        return new DefaultMessageStore(config(directory, properties), new BrokerStatsManager(broker),
                (topic, queue, offset, tags, time, bits, map) -> { }, broker, topics(directory)) {
            @Override
            public SystemClock getSystemClock() {
                return clock;
            }

            @Override
            public long now() {
                return clock.now();
            }
        };
    }

    static DefaultMessageStore open(Path directory, Properties properties, SystemClock clock)
            throws Exception {
        DefaultMessageStore store = make(directory, properties, clock);
        if (!store.load()) {
            throw new IllegalStateException("load() refused " + directory);
        }
        store.start();
        return store;
    }

    /** Returns once queues and index have reached the end of the log. */
    static void awaitDispatch(DefaultMessageStore store) throws InterruptedException {
        long deadline = System.nanoTime() + 120_000_000_000L;
        while (store.dispatchBehindBytes() > 0) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(store.dispatchBehindBytes() + " bytes never dispatched");
            }
            Thread.sleep(1);
        }
    }

    /** The thread that builds queues and index; private in the store. */
    static ServiceThread reput(DefaultMessageStore store) throws ReflectiveOperationException {
        return (ServiceThread) reputField().get(store);
    }

    static Field reputField() throws ReflectiveOperationException {
        Field field = DefaultMessageStore.class.getDeclaredField("reputMessageService");
        field.setAccessible(true);
        return field;
    }

    private static BrokerConfig broker() {
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerClusterName("oracle");
        broker.setBrokerName("oracle");
        broker.setBrokerIP1("127.0.0.1");
        return broker;
    }

    private static MessageStoreConfig config(Path directory, Properties properties) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(directory.toString());
        config.setStorePathCommitLog(directory.resolve("commitlog").toString());
        keepEverything(config);
        config.setTimerWheelEnable(false);
        config.setEnableCompaction(false);
        properties.stringPropertyNames().forEach(Stores::requireKnown);
        MixAll.properties2Object(properties, config);
        return config;
    }

    /** A test's store is old and its disk may be full: neither may make the store delete files. */
    private static void keepEverything(MessageStoreConfig config) {
        config.setFileReservedTime(24 * 365 * 100);
        config.setCleanResourceInterval(Integer.MAX_VALUE);
        config.setCleanFileForciblyEnable(false);
        config.setDiskMaxUsedSpaceRatio(95);
    }

    private static void requireKnown(String property) {
        String setter = "set" + Character.toUpperCase(property.charAt(0)) + property.substring(1);
        if (Arrays.stream(MessageStoreConfig.class.getMethods()).noneMatch(m -> m.getName().equals(setter))) {
            throw new IllegalArgumentException("MessageStoreConfig has no property " + property);
        }
    }

    /** Queue types are attributes of topics, which a broker keeps beside the store. */
    private static ConcurrentMap<String, TopicConfig> topics(Path directory) throws Exception {
        Path file = directory.resolve("config/topics.json");
        if (!Files.exists(file)) {
            return new ConcurrentHashMap<>();
        }
        return RemotingSerializable.fromJson(Files.readString(file), TopicConfigSerializeWrapper.class)
                .getTopicConfigTable();
    }
}
