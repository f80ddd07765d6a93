"""Other people's clients use our cluster: three controllers and three brokers, each a process of its own.

Whatever a client writes, in whichever way, all clients read, and the same. Consumers name their partitions.
"""

import asyncio
import os
import time
from collections import defaultdict

import kafka
import pytest
from administrators import (
    AioKafkaAdmin,
    JavaAdmin,
    KafkaPythonAdmin,
    LibrdkafkaAdmin,
    OurAdmin,
)
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioKafkaError
from apache_oracle import missing
from apache_programs import ApachePrograms
from apache_tools import ApacheTools
from clients import (
    ALL,
    DEADLINE_S,
    WAYS,
    AioKafka,
    Java,
    KafkaPython,
    Kcat,
    Librdkafka,
    Ours,
    Record,
    Way,
)
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka.errors import KafkaError
from kcat_program import kcat_command

from node.cluster import ClusterProcesses
from node.processes import HOST
from quorate.protocol.batch import batches, records
from quorate.protocol.errors import ErrorCode

pytestmark = pytest.mark.interop

SITE = "SITE"
SETTINGS = {"num_partitions": "2", "default_replication_factor": "3"}
NAMES = ("librdkafka", "kafka-python", "aiokafka", "kcat", "java", "quorate")
ADMINS = ("librdkafka", "kafka-python", "aiokafka", "java", "quorate")
BROKERS = {101, 102, 103}
QUIET = {"log_level": 2}  # that the cluster goes away at the end is nothing to report
HOUR_MS = 3_600_000
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    listeners = {"PLAINTEXT": HOST, SITE: "localhost"}
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), listeners=listeners, **SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def programs():
    """Apache's programs of the pinned release."""
    if reason := missing():
        _do_without(reason)
    return ApachePrograms()


@pytest.fixture(scope="module")
def tools(programs):
    with ApacheTools.start(programs) as tools:
        yield tools


@pytest.fixture(scope="module")
def kcat():
    command = kcat_command()
    if command is None:
        _do_without("kcat is not on PATH, and its package cannot be had")
    return Kcat(command)


CLIENTS = {"librdkafka": Librdkafka, "kafka-python": KafkaPython, "aiokafka": AioKafka, "quorate": Ours}


@pytest.fixture(scope="module")
def client_named(request):
    """Clients by their names; those that need a program are made when they are asked for."""
    made = CLIENTS | {
        "kcat": lambda: request.getfixturevalue("kcat"),
        "java": lambda: Java(request.getfixturevalue("tools")),
    }
    return lambda name: made[name]()


@pytest.fixture(scope="module")
def admin(cluster):
    return AdminClient(QUIET | {"bootstrap.servers": cluster.bootstrap})


@pytest.fixture(scope="module")
def admin_named(cluster, request):
    made = {
        "librdkafka": LibrdkafkaAdmin,
        "kafka-python": KafkaPythonAdmin,
        "aiokafka": AioKafkaAdmin,
        "java": lambda servers: JavaAdmin(servers, request.getfixturevalue("tools")),
        "quorate": OurAdmin,
    }
    return lambda name: made[name](cluster.bootstrap)


