"""Fixtures for pytest: Kafka in a test, by naming it.

    def test_orders(kafka):
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
        producer.send(kafka.topic("orders"), b"...")

`kafka` is one node inside the process of the tests, started when the first test asks for it and shared by all
of them; what `topic` and `group` return belongs to one test alone. `kafka_cluster` is three brokers with a
process each, to be broken: `kafka_cluster.kill(1)`. A test that broke something finds it repaired by the next
one that asks. Nothing is loaded in a run that asks for neither.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from quorate.testing.cluster import Cluster

__all__ = ["Kafka", "kafka", "kafka_cluster"]

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9._-]+")
_NAME_CHARACTERS_MAX = 200  # Kafka allows 249
_numbers = itertools.count(1)


class Kafka:
    """A cluster as one test sees it. What is not here is asked of the cluster itself."""

    def __init__(self, cluster: Cluster, test: str) -> None:
        self.cluster = cluster
        self._test = f"{_NOT_IN_NAMES.sub('-', test).strip('-')[:_NAME_CHARACTERS_MAX]}.{next(_numbers)}"

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    def topic(self, name: str = "topic") -> str:
        """The name of a topic that no other test has: the same for the same name. It is created by whoever
        writes to it first, or by an admin client."""
        return f"{self._test}.{name}"

    def group(self, name: str = "group") -> str:
        """The name of a group that no other test has."""
        return f"{self._test}.{name}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)


@pytest.fixture(scope="session")
def _quorate_node() -> Iterator[Cluster]:
    from quorate.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _quorate_cluster() -> Iterator[Cluster]:
    from quorate.testing.cluster import Cluster

    with Cluster(brokers=3, mode="processes") as cluster:
        yield cluster


@pytest.fixture
def kafka(_quorate_node: Cluster, request: pytest.FixtureRequest) -> Kafka:
    """One node that is broker and controller, with names for this test alone."""
    return Kafka(_quorate_node, request.node.name)


@pytest.fixture
def kafka_cluster(_quorate_cluster: Cluster, request: pytest.FixtureRequest) -> Kafka:
    """Three brokers, all of them running and ready, with names for this test alone."""
    _quorate_cluster.repair()
    return Kafka(_quorate_cluster, request.node.name)
