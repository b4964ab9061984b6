package lakelog.oracle;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.remoting.protocol.DataVersion;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Reads {@code config/consumerOffset.json} by RocketMQ's own JSON, into fields of the types that its
 * ConsumerOffsetManager has, and prints one line per queue: topic@group, queue, offset, counter.
 * With {@code --write true} the file is written again, as a broker would.
 */
public final class ConsumerOffsets {
    private ConsumerOffsets() {
    }

    /** The part of ConsumerOffsetManager that is stored. */
    public static final class Table extends RemotingSerializable {
        private ConcurrentMap<String, ConcurrentMap<Integer, Long>> offsetTable;
        private DataVersion dataVersion;

        public ConcurrentMap<String, ConcurrentMap<Integer, Long>> getOffsetTable() {
            return offsetTable;
        }

        public void setOffsetTable(ConcurrentMap<String, ConcurrentMap<Integer, Long>> table) {
            offsetTable = table;
        }

        public DataVersion getDataVersion() {
            return dataVersion;
        }

        public void setDataVersion(DataVersion version) {
            dataVersion = version;
        }
    }

    public static void main(String[] args) {
        Exit.with(() -> run(new Options(args)));
    }

    private static int run(Options options) throws Exception {
        Path file = Path.of(options.required("store"), "config", "consumerOffset.json");
        Table table = RemotingSerializable.fromJson(Files.readString(file), Table.class);
        JsonLines out = new JsonLines();
        long counter = table.getDataVersion().getCounter().get();
        for (String name : new TreeMap<>(table.getOffsetTable()).keySet()) {
            for (Map.Entry<Integer, Long> each : new TreeMap<>(table.getOffsetTable().get(name)).entrySet()) {
                // Unboxed on purpose: a key that stayed a String would fail here.
                int queue = each.getKey();
                long offset = each.getValue();
                out.print(JsonLines.object("name", name, "queue", queue, "offset", offset, "counter", counter));
            }
        }
        out.flush();
        if (options.text("write", "false").equals("true")) {
            Files.writeString(file, RemotingSerializable.toJson(table, true));
        }
        return 0;
    }
}
