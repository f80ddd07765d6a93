"""The history of a cluster of Apache Kafka, from the directories that it left: same code, same words."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from apache_brokers import ApacheBrokers
from apache_oracle import missing
from apache_programs import ApachePrograms
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from node.processes import CLUSTER_ID, HOST, Processes
from quorate.cli.main import app
from quorate.client.admin import Admin
from quorate.client.cluster import Cluster
from quorate.client.errors import Unavailable
from quorate.protocol.errors import ApiError
from quorate.spark.origins import files_in
from quorate.spark.pipeline import update
from quorate.spark.views import held_tables
from quorate.spark.warehouse import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.interop]

DEADLINE_S = 120
CONTROLLER, BROKER = 1, 2


def quorate(*words: str) -> str:
    done = CliRunner().invoke(app, words)
    return done.stdout if done.exit_code == 0 else ""


def state_of(server: str, broker_id: int) -> str:
    listed = quorate("brokers", "list", "--json", "--bootstrap-server", server)
    found = json.loads(listed) if listed else []
    rows = found if isinstance(found, list) else found["brokers"]
    return next((str(one) for one in rows if one.get("id", one.get("broker")) == broker_id), "")


def leads_again(server: str) -> bool:
    """Elects preferred leaders; whether the broker is one of them."""

    async def elect() -> bool:
        async with Cluster(server) as cluster:
            admin = Admin(cluster)
            with suppress(ApiError, Unavailable):
                await admin.elect_leaders()
            topic = (await admin.describe_topics("orders"))["orders"]
            return any(one.leader == BROKER for one in topic.partitions.values())

    return asyncio.run(elect())


def wait(what: str, condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, float]]]:
    """What two Apache nodes left: a controller that is a broker too, and a broker that was killed, came back
    and was stopped in order. And when that was."""
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    programs = ApachePrograms()
    times: dict[str, float] = {}
    with Processes(tmp_path_factory.mktemp("apache")) as cluster, ApacheBrokers(programs, cluster) as brokers:
        controller, server = f"{HOST}:{cluster.port(3)}", f"{HOST}:{cluster.port(CONTROLLER)}"
        quorum = {
            "controller_quorum_voters": f"{CONTROLLER}@{controller}",
            "broker_session_timeout_ms": "3000",
        }
        quorum |= {"broker_heartbeat_interval_ms": "500"}
        both = {"process_roles": "broker,controller"}
        listeners = f"CONTROLLER://{controller},PLAINTEXT://{server}"
        brokers.configure(CONTROLLER, **both, **quorum, listeners=listeners)
        brokers.configure(BROKER, **quorum)
        for one in (CONTROLLER, BROKER):
            brokers.format(one)
        brokers.start(CONTROLLER, BROKER)
        wait("both serve", lambda: "active" in state_of(server, BROKER))
        words = ("--partitions", "4", "--replication-factor", "2", "--bootstrap-server", server)
        wait("the topic", lambda: quorate("topics", "create", "orders", *words))
        times["killed"] = time.time()
        brokers.kill(BROKER)
        wait("it is fenced", lambda: "fenced" in state_of(server, BROKER))
        times["fenced"] = time.time()
        brokers.start(BROKER)
        wait("it is back", lambda: "active" in state_of(server, BROKER))
        # Of a broker that leads nothing, the log does not say whether it left in order.
        wait("it leads again", lambda: leads_again(server))
        times["stopping"] = time.time()
        brokers.terminate(BROKER)
        brokers.terminate(CONTROLLER)
        yield cluster.root, times


def test_the_tables_tell_what_was_done(
    spark: SparkSession, directories: tuple[Path, dict[str, float]], tmp_path: Path
):
    root, times = directories
    warehouse = Warehouse.create(tmp_path / "house")
    update(spark, warehouse, files_in([str(root)]))
    assert warehouse.contents().clusters == (CLUSTER_ID,)
    with held_tables(spark, warehouse) as tables:
        failovers = [
            row for row in tables["failovers"].orderBy("offset").collect() if row.broker_id == BROKER
        ]
        leaders = tables["partition_leaders"].where("topic = 'orders'").collect()
        terms = tables["controller_terms"].collect()
    (killed,) = [row for row in failovers if times["killed"] < row.ts.timestamp() <= times["fenced"]]
    stopped = failovers[-1]
    assert (killed.cause, stopped.cause) == ("fenced", "controlled shutdown")
    assert stopped.ts.timestamp() >= times["stopping"] - 1
    # Apache keeps no journal of its heartbeats: what nobody said is not guessed.
    assert (killed.detection_ms, killed.last_heartbeat_ts) == (None, None)
    lost = [row for row in leaders if row.leader == BROKER and row.end_offset is not None]
    assert killed.partitions_moved == len([row for row in lost if row.end_offset <= killed.offset + 10])
    assert {row.partition for row in leaders} == {0, 1, 2, 3}
    assert {row.controller_id for row in terms} == {CONTROLLER}