def _do_without(reason):
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def created(cluster, admin, topic, **config):
    """Makes a topic of one partition with a replica on each broker."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(topic, 1, 3, config=settings)])[topic].result(DEADLINE_S)
    cluster.wait_until_led(topic)
    return topic


def end_offset(admin, topic, partition=0):
    at = TopicPartition(topic, partition)
    return admin.list_offsets({at: OffsetSpec.latest()})[at].result(DEADLINE_S).offset


def end_offset_of_all(cluster, topic):
    consumer = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id=None)
    partitions = [kafka.TopicPartition(topic, one) for one in consumer.partitions_for_topic(topic)]
    found = consumer.end_offsets(partitions)
    consumer.close()
    return [found[one] for one in partitions]


def produced(servers, topic, value, partition=0, timestamp=0, **settings):
    """What librdkafka reports of one record: an error or nothing, and the message."""
    producer = Producer(QUIET | {"bootstrap.servers": servers, "linger.ms": 0, **settings})
    reports = []
    producer.produce(
        topic, value, partition=partition, timestamp=timestamp, on_delivery=lambda *said: reports.append(said)
    )
    assert producer.flush(DEADLINE_S) == 0
    return reports[0]


def delivered(servers, topic, value, **options):
    error, message = produced(servers, topic, value, **options)
    assert error is None, error
    return message


def refusal(servers, topic, value, **options):
    """The code of the error that a record ends with."""
    error, _ = produced(servers, topic, value, **options)
    return ErrorCode.NONE if error is None else error.code()


# Everybody writes, everybody reads


@pytest.fixture(scope="module")
def written(cluster, admin, client_named):
    """One partition with what all clients wrote to it in all ways, and how many records that is."""
    topic, count = created(cluster, admin, "everything"), 0
    for name in NAMES:
        client = client_named(name)
        for way in WAYS:
            some = client.records(f"{name}/{way}")
            client.write(cluster.bootstrap, topic, some, way)
            count += len(some)
    # What nobody acknowledged may be under way.
    cluster.wait("everything is there", lambda: end_offset(admin, topic) == count)
    return topic, count


@pytest.mark.parametrize("reader", NAMES)
def test_everybody_reads_what_everybody_wrote(cluster, client_named, written, reader):
    topic, count = written
    seen = client_named(reader).read(cluster.bootstrap, topic, count)
    assert [one.offset for one in seen] == list(range(count))
    by_tag = defaultdict(list)
    for one in seen:
        by_tag[tag_of(one)].append(one)
    for name in NAMES:
        for way in WAYS:
            found = by_tag.pop(f"{name}/{way}")
            wanted = client_named(name).records(f"{name}/{way}")
            assert [as_written(one, like) for one, like in zip(found, wanted, strict=True)] == wanted
    assert not by_tag
    # Times that a client chose for itself: all see the same.
    assert seen == Librdkafka().read(cluster.bootstrap, topic, count)


def tag_of(seen):
    """Which client wrote a record, and how."""
    return next(part for one in (seen.value, seen.key) if one and b"/" in one for part in [text(one)])


def text(value):
    return value.split(b" ")[0].decode()


def as_written(seen, like):
    timestamp_ms = None if like.timestamp_ms is None else seen.timestamp_ms
    return Record(seen.key, seen.value, seen.headers, timestamp_ms)


def test_batches_are_stored_as_they_were_sent_and_alike_on_all_replicas(cluster, written):
    """In the codec that the client chose."""
    topic, count = written
    paths = [cluster.partition_directory(one, topic) / f"{0:020}.log" for one in cluster.broker_ids]

    def replicated():
        found = [path.read_bytes() for path in paths]
        return found[0] if found[0] == found[1] == found[2] else None

    data = cluster.wait("three replicas are the same", replicated)
    codecs = defaultdict(set)
    offsets = []
    for header in batches(data):
        for one in records(data, header):
            codecs[tag_of(one)].add(header.codec.name.lower())
            offsets.append(one.offset)
    assert offsets == list(range(count))
    assert codecs == {f"{name}/{way}": {way.codec} for name in NAMES for way in WAYS}


def test_whoever_reads_may_begin_anywhere(cluster, client_named, written):
    """In the middle of a batch, too."""
    topic, count = written
    everything = Librdkafka().read(cluster.bootstrap, topic, count)
    for name in NAMES:
        for offset in (1, count // 2, count - 1):
            found = client_named(name).read(cluster.bootstrap, topic, count - offset, offset)
            assert found == everything[offset:], f"{name} from {offset}"


# Timestamps


def test_a_topic_may_take_the_time_of_the_broker(cluster, admin, client_named):
    topic = created(cluster, admin, "append-time", message_timestamp_type="LogAppendTime")
    began_ms, count = int(time.time() * 1000), 0
    for name in NAMES:
        client = client_named(name)
        for codec in ("none", "lz4"):
            some = client.records(name)
            client.write(cluster.bootstrap, topic, some, Way(codec, ALL, False))
            count += len(some)
    views = [client_named(name).read(cluster.bootstrap, topic, count) for name in NAMES]
    assert all(one.has_append_time for one in views[0])
    assert all(began_ms <= one.timestamp_ms <= began_ms + HOUR_MS for one in views[0])
    assert all(view == views[0] for view in views)


def test_a_producer_is_told_the_time_of_the_broker(cluster, admin):
    topic = created(cluster, admin, "told-time", message_timestamp_type="LogAppendTime")
    told = delivered(cluster.bootstrap, topic, b"value", timestamp=1).timestamp()[1]
    assert told == Librdkafka().read(cluster.bootstrap, topic, 1)[0].timestamp_ms


def test_a_time_too_far_in_the_future_is_refused(cluster, admin):
    topic = created(cluster, admin, "future")
    tomorrow = int(time.time() * 1000) + 24 * HOUR_MS
    assert refusal(cluster.bootstrap, topic, b"value", timestamp=tomorrow) == ErrorCode.INVALID_TIMESTAMP


@pytest.fixture(scope="module")
def timed(cluster, admin):
    """Ten batches of one record each; their times are 1000, 2000, ..., but the third one's is 7500."""
    topic = created(cluster, admin, "timed", retention_ms="-1")
    for index in range(10):
        timestamp_ms = 7500 if index == 2 else 1000 * (index + 1)
        Librdkafka().write(cluster.bootstrap, topic, [Record(None, b"%d" % index, (), timestamp_ms)])
    return topic


