package lakelog.oracle;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** Walks the commit log from its first record to its end, and remembers the keys it saw by topic. */
final class LogScan {
    final Map<String, Set<String>> keys = new TreeMap<>();
    private final DefaultMessageStore store;
    private final JsonLines out;
    private final long fileSize;

    LogScan(DefaultMessageStore store, JsonLines out) {
        this.store = store;
        this.out = out;
        this.fileSize = store.getMessageStoreConfig().getMappedFileSizeCommitLog();
    }

    void run() {
        long position = store.getMinPhyOffset();
        while (position >= 0 && position < store.getMaxPhyOffset()) {
            SelectMappedBufferResult selected = store.getCommitLogData(position);
            if (selected == null) {
                return;
            }
            position = step(position, selected.getByteBuffer());
            selected.release();
        }
    }

    /** Prints what lies at the position; returns the next one, or -1 where the chain is broken. */
    private long step(long position, ByteBuffer bytes) {
        int size = bytes.getInt(0);
        int magic = bytes.getInt(4);
        if (magic == CommitLog.BLANK_MAGIC_CODE) {
            out.print(JsonLines.object("kind", "blank", "physOffset", position, "size", size));
            return (position / fileSize + 1) * fileSize;
        }
        if (magic != MessageDecoder.MESSAGE_MAGIC_CODE && magic != MessageDecoder.MESSAGE_MAGIC_CODE_V2) {
            out.print(JsonLines.object("kind", "badrec", "physOffset", position, "size", size,
                    "magic", Records.hex(magic)));
            return -1;
        }
        bytes.limit(size);
        record(position, bytes);
        return position + size;
    }

    private void record(long position, ByteBuffer bytes) {
        MessageExt message = Records.decode(bytes);
        if (message == null) {
            out.print(JsonLines.object("kind", "undecodable", "physOffset", position,
                    "size", bytes.limit()));
            return;
        }
        Map<String, Object> line = Records.header("rec", message, bytes);
        line.put("pos", position);
        out.print(line);
        remember(message);
    }

    private void remember(MessageExt message) {
        Set<String> known = keys.computeIfAbsent(message.getTopic(), topic -> new TreeSet<>());
        String unique = message.getProperty("UNIQ_KEY");
        if (unique != null) {
            known.add(unique);
        }
        if (message.getKeys() != null) {
            for (String key : message.getKeys().split(" ")) {
                if (!key.isEmpty()) {
                    known.add(key);
                }
            }
        }
    }
}
