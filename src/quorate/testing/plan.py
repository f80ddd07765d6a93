"""What a cluster on this machine consists of: which nodes, on which ports, with which directories.

Everything of a cluster is in one directory: for every node `node-ID/node.properties`, `node-ID/data` and
`node-ID/node.log`. A directory that has been planned stays as it is: whoever starts it again starts the same
nodes.

Brokers have the ids 1, 2, 3 and so on, controllers 101, 102, 103. Without controllers of its own, the first
three brokers of a cluster are controllers as well.

A cluster of ZooKeeper mode has brokers only. Its ZooKeeper is one that runs somewhere, or a private one,
whose servers have directories beside those of the nodes: see `zookeeper_server`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from quorate.node.config import ConfigError, NodeConfig, parse_config
from quorate.node.config_file import load_config
from quorate.node.format import format_storage, random_cluster_id
from quorate.node.host import real_host
from quorate.storage.meta_properties import load_meta_properties
from quorate.storage.properties import format_properties
from quorate.testing.places import NODE_FILE, has_something_else
from quorate.testing.ports import HOST, Ports, is_free
from quorate.testing.profiles import DEVELOPMENT, PRIVATE_ZOOKEEPER
from quorate.testing.zookeeper_server import ServerPlan, plan_servers, read_servers
from quorate.values import dataclass

__all__ = [
    "KRAFT",
    "ZOOKEEPER",
    "NodePlan",
    "Plan",
    "make_plan",
    "obtain_plan",
    "profile_of",
    "read_plan",
]

KRAFT, ZOOKEEPER = "kraft", "zookeeper"
FIRST_CONTROLLER: Final = 101
COMBINED_MAX: Final = 3
NODES_MAX: Final = 64
SERVERS_MAX: Final = 9  # of a private ZooKeeper
_OF_QUORUMS: Final = ("controller.quorum.", "broker.session.", "broker.heartbeat.")
_DIRECTORY: Final = re.compile(r"node-(\d+)")


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
        return self.directory / NODE_FILE

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
    cluster_id: str  # empty as long as a new cluster of ZooKeeper mode has none
    nodes: tuple[NodePlan, ...]
    zookeeper: str | None = None  # host:port,.../path, in ZooKeeper mode
    servers: tuple[ServerPlan, ...] = ()  # of a private ZooKeeper

    @property
    def mode(self) -> str:
        return KRAFT if self.zookeeper is None else ZOOKEEPER

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{one.port}" for one in self.nodes if one.is_broker)

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(one.listeners["CONTROLLER"] for one in self.nodes if one.is_controller)

    @property
    def ports(self) -> list[int]:
        """All that nodes listen on, and where the servers of a private ZooKeeper have clients."""
        addresses = [address for one in self.nodes for address in one.listeners.values()]
        return [int(one.rpartition(":")[2]) for one in addresses] + [one.port for one in self.servers]

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
    directory = directory.resolve()
    broker_ids = range(1, brokers + 1)
    controller_ids = (
        range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers)
        if controllers
        else range(1, min(brokers, COMBINED_MAX) + 1)
    )
    with Ports(port) as taken:
        ports = {one: taken.next_for_clients() for one in broker_ids}
        quorum_ports = {one: taken.any() for one in controller_ids}
    voters = ",".join(f"{one}@{HOST}:{quorum_ports[one]}" for one in controller_ids)
    cluster_id = random_cluster_id(real_host("plan"))
    nodes, configs = [], []
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
        configs.append((plan, values, parse_config(str(plan.file), values)))
    asyncio.run(_write(configs, cluster_id))
    return Plan(directory, cluster_id, tuple(nodes))


async def _write(nodes: Sequence[tuple[NodePlan, Mapping[str, str], NodeConfig]], cluster_id: str) -> None:
    """Formats the directories of all nodes. The file of a node comes last: with it the node is there."""
    host = real_host("plan")
    for plan, values, config in nodes:
        await format_storage(host, config, cluster_id)
        plan.file.write_text(format_properties(values), encoding="utf-8")


def make_zookeeper_plan(
    directory: Path,
    *,
    brokers: int = 1,
    port: int = 0,
    settings: Mapping[str, str] | None = None,
    zookeeper: str | None = None,
    zookeepers: int = 1,
) -> Plan:
    """The same for a cluster of ZooKeeper mode: of the ZooKeeper that is named, or of a private one with so
    many servers."""
    if not 1 <= brokers <= NODES_MAX:
        raise ConfigError(f"{brokers} brokers: from 1 to {NODES_MAX}")
    if zookeeper is None and not 1 <= zookeepers <= SERVERS_MAX:
        raise ConfigError(f"{zookeepers} servers of ZooKeeper: from 1 to {SERVERS_MAX}")
    check_ports(port, brokers)
    directory = directory.resolve()
    count = zookeepers if zookeeper is None else 0
    with Ports(port) as taken:
        ports = {one: taken.next_for_clients() for one in range(1, brokers + 1)}
        of_servers = [(taken.any(), taken.any(), taken.any()) for _ in range(count)]
    connect = zookeeper or ",".join(f"{HOST}:{one}" for one, _, _ in of_servers)
    fast = {} if zookeeper else PRIVATE_ZOOKEEPER
    files = []
    for node_id, node_port in ports.items():
        listeners = {"PLAINTEXT": f"{HOST}:{node_port}"}
        plan = NodePlan(node_id, ("broker",), node_port, listeners, directory / f"node-{node_id}")
        values = {
            **_replication(brokers),
            **fast,
            **{key: value for key, value in (settings or {}).items() if not key.startswith(_OF_QUORUMS)},
            "broker.id": str(node_id),
            "listeners": f"PLAINTEXT://{HOST}:{node_port}",
            "zookeeper.connect": connect,
            "log.dirs": str(plan.data),
        }
        parse_config(str(plan.file), values)
        files.append((plan, values))
    servers = plan_servers(directory, of_servers)
    for plan, values in files:
        plan.data.mkdir(parents=True, exist_ok=True)
        plan.file.write_text(format_properties(values), encoding="utf-8")
    return Plan(directory, "", tuple(plan for plan, _ in files), connect, tuple(servers))


def obtain_plan(
    directory: Path,
    *,
    brokers: int | None = None,
    controllers: int | None = None,
    port: int | None = None,
    settings: Mapping[str, str] | None = None,
    mode: str | None = None,
    zookeeper: str | None = None,
    zookeepers: int = 1,
) -> Plan:
    """The cluster that a directory has, which must be the one that is asked for; a new one if it has none.

    Numbers that nobody gave are those of the cluster that is there, or one broker without controllers of its
    own. A directory with something else in it is left alone.
    """
    found = read_plan(directory)
    if found is None:
        if has_something_else(directory):
            raise ConfigError(f"{directory} has something else in it: give an empty directory, or a new one")
        if mode == ZOOKEEPER:
            if controllers:
                raise ConfigError("controllers of its own: in ZooKeeper mode a broker is the controller")
            return make_zookeeper_plan(
                directory,
                brokers=brokers or 1,
                port=port or 0,
                settings=settings,
                zookeeper=zookeeper,
                zookeepers=zookeepers,
            )
        return make_plan(
            directory, brokers=brokers or 1, controllers=controllers or 0, port=port or 0, settings=settings
        )
    if mode is not None and mode != found.mode:
        raise ConfigError(f"{directory} has a cluster of {found.mode} mode, not {mode}")
    if zookeeper is not None and zookeeper.rstrip("/") != found.zookeeper:
        raise ConfigError(f"{directory} has a cluster whose ZooKeeper is {found.zookeeper}, not {zookeeper}")
    has_brokers = sum(one.is_broker for one in found.nodes)
    has_controllers = sum(not one.is_broker for one in found.nodes)
    if (brokers, controllers) != (None, None) and (brokers or 1, controllers or 0) != (
        has_brokers,
        has_controllers,
    ):
        raise ConfigError(
            f"{directory} has a cluster of {has_brokers} brokers and {has_controllers} controllers of its"
            f" own, not {brokers or 1} and {controllers or 0}: give another directory, or the same numbers"
        )
    first = next(one.port for one in found.nodes if one.is_broker)
    if port and port != first:
        raise ConfigError(f"{directory} has a cluster whose first port is {first}, not {port}")
    for node in found.nodes:
        for address in node.listeners.values():
            check_ports(int(address.rpartition(":")[2]), 1)
    return found


def profile_of(plan: Plan) -> str:
    """The profile that a cluster was planned with."""
    properties = load_config(str(plan.nodes[0].file)).properties
    key = "replica.fetch.backoff.ms"
    return "development" if properties.get(key) == DEVELOPMENT[key] else "default"


def read_plan(directory: Path) -> Plan | None:
    """The cluster that a directory has; None if it has none."""
    nodes, cluster_ids, ensembles = [], set(), set()
    directory = directory.resolve()
    for path in sorted(directory.glob("node-*")):
        if not _DIRECTORY.fullmatch(path.name) or not (path / NODE_FILE).exists():
            continue
        config = load_config(str(path / NODE_FILE))
        listeners = {one.name: f"{one.host}:{one.port}" for one in config["listeners"]}
        port = int(next(iter(listeners.values())).rpartition(":")[2])
        nodes.append(NodePlan(config.node_id, config.roles, port, listeners, path))
        ensembles.add(config["zookeeper.connect"] if config.is_of_zookeeper else None)
        meta = load_meta_properties(real_host("plan").files, config.metadata_directory)
        if meta is not None:
            cluster_ids.add(meta.cluster_id or "none")
        elif not config.is_of_zookeeper:
            raise ConfigError(f"{config.metadata_directory} is not formatted")
    if not nodes:
        return None
    if len(cluster_ids) > 1:
        raise ConfigError(f"{directory} has nodes of several clusters: {', '.join(sorted(cluster_ids))}")
    if len(ensembles) > 1:
        raise ConfigError(f"{directory} has nodes of both modes, or of several ZooKeepers")
    return Plan(
        directory,
        cluster_ids.pop() if cluster_ids else "",
        tuple(sorted(nodes, key=lambda one: one.id)),
        ensembles.pop(),
        tuple(read_servers(directory)),
    )


def check_ports(port: int, count: int) -> None:
    """A port that was asked for by its number must be free."""
    if not 0 <= port <= 65535 - (count if port else 0):
        raise ConfigError(f"port {port}: allowed is 0 to {65535 - count}")
    if port and not is_free(port):
        raise ConfigError(f"port {port} is in use: stop whoever has it, or ask for another port")


def _replication(brokers: int) -> dict[str, str]:
    """Internal topics and new ones are replicated as far as there are brokers."""
    replicas = min(brokers, 3)
    return {
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "min.insync.replicas": "2" if replicas == 3 else "1",
    }
