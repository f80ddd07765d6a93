"""A broker of Apache's and one of ours, of which the same things are asked."""

import asyncio
import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from apache_oracle import missing
from apache_programs import ApachePrograms
from test_client_on_apache import ApacheBroker

from node.cluster import ClusterProcesses
from node.processes import HOST, Processes
from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster

SETTINGS = {
    "offsets_topic_replication_factor": "1",
    "auto_create_topics_enable": "false",
    "group_initial_rebalance_delay_ms": "0",
}


@contextmanager
def two_brokers(root: Path, topics: Mapping[str, int], **settings: str) -> Iterator[tuple[int, int]]:
    """The ports of Apache's and of ours. Both have these topics, with so many partitions."""
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    (root / "theirs").mkdir()
    (root / "ours").mkdir()
    ours = ClusterProcesses(root / "ours", combined=1, **SETTINGS, **settings)
    with Processes(root) as made, ours as cluster:
        apache = ApacheBroker(ApachePrograms(), root / "theirs", made)
        with apache.running():
            ports = apache.port, cluster.client_port(1)
            for port in ports:
                asyncio.run(_make_topics(port, topics))
            yield ports


async def _make_topics(port: int, topics: Mapping[str, int]) -> None:
    async with Cluster(f"{HOST}:{port}") as cluster:
        for name, partitions in topics.items():
            await Admin(cluster).create_topics(NewTopic(name, partitions=partitions, replication_factor=1))


def check_alike(name: str, expected: Sequence[str], found: Sequence[str]) -> None:
    """Fails with the lines that differ."""
    different = "\n".join(difflib.unified_diff(expected, found, "Apache", "Quorate", lineterm="", n=1))
    assert not different, f"{name}:\n{different}"
