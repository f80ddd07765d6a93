import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.function.IntPredicate;

import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Asks Apache Kafka's own PartitionChangeBuilder: a partition and what is wanted of it per line in, the record
 * that it builds per line out, in hexadecimal as it would stand in the metadata log, or "none".
 *
 * <p>A line is NAME=VALUE pairs. Lists have commas between their items; a name that is missing was not asked for.
 *
 * <pre>
 * level elr minIsr election                                             the circumstances
 * broker=ID:ACTIVE:DIRECTORY+DIRECTORY                                  once for every registered broker
 * replicas directories isr removing adding elrs lastKnown leader recovering    the partition
 * toIsr toReplicas toRemoving toAdding toRecovering unclean toDirectories      what is wanted
 * </pre>
 */
public final class PartitionChanges {
    private static final Uuid TOPIC = new Uuid(1, 1);

    private record Broker(boolean isActive, List<Uuid> directories) {
    }

    private final Map<String, String> fields = new HashMap<>();
    private final Map<Integer, Broker> brokers = new HashMap<>();

    private PartitionChanges(String line) {
        for (String pair : line.split(" ")) {
            String[] parts = pair.split("=", 2);
            if (parts[0].equals("broker")) {
                String[] about = parts[1].split(":", -1);
                List<Uuid> directories = uuids(about[2], "\\+");
                brokers.put(Integer.parseInt(about[0]), new Broker(about[1].equals("true"), directories));
            } else {
                fields.put(parts[0], parts[1]);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            answers.append(new PartitionChanges(line).answer()).append('\n');
        }
        System.out.print(answers);
    }

    private String answer() {
        PartitionRegistration partition = partition();
        PartitionChangeBuilder builder = new PartitionChangeBuilder(
            partition,
            TOPIC,
            0,
            acceptable(partition),
            MetadataVersion.fromFeatureLevel(Short.parseShort(fields.get("level"))),
            Integer.parseInt(fields.get("minIsr")),
            fields.get("elr").equals("true"));
        builder.setElection(PartitionChangeBuilder.Election.valueOf(fields.get("election")));
        builder.setDefaultDirProvider(this::defaultDirectory);
        if (fields.containsKey("toIsr")) {
            builder.setTargetIsr(integers("toIsr"));
        }
        if (fields.containsKey("toReplicas")) {
            builder.setTargetReplicas(integers("toReplicas"));
        }
        if (fields.containsKey("toRemoving")) {
            builder.setTargetRemoving(integers("toRemoving"));
        }
        if (fields.containsKey("toAdding")) {
            builder.setTargetAdding(integers("toAdding"));
        }
        if (fields.containsKey("toRecovering")) {
            builder.setTargetLeaderRecoveryState(state("toRecovering"));
        }
        if (fields.containsKey("unclean")) {
            builder.setUncleanShutdownReplicas(integers("unclean"));
        }
        if (fields.containsKey("toDirectories")) {
            for (String assignment : fields.get("toDirectories").split(",")) {
                String[] parts = assignment.split(":");
                builder.setDirectory(Integer.parseInt(parts[0]), uuid(parts[1]));
            }
        }
        return builder.build().map(PartitionChanges::hex).orElse("none");
    }

    /** As ReplicationControlManager.LeaderAcceptor, which throws where we say no: for one that is no replica. */
    private IntPredicate acceptable(PartitionRegistration partition) {
        return id -> {
            Broker broker = brokers.get(id);
            if (broker == null || !broker.isActive || Arrays.stream(partition.replicas).noneMatch(one -> one == id)) {
                return false;
            }
            return DirectoryId.isOnline(partition.directory(id), broker.directories);
        };
    }

    private Uuid defaultDirectory(int id) {
        Broker broker = brokers.get(id);
        if (broker == null || broker.directories.size() > 1) {
            return DirectoryId.UNASSIGNED;
        }
        return broker.directories.isEmpty() ? DirectoryId.MIGRATING : broker.directories.get(0);
    }

    private PartitionRegistration partition() {
        return new PartitionRegistration.Builder()
            .setReplicas(array("replicas"))
            .setDirectories(uuids(fields.get("directories"), ",").toArray(new Uuid[0]))
            .setIsr(array("isr"))
            .setRemovingReplicas(array("removing"))
            .setAddingReplicas(array("adding"))
            .setElr(array("elrs"))
            .setLastKnownElr(array("lastKnown"))
            .setLeader(Integer.parseInt(fields.get("leader")))
            .setLeaderRecoveryState(state("recovering"))
            .setLeaderEpoch(100)
            .setPartitionEpoch(200)
            .build();
    }

    private LeaderRecoveryState state(String name) {
        return fields.get(name).equals("true") ? LeaderRecoveryState.RECOVERING : LeaderRecoveryState.RECOVERED;
    }

    private int[] array(String name) {
        return integers(name).stream().mapToInt(Integer::intValue).toArray();
    }

    private List<Integer> integers(String name) {
        List<Integer> found = new ArrayList<>();
        for (String one : fields.get(name).split(",")) {
            if (!one.isEmpty()) {
                found.add(Integer.parseInt(one));
            }
        }
        return found;
    }

    /** In the order of unsigned bytes for a broker's directories, where Apache looks them up by halving. */
    private static List<Uuid> uuids(String text, String separator) {
        List<Uuid> found = new ArrayList<>();
        for (String one : text.split(separator)) {
            if (!one.isEmpty()) {
                found.add(uuid(one));
            }
        }
        if (!separator.equals(",")) {
            found.sort(null);
        }
        return found;
    }

    private static Uuid uuid(String hex) {
        ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        return new Uuid(bytes.getLong(), bytes.getLong());
    }

    private static String hex(ApiMessageAndVersion record) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        MetadataRecordSerde serde = MetadataRecordSerde.INSTANCE;
        ByteBuffer buffer = ByteBuffer.allocate(serde.recordSize(record, cache));
        serde.write(record, cache, new ByteBufferAccessor(buffer));
        return HexFormat.of().formatHex(buffer.array());
    }
}
