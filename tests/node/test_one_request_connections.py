"""More connections of one client than a broker takes: the brokers go on reaching each other, and ordinary
clients go on being served, for as long as it lasts. On one machine, where everybody has the same address."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Self

import pytest

from node.broker_processes import BrokerProcesses
from node.one_request import MIB, Peer, Watched
from node.processes import HOST
from quorate.protocol.api.connection import ApiVersionsRequest
from quorate.protocol.api.produce_fetch import FetchRequest
from quorate.protocol.frame import encode_request
from quorate.protocol.message import Request

pytestmark = pytest.mark.processes

PLACES = 120
MORE = 30
FLOODED, KILLED = 1, 2
AT_MOST_BYTES = 40 * MIB
"""More memory than before; a connection takes some 10 KB."""


class Flood:
    """Connections that say one thing, or nothing, and stay for as long as they may."""

    def __init__(self, port: int, count: int, say: tuple[Request, int] | None = None) -> None:
        self._address = HOST, port
        self._say = b"" if say is None else bytes(encode_request(*say, 1, "hostile"))
        self._sockets: list[socket.socket] = []
        self._count = count

    def __enter__(self) -> Self:
        self.come(self._count)
        return self

    def come(self, count: int) -> None:
        for _ in range(count):
            one = socket.create_connection(self._address, 20)
            self._sockets.append(one)
            with contextlib.suppress(OSError):
                one.sendall(self._say)

    def __exit__(self, *_: object) -> None:
        for one in self._sockets:
            one.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(
        tmp_path_factory.mktemp("cluster"),
        combined=3,
        max_connections=str(PLACES),
        broker_session_timeout_ms="3000",
    ) as running:
        running.create_topic("orders", [1, 2, 3], [2, 3, 1], [3, 1, 2])
        running.wait_until_in_sync("orders")
        yield running


def kill_and_start(cluster: BrokerProcesses) -> None:
    """Whoever had connections to that broker, or from it, makes them anew."""
    cluster.kill(KILLED)
    cluster.wait(
        "a replica is missed",
        lambda: any(KILLED not in one.isr_nodes for one in cluster.partitions("orders")),
    )
    cluster.start(KILLED)


def is_served(peer: Peer) -> bool:
    return peer.ask(ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize(
    "say",
    [
        pytest.param(None, id="nothing"),
        pytest.param((ApiVersionsRequest(), 0), id="what clients ask"),
        pytest.param(
            (FetchRequest(replica_id=KILLED, max_wait_ms=0, min_bytes=0, topics=[]), 12),
            id="what a broker asks that they are not",
        ),
    ],
)
def test_brokers_reach_each_other_while_a_client_has_taken_all_places(
    cluster: BrokerProcesses,
    say: tuple[Request, int] | None,
    record_property: Callable[[str, object], None],
) -> None:
    flood = Flood(cluster.client_port(FLOODED), PLACES + MORE, say)
    with Watched(cluster, FLOODED) as watched, flood:
        with Peer(cluster, FLOODED) as ordinary:
            assert is_served(ordinary)
            kill_and_start(cluster)
            for _ in range(4):
                flood.come(PLACES // 4)
                assert is_served(ordinary)  # whoever is used is not idle
            cluster.wait_until_in_sync("orders")
            assert is_served(ordinary)
        with Peer(cluster, FLOODED) as late:
            assert is_served(late)
    assert watched.grown_bytes <= AT_MOST_BYTES
    assert "Traceback" not in cluster.logged(FLOODED)
    record_property("bystander_waited_ms", watched.waited_ms)


def test_controllers_hear_of_brokers_while_a_client_has_taken_all_their_places(
    cluster: BrokerProcesses,
) -> None:
    with ExitStack() as floods:
        some = [
            floods.enter_context(Flood(cluster.port(one), PLACES + MORE)) for one in cluster.controller_ids
        ]
        kill_and_start(cluster)
        for flood in some:
            if flood is not some[KILLED - 1]:  # which may not listen yet
                flood.come(PLACES // 4)
        cluster.wait_until_in_sync("orders")


def test_a_broker_ends_in_order_while_all_places_are_taken(cluster: BrokerProcesses) -> None:
    with Flood(cluster.client_port(FLOODED), PLACES + MORE):
        assert cluster.terminate(FLOODED) == 0
    cluster.start(FLOODED)
    cluster.wait_until_in_sync("orders")
