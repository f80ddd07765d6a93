"""Other people's clients use our cluster: three brokers, each a process of its own, in either mode.

Whatever a client writes, in whichever way, all clients read, and the same. Consumers name their partitions.
"""

import asyncio
import json
import os
import re
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
    CODECS,
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
from node.zookeeper_processes import BOTH_MODES, cluster_of
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


@pytest.fixture(scope="module", params=BOTH_MODES)
def cluster(request, tmp_path_factory):
    root, listeners = tmp_path_factory.mktemp("cluster"), {"PLAINTEXT": HOST, SITE: "localhost"}
    with cluster_of(request.param, root, listeners=listeners, **SETTINGS) as cluster:
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
        pytest.skip("kcat is not on PATH, and its package cannot be had")
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
def names(client_named):
    """The clients that there are on this machine."""
    found = []
    for name in NAMES:
        try:
            client_named(name)
        except pytest.skip.Exception:
            continue
        found.append(name)
    return found


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
    kept = {}

    def administrator(name):
        if name not in kept:
            kept[name] = made[name](cluster.bootstrap)
        return kept[name]

    yield administrator
    if "kafka-python" in kept:
        kept["kafka-python"].close()


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
def written(cluster, admin, client_named, names):
    """One partition with what all clients wrote to it in all ways, and how many records that is."""
    topic, count = created(cluster, admin, "everything"), 0
    for name in names:
        client = client_named(name)
        for way in WAYS:
            some = client.records(f"{name}/{way}")
            client.write(cluster.bootstrap, topic, some, way)
            count += len(some)
    # What nobody acknowledged may be under way.
    cluster.wait("everything is there", lambda: end_offset(admin, topic) == count)
    return topic, count


@pytest.mark.parametrize("reader", NAMES)
def test_everybody_reads_what_everybody_wrote(cluster, client_named, names, written, reader):
    topic, count = written
    seen = client_named(reader).read(cluster.bootstrap, topic, count)
    assert [one.offset for one in seen] == list(range(count))
    by_tag = defaultdict(list)
    for one in seen:
        by_tag[tag_of(one)].append(one)
    for name in names:
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


def test_batches_are_stored_as_they_were_sent_and_alike_on_all_replicas(cluster, names, written):
    """In the codec that the client chose."""
    topic, count = written
    data = cluster.wait("three replicas are the same", lambda: replicated(cluster, topic))
    codecs = defaultdict(set)
    offsets = []
    for header in batches(data):
        for one in records(data, header):
            codecs[tag_of(one)].add(header.codec.name.lower())
            offsets.append(one.offset)
    assert offsets == list(range(count))
    assert len(codecs) == len(names) * len(WAYS)
    for tag, found in codecs.items():
        wanted = tag.split("/")[1]
        # A batch that would not become smaller may stay as it is: a client may send the first record alone.
        assert wanted in found <= {wanted, "none"}, tag


def replicated(cluster, topic):
    """The segments of a partition, one after the other, if all brokers have the same."""
    found = []
    for one in cluster.broker_ids:
        paths = sorted(cluster.partition_directory(one, topic).glob("*.log"))
        found.append({path.name: path.read_bytes() for path in paths})
    return b"".join(found[0].values()) if found[0] == found[1] == found[2] else None


@pytest.mark.parametrize("codec", ["uncompressed", *CODECS[1:]])
def test_a_topic_may_have_a_codec_of_its_own(cluster, admin, client_named, names, codec):
    """Whatever clients send."""
    topic = created(cluster, admin, f"codec-{codec}", compression_type=codec)
    wanted = []
    for sent in CODECS:
        some = [Record(b"key", b"%d " % index * 100, (("a", b"1"),), 1000 + index) for index in range(5)]
        Librdkafka().write(cluster.bootstrap, topic, some, Way(sent, ALL, True))
        wanted += some
    for name in names:
        seen = client_named(name).read(cluster.bootstrap, topic, len(wanted))
        assert [as_written(one, like) for one, like in zip(seen, wanted, strict=True)] == wanted
    data = cluster.wait("three replicas are the same", lambda: replicated(cluster, topic))
    stored = {header.codec.name.lower() for header in batches(data)}
    assert stored == {"none" if codec == "uncompressed" else codec}


