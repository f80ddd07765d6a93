"""The files of a partition: Apache's tools read ours, we read what Apache's broker wrote, and it goes on
where we stopped."""

import asyncio
import os
import re
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest
from apache_oracle import missing
from apache_programs import ApachePrograms
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from quorate.protocol.batch import Record, batches, build, records, validate_produced
from quorate.storage.checkpoints import (
    HIGH_WATERMARKS_NAME,
    RECOVERY_POINTS_NAME,
    PartitionName,
    load_checkpoint,
    load_clean_shutdown,
)
from quorate.storage.files import RealFiles
from quorate.storage.limits import LogConfig
from quorate.storage.log_directories import LogDirectory
from quorate.storage.partition_log import PartitionLog
from quorate.storage.partition_metadata import read_topic_id

sys.path.append(str(Path(__file__).parent.parent / "storage"))
from partition_logs import TOPIC_ID, a_marker, a_produced, check_producers, produce, replayed, stored

pytestmark = pytest.mark.interop

FILES = RealFiles()
DEFAULTS = LogConfig()
DUMP = "org.apache.kafka.tools.DumpLogSegments"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC = "orders"
COMPLAINTS = re.compile(
    r"mismatch|corrupt|invalid|isvalid: false|exception|error|warn|non-consecutive|could not|skip",
    re.IGNORECASE,
)
# The tool looks for the offset before the first one of a segment.
FALSE_ALARM = re.compile(r"Non-consecutive offsets in .*\n  -1 is followed by \d+\n|isvalid: true")


@pytest.fixture(scope="session")
def programs():
    """Apache's programs of the pinned release."""
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return ApachePrograms()


def open_partition(directory, recovery_point=None, config=DEFAULTS, topic_id=TOPIC_ID):
    return PartitionLog.open(
        FILES, str(directory), config, topic_id=topic_id, now_ms=0, recovery_point=recovery_point
    )


def test_kafka_dump_log_reads_our_files(programs, tmp_path):
    """Segments with entries in all their indexes, and snapshots of producers."""

    async def write():
        log = await open_partition(tmp_path, 0, LogConfig(segment_bytes=12_000, index_interval_bytes=500))
        for index in range(60):
            produce(log, a_produced(7, index * 3, 3, epoch=2, timestamp=1000 + index, value_bytes=100))
            produce(log, a_produced(8, index, is_transactional=True, timestamp=1000 + index, value_bytes=50))
            if index % 10 == 9:
                log.append_control(a_marker(8, is_abort=index % 20 == 9, coordinator_epoch=5), 0, 0)
        produce(log, a_produced(8, 60, is_transactional=True, timestamp=2000))
        entries = log.producers.entries()
        await log.close()
        return entries

    entries = asyncio.run(write())
    files = sorted(path for path in tmp_path.iterdir() if path.name[:20].isdigit())
    assert {path.suffix for path in files} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    names = ",".join(str(path) for path in files)
    for arguments in (["--deep-iteration"], ["--index-sanity-check"], ["--verify-index-only"]):
        said = programs.run(DUMP, *arguments, "--files", names)
        assert not COMPLAINTS.search(FALSE_ALARM.sub("", said)), said
    said = programs.run(DUMP, "--files", str(files[-1]))
    found = re.findall(
        r"producerId: (\S+) producerEpoch: (\S+) .*lastSequence: (\S+) lastOffset: (\S+)", said
    )
    assert [tuple(map(int, one)) for one in found] == [
        (entry.producer_id, entry.epoch, entry.last_sequence, entry.last_offset) for entry in entries
    ]


class ApacheBroker:
    """One Apache node that is broker and controller."""

    def __init__(self, programs, directory):
        self.directory = directory / "data"
        self._programs = programs
        self._log = directory / "node.log"
        self._properties = directory / "node.properties"
        broker, controller = _free_ports(2)
        self.servers = f"127.0.0.1:{broker}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(self.directory),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        programs.run(
            "kafka.tools.StorageTool", "format", "--config", str(self._properties), "--cluster-id", CLUSTER_ID
        )

    def running(self):
        return self._programs.node(self._properties, self._log)


def _free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def transaction(producer, ends_well, count):
    producer.begin_transaction()
    for index in range(count):
        producer.produce(
            TOPIC, f"{'good' if ends_well else 'bad'} {index}", partition=0, timestamp=5000 + index
        )
    if ends_well:
        producer.commit_transaction(30)
    else:
        producer.flush(30)
        producer.abort_transaction(30)


