"""Compaction beside Apache's: its tools read what we have compacted, we read what it has compacted, and of
the same log both keep the same batches."""

import asyncio
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from apache_oracle import missing
from apache_programs import ApachePrograms
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.append(str(Path(__file__).parent.parent / "storage"))
from compacted_logs import a_task, all_batches, all_records, compacted, last_values
from partition_logs import TOPIC_ID, a_marker, produce
from test_apache_partition_files import ApacheBroker

from node.broker_processes import BrokerProcesses
from node.compacted_topics import CONFIGS, SETTINGS, KeyedLoad
from quorate.protocol.batch import Record, build, records
from quorate.protocol.compression import Codec
from quorate.storage.checkpoints import CLEANED_NAME, PartitionName, load_checkpoint
from quorate.storage.files import RealFiles
from quorate.storage.limits import LogConfig
from quorate.storage.partition_log import PartitionLog
from quorate.storage.partition_metadata import read_topic_id

pytestmark = pytest.mark.interop

FILES = RealFiles()
DUMP = "org.apache.kafka.tools.DumpLogSegments"
TOPIC = "profiles"
DEADLINE_S = 120
BEGAN_MS = int(time.time() * 1000) - 60_000  # producers whose records are old are forgotten
COMPLAINTS = re.compile(
    r"mismatch|corrupt|invalid|isvalid: false|exception|error|warn|could not|skip", re.IGNORECASE
)
# Compaction leaves out offsets, and of some batches only their headers.
FALSE_ALARM = re.compile(r"Non-consecutive offsets in .*\n(  -?\d+ is followed by \d+\n)*|isvalid: true")


@pytest.fixture(scope="module")
def programs():
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return ApachePrograms()


def dumped(programs, directory):
    """What Apache's tool says of all segments, and finds wrong with none."""
    files = sorted(path for path in directory.iterdir() if path.name[:20].isdigit())
    logs = ",".join(str(path) for path in files if path.suffix == ".log")
    others = ",".join(str(path) for path in files if path.suffix in (".index", ".timeindex", ".txnindex"))
    said = programs.run(DUMP, "--deep-iteration", "--print-data-log", "--files", logs)
    for found in (said, programs.run(DUMP, "--index-sanity-check", "--files", others)):
        assert not COMPLAINTS.search(FALSE_ALARM.sub("", found)), found
    return said


def dumped_values(said):
    """The last value of every key, as the tool prints them."""
    state = {}
    for line in said.splitlines():
        if match := re.search(r"^\| offset: (\d+) .*?key: (\S+)(?: payload: (.*))?$", line):
            state[match[2]] = match[3]
    return {key: value for key, value in state.items() if value}


def fill(log, keys=20, count=150):
    """Every codec, tombstones, idempotent producers, transactions that end well and badly."""
    for number in range(count):
        pairs = [
            (f"k{(number * 3 + at) % keys}", None if (number + at) % 11 == 0 else f"v{number}")
            for at in range(3)
        ]
        kind = number % 4
        made = [
            Record(at, 1000 + 10 * number + at, key.encode(), None if value is None else value.encode())
            for at, (key, value) in enumerate(pairs)
        ]
        about = {}
        if kind:
            about = {"producer_id": 70 + kind, "producer_epoch": 0, "base_sequence": number // 4 * 3}
        batch = build(made, codec=list(Codec)[number % 5], is_transactional=kind == 3, **about)
        produce(log, batch)
        if kind == 3:
            log.append_control(a_marker(73, is_abort=number % 8 == 3, timestamp=1000 + 10 * number), 0, 0)
    log.replicated_to(log.end_offset)


def test_kafka_dump_log_reads_what_we_compacted(programs, tmp_path):
    config = LogConfig(segment_bytes=4000, index_interval_bytes=300, is_compacted=True)

    async def compact_it():
        log = await PartitionLog.open(
            FILES, str(tmp_path), config, topic_id=TOPIC_ID, now_ms=0, recovery_point=0
        )
        fill(log)
        for now_ms in (10_000, 20_000):  # the second time, horizons have passed
            await compacted(FILES, log, a_task(log, now_ms=now_ms, delete_retention_ms=5_000))
        await log.close()
        return all_records_of(tmp_path, config)

    kept = asyncio.run(compact_it())
    said = dumped(programs, tmp_path)
    assert "deleteHorizonMs" in said
    mine = {one.key.decode(): one.value.decode() for one in kept if one.value is not None}
    theirs = dumped_values(said)
    assert {key: value for key, value in theirs.items() if key in mine} == mine


def all_records_of(directory, config):
    async def read():
        log = await PartitionLog.open(
            FILES,
            str(directory),
            config,
            topic_id=read_topic_id(FILES, str(directory)),
            now_ms=0,
            recovery_point=0,
        )
        assert not log.recovery.damage
        found = all_records(log)
        log.abandon()
        return found

    # in a thread of its own: there may be a loop already
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(read())).result()


