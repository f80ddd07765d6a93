"""What a cluster on this machine consists of: which nodes, on which ports, with which directories.

Everything of a cluster is in one directory: for every node `node-ID/node.properties`, `node-ID/data` and
`node-ID/node.log`. A directory that has been planned stays as it is: whoever starts it again starts the same
nodes.

Brokers have the ids 1, 2, 3 and so on, controllers 101, 102, 103. Without controllers of its own, the first
three brokers of a cluster are controllers as well.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quorate.node.config import ConfigError, parse_config
from quorate.node.config_file import load_config
from quorate.node.format import format_storage, random_cluster_id
from quorate.node.host import real_host
from quorate.storage.meta_properties import load_meta_properties
from quorate.storage.properties import format_properties

__all__ = ["DEVELOPMENT", "HOST", "NodePlan", "Plan", "make_plan", "read_plan"]

HOST: Final = "127.0.0.1"
FIRST_CONTROLLER: Final = 101
COMBINED_MAX: Final = 3
NODES_MAX: Final = 64
_FILE: Final = "node.properties"
_DIRECTORY: Final = re.compile(r"node-(\d+)")

DEVELOPMENT: Final[Mapping[str, str]] = {
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.retry.backoff.ms": "20",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "reconnect.backoff.ms": "20",
    "quorate.events.settle.ms": "2000",
}
"""The development profile: a cluster on one machine need not wait as long as one in a data centre."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node: `port` is where clients connect, or where a pure controller listens."""

    id: int
    roles: tuple[str, ...]
    port: int
    listeners: Mapping[str, str]
    directory: Path

    @property
    def file(self) -> Path:
        return self.directory / _FILE

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "node.log"

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles


@dataclass(frozen=True, slots=True)
class Plan:
    """All of them."""

    directory: Path
    cluster_id: str
    nodes: tuple[NodePlan, ...]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{one.port}" for one in self.nodes if one.is_broker)

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(one.listeners["CONTROLLER"] for one in self.nodes if one.is_controller)

    def node(self, node_id: int) -> NodePlan:
        for one in self.nodes:
            if one.id == node_id:
                return one
        ids = ", ".join(str(one.id) for one in self.nodes)
        raise ConfigError(f"there is no node {node_id} in {self.directory}: the nodes are {ids}")


def make_plan(
    directory: Path,
    *,
    brokers: int = 1,
    controllers: int = 0,
    port: int = 0,
    settings: Mapping[str, str] | None = None,
) -> Plan:
    """Plans a new cluster and formats its directories. `port` is the first broker's, 0 for any that is free;
    `settings` go into the files of all nodes."""
    if brokers < 1 or controllers < 0 or brokers + controllers > NODES_MAX:
        raise ConfigError(f"{brokers} brokers and {controllers} controllers: from 1 to {NODES_MAX} nodes")
    check_ports(port, brokers)
    broker_ids = range(1, brokers + 1)
    controller_ids = (
        range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers)
        if controllers
        else range(1, min(brokers, COMBINED_MAX) + 1)
    )
    taken = _Ports(port)
    ports = {one: taken.next_for_clients() for one in broker_ids}
    quorum_ports = {one: taken.any() for one in controller_ids}
    voters = ",".join(f"{one}@{HOST}:{quorum_ports[one]}" for one in controller_ids)
    host = real_host("plan")
    cluster_id = random_cluster_id(host)
    nodes = []
    for node_id in sorted({*broker_ids, *controller_ids}):
        listeners = {}
        if node_id in ports:
            listeners["PLAINTEXT"] = f"{HOST}:{ports[node_id]}"
        if node_id in quorum_ports:
            listeners["CONTROLLER"] = f"{HOST}:{quorum_ports[node_id]}"
        roles = (["broker"] if node_id in ports else []) + (["controller"] if node_id in quorum_ports else [])
        plan = NodePlan(
            node_id,
            tuple(roles),
            ports.get(node_id) or quorum_ports[node_id],
            listeners,
            directory / f"node-{node_id}",
        )
        nodes.append(plan)
        values = {
            **_replication(brokers),
            **(settings or {}),
            "process.roles": ",".join(roles),
            "node.id": str(node_id),
            "listeners": ",".join(f"{name}://{address}" for name, address in listeners.items()),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": str(plan.data),
        }
        config = parse_config(str(plan.file), values)
        asyncio.run(format_storage(host, config, cluster_id))
        plan.file.write_text(format_properties(values), encoding="utf-8")
    return Plan(directory, cluster_id, tuple(nodes))


def read_plan(directory: Path) -> Plan | None:
    """The cluster that a directory has; None if it has none."""
    nodes, cluster_ids = [], set()
    for path in sorted(directory.glob("node-*")):
        if not _DIRECTORY.fullmatch(path.name) or not (path / _FILE).exists():
            continue
        config = load_config(str(path / _FILE))
        listeners = {one.name: f"{one.host}:{one.port}" for one in config["listeners"]}
        port = int(next(iter(listeners.values())).rpartition(":")[2])
        nodes.append(NodePlan(config.node_id, config.roles, port, listeners, path))
        meta = load_meta_properties(real_host("plan").files, config.metadata_directory)
        if meta is None:
            raise ConfigError(f"{config.metadata_directory} is not formatted")
        cluster_ids.add(meta.cluster_id or "none")
    if not nodes:
        return None
    if len(cluster_ids) > 1:
        raise ConfigError(f"{directory} has nodes of several clusters: {', '.join(sorted(cluster_ids))}")
    return Plan(directory, cluster_ids.pop(), tuple(sorted(nodes, key=lambda one: one.id)))


def check_ports(port: int, count: int) -> None:
    """A port that was asked for by its number must be free."""
    if not 0 <= port <= 65535 - (count if port else 0):
        raise ConfigError(f"port {port}: allowed is 0 to {65535 - count}")
    if port and not _is_free(port):
        raise ConfigError(f"port {port} is in use: stop whoever has it, or say --port with another one")


def _replication(brokers: int) -> dict[str, str]:
    """Internal topics and new ones are replicated as far as there are brokers."""
    replicas = min(brokers, 3)
    return {
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "min.insync.replicas": "2" if replicas == 3 else "1",
    }


class _Ports:
    """Free ports, none of them twice. They are held until they are all chosen."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._held: list[socket.socket] = []

    def next_for_clients(self) -> int:
        """The next after the first that is free; any, if no first one was asked for."""
        if not self._next:
            return self.any()
        while not _is_free(self._next):
            self._next += 1
        self._next += 1
        return self._next - 1

    def any(self) -> int:
        held = socket.socket()
        held.bind((HOST, 0))
        self._held.append(held)
        port: int = held.getsockname()[1]
        return port

    def __del__(self) -> None:
        for one in self._held:
            one.close()


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((HOST, port))
        except OSError:
            return False
    return True
