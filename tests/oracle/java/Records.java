package lakelog.oracle;

import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** A record of the commit log as the client library's decoder reads it, in JSON terms. */
final class Records {
    private Records() {
    }

    /** Null where the decoder gives up. Compressed bodies stay as they are stored. */
    static MessageExt decode(ByteBuffer record) {
        return MessageDecoder.decode(record.duplicate(), true, false);
    }

    /** Every field of a message, contents included. */
    static Map<String, Object> whole(MessageExt message, ByteBuffer record) {
        Map<String, Object> line = header("msg", message, record);
        line.put("msgId", message.getMsgId());
        line.put("tags", message.getTags());
        line.put("keys", message.getKeys());
        line.put("properties", new TreeMap<>(message.getProperties()));
        byte[] body = message.getBody();
        line.put("body", body == null ? null : Base64.getEncoder().encodeToString(body));
        return line;
    }

    /** The fields of fixed meaning, without contents. */
    static Map<String, Object> header(String kind, MessageExt message, ByteBuffer record) {
        return JsonLines.object(
                "kind", kind,
                "topic", message.getTopic(),
                "queueId", message.getQueueId(),
                "queueOffset", message.getQueueOffset(),
                "physOffset", message.getCommitLogOffset(),
                "storeSize", message.getStoreSize(),
                "magic", hex(record.getInt(record.position() + 4)),
                "sysFlag", message.getSysFlag(),
                "flag", message.getFlag(),
                "bodyCRC", message.getBodyCRC(),
                "bornTimestamp", message.getBornTimestamp(),
                "bornHost", host(message.getBornHost()),
                "storeTimestamp", message.getStoreTimestamp(),
                "storeHost", host(message.getStoreHost()),
                "reconsumeTimes", message.getReconsumeTimes(),
                "preparedTransactionOffset", message.getPreparedTransactionOffset(),
                "rawCrc32", crc32(record));
    }

    static String hex(int value) {
        return String.format("%08x", value);
    }

    private static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + "|" + host.getPort();
    }

    private static long crc32(ByteBuffer record) {
        CRC32 crc = new CRC32();
        crc.update(record.duplicate());
        return crc.getValue();
    }
}
