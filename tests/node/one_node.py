"""A whole cluster in one node of this process: broker and controller, on real files and sockets.

    async with OneNode(tmp_path) as node:
        async with Cluster(node.bootstrap) as cluster:
            ...

It may be entered again: the node then goes on where it ended.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from quorate.node.admin import ADDRESS_FILE
from quorate.node.config import parse_config
from quorate.node.format import format_storage
from quorate.node.host import real_host
from quorate.node.node import Node

HOST = "127.0.0.1"
CLUSTER_ID = "q8K3yH5ASs2mFvAaEvJ0QA"
SECONDS_MAX = 60
SETTINGS = {
    "controller.quorum.election.timeout.ms": "100",
    "controller.quorum.election.backoff.max.ms": "50",
    "metadata.max.idle.interval.ms": "20",
    "broker.heartbeat.interval.ms": "50",
    "quorate.events.publish": "false",
}


class OneNode:
    """`settings` are those of its file, written with underscores."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory / "data"
        self._ports = _free_ports(2)
        self._settings = SETTINGS | {key.replace("_", "."): value for key, value in settings.items()}
        self._running: asyncio.Task[None] | None = None
        self.node: Node | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._ports[0]}"

    async def __aenter__(self) -> Self:
        broker_port, controller_port = self._ports
        config = parse_config(
            "node.properties",
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": f"PLAINTEXT://{HOST}:{broker_port},CONTROLLER://{HOST}:{controller_port}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": f"1@{HOST}:{controller_port}",
                "log.dirs": str(self.directory),
                **self._settings,
            },
        )
        if not self.directory.exists():
            await format_storage(real_host("1"), config, CLUSTER_ID)
        node = self.node = Node(real_host("1"), config)
        self._running = asyncio.create_task(node.run())
        await self.until(lambda: (broker := node.broker) is not None and broker.status().state == "RUNNING")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.node is not None
        assert self._running is not None
        self.node.stop()
        await self._running

    async def until(self, condition: Callable[[], object]) -> None:
        """Gives the loop turns until something is so; fails with what ended the node, if it ended."""
        assert self._running is not None
        async with asyncio.timeout(SECONDS_MAX):
            while not condition():
                if self._running.done():
                    self._running.result()
                    raise AssertionError("the node has ended")
                await asyncio.sleep(0.01)

    async def http(self, target: str, method: str = "GET", headers: str = "") -> tuple[int, Any]:
        """Asks the admin endpoint. Status, and the content: read as JSON if it is that, else as text."""
        address = (self.directory / ADDRESS_FILE).read_text().strip().removeprefix("http://")
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n".encode()
        )
        answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        head, _, body = answer.partition("\r\n\r\n")
        is_json = "content-type: application/json" in head.lower()
        return int(head.split()[1]), json.loads(body) if is_json else body


def _free_ports(count: int) -> list[int]:
    free = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in free]
    for one in free:
        one.close()
    return ports
