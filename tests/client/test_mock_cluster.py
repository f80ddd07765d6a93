"""Our client on librdkafka's own mock cluster: three brokers that somebody else wrote."""

import asyncio

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka.admin import AdminClient

from quorate.client.cluster import Cluster, ClusterSettings
from quorate.client.fetcher import EARLIEST, Fetcher
from quorate.client.offsets import LATEST, list_offsets
from quorate.client.producer import Producer, ProducerSettings
from quorate.protocol.api.connection import ApiVersionsRequest
from quorate.protocol.api.topics import MetadataRequest
from quorate.protocol.compression import Codec

pytestmark = pytest.mark.interop

SETTINGS = ClusterSettings(allow_auto_topic_creation=True)


@pytest.fixture
def bootstrap(monkeypatch):
    """The addresses of a mock cluster that lives as long as the client that made it.

    It answers an unknown version of ApiVersions in a way of its own, and leaves a byte too many behind its
    flexible Metadata responses; so these two are asked in versions that it can write.
    """
    monkeypatch.setattr(ApiVersionsRequest, "__versions__", range(3))
    monkeypatch.setattr(MetadataRequest, "__versions__", range(9))
    owner = AdminClient({"test.mock.num.brokers": "3", "test.mock.broker.rtt": "5", "log_level": 3})
    brokers = owner.list_topics(timeout=30).brokers.values()
    yield ",".join(f"{one.host}:{one.port}" for one in brokers)
    del owner


async def in_thread(function, *arguments):
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


@pytest.mark.parametrize("codec", Codec)
def test_we_write_and_both_read(bootstrap, codec):
    def read_theirs() -> list[tuple[int, int, bytes]]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition("orders", index, 0) for index in range(4)])
        found = []
        while len(found) < 400:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            found.append((message.partition(), message.offset(), message.value()))
        consumer.close()
        return sorted(found)

    async def main() -> None:
        async with Cluster(bootstrap, settings=SETTINGS) as cluster:
            settings = ProducerSettings(codec=codec, batch_bytes_max=2000)
            async with Producer(cluster, settings) as producer:
                sent = [
                    (b"%d" % i, await producer.send("orders", b"%d" % i, key=b"%d" % i)) for i in range(400)
                ]
                written = sorted([(*(await receipt), value) for value, receipt in sent])
            found = []
            async with Fetcher(cluster) as fetcher:
                fetcher.assign({("orders", index): EARLIEST for index in range(4)})
                while len(found) < 400:
                    for part in await fetcher.fetch():
                        found += [(part.partition, one.offset, one.value) for one in part.records()]
            assert sorted(found) == written
            assert await in_thread(read_theirs) == written
            ends = await list_offsets(cluster, {("orders", index): LATEST for index in range(4)})
            assert sum(one.offset for one in ends.values()) == 400

    asyncio.run(main())


def test_they_write_and_we_read(bootstrap):
    def write_theirs() -> None:
        producer = LibrdkafkaProducer(
            {"bootstrap.servers": bootstrap, "compression.type": "zstd", "enable.idempotence": True}
        )
        for i in range(300):
            producer.produce("theirs", b"%d" % i, partition=0)
        producer.flush()

    async def main() -> None:
        await in_thread(write_theirs)
        found = []
        async with Cluster(bootstrap, settings=SETTINGS) as cluster, Fetcher(cluster) as fetcher:
            fetcher.assign({("theirs", 0): EARLIEST})
            while len(found) < 300:
                for part in await fetcher.fetch():
                    found += [one.value for one in part.records()]
        assert found == [b"%d" % i for i in range(300)]

    asyncio.run(main())
