package org.apache.kafka.controller;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

import kafka.server.KafkaRaftServer;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.metadata.BrokerRegistrationChangeRecord;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.internals.BatchBuilder;
import org.apache.kafka.raft.internals.RecordsBatchReader;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * What Apache Kafka's controller does when it has found a broker silent, without the quorum around it: decide,
 * encode into batches, write and sync, apply; and on a standby, decode and apply. Its own classes are put together
 * as QuorumController does, filled from a snapshot, and asked to fence one broker after the other.
 *
 * <pre>
 * ControllerFencing SNAPSHOT LOG FIRST-BROKER ROUNDS
 *
 * memory PARTITIONS BYTES-OF-THE-MANAGERS BYTES-OF-THE-IMAGE RESIDENT-BYTES      of the heap, after collections
 * load SECONDS
 * fenced RECORDS DECIDE ENCODE APPLY SYNC                             seconds, one line per round
 * standby RECORDS DECODE-AND-APPLY
 * image RECORDS DELTA-AND-APPLY          what the loader of every node does besides, for its publishers
 * </pre>
 */
public final class ControllerFencing {
    private static final int RECORDS_PER_BATCH = 10_000;
    private static final int BATCH_BYTES_MAX = 8 << 20;
    private static final MetadataRecordSerde SERDE = MetadataRecordSerde.INSTANCE;

    private final SnapshotRegistry registry = new SnapshotRegistry(new LogContext());
    private final FeatureControlManager features;
    private final ClusterControlManager cluster;
    private final ReplicationControlManager replication;
    private final List<ByteBuffer> pool = new ArrayList<>();
    private MetadataImage image = MetadataImage.EMPTY;
    private long nextOffset = 1_000_000;

    private ControllerFencing() {
        features = new FeatureControlManager.Builder()
            .setSnapshotRegistry(registry)
            .setQuorumFeatures(new QuorumFeatures(1, QuorumFeatures.defaultSupportedFeatureMap(true), List.of(1)))
            .setKRaftVersionAccessor(new FixedVersion())
            .build();
        cluster = new ClusterControlManager.Builder()
            .setSnapshotRegistry(registry)
            .setTime(Time.SYSTEM)
            .setSessionTimeoutNs(TimeUnit.HOURS.toNanos(1))
            .setFeatureControlManager(features)
            .setBrokerShutdownHandler((id, isClean, records) -> { })
            .build();
        ConfigurationControlManager configurations = new ConfigurationControlManager.Builder()
            .setSnapshotRegistry(registry)
            .setKafkaConfigSchema(KafkaRaftServer.configSchema())
            .setNodeId(1)
            .setFeatureControl(features)
            .setStaticConfig(Map.of())
            .build();
        replication = new ReplicationControlManager.Builder()
            .setSnapshotRegistry(registry)
            .setConfigurationControl(configurations)
            .setClusterControl(cluster)
            .setCreateTopicPolicy(Optional.empty())
            .setFeatureControl(features)
            .build();
    }

    public static void main(String[] arguments) throws Exception {
        ControllerFencing controller = new ControllerFencing();
        MemoryRecords snapshot = mapped(new File(arguments[0]));
        int first = Integer.parseInt(arguments[2]);
        int rounds = Integer.parseInt(arguments[3]);
        controller.load(snapshot);
        try (FileChannel log = FileChannel.open(
                Path.of(arguments[1]), StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
            for (int round = 0; round < rounds; round++) {
                controller.fence(first + 3 * round, log);
                controller.fenceOnStandby(first + 3 * round + 1);
                controller.fenceInImage(first + 3 * round + 2);
            }
        }
    }

    // Loading

    private void load(MemoryRecords snapshot) throws Exception {
        long before = usedBytes();
        int partitions = 0;
        long began = System.nanoTime();
        for (RecordBatch batch : snapshot.batches()) {
            for (Record record : batch.isControlBatch() ? List.<Record>of() : batch) {
                ApiMessage message = decoded(record);
                partitions += message instanceof PartitionRecord ? 1 : 0;
                replay(message, record.offset());
            }
        }
        print("load %.6f", seconds(began));
        cluster.activate();
        registry.idempotentCreateSnapshot(nextOffset - 1);
        long managers = usedBytes();
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        for (RecordBatch batch : snapshot.batches()) {
            for (Record record : batch.isControlBatch() ? List.<Record>of() : batch) {
                delta.replay(decoded(record));
            }
        }
        image = delta.apply(new MetadataProvenance(nextOffset - 1, 1, 1, true));
        delta = null;
        long both = usedBytes();
        print("memory %d %d %d %d", partitions, managers - before, both - managers, residentBytes());
    }

    private static MemoryRecords mapped(File file) throws Exception {
        try (FileChannel channel = FileChannel.open(file.toPath(), StandardOpenOption.READ)) {
            return MemoryRecords.readableRecords(channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size()));
        }
    }

    private static ApiMessage decoded(Record record) {
        return SERDE.read(new ByteBufferAccessor(record.value()), record.valueSize()).message();
    }

    // As QuorumController.replay

    private void replay(ApiMessage message, long offset) {
        if (message instanceof PartitionChangeRecord record) {
            replication.replay(record);
        } else if (message instanceof PartitionRecord record) {
            replication.replay(record);
        } else if (message instanceof TopicRecord record) {
            replication.replay(record);
        } else if (message instanceof RegisterBrokerRecord record) {
            cluster.replay(record, offset);
        } else if (message instanceof BrokerRegistrationChangeRecord record) {
            cluster.replay(record);
        } else if (message instanceof FeatureLevelRecord record) {
            features.replay(record);
        } else {
            throw new IllegalStateException("not expected: " + message);
        }
    }