def test_a_compacted_topic_wants_keys(cluster, admin):
    topic = created(cluster, admin, "compacted", cleanup_policy="compact")
    assert refusal(cluster.bootstrap, topic, b"value") == ErrorCode.INVALID_RECORD


def test_whoever_reads_may_begin_anywhere(cluster, client_named, names, written):
    """In the middle of a batch, too."""
    topic, count = written
    everything = Librdkafka().read(cluster.bootstrap, topic, count)
    for name in names:
        for offset in (1, count // 2, count - 1):
            found = client_named(name).read(cluster.bootstrap, topic, count - offset, offset)
            assert found == everything[offset:], f"{name} from {offset}"


# Timestamps


def test_a_topic_may_take_the_time_of_the_broker(cluster, admin, client_named, names):
    topic = created(cluster, admin, "append-time", message_timestamp_type="LogAppendTime")
    began_ms, count = int(time.time() * 1000), 0
    for name in names:
        client = client_named(name)
        for codec in ("none", "lz4"):
            some = client.records(name)
            client.write(cluster.bootstrap, topic, some, Way(codec, ALL, False))
            count += len(some)
    views = [client_named(name).read(cluster.bootstrap, topic, count) for name in names]
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


TIMES = {0: 0, 1000: 0, 1500: 1, 2001: 2, 7500: 2, 7501: 7, 10_000: 9, 10_001: None}


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
        (OffsetSpec.for_timestamp(2001), 2),
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
        assert offset_at(f"{timestamp_ms}") == ("" if offset is None else f"{timed}:0:{offset}")
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


@pytest.mark.parametrize("name", [name for name in NAMES if name != "quorate"])  # ours wants to be sure
def test_topics_come_into_being_when_somebody_writes_to_them(cluster, client_named, admin_named, name):
    client, topic = client_named(name), f"new-{name}"
    some = client.records(name)
    client.write(cluster.bootstrap, topic, some, Way("none", ALL, True))
    assert admin_named("librdkafka").replicas(topic) == dict.fromkeys(range(2), BROKERS)
    assert sum(end_offset_of_all(cluster, topic)) == len(some)


def test_topics_that_do_not_exist_are_said_not_to(cluster, admin_named, tools):
    for name in ADMINS:
        assert admin_named(name).replicas("nowhere") == {}, name
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "allow.auto.create.topics": False}
    consumer = Consumer(QUIET | settings)
    described = consumer.list_topics("nowhere", DEADLINE_S).topics["nowhere"]
    assert described.error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    consumer.close()
    settings = {"bootstrap_servers": cluster.bootstrap, "allow_auto_create_topics": False}
    other = kafka.KafkaConsumer(**settings, group_id=None)
    assert not other.partitions_for_topic("nowhere")
    other.close()
    where = ("--bootstrap-server", cluster.bootstrap, "--topic-partitions")
    assert "Could not match any topic-partitions" in tools.refused("get_offsets", *where, "nowhere:0")
    assert "nowhere" not in admin_named("librdkafka").topics()


def test_a_topic_with_a_bad_name_is_refused(cluster, admin_named):
    for name in ADMINS:
        if name != "java":  # its tool looks at names itself
            assert admin_named(name).create("a b", 1, 3, {}) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refusal(cluster.bootstrap, "a b", b"value", partition=-1) == ErrorCode.INVALID_TOPIC_EXCEPTION


# Listeners


