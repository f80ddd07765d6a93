"""There are no transactions yet. Whoever asks for one gives up at once, and says that it was refused: no
client waits until its own time is up.
"""

import asyncio

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TransactionalIdAuthorizationFailed
from apache_oracle import missing
from apache_programs import ApachePrograms
from apache_tools import ApacheTools
from kafka.errors import TransactionalIdAuthorizationFailedError

from node.cluster import ClusterProcesses
from quorate.broker.handlers.producer_ids import NO_TRANSACTIONS

pytestmark = pytest.mark.interop

WAITED_MS_MAX = 60_000  # by a client, for what is refused; it then says that its time is up, and not why
WAITED_S_MAX = WAITED_MS_MAX / 1000
ID = "mine"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), combined=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tools():
    if reason := missing():
        pytest.skip(reason)
    with ApacheTools.start(ApachePrograms()) as tools:
        yield tools


def test_librdkafka_is_told_why(cluster):
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": ID}
    producer = confluent_kafka.Producer(settings | {"log_level": 0})
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        producer.init_transactions(WAITED_S_MAX)
    error = raised.value.args[0]
    assert error.code() == confluent_kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert error.fatal()
    assert NO_TRANSACTIONS in error.str()


def test_kafka_python_gives_up(cluster):
    producer = kafka.KafkaProducer(
        bootstrap_servers=cluster.bootstrap, transactional_id=ID, max_block_ms=WAITED_MS_MAX
    )
    try:
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
    finally:
        producer.close()


def test_aiokafka_gives_up(cluster):
    async def begin():
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=ID)
        try:
            await asyncio.wait_for(producer.start(), WAITED_S_MAX)
        finally:
            await producer.stop()

    with pytest.raises(TransactionalIdAuthorizationFailed):
        asyncio.run(begin())


def test_the_producer_of_java_gives_up(cluster, tools):
    printed = tools.refused(
        "producer_performance",
        *("--topic", "orders", "--num-records", "1", "--record-size", "10", "--throughput", "-1"),
        *("--transactional-id", ID),
        *("--command-property", f"bootstrap.servers={cluster.bootstrap}", f"max.block.ms={WAITED_MS_MAX}"),
    )
    assert "TransactionalIdAuthorizationException" in printed


def test_kafka_transactions_says_that_there_are_none(cluster, tools):
    printed = tools.refused("transactions", "--bootstrap-server", cluster.bootstrap, "list")
    assert "does not support LIST_TRANSACTIONS" in printed
    about = ("--bootstrap-server", cluster.bootstrap, "describe", "--transactional-id", ID)
    assert "authorization failure" in tools.refused("transactions", *about)