TIMES = {0: 0, 1000: 0, 1500: 2, 7500: 2, 7501: 7, 10_000: 9, 10_001: None}


def test_librdkafka_finds_offsets_by_time(cluster, admin, timed):
    consumer = Consumer(QUIET | {"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    for timestamp_ms, offset in TIMES.items():
        (found,) = consumer.offsets_for_times([TopicPartition(timed, 0, timestamp_ms)], DEADLINE_S)
        assert (found.offset, found.error) == (-1 if offset is None else offset, None)
    assert consumer.get_watermark_offsets(TopicPartition(timed, 0), DEADLINE_S) == (0, 10)
    consumer.close()
    at = TopicPartition(timed, 0)
    for spec, offset in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 10),
        (OffsetSpec.max_timestamp(), 9),
        (OffsetSpec.for_timestamp(1500), 2),
    ):
        assert admin.list_offsets({at: spec})[at].result(DEADLINE_S).offset == offset


def test_kafka_python_finds_offsets_by_time(cluster, timed):
    consumer = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id=None)
    at = kafka.TopicPartition(timed, 0)
    for timestamp_ms, offset in TIMES.items():
        found = consumer.offsets_for_times({at: timestamp_ms})[at]
        assert (None if found is None else found.offset) == offset
    assert consumer.beginning_offsets([at]) == {at: 0}
    assert consumer.end_offsets([at]) == {at: 10}
    consumer.close()


def test_aiokafka_finds_offsets_by_time(cluster, timed):
    async def ask():
        at = AioPartition(timed, 0)
        async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap) as consumer:
            for timestamp_ms, offset in TIMES.items():
                found = (await consumer.offsets_for_times({at: timestamp_ms}))[at]
                assert (None if found is None else found.offset) == offset
            assert await consumer.beginning_offsets([at]) == {at: 0}
            assert await consumer.end_offsets([at]) == {at: 10}

    asyncio.run(ask())


def test_kcat_finds_offsets_by_time(cluster, kcat, timed):
    for timestamp_ms, offset in TIMES.items():
        said = kcat.run("-b", cluster.bootstrap, "-Q", "-t", f"{timed}:0:{timestamp_ms}")
        assert said.split() == [timed, "[0]", "offset", "-1" if offset is None else f"{offset}"]
    said = kcat.run(
        "-b", cluster.bootstrap, "-C", "-q", "-t", timed, "-p0", "-o", "s@7501", "-e", "-f", "%s "
    )
    assert said.split() == ["7", "8", "9"]


def test_kafka_get_offsets(cluster, tools, timed):
    def offset_at(time):
        where = ("--bootstrap-server", cluster.bootstrap, "--topic", timed)
        return tools.run("get_offsets", *where, "--time", time).strip()

    for timestamp_ms, offset in TIMES.items():
        assert offset_at(f"{timestamp_ms}") == f"{timed}:0:{'' if offset is None else offset}"
    for name, offset in (("earliest", 0), ("latest", 10), ("max-timestamp", 9)):
        assert offset_at(name) == f"{timed}:0:{offset}"


# Sizes


LARGE = {"message.max.bytes": 8_000_000}
LARGE_VALUE = os.urandom(2_500_000)


def test_what_is_too_large_is_refused_until_the_topic_allows_it(cluster, admin, admin_named, kcat, tools):
    topic, servers = created(cluster, admin, "large"), cluster.bootstrap
    assert refusal(servers, topic, LARGE_VALUE, **LARGE) == ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(KafkaError) as python:
        write_large_with_kafka_python(servers, topic)
    assert python.value.errno == ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(AioKafkaError) as aio:
        asyncio.run(write_large_with_aiokafka(servers, topic))
    assert aio.value.errno == ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(AssertionError, match="Message size too large"):
        write_large_with_kcat(servers, topic, kcat)
    assert "RecordTooLargeException" in write_large_with_java(servers, topic, tools)
    assert end_offset(admin, topic) == 0

    assert admin_named("kafka-python").alter(topic, "max.message.bytes", "3000000") == 0
    cluster.wait(
        "brokers go by the new limit", lambda: refusal(servers, topic, LARGE_VALUE, **LARGE) == ErrorCode.NONE
    )
    write_large_with_kafka_python(servers, topic)
    asyncio.run(write_large_with_aiokafka(servers, topic))
    write_large_with_kcat(servers, topic, kcat)
    assert "1 records sent" in write_large_with_java(servers, topic, tools)
    assert end_offset(admin, topic) == 5
    # A consumer gets a batch that is larger than everything that it asks for.
    for name in ("librdkafka", "kafka-python", "aiokafka", "quorate"):
        seen = CLIENTS[name]().read(servers, topic, 5)
        assert [one.value for one in seen[:3]] == [LARGE_VALUE] * 3
        assert [len(one.value) for one in seen] == [2_500_000] * 5