@pytest.mark.parametrize(("listener", "host"), [("PLAINTEXT", HOST), (SITE, "localhost")])
def test_clients_of_each_listener_are_told_its_addresses(
    cluster, admin, client_named, names, kcat, tools, listener, host
):
    servers = cluster.bootstrap_by(listener)
    addresses = {one: (host, cluster.client_port(one, listener)) for one in cluster.broker_ids}
    assert cluster.brokers_known_to(102, listener=listener) == addresses
    shown = {f"{host}:{port}" for _, port in addresses.values()}
    listed = json.loads(kcat.run("-b", servers, "-L", "-J"))["brokers"]
    assert {one["name"] for one in listed} == shown
    by_this = AdminClient(QUIET | {"bootstrap.servers": servers})
    described = by_this.describe_cluster().result(DEADLINE_S)
    assert {one.id: (one.host, one.port) for one in described.nodes} == addresses
    printed = tools.run("api_versions", "--bootstrap-server", servers)
    assert set(re.findall(r"^(\S+) \(id: ", printed, re.MULTILINE)) == shown
    topic = created(cluster, admin, f"by-{listener}")
    for name in names:
        client_named(name).write(servers, topic, [Record(b"key", b"value")], Way("lz4", ALL, name != "kcat"))
    for name in names:
        seen = client_named(name).read(servers, topic, len(names))
        assert [(one.key, one.value) for one in seen] == [(b"key", b"value")] * len(names)


# Apache's other tools


def test_kafka_verifiable_producer(cluster, admin, programs):
    """In a Java machine of its own: it says what came of it while that ends."""
    topic = created(cluster, admin, "verifiable")
    where = ("--bootstrap-server", cluster.bootstrap, "--topic", topic)
    printed = programs.run(VERIFIABLE_PRODUCER, *where, "--max-messages", "1000", "--acks", "-1")
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    sent = [one for one in events if one["name"] == "producer_send_success"]
    assert sorted((one["offset"], int(one["value"])) for one in sent) == [(one, one) for one in range(1000)]
    (summary,) = [one for one in events if one["name"] == "tool_data"]
    assert (summary["sent"], summary["acked"]) == (1000, 1000)
    seen = Librdkafka().read(cluster.bootstrap, topic, 1000)
    assert [int(one.value) for one in seen] == list(range(1000))


@pytest.mark.parametrize(("acks", "codec"), [("0", "lz4"), ("1", "snappy"), ("all", "zstd")])
def test_kafka_producer_perf_test(cluster, admin, tools, acks, codec):
    topic = created(cluster, admin, f"performance-{acks}")
    properties = (f"bootstrap.servers={cluster.bootstrap}", f"acks={acks}", f"compression.type={codec}")
    printed = tools.run(
        "producer_performance",
        *("--topic", topic, "--num-records", "20000", "--record-size", "200", "--throughput", "-1"),
        *("--command-property", *properties),
    )
    assert "20000 records sent" in printed
    cluster.wait("all are there", lambda: end_offset(admin, topic) == 20_000)
    assert len(Librdkafka().read(cluster.bootstrap, topic, 20_000)) == 20_000


def test_kafka_metadata_quorum(cluster, tools):
    if cluster.mode != "kraft":
        pytest.skip("there is no quorum")
    for where in (("--bootstrap-server", cluster.bootstrap), ("--bootstrap-controller", cluster.controllers)):
        status = tools.run("metadata_quorum", *where, "describe", "--status")
        assert re.search(rf"ClusterId: +{cluster.cluster_id}\n", status)
        assert re.search(r"LeaderId: +[123]\n", status)
        voters, observers = (
            [one["id"] for one in json.loads(re.search(rf"{kind}: +(.*)", status)[1])]
            for kind in ("CurrentVoters", "CurrentObservers")
        )
        assert (sorted(voters), sorted(observers)) == ([1, 2, 3], sorted(BROKERS))
        replication = tools.run("metadata_quorum", *where, "describe", "--replication")
        kinds = re.findall(r"^(\d+)\s.*(Leader|Follower|Observer)\s*$", replication, re.MULTILINE)
        assert sorted(int(one) for one, kind in kinds if kind == "Observer") == sorted(BROKERS)
        assert sorted(kind for _, kind in kinds if kind != "Observer") == ["Follower", "Follower", "Leader"]


