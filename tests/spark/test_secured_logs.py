"""Topics and internal logs of a cluster that talks by TLS alone, and wants to know who asks."""

from __future__ import annotations

import asyncio
import pickle
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from test_tls_clients import SecureCluster
from typer.testing import CliRunner

from net.certificates import Authority
from node.processes import CLUSTER_ID
from quorate.cli import pipeline
from quorate.cli.main import app
from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster, ClusterSettings
from quorate.client.group_consumer import GroupConsumer
from quorate.client.metadata import TopicPartition
from quorate.client.producer import Producer
from quorate.net.tls import Pem, TlsError, TlsSettings, client_context
from quorate.spark import event_source, group_source, metadata_source, topic_source
from quorate.spark.lag_sampler import sample_end_offsets
from quorate.spark.metadata_options import read_log_options
from quorate.spark.origins import live_cluster
from quorate.spark.schemas import EVENTS, GROUP_RECORDS, RECORDS
from quorate.spark.topic_options import read_topic_options
from quorate.spark.views import held_tables
from quorate.spark.warehouse import Warehouse

DEADLINE_S = 60
ORDERS = {"bootstrap.servers": "localhost:9092", "subscribe": "orders"}


SETTINGS = {
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "2",
    "quorate_events_publish": "true",
    "quorate_events_settle_ms": "0",
}


class SpokenCluster(SecureCluster):
    """It has groups, and tells its events at once."""

    def configure_node(self, node_id: int, **changes: str | None) -> None:
        super().configure_node(node_id, **(SETTINGS | changes))


async def use(bootstrap: str, settings: ClusterSettings) -> None:
    async with Cluster(bootstrap, settings=settings) as client:
        await Admin(client).create_topics(NewTopic("orders", partitions=2), NewTopic("bills", partitions=1))
        async with Producer(client) as producer:
            await (await producer.send("orders", b"tea", partition=1))
        async with GroupConsumer(client, "readers", ["orders"]) as consumer:
            while not any(part.records() for part in await consumer.fetch()):
                pass
            await consumer.commit()


def rows_of(module: Any, table: StructType, options: dict[str, str]) -> list[dict[str, Any]]:
    """As Spark does it: what is read goes to another process first."""
    reader = module.reader(options, table)
    parts = pickle.loads(pickle.dumps(reader.partitions()))
    return [row for part in parts for some in reader.read(part) for row in some.to_pylist()]


def eventually(find: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not (found := find()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)
    return found


@dataclass(frozen=True)
class Secured:
    """A cluster that was used, and how the source is told to reach it: by files, or by what is in them."""

    bootstrap: str
    files: dict[str, str]
    texts: dict[str, str]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl program")
    root = tmp_path_factory.mktemp("secured")
    (root / "certificates").mkdir()
    authority = Authority(root / "certificates")
    key = authority.signed("client")
    settings = TlsSettings(key=Pem.file(str(key)), trusted=Pem.file(str(authority.certificate)))
    protocol = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.keystore.type": "PEM",
    }
    files = protocol | {
        "kafka.ssl.truststore.location": str(authority.certificate),
        "kafka.ssl.keystore.location": str(key),
    }
    private, mark, chain = key.read_text().partition("-----BEGIN CERTIFICATE-----")
    texts = protocol | {
        "kafka.ssl.truststore.certificates": authority.certificate.read_text(),
        "kafka.ssl.keystore.key": private,
        "kafka.ssl.keystore.certificate.chain": mark + chain,
    }
    with SpokenCluster(root, authority) as cluster:
        asyncio.run(use(cluster.bootstrap, ClusterSettings(tls=client_context(settings))))
        yield Secured(cluster.bootstrap, files, texts)


@pytest.mark.processes
def test_every_log_is_read(secured: Secured) -> None:
    at = {"bootstrap.servers": secured.bootstrap}
    topic = rows_of(topic_source, RECORDS, {**at, **secured.texts, "subscribe": "orders"})
    metadata = rows_of(metadata_source, RECORDS, {**at, **secured.files})
    groups = rows_of(group_source, GROUP_RECORDS, {**at, **secured.files})
    events = eventually(lambda: rows_of(event_source, EVENTS, {**at, **secured.texts}))
    origin = live_cluster(secured.bootstrap, secured=secured.texts)
    ends = asyncio.run(sample_end_offsets(secured.bootstrap, origin.tls))

    assert [(row["partition"], row["value"]) for row in topic] == [(1, b"tea")]
    assert [row["offset"] for row in metadata] == list(range(len(metadata)))
    assert "orders" in {row["topic"] for row in metadata}
    assert {row["cluster_id"] for row in (*metadata, *groups, *events)} == {CLUSTER_ID}
    assert ("readers", 1) in {(row["group_id"], row["committed_offset"]) for row in groups}
    assert {row["kind"] for row in events}
    assert (origin.cluster_id, origin.where("records")) == (CLUSTER_ID, secured.bootstrap)
    assert ends[TopicPartition("orders", 1)] == 1


@pytest.mark.processes
@pytest.mark.spark
def test_the_pipeline_reads_and_dataframes_are_written(
    secured: Secured, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "spark_session", lambda *_: nullcontext(spark))
    house = str(tmp_path / "house")
    words = ["pipeline", "run", "--cluster", secured.bootstrap, "--warehouse", house]
    for name, value in secured.files.items():
        words += ["--kafka-conf", f"{name.removeprefix('kafka.')}={value}"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    with held_tables(spark, Warehouse.open(house)) as tables:
        assert [row.topic for row in tables["topics"].where("topic = 'orders'").collect()] == ["orders"]
        lag = tables["lag"].where("group_id = 'readers' and partition = 1").collect()
        assert [(row.end_offset, row.committed_offset) for row in lag] == [(1, 1)]
        assert tables["problems"].count() == 0

    bills = {"bootstrap.servers": secured.bootstrap, **secured.texts, "topic": "bills"}
    spark.sql("SELECT 0 AS partition, 'ten' AS value").write.format("quorate").mode("append").options(
        **bills
    ).save()
    read = spark.read.format("quorate").options(
        **{"bootstrap.servers": secured.bootstrap, **secured.files, "subscribe": "bills"}
    )
    assert [bytes(row.value) for row in read.load().collect()] == [b"ten"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"security.protocol": "SASL_SSL"}, "'SASL_SSL': allowed is PLAINTEXT or SSL"),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "x"},
            "truststore.type='JKS': allowed is PEM",
        ),
        ({"security.protocol": "SSL", "ssl.keystore.key": "x"}, "certificate.chain go together"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], reason: str) -> None:
    given = ORDERS | {f"kafka.{name}": value for name, value in options.items()}
    with pytest.raises(ValueError, match=reason):
        read_topic_options(given, streaming=False)
    with pytest.raises(ValueError, match=reason):
        read_log_options(given)


def test_certificates_that_are_not_there_are_named() -> None:
    given = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "PEM"}
    options = {**ORDERS, **given, "kafka.ssl.truststore.location": "/nowhere.pem"}
    with pytest.raises(TlsError, match=r"/nowhere\.pem"):
        metadata_source.reader(options, RECORDS).partitions()