def write_large_with_kafka_python(servers, topic):
    producer = kafka.KafkaProducer(bootstrap_servers=servers, max_request_size=8_000_000)
    try:
        producer.send(topic, LARGE_VALUE, partition=0).get(DEADLINE_S)
    finally:
        producer.close()


async def write_large_with_aiokafka(servers, topic):
    async with AIOKafkaProducer(bootstrap_servers=servers, max_request_size=8_000_000) as producer:
        await producer.send_and_wait(topic, LARGE_VALUE, partition=0)


def write_large_with_kcat(servers, topic, kcat):
    options = ("-X", "message.max.bytes=8000000", "-D", "/")
    kcat.run("-b", servers, "-P", "-t", topic, "-p", "0", *options, stdin=b"x" * 2_500_000)


def write_large_with_java(servers, topic, tools):
    return tools.run(
        "producer_performance",
        *("--topic", topic, "--num-records", "1", "--record-size", "2500000", "--throughput", "-1"),
        *("--command-property", f"bootstrap.servers={servers}", "max.request.size=8000000"),
    )


# Topics


@pytest.mark.parametrize("name", ADMINS)
def test_topics_are_created_changed_and_deleted(cluster, admin_named, name):
    admin, topic = admin_named(name), f"life-{name}"
    assert admin.create(topic, 3, 3, {"retention.ms": "100000"}) == ErrorCode.NONE
    cluster.wait("it is there", lambda: topic in admin.topics())
    cluster.wait("everywhere", lambda: admin.replicas(topic) == dict.fromkeys(range(3), BROKERS))
    assert admin.config(topic) == {"retention.ms": "100000"}
    assert admin.create(topic, 3, 3, {}) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert admin.create(f"{topic}-wide", 1, 4, {}) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert admin.create(f"{topic}-odd", 1, 3, {"retention.ms": "long"}) == ErrorCode.INVALID_CONFIG

    assert admin.alter(topic, "retention.ms", "200000") == ErrorCode.NONE
    cluster.wait("it is changed", lambda: admin.config(topic) == {"retention.ms": "200000"})
    assert admin.alter(topic, "retention.ms", "long") == ErrorCode.INVALID_CONFIG

    assert admin.add_partitions(topic, 5) == ErrorCode.NONE
    cluster.wait("it has grown", lambda: admin.replicas(topic) == dict.fromkeys(range(5), BROKERS))
    assert admin.add_partitions(topic, 4) == ErrorCode.INVALID_PARTITIONS
    assert admin.config(topic) == {"retention.ms": "200000"}

    assert admin.delete(topic) == ErrorCode.NONE
    cluster.wait("it is gone", lambda: topic not in admin.topics() and admin.replicas(topic) == {})
    assert admin.delete(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.wait("its files too", lambda: not list(cluster.root.glob(f"node-*/{topic}-*")))


@pytest.mark.parametrize("name", NAMES)
def test_topics_come_into_being_when_somebody_writes_to_them(cluster, client_named, admin_named, name):
    client, topic = client_named(name), f"new-{name}"
    some = client.records(name)
    client.write(cluster.bootstrap, topic, some, Way("none", ALL, True))
    assert admin_named("librdkafka").replicas(topic) == dict.fromkeys(range(2), BROKERS)
    assert sum(end_offset_of_all(cluster, topic)) == len(some)


def test_topics_that_do_not_exist_are_said_not_to(cluster, admin_named, tools):
    for name in ADMINS:
        assert admin_named(name).replicas("nowhere") == {}
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "allow.auto.create.topics": False}
    consumer = Consumer(QUIET | settings)
    consumer.assign([TopicPartition("nowhere", 0, 0)])
    message = consumer.poll(DEADLINE_S)
    assert message.error().code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    consumer.close()
    where = ("--bootstrap-server", cluster.bootstrap, "--topic-partitions")
    assert "Could not match any topic-partitions" in tools.refused("get_offsets", *where, "nowhere:0")
    assert "nowhere" not in admin_named("librdkafka").topics()


def test_a_topic_with_a_bad_name_is_refused(cluster, admin_named):
    for name in ADMINS:
        if name != "java":  # its tool looks at names itself
            assert admin_named(name).create("a b", 1, 3, {}) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refusal(cluster.bootstrap, "a b", b"value", partition=-1) == ErrorCode.INVALID_TOPIC_EXCEPTION