def test_kafka_broker_api_versions_cluster_and_features(cluster, tools):
    where = ("--bootstrap-server", cluster.bootstrap)
    versions = tools.run("api_versions", *where)
    assert "ERROR" not in versions
    for name in ("Produce", "Fetch", "ListOffsets", "Metadata", "InitProducerId", "DescribeTopicPartitions"):
        # Every broker has all that this Java client would use.
        usable = re.findall(rf"\t{name}\(\d+\): .*\[usable: (\d+)\]", versions)
        assert len(usable) == len(BROKERS), name
    assert cluster.cluster_id in tools.run("cluster", "cluster-id", *where)
    if cluster.mode == "kraft":
        features = tools.run("features", *where, "describe")
        assert re.search(r"metadata.version.*FinalizedVersionLevel: 4.3-IV0", features)


def test_kafka_configs_of_brokers(cluster, tools):
    where = ("--bootstrap-server", cluster.bootstrap, "--entity-type", "brokers")
    one, everyone = (*where, "--entity-name", "102"), (*where, "--entity-default")
    tools.run("configs", *one, "--alter", "--add-config", "log.cleaner.threads=2")
    tools.run("configs", *everyone, "--alter", "--add-config", "log.cleaner.threads=3")

    def configured():
        return re.search(r"  log.cleaner.threads=(\d+) .*{(.*)}", tools.run("configs", *one, "--describe"))

    found = cluster.wait("it is set", lambda: (found := configured()) and "3" in found[2] and found)
    assert found[1] == "2"
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=3" in found[2]
    assert "log.cleaner.threads=3" in tools.run("configs", *everyone, "--describe")
    static = tools.run("configs", *one, "--describe", "--all")
    key = "node.id" if cluster.mode == "kraft" else "broker.id"
    assert f"  {key}=102 sensitive=false synonyms={{STATIC_BROKER_CONFIG:{key}=102" in static
    assert "InvalidRequest" in tools.refused("configs", *one, "--alter", "--add-config", "node.id=7")
    for entity in (one, everyone):
        tools.run("configs", *entity, "--alter", "--delete-config", "log.cleaner.threads")
    cluster.wait("it is gone", lambda: configured() is None)


COMPLAINTS = re.compile(
    r"mismatch|corrupt|invalid|isvalid: false|exception|error|non-consecutive|could not|skip", re.IGNORECASE
)
# The tool looks for the offset before the first one of a segment.
FALSE_ALARM = re.compile(r"Non-consecutive offsets in .*\n  -1 is followed by \d+\n|isvalid: true")


def test_kafka_dump_log_reads_the_files_of_all_replicas(cluster, admin, tools):
    topic = created(cluster, admin, "dumped", segment_bytes="1048576", index_interval_bytes="4096")
    settings = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "batch.size": 16384}
    producer = Producer(QUIET | settings)
    for index in range(3000):
        producer.produce(topic, os.urandom(1000), b"%d" % index, 0, timestamp=1_700_000_000_000 + index)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    cluster.wait("three replicas are the same", lambda: replicated(cluster, topic))
    for one in cluster.broker_ids:
        paths = sorted(cluster.partition_directory(one, topic).glob("0*.*"))
        kinds = [path.suffix for path in paths]
        assert kinds.count(".log") >= 3
        assert {".log", ".index", ".timeindex", ".snapshot"} <= set(kinds)
        files = ("--files", ",".join(str(path) for path in paths if path.suffix != ".txnindex"))
        printed = tools.run("dump_log", "--deep-iteration", *files)
        assert not COMPLAINTS.search(FALSE_ALARM.sub("", printed))
        assert re.findall(r"\| offset: (\d+) ", printed) == [str(index) for index in range(3000)]
        for check in ("--index-sanity-check", "--verify-index-only"):
            printed = tools.run("dump_log", check, *files)
            assert not COMPLAINTS.search(FALSE_ALARM.sub("", printed))


# One node that is everything


def test_a_cluster_may_be_one_node(tmp_path, client_named, names):
    with ClusterProcesses(tmp_path, combined=1) as cluster:
        for name in names:  # the first of them creates the topic
            client_named(name).write(cluster.bootstrap, "orders", [Record(b"key", name.encode())])
        seen = client_named("quorate").read(cluster.bootstrap, "orders", len(names))
        assert [one.value.decode() for one in seen] == names
        assert cluster.terminate(1) == 0