    // Fencing

    private void fence(int brokerId, FileChannel log) throws Exception {
        long began = System.nanoTime();
        List<ApiMessageAndVersion> records = decide(brokerId);
        double decide = seconds(began);
        double encode = 0, apply = 0, sync = 0;
        int taken = 0;
        for (int start = 0; start < records.size(); start += RECORDS_PER_BATCH) {
            int end = Math.min(records.size(), start + RECORDS_PER_BATCH);
            List<ApiMessageAndVersion> some = records.subList(start, end);
            began = System.nanoTime();
            MemoryRecords batch = encode(some, pooled(taken++));
            encode += seconds(began);
            began = System.nanoTime();
            for (ApiMessageAndVersion record : some) {
                replay(record.message(), nextOffset++);
            }
            registry.idempotentCreateSnapshot(nextOffset - 1);
            apply += seconds(began);
            began = System.nanoTime();
            batch.writeFullyTo(log);
            sync += seconds(began);
        }
        began = System.nanoTime();
        log.force(false);
        sync += seconds(began);
        commit();
        print("fenced %d %.6f %.6f %.6f %.6f", records.size(), decide, encode, apply, sync);
    }

    private void fenceOnStandby(int brokerId) {
        List<ApiMessageAndVersion> records = decide(brokerId);
        List<MemoryRecords> batches = encodeAll(records);
        long began = System.nanoTime();
        for (MemoryRecords batch : batches) {
            forEach(batch, message -> replay(message, nextOffset++));
            registry.idempotentCreateSnapshot(nextOffset - 1);
            registry.deleteSnapshotsUpTo(nextOffset - 1);
        }
        print("standby %d %.6f", records.size(), seconds(began));
    }

    /** The managers learn of it too, but that is not measured. */
    private void fenceInImage(int brokerId) {
        List<ApiMessageAndVersion> records = decide(brokerId);
        List<MemoryRecords> batches = encodeAll(records);
        long began = System.nanoTime();
        MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
        for (MemoryRecords batch : batches) {
            forEach(batch, delta::replay);
        }
        image = delta.apply(new MetadataProvenance(nextOffset, 1, 1, true));
        print("image %d %.6f", records.size(), seconds(began));
        records.forEach(record -> replay(record.message(), nextOffset++));
        registry.idempotentCreateSnapshot(nextOffset - 1);
        commit();
    }

    private List<ApiMessageAndVersion> decide(int brokerId) {
        List<ApiMessageAndVersion> records = new ArrayList<>();
        replication.handleBrokerFenced(brokerId, records);
        return records;
    }

    /** What is committed cannot be taken back, and need not be remembered. */
    private void commit() {
        registry.deleteSnapshotsUpTo(nextOffset - 1);
    }

    private List<MemoryRecords> encodeAll(List<ApiMessageAndVersion> records) {
        List<MemoryRecords> batches = new ArrayList<>();
        for (int start = 0; start < records.size(); start += RECORDS_PER_BATCH) {
            int end = Math.min(records.size(), start + RECORDS_PER_BATCH);
            batches.add(encode(records.subList(start, end), pooled(batches.size())));
        }
        return batches;
    }

    /** Buffers are kept, as those of the raft client are: the first round pays for them. */
    private ByteBuffer pooled(int number) {
        while (pool.size() <= number) {
            pool.add(ByteBuffer.allocate(BATCH_BYTES_MAX));
        }
        return pool.get(number);
    }

    /** As BatchAccumulator does: the sizes first, then the bytes, into a buffer from a pool. */
    private MemoryRecords encode(List<ApiMessageAndVersion> records, ByteBuffer buffer) {
        buffer.clear();
        ObjectSerializationCache cache = new ObjectSerializationCache();
        BatchBuilder<ApiMessageAndVersion> builder = new BatchBuilder<>(
            buffer, SERDE, Compression.NONE, nextOffset, System.currentTimeMillis(), 1, BATCH_BYTES_MAX);
        if (builder.bytesNeeded(records, cache).isPresent()) {
            throw new IllegalStateException("does not fit");
        }
        for (ApiMessageAndVersion record : records) {
            builder.appendRecord(record, cache);
        }
        return builder.build();
    }

    private interface Each {
        void accept(ApiMessage message);
    }

    private static void forEach(MemoryRecords records, Each each) {
        long base = records.batches().iterator().next().baseOffset();
        try (RecordsBatchReader<ApiMessageAndVersion> reader = RecordsBatchReader.of(
                base, records, SERDE, BufferSupplier.create(), BATCH_BYTES_MAX, closed -> { }, true, new LogContext())) {
            while (reader.hasNext()) {
                Batch<ApiMessageAndVersion> batch = reader.next();
                for (ApiMessageAndVersion record : batch.records()) {
                    each.accept(record.message());
                }
            }
        }
    }

    private static final class FixedVersion implements KRaftVersionAccessor {
        @Override
        public KRaftVersion kraftVersion() {
            return KRaftVersion.KRAFT_VERSION_0;
        }

        @Override
        public void upgradeKRaftVersion(int epoch, KRaftVersion version, boolean isOnlyTried) {
            throw new UnsupportedOperationException();
        }
    }

    // Figures

    private static double seconds(long began) {
        return (System.nanoTime() - began) / 1e9;
    }

    private static long usedBytes() throws Exception {
        for (int i = 0; i < 3; i++) {
            System.gc();
            Thread.sleep(50);
        }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    private static long residentBytes() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("\\D", "")) * 1024;
            }
        }
        return -1;
    }

    private static void print(String format, Object... values) {
        System.out.printf(format + "%n", values);
        System.out.flush();
    }
}
