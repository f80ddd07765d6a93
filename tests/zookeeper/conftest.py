"""A ZooKeeper for the tests of this directory, each test in a part of the tree of its own."""

import itertools
import os
from collections.abc import Iterator

import pytest
from zookeeper_servers import Ensemble, ZooKeeperServer, free_ports, jars

_numbers = itertools.count()


@pytest.fixture(scope="session")
def zookeeper_jars() -> None:
    from apache_oracle import missing

    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    jars()


@pytest.fixture(scope="session")
def zookeeper(zookeeper_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:  # noqa: ARG001
    """A server that stays up."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper") / "alone", *free_ports(1))
    server.start()
    try:
        server.wait()
        yield server
    finally:
        server.kill()


@pytest.fixture
def chroot() -> str:
    """Where nobody else writes."""
    return f"/test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def connect(zookeeper: ZooKeeperServer, chroot: str) -> str:
    return zookeeper.address + chroot


@pytest.fixture
def own_zookeeper(zookeeper_jars: None, tmp_path: object) -> Iterator[ZooKeeperServer]:  # noqa: ARG001
    """A server that may be killed and paused."""
    from pathlib import Path

    server = ZooKeeperServer(Path(str(tmp_path)) / "own", *free_ports(1))
    server.start()
    try:
        server.wait()
        yield server
    finally:
        server.kill()


@pytest.fixture
def ensemble(zookeeper_jars: None, tmp_path: object) -> Iterator[Ensemble]:  # noqa: ARG001
    """Three servers that may be killed and paused."""
    from pathlib import Path

    found = Ensemble(Path(str(tmp_path)) / "ensemble", 3)
    try:
        found.start()
        yield found
    finally:
        found.kill()
