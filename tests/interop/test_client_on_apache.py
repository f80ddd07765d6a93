"""Our client on an Apache broker: what it writes, others read; what they write, it reads."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from apache_oracle import missing
from apache_programs import ApachePrograms
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from node.processes import CLUSTER_ID, HOST, Processes
from quorate.client.admin import Admin, NewTopic, Resource, ResourceKind
from quorate.client.cluster import ANY, Cluster, ClusterSettings, LeaderOf
from quorate.client.errors import Unavailable
from quorate.client.fetcher import EARLIEST, LATEST, Fetcher, FetcherSettings, Isolation, Reset
from quorate.client.metadata import TopicPartition
from quorate.client.offsets import MAX_TIMESTAMP
from quorate.client.partitioner import partition_for_key
from quorate.client.producer import ACKS_ALL, Producer, ProducerSettings
from quorate.protocol.api.admin import DescribeClusterRequest
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError, ErrorCode

pytestmark = pytest.mark.interop

SECONDS_MAX = 60
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "client.md"


class ApacheBroker:
    """One node that is broker and controller, and can be killed and started again."""

    def __init__(self, programs: ApachePrograms, root: Path, ports: Processes) -> None:
        self._programs = programs
        self._root = root
        self.port = ports.port(1)
        self.bootstrap = f"{HOST}:{self.port}"
        self._properties = root / "server.properties"
        self._properties.write_text(
            textwrap.dedent(f"""\
                process.roles=broker,controller
                node.id=1
                controller.quorum.voters=1@{HOST}:{ports.port(2)}
                listeners=PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{ports.port(2)}
                advertised.listeners=PLAINTEXT://{HOST}:{self.port}
                controller.listener.names=CONTROLLER
                listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
                log.dirs={root / "data"}
                offsets.topic.replication.factor=1
                transaction.state.log.replication.factor=1
                transaction.state.log.min.isr=1
                transaction.state.log.num.partitions=1
                share.coordinator.state.topic.replication.factor=1
                share.coordinator.state.topic.min.isr=1
                group.initial.rebalance.delay.ms=0
                auto.create.topics.enable=false
                """)
        )
        programs.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties))
        self.log = root / "broker.log"

    @contextmanager
    def running(self) -> Iterator[Callable[[], None]]:
        """The broker, answering; yields a function that kills it."""
        with self._programs.node(self._properties, self.log) as process:
            run(self._answers())
            yield lambda: process.send_signal(signal.SIGKILL)

    async def _answers(self) -> None:
        settings = ClusterSettings(deadline_ms=SECONDS_MAX * 1000, retries_max=1000)
        async with Cluster(self.bootstrap, settings=settings) as cluster:
            await cluster.request(ANY, DescribeClusterRequest(include_cluster_authorized_operations=False))


@pytest.fixture(scope="module")
def programs() -> ApachePrograms:
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return ApachePrograms()


@pytest.fixture(scope="module")
def broker(programs, tmp_path_factory) -> Iterator[ApacheBroker]:
    root = tmp_path_factory.mktemp("apache")
    with Processes(root) as ports:
        made = ApacheBroker(programs, root, ports)
        with made.running():
            yield made


def run(test: Awaitable[object]) -> None:
    """Runs a coroutine; nothing of ours may raise in the loop itself."""
    reached_the_loop: list[dict[str, object]] = []

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reached_the_loop.append(context))
        async with asyncio.timeout(2 * SECONDS_MAX):
            await test

    asyncio.run(whole())
    assert reached_the_loop == []


async def make(cluster: Cluster, name: str, partitions: int = 1, **configs: str) -> None:
    topic = NewTopic(name, partitions=partitions, replication_factor=1, configs=configs)
    await Admin(cluster).create_topics(topic)


async def read(cluster: Cluster, topic: str, count: int, **settings) -> dict[int, list]:
    """That many records of a topic, by partition, from the beginning."""
    found: dict[int, list] = {}
    async with Fetcher(cluster, FetcherSettings(**settings)) as fetcher:
        known = await cluster.topic(topic)
        fetcher.assign({(topic, index): EARLIEST for index in known.partitions})
        while sum(map(len, found.values())) < count:
            for part in await fetcher.fetch():
                found.setdefault(part.partition, []).extend(part.records())
    return found


async def in_thread(function, *arguments):
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def read_with_librdkafka(bootstrap: str, topic: str, partitions: int, count: int, **options) -> list:
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False, **options}
    consumer = LibrdkafkaConsumer(settings)
    consumer.assign([LibrdkafkaPartition(topic, index, 0) for index in range(partitions)])
    found = []
    while len(found) < count:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, f"{len(found)} of {count}"
        assert message.error() is None, message.error()
        headers = [(name, value) for name, value in message.headers() or []]
        found.append(
            (
                message.partition(),
                message.offset(),
                message.timestamp()[1],
                message.key(),
                message.value(),
                headers,
            )
        )
    consumer.close()
    return sorted(found, key=lambda one: one[:2])


def read_with_kafka_python(bootstrap: str, topic: str, partitions: int, count: int) -> list:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    consumer.assign([PythonPartition(topic, index) for index in range(partitions)])
    found = []
    while len(found) < count:
        for messages in consumer.poll(timeout_ms=1000).values():
            found += [
                (one.partition, one.offset, one.timestamp, one.key, one.value, list(one.headers))
                for one in messages
            ]
    consumer.close()
    return sorted(found, key=lambda one: one[:2])


@pytest.mark.parametrize("codec", Codec)
def test_what_we_write_with_every_codec_others_read(broker, codec):
    async def test() -> None:
        topic = f"codec-{codec.name.lower()}"
        async with Cluster(broker.bootstrap) as cluster:
            await make(cluster, topic, partitions=2)
            expected = []
            async with Producer(cluster, ProducerSettings(codec=codec, batch_bytes_max=20_000)) as producer:
                for number in range(500):
                    key, value = b"key-%d" % (number % 20), b"value %d " % number * 20
                    headers = [("number", b"%d" % number), ("none", None)] if number % 3 == 0 else []
                    sent = await producer.send(
                        topic, value, key=key, headers=headers, timestamp_ms=1000 + number
                    )
                    expected.append((sent, 1000 + number, key, value, headers))
                await producer.flush()
            written = sorted([(*(await sent), *rest) for sent, *rest in expected], key=lambda one: one[:2])
            theirs = await in_thread(read_with_librdkafka, broker.bootstrap, topic, 2, 500)
            assert theirs == written
            assert await in_thread(read_with_kafka_python, broker.bootstrap, topic, 2, 500) == written
            ours = await read(cluster, topic, 500)
            assert [
                (index, one.offset, one.timestamp, one.key, one.value, list(one.headers))
                for index in sorted(ours)
                for one in ours[index]
            ] == written

    run(test())


def test_our_columns_say_what_our_records_say(broker):
    async def test() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            await make(cluster, "columns")
            async with Producer(cluster, ProducerSettings(codec=Codec.ZSTD)) as producer:
                for number in range(2000):
                    await producer.send("columns", b"v%d" % number, key=None if number % 2 else b"k")
            seen = 0
            async with Fetcher(cluster) as fetcher:
                fetcher.assign({("columns", 0): 777})  # in the middle of a batch
                while seen < 2000 - 777:
                    for part in await fetcher.fetch():
                        records, columns = list(part.records()), part.columns()
                        assert [one.offset for one in records] == columns.offset.tolist()
                        assert [one.value for one in records] == [
                            columns.value(i) for i in range(len(columns))
                        ]
                        assert [one.key for one in records] == [columns.key(i) for i in range(len(columns))]
                        seen += len(records)
            assert records[-1].offset == 1999

    run(test())


@pytest.mark.parametrize("acks", [0, 1, ACKS_ALL])
def test_every_kind_of_acknowledgement(broker, acks):
    async def test() -> None:
        topic = f"acks-{acks}".replace("--", "-all")
        async with Cluster(broker.bootstrap) as cluster:
            await make(cluster, topic)
            async with Producer(cluster, ProducerSettings(acks=acks, batch_bytes_max=1000)) as producer:
                receipts = [await producer.send(topic, b"%d" % number) for number in range(300)]
                delivered = await asyncio.gather(*receipts)
                found = await read(cluster, topic, 300)
            assert [one.value for one in found[0]] == [b"%d" % number for number in range(300)]
            assert [one.offset for one in delivered] == ([-1] * 300 if acks == 0 else list(range(300)))

    run(test())


def test_what_others_write_we_read(broker):
    async def test() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            await make(cluster, "theirs", partitions=3)
            sent = await in_thread(write_with_others, broker.bootstrap, "theirs")
            found = await read(cluster, "theirs", len(sent))
            assert sorted((one.key, one.value) for part in found.values() for one in part) == sorted(sent)
            # Java's function of the key, in kafka-python and in librdkafka
            for index, part in found.items():
                assert {partition_for_key(one.key, 3) for one in part} == {index}

    def write_with_others(bootstrap: str, topic: str) -> list[tuple[bytes, bytes]]:
        sent = []
        python = KafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip", linger_ms=5)
        librdkafka = LibrdkafkaProducer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": "lz4",
                "partitioner": "murmur2_random",
                "linger.ms": 5,
            }
        )
        for number in range(300):
            key, value = b"key-%d" % number, b"value-%d" % number
            python.send(topic, key=key, value=b"python " + value)
            librdkafka.produce(topic, key=key, value=b"librdkafka " + value)
            sent += [(key, b"python " + value), (key, b"librdkafka " + value)]
        python.flush()
        python.close()
        librdkafka.flush()
        return sent

    run(test())


def test_aborted_transactions_are_not_seen_by_who_reads_what_is_committed(broker):
    def write(bootstrap: str) -> None:
        producer = LibrdkafkaProducer({"bootstrap.servers": bootstrap, "transactional.id": "tx"})
        producer.init_transactions(SECONDS_MAX)
        for number in range(6):
            producer.begin_transaction()
            for part in range(3):
                producer.produce("transactions", b"%s %d %d" % (b"ac"[number % 2 :][:1], number, part))
            producer.flush()
            if number % 2:
                producer.commit_transaction(SECONDS_MAX)
            else:
                producer.abort_transaction(SECONDS_MAX)

    async def test() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            await make(cluster, "transactions")
            await in_thread(write, broker.bootstrap)
            everything = await read(cluster, "transactions", 18)
            committed = await read(cluster, "transactions", 9, isolation=Isolation.READ_COMMITTED)
            assert len(everything[0]) == 18
            assert committed[0] == [one for one in everything[0] if one.value.startswith(b"c")]
            theirs = await in_thread(read_with_librdkafka, broker.bootstrap, "transactions", 1, 9)
            assert [one.value for one in committed[0]] == [one[4] for one in theirs]
            offsets = await Admin(cluster).list_offsets({("transactions", 0): LATEST}, isolation_level=1)
            async with Fetcher(cluster, FetcherSettings(isolation=Isolation.READ_COMMITTED)) as fetcher:
                fetcher.assign({("transactions", 0): EARLIEST})
                while (
                    fetcher.position(("transactions", 0)) != offsets[TopicPartition("transactions", 0)].offset
                ):
                    await fetcher.fetch(timeout_ms=100)  # the last thing is a marker: passed over silently

    run(test())


def test_nothing_is_lost_or_repeated_when_the_broker_is_killed_and_restarted(programs, tmp_path):
    """Killed under load, then stopped under load: every record is there once, in order."""
    sent: list[tuple[bytes, asyncio.Future]] = []

    @asynccontextmanager
    async def up(broker: ApacheBroker) -> AsyncIterator[Callable[[], None]]:
        running = broker.running()
        kill = await in_thread(running.__enter__)
        try:
            yield kill
        finally:
            await in_thread(running.__exit__, None, None, None)

    async def send_until(stop: asyncio.Event, producer: Producer) -> None:
        while not stop.is_set():
            for _ in range(100):
                value = b"%d" % len(sent)
                sent.append((value, await producer.send("restarts", value, partition=len(sent) % 2)))
            await sent[-30][1]

    async def delivered_more(count: int) -> None:
        begun = len(sent)
        while len(sent) < begun + count or not sent[begun + count - 1][1].done():
            await asyncio.sleep(0.001)

    async def test(broker: ApacheBroker) -> None:
        settings = ClusterSettings(metadata_timeout_ms=2000, connect_timeout_ms=2000)
        async with Cluster(broker.bootstrap, settings=settings) as cluster:
            async with up(broker):
                await make(cluster, "restarts", partitions=2)
            produce = ProducerSettings(batch_bytes_max=1000, request_timeout_ms=10_000)
            async with Producer(cluster, produce) as producer:
                stop = asyncio.Event()
                sending = asyncio.get_running_loop().create_task(send_until(stop, producer))
                for how in ("killed", "stopped"):
                    async with up(broker) as kill:
                        await delivered_more(3000)
                        if how == "killed":
                            kill()
                async with up(broker):
                    await delivered_more(1000)
                    stop.set()
                    await sending
                    await producer.flush()
                    found = await read(cluster, "restarts", len(sent))
        delivered = [receipt.result() for _, receipt in sent]
        for index in (0, 1):
            values = [value for number, (value, _) in enumerate(sent) if number % 2 == index]
            assert [one.value for one in found[index]] == values
        for (value, _), (index, offset) in zip(sent, delivered, strict=True):
            assert offset == -1 or found[index][offset].value == value

    with Processes(tmp_path) as ports:
        run(test(ApacheBroker(programs, tmp_path, ports)))


def test_topics_partitions_and_configs(broker):
    async def test() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            admin = Admin(cluster)
            made = await admin.create_topics(
                NewTopic("a", partitions=2, configs={"retention.ms": "1000"}),
                NewTopic("b", assignments={0: [1]}),
            )
            with pytest.raises(ApiError) as refusal:
                await admin.create_topics(NewTopic("a"), NewTopic("c/d"))
            assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
            assert "'a'" in str(refusal.value)
            assert "INVALID_TOPIC_EXCEPTION: topic 'c/d'" in str(refusal.value)
            await admin.create_topics(NewTopic("only-a-thought", partitions=1), validate_only=True)

            await admin.create_partitions({"a": 4})
            described = await until(
                lambda: admin.describe_topics("a", "b"), lambda said: len(said["a"].partitions) == 4
            )
            assert described["a"].id == made["a"]
            assert described["b"].partitions[0].replicas == described["b"].partitions[0].in_sync == (1,)
            names = await admin.list_topics()
            assert {"a", "b"} <= set(names)
            assert "only-a-thought" not in names

            resource = Resource(ResourceKind.TOPIC, "a")
            configs = await admin.describe_configs(resource, ["retention.ms", "cleanup.policy"])
            assert configs["retention.ms"][:2] == ("1000", 1)
            assert configs["cleanup.policy"].value == "delete"
            await admin.alter_configs(
                resource,
                put={"segment.ms": "5000"},
                delete=["retention.ms"],
                append={"cleanup.policy": "compact"},
            )
            configs = await until(
                lambda: admin.describe_configs(resource), lambda said: said["segment.ms"].value == "5000"
            )
            assert configs["retention.ms"].source == 5
            assert sorted(configs["cleanup.policy"].value.split(",")) == ["compact", "delete"]
            with pytest.raises(ApiError, match=r"INVALID_CONFIG: topic 'a'"):
                await admin.alter_configs(resource, put={"retention.ms": "soon"})
            one = await admin.describe_configs(Resource(ResourceKind.BROKER, "1"), ["log.dirs", "node.id"])
            assert one["node.id"].value == "1"
            await admin.alter_configs(Resource(ResourceKind.BROKER, ""), put={"log.cleaner.threads": "2"})

            await admin.delete_topics("a", "b")
            await until(admin.list_topics, lambda said: not {"a", "b"} & set(said))
            with pytest.raises(ApiError, match=r"UNKNOWN_TOPIC_OR_PARTITION: topic 'a'"):
                await admin.delete_topics("a")

    run(test())


async def until(ask, is_so):
    """Brokers hear of what a controller did a little later."""
    while not is_so(said := await ask()):
        await asyncio.sleep(0.01)
    return said


def test_the_cluster_the_quorum_leaders_and_replicas(broker):
    async def test() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            admin = Admin(cluster)
            described = await admin.describe_cluster()
            assert described.cluster_id == CLUSTER_ID
            assert described.brokers[1].address == (HOST, broker.port)
            assert described.fenced == []
            quorum = await admin.describe_quorum()
            assert quorum.leader_id == 1
            assert [one.id for one in quorum.voters] == [1]
            assert quorum.voters[0].end_offset >= quorum.high_watermark > 0

            await make(cluster, "led", partitions=2)
            await cluster.leader("led", 1)
            await admin.elect_leaders([("led", 0), ("led", 1)])
            await admin.elect_leaders()
            with pytest.raises(ApiError) as refusal:
                await admin.elect_leaders([("nowhere", 7)])
            assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await admin.reassign({("led", 0): [1]})
            assert await admin.list_reassignments() == {}
            with pytest.raises(ApiError, match="led-1"):
                await admin.reassign({("led", 1): [1, 2]})
            with pytest.raises(ApiError, match="NO_REASSIGNMENT_IN_PROGRESS"):
                await admin.reassign({("led", 0): None})
            with pytest.raises(ApiError, match="BROKER_ID_NOT_REGISTERED"):
                await admin.unregister_broker(99)

    run(test())


def test_offsets_by_time_and_where_reading_begins(broker):
    async def test() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            await make(cluster, "times")
            at = TopicPartition("times", 0)
            async with Producer(cluster) as producer:
                for timestamp in (1000, 3000, 2000):
                    await (await producer.send("times", b"%d" % timestamp, timestamp_ms=timestamp))
            admin = Admin(cluster)
            for asked, offset in ((EARLIEST, 0), (LATEST, 3), (MAX_TIMESTAMP, 1), (1001, 1), (9999, -1)):
                assert (await admin.list_offsets({at: asked}))[at].offset == offset
            async with Fetcher(cluster, FetcherSettings(reset=Reset.ERROR)) as fetcher:
                fetcher.assign({at: 1})
                (part,) = await fetcher.fetch()
                assert [one.offset for one in part.records()] == [1, 2]
                assert fetcher.high_watermark(at) == 3
                fetcher.seek(at, 1000)
                with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE: times-0 has no offset 1000"):
                    await fetcher.fetch()
                fetcher.seek(at, LATEST)
                assert await fetcher.fetch(timeout_ms=1000) == []
                assert fetcher.position(at) == 3

    run(test())


def test_errors_say_what_to_do(broker):
    async def test() -> None:
        settings = ClusterSettings(unknown_topic_wait_ms=200, deadline_ms=500, connect_timeout_ms=200)
        async with Cluster(broker.bootstrap, settings=settings) as cluster:
            with pytest.raises(ApiError, match=r"topic 'nowhere' does not exist.*create it first"):
                await cluster.topic("nowhere")
            with pytest.raises(ApiError, match="not a legal name"):
                await cluster.topic("no/where")
            await make(cluster, "somewhere")
            async with Producer(cluster) as producer:
                with pytest.raises(ApiError, match="'somewhere' has 1 partitions, and no 7"):
                    await producer.send("somewhere", b"", partition=7)
            with pytest.raises(ApiError, match="no 7"):
                await cluster.request(
                    LeaderOf("somewhere", 7),
                    DescribeClusterRequest(include_cluster_authorized_operations=False),
                )
        with socket.create_server((HOST, 0)) as nobody:
            port = nobody.getsockname()[1]
        async with Cluster(f"{HOST}:{port}", settings=settings) as cluster:
            with pytest.raises(Unavailable, match="Is the cluster running, and are the addresses right"):
                await cluster.topic("somewhere")

    run(test())


def test_the_examples_of_the_documentation_work(broker):
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        names: dict[str, object] = {}
        exec(compile(block.replace("localhost:9092", broker.bootstrap), str(DOCUMENTATION), "exec"), names)
        run(names["main"]())  # type: ignore[operator]
