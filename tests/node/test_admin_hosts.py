"""The admin endpoint answers only requests that are addressed to it."""

from __future__ import annotations

import asyncio
import http.client
import socket
from pathlib import Path

import pytest

from node.one_node import OneNode
from quorate.node.admin import ADDRESS_FILE
from quorate.node.admin_hosts import admin_hosts
from quorate.node.config import parse_config

OURS = ("127.0.0.1", "[::1]:9", "192.0.2.7:9", "localhost:80", socket.gethostname(), "SCRAPED.example.", None)
OTHERS = ("evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", "", "scraped.example@evil")


def test_names_of_others_are_refused_for_whatever_is_asked(tmp_path: Path):
    async def scenario() -> None:
        node = OneNode(tmp_path, quorate_admin_hosts="scraped.example,other", quorate_lab_enabled="true")
        async with node:
            address = (node.directory / ADDRESS_FILE).read_text().strip().removeprefix("http://")
            await asyncio.to_thread(_look, address)

    asyncio.run(scenario())


def _look(address: str) -> None:
    for target in ("GET /metrics", "GET /v1/brokers", "POST /v1/loggers/quorate?level=INFO"):
        for host in OURS:
            assert _ask(address, target, host)[0] == 200, host
        for host in OTHERS:
            status, said = _ask(address, target, host)
            assert status == 403, host
            assert f"the Host header names '{host}', which is not this node" in said
            assert "quorate.admin.hosts" in said
    assert _ask(address, "POST /v1/anything", "evil.example")[0] == 403


def _ask(address: str, target: str, host: str | None) -> tuple[int, str]:
    """None is what a client of HTTP/1.0 says: nothing."""
    method, _, path = target.partition(" ")
    connection = http.client.HTTPConnection(address, timeout=30)
    if host is None:
        connection._http_vsn, connection._http_vsn_str = 10, "HTTP/1.0"  # type: ignore[attr-defined]
    connection.putrequest(method, path, skip_host=True)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    response = connection.getresponse()
    said = response.read().decode()
    connection.close()
    return response.status, said


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, {"machine", "0.0.0.0"}),
        ({"advertised.listeners": "A://Broker-1.example.:9092"}, {"machine", "0.0.0.0", "broker-1.example"}),
        ({"quorate.admin.listener": "admin.example:80"}, {"machine", "0.0.0.0", "admin.example"}),
        ({"quorate.admin.hosts": "a.example, B"}, {"machine", "0.0.0.0", "a.example", "b"}),
    ],
)
def test_names_of_a_node_are_those_that_it_is_known_by(changes: dict[str, str], names: set[str]):
    properties = {
        "process.roles": "broker",
        "node.id": "1",
        "listeners": "A://0.0.0.0:9092",
        "listener.security.protocol.map": "A:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "A",
        "advertised.listeners": "A://machine:9092",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "2@elsewhere:9093",
        "log.dirs": "/data",
    }
    config = parse_config("node.properties", properties | changes)
    assert admin_hosts(config, "machine") - {"127.0.0.1"} == names
