"""Fixtures that start other people's programs."""

import os
from collections.abc import Iterator

import pytest
from apache_oracle import PINNED, ZOOKEEPER_ERA, ApacheOracle, missing


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheOracle]:
    """Apache's message classes, of the release that we are measured against."""
    yield from _oracle(PINNED)


@pytest.fixture(scope="session")
def apache_39() -> Iterator[ApacheOracle]:
    """Apache's message classes from before 4.0: the ZooKeeper messages, and the dropped versions."""
    yield from _oracle(ZOOKEEPER_ERA)


def _oracle(release: str) -> Iterator[ApacheOracle]:
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with ApacheOracle.start(release) as oracle:
        yield oracle
