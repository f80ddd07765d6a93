"""Consumer groups are coordinated as an Apache broker does it: the same conversations, the same answers."""

import asyncio
import difflib
import os
from collections.abc import Callable, Iterator

import pytest
from apache_oracle import missing
from apache_programs import ApachePrograms
from consumer_talks import TALKS, ConsumerTable
from test_client_on_apache import ApacheBroker

from node.cluster import ClusterProcesses
from node.processes import HOST, Processes
from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster

pytestmark = pytest.mark.interop

SETTINGS = {
    "offsets_topic_replication_factor": "1",
    "auto_create_topics_enable": "false",
    "group_initial_rebalance_delay_ms": "0",
    "group_consumer_assignment_interval_ms": "0",
}


async def make_topics(port: int) -> None:
    async with Cluster(f"{HOST}:{port}") as cluster:
        for name, partitions in (("t", 2), ("u", 3)):
            await Admin(cluster).create_topics(NewTopic(name, partitions=partitions, replication_factor=1))


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Of Apache's broker, and of ours."""
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("both")
    (root / "theirs").mkdir()
    (root / "ours").mkdir()
    with Processes(root) as made, ClusterProcesses(root / "ours", combined=1, **SETTINGS) as cluster:
        apache = ApacheBroker(ApachePrograms(), root / "theirs", made)
        with apache.running():
            theirs, ours = apache.port, cluster.client_port(1)
            for port in (theirs, ours):
                asyncio.run(make_topics(port))
            yield theirs, ours


async def hear(port: int, name: str) -> list[str]:
    table = ConsumerTable(HOST, port, f"group of {name}")
    try:
        await table.prepare()
        await TALKS[name](table)
    finally:
        await table.close()
    return table.heard


@pytest.mark.parametrize("name", TALKS)
def test_the_same_conversation(
    ports: tuple[int, int], name: str, record_property: Callable[[str, object], None]
) -> None:
    theirs, ours = ports
    expected, found = asyncio.run(hear(theirs, name)), asyncio.run(hear(ours, name))
    different = "\n".join(difflib.unified_diff(expected, found, "Apache", "Quorate", lineterm="", n=1))
    assert not different, f"{name}:\n{different}"
    record_property("figure", f"consumer groups, as Apache: {name}: {len(found)} answers")