def consumed(servers, isolation):
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "readers",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values = []
    while True:
        message = consumer.poll(30)
        assert message is not None, "no answer from the broker"
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            break
        values.append(message.value().decode())
    consumer.close()
    return values


def test_we_read_what_apache_wrote_and_apache_goes_on_where_we_stopped(programs, tmp_path):
    """An Apache broker writes with every kind of producer and stops; we read it all and append; it starts
    again, and its consumers see both."""
    broker = ApacheBroker(programs, tmp_path)
    common = {"bootstrap.servers": broker.servers, "linger.ms": 0, "batch.num.messages": 20}
    with broker.running() as process:
        admin = AdminClient({"bootstrap.servers": broker.servers})
        topic = NewTopic(TOPIC, 1, 1, config={"segment.bytes": str(1 << 20), "index.interval.bytes": "300"})
        _retry(lambda: admin.create_topics([topic], operation_timeout=30)[TOPIC].result(30))
        plain = Producer(common)
        for index in range(100):
            plain.produce(TOPIC, f"plain {index}", partition=0, timestamp=1000 + index)
        plain.flush(30)
        idempotent = Producer(common | {"enable.idempotence": True, "compression.type": "lz4"})
        for index in range(100):
            idempotent.produce(TOPIC, f"once {index}", partition=0, timestamp=2000 + index)
        idempotent.flush(30)
        transactional = Producer(common | {"transactional.id": "t"})
        transactional.init_transactions(60)
        for ends_well in (True, False, True, False):
            transaction(transactional, ends_well, 25)
        committed = consumed(broker.servers, "read_committed")
        process.send_signal(signal.SIGTERM)
        process.wait(60)

    directory = broker.directory / f"{TOPIC}-0"
    name = PartitionName(TOPIC, 0)
    topic_id = read_topic_id(FILES, str(directory))
    copied = tmp_path / "copy" / f"{TOPIC}-0"
    shutil.copytree(directory, copied)

    async def read(recovery_point):
        log = await open_partition(copied, recovery_point, topic_id=topic_id)
        assert not log.recovery.damage
        assert not log.recovery.rebuilt_indexes
        check_producers(log)
        _, aborted = replayed(log)
        assert len(aborted) == 2
        assert log.first_unstable_offset is None or recovery_point is not None
        values = [
            (header, record.timestamp, record.value.decode())
            for header, batch in stored(log)
            if not header.is_control
            for record in records(batch, next(batches(batch)))
        ]
        hidden = {
            value
            for header, _, value in values
            for one in aborted
            if header.producer_id == one.producer_id
            and one.first_offset <= header.base_offset < one.last_offset
        }
        assert [value for _, _, value in values if value not in hidden] == committed
        assert log.offset_for_time(2050).timestamp_ms == 2050
        assert log.max_timestamp().timestamp_ms >= 5024
        end_offset = log.end_offset
        log.abandon()
        return end_offset

    end_offset = asyncio.run(read(None))
    assert asyncio.run(read(0)) == end_offset
    for checkpoint in (RECOVERY_POINTS_NAME, HIGH_WATERMARKS_NAME):
        assert load_checkpoint(FILES, str(broker.directory), checkpoint)[name] == end_offset
    broker_epoch = load_clean_shutdown(FILES, str(broker.directory))
    assert broker_epoch is not None

    async def go_on():
        home = await LogDirectory.open(FILES, str(broker.directory), cluster_id=CLUSTER_ID, node_id=1)
        assert name in home.partitions
        await home.begin()
        log = await open_partition(directory, home.take_recovery_point(name), topic_id=topic_id)
        home.opened(name)
        leader_epoch = log.epochs.latest_epoch
        for index in range(50):
            buffer = build([Record(0, 9000 + index, None, f"ours {index}".encode())])
            log.append_produced(buffer, validate_produced(buffer), leader_epoch, 0)
        await log.close()
        points = dict(home.recovery_points) | {name: log.end_offset}
        await home.store_recovery_points(points)
        await home.store_high_watermarks(dict(home.high_watermarks) | {name: log.end_offset})
        await home.close_in_order(broker_epoch)

    asyncio.run(go_on())
    with broker.running():
        _retry(lambda: AdminClient({"bootstrap.servers": broker.servers}).list_topics(TOPIC, 10))
        assert consumed(broker.servers, "read_committed") == committed + [f"ours {at}" for at in range(50)]


def _retry(ask):
    """Until the broker is up."""
    for _ in range(12):
        try:
            return ask()
        except KafkaException:
            continue
    return ask()