def test_what_apache_compacts_opens_here_and_we_would_keep_the_same(programs, tmp_path):
    """The same log, compacted by both: the same batches, except for the moment of their delete horizons;
    byte for byte where compressors have no say in it."""
    broker = ApacheBroker(programs, tmp_path)
    with broker._properties.open("a") as settings:
        settings.write("log.cleaner.backoff.ms=500\nlog.retention.check.interval.ms=500\n")
        settings.write("log.initial.task.delay.ms=100\n")
    before = tmp_path / "before" / f"{TOPIC}-0"
    directory = broker.directory / f"{TOPIC}-0"
    wanted = {
        "cleanup.policy": "compact",
        "segment.bytes": str(1 << 20),
        "min.cleanable.dirty.ratio": "0.01",
        "index.interval.bytes": "500",
        "min.compaction.lag.ms": str(1 << 61),
    }
    with broker.running() as process:
        admin = AdminClient({"bootstrap.servers": broker.servers})
        retry(lambda: admin.create_topics([NewTopic(TOPIC, 1, 1, config=wanted)])[TOPIC].result(30))
        for number, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
            write(broker.servers, codec, number)
        abort_and_commit(broker.servers)
        write(broker.servers, "none", 9)  # so that all before it is in segments that are finished
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    shutil.copytree(directory, before)
    with broker.running() as process:
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        admin = AdminClient({"bootstrap.servers": broker.servers})
        entry = ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
        retry(lambda: admin.incremental_alter_configs([resource])[resource].result(30))
        name = PartitionName(TOPIC, 0)
        deadline = time.monotonic() + DEADLINE_S
        while not load_checkpoint(FILES, str(broker.directory), CLEANED_NAME).get(name):
            assert time.monotonic() < deadline, "Apache does not compact it"
            time.sleep(0.1)
        clean_to = load_checkpoint(FILES, str(broker.directory), CLEANED_NAME)[name]
        process.send_signal(signal.SIGTERM)
        process.wait(60)

    config = LogConfig(segment_bytes=1 << 20, index_interval_bytes=500, is_compacted=True)

    async def opened(path, recovery_point=None):
        topic_id = read_topic_id(FILES, str(directory))
        return await PartitionLog.open(
            FILES, str(path), config, topic_id=topic_id, now_ms=0, recovery_point=recovery_point
        )

    async def compare():
        theirs = await opened(directory)
        assert not theirs.recovery.damage
        assert not theirs.recovery.rebuilt_indexes
        ours = await opened(before, 0)
        ours.replicated_to(ours.end_offset)
        everything = last_values(all_records(ours))
        task = a_task(ours, delete_retention_ms=86_400_000, now_ms=int(time.time() * 1000))
        done = await compacted(FILES, ours, task)
        assert done.end_offset == clean_to
        assert last_values(all_records(theirs)) == everything == last_values(all_records(ours))
        mine, other = all_batches(ours), all_batches(theirs)
        assert [described(*one) for one in mine] == [described(*one) for one in other]
        plain = [
            (data[header.position : header.end], other_data[at.position : at.end])
            for (header, data), (at, other_data) in zip(mine, other, strict=True)
            if header.delete_horizon_ms is None and header.codec is Codec.NONE
        ]
        assert len(plain) > 20
        assert [one for one, _ in plain] == [one for _, one in plain]
        assert done.records_kept < 0.8 * done.records_read
        ours.abandon()
        theirs.abandon()

    asyncio.run(compare())


def described(header, data):
    """All of a batch but its checksum, its sizes and the moment of its horizon."""
    return (
        header.base_offset,
        header.last_offset_delta,
        header.attributes,
        header.max_timestamp,
        header.base_timestamp if header.delete_horizon_ms is None else "horizon",
        (header.producer_id, header.producer_epoch, header.base_sequence, header.partition_leader_epoch),
        [tuple(one) for one in records(data, header)],
    )


def write(servers, codec, number):
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "linger.ms": 5,
            "batch.num.messages": 20,
            "enable.idempotence": number % 2 == 0,
        }
    )
    for at in range(600):
        is_deleted = at % 13 == number
        value = None if is_deleted else os.urandom(900) + b"%d" % at
        producer.produce(TOPIC, value, f"k{at % 250}", partition=0, timestamp=BEGAN_MS + 1000 * number + at)
    assert producer.flush(60) == 0


def abort_and_commit(servers):
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "t", "linger.ms": 0})
    producer.init_transactions(60)
    for ends_well in (True, False, True):
        producer.begin_transaction()
        for at in range(20):
            producer.produce(
                TOPIC, f"{ends_well} {at}", f"t{at}", partition=0, timestamp=BEGAN_MS + 7000 + at
            )
        if ends_well:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)


def retry(ask):
    for _ in range(12):
        try:
            return ask()
        except KafkaException:
            continue
    return ask()


def test_apache_agrees_on_every_last_value_after_restarts(programs, tmp_path):
    """A topic that our broker compacts while it is written, stopped and killed, read by Apache's tool."""
    with BrokerProcesses(tmp_path, controllers=1, brokers=1, **SETTINGS) as cluster:
        (broker,) = cluster.running_brokers
        cluster.create_topic(TOPIC, (broker,), **CONFIGS)
        with KeyedLoad(cluster, TOPIC, printable=True) as load:
            for end in (cluster.kill, cluster.terminate):
                load.wait_for_more(3000)
                cluster.wait("it is compacted", lambda: "compacted partition" in cluster.logged(broker))
                end(broker)
                cluster.start(broker)
                cluster.wait_until_unfenced(broker)
            load.wait_for_more(3000)
        load.check()
        assert cluster.terminate(broker) == 0
        said = dumped(programs, cluster.directory(broker) / f"{TOPIC}-0")
    expected = {key.decode(): value.decode() for key, value in load.expected().items()}
    found = dumped_values(said)
    assert {key: value for key, value in found.items() if key in expected} == expected
