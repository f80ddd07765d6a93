"""A cluster for the time of a block: one line in a test, or at a prompt.

    with Cluster(brokers=3) as kafka:
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)

The nodes are inside the caller's process, on one event loop in a thread of its own, or each in a process of
its own (`mode="processes"`), where they can also be killed, paused and partitioned; or the same with a
private ZooKeeper instead of a quorum of controllers (`mode="zookeeper"`). The data is in a temporary
directory that goes with the cluster, or in `data`, which another cluster may start with again.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self, TypeVar
from urllib.parse import quote

from quorate.testing.control import ClusterError, Launched, State, ask_admin, launch, wait_until
from quorate.testing.profiles import TESTING
from quorate.values import dataclass

__all__ = ["Cluster", "ClusterError", "ClusterNode"]

TIMEOUT_S: Final = 60.0

Mode = Literal["threads", "processes", "zookeeper"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node, as it is now. `port` is where clients connect, or the controller port of a pure controller."""

    id: int
    roles: tuple[str, ...]
    state: str
    is_ready: bool
    pid: int | None
    host: str
    port: int
    listeners: Mapping[str, str]
    admin: str | None
    data: Path


class Cluster:
    """Brokers have the ids 1, 2, 3 and so on, controllers 101, 102, 103. Without controllers of its own the
    first three brokers are controllers as well.

    `settings` are keys of the nodes' files, beside those of `TESTING`; `port` is that of the first broker.
    Inside the block every node is ready.
    """

    def __init__(
        self,
        brokers: int = 1,
        controllers: int = 0,
        *,
        data: Path | str | None = None,
        mode: Mode = "threads",
        settings: Mapping[str, str] | None = None,
        port: int = 0,
        timeout: float = TIMEOUT_S,
        zookeepers: int = 1,
    ) -> None:
        """`zookeepers` is how many servers a private ZooKeeper has."""
        if mode not in ("threads", "processes", "zookeeper"):
            raise ValueError(f"mode={mode!r}: allowed is threads, processes or zookeeper")
        self.mode = mode
        self.timeout_s = timeout
        self._wanted: dict[str, Any] = {
            "brokers": brokers,
            "controllers": controllers,
            "port": port,
            "settings": {**TESTING, **(settings or {})},
        }
        if mode == "zookeeper":
            self._wanted |= {"mode": mode, "zookeepers": zookeepers}
        self._data = None if data is None else Path(data)
        self._directory: Path | None = None
        self._facts: State = {}  # what it was at the start: what does not change is in it
        self._nodes: _Nodes | None = None
        self._cuts: list[tuple[frozenset[int], frozenset[int]]] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """What entering the block does."""
        assert self._nodes is None, "a cluster that runs is not started"
        self._directory = self._data or Path(tempfile.mkdtemp(prefix="quorate-"))
        try:
            self._nodes = self._make_nodes(self._directory)
            self._facts = self._nodes.state()
            self.wait_until_ready()
            self._facts = self._nodes.state()  # a new cluster may have got its id only now
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """What leaving the block does: stops all nodes, brokers first."""
        nodes, self._nodes = self._nodes, None
        if nodes is not None:
            nodes.end()
        if self._data is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._cuts.clear()

    def _make_nodes(self, directory: Path) -> _Nodes:
        if self.mode != "threads":
            return launch(directory, self._wanted)
        from quorate.testing.threads import ThreadedNodes  # loads what a node needs

        return ThreadedNodes(directory, self._wanted)

    # What it is

    @property
    def bootstrap_servers(self) -> str:
        return str(self._fact("bootstrap_servers"))

    @property
    def bootstrap_controllers(self) -> str:
        return str(self._fact("bootstrap_controllers"))

    @property
    def cluster_id(self) -> str:
        return str(self._fact("cluster_id"))

    @property
    def zookeeper(self) -> str:
        """Where the ZooKeeper of the cluster is, host:port,.../path; `ClusterError` if it has none."""
        return str(self._fact("zookeeper")["connect"])

    @property
    def directory(self) -> Path:
        self._fact("nodes")
        assert self._directory is not None
        return self._directory

    @property
    def nodes(self) -> list[ClusterNode]:
        return [_node(one) for one in self._started.state()["nodes"]]

    def node(self, node_id: int) -> ClusterNode:
        self._listeners_of(node_id)
        return next(one for one in self.nodes if one.id == node_id)

    def ask(self, node_id: int, path: str) -> dict[str, Any]:
        """What the admin endpoint of a node says, as in `ask(1, "/v1/broker")`."""
        address = self.node(node_id).admin
        if address is None:
            raise ClusterError(f"node {node_id} is not running")
        return ask_admin(address, path, timeout_s=self.timeout_s)

    # What is done to it

    def restart(self, node_id: int) -> None:
        """Stops a node in order if it runs, starts it, and waits until it is ready."""
        self._started.restart(node_id, self.timeout_s)
        self._cut_again(node_id)

    def stop(self, node_id: int) -> None:
        """Stops a node in order, and waits until it has ended."""
        self._started.stop(node_id, self.timeout_s)

    def start_node(self, node_id: int) -> None:
        """Starts a node that does not run, and does not wait for it."""
        self._started.start(node_id)
        self._cut_again(node_id)

    def kill(self, node_id: int) -> None:
        """Ends the process of a node without mercy."""
        self._processes("kill").order("kill", node_id)

    def pause(self, node_id: int) -> None:
        """The process of a node does nothing any more, until it is resumed; its connections stay open."""
        self._processes("pause").order("pause", node_id)

    def resume(self, node_id: int) -> None:
        self._processes("resume").order("resume", node_id)

    def partition(self, *sides: Iterable[int]) -> None:
        """Cuts the network between groups of nodes, besides what is cut; clients still reach them all."""
        self._processes("partition")
        groups = [frozenset(side) for side in sides]
        for node_id in frozenset().union(*groups):
            self._listeners_of(node_id)
        self._cuts += [(mine, others) for index, mine in enumerate(groups) for others in groups[index + 1 :]]
        for node_id in sorted(frozenset().union(*groups)):
            self._tell_cuts(node_id)

    def heal(self) -> None:
        """Takes all partitions back."""
        cut = {node_id for sides in self._cuts for side in sides for node_id in side}
        self._cuts.clear()
        for node_id in sorted(cut):
            if self.node(node_id).admin is not None:
                self._tell_cuts(node_id)

    def repair(self) -> None:
        """Takes back whatever was done to it: all nodes run, reach each other, and are ready."""
        self.heal()
        for server in self._started.state().get("zookeeper", {}).get("servers", ()):
            order = {"paused": "resume-server", "dead": "start-server"}.get(server["state"])
            if order is not None:
                self._processes(order).order(order, server["name"])
        for one in self.nodes:
            if one.state == "paused":
                self.resume(one.id)
            elif one.state != "running":
                self.start_node(one.id)
        self.wait_until_ready()

    def kill_zookeeper(self, number: int = 1) -> None:
        """Ends a server of the private ZooKeeper without mercy."""
        self._processes("kill_zookeeper").order("kill-server", f"zookeeper-{number}")

    def start_zookeeper(self, number: int = 1) -> None:
        """Starts a server of the private ZooKeeper that does not run, and does not wait for it."""
        self._processes("start_zookeeper").order("start-server", f"zookeeper-{number}")

    def pause_zookeeper(self, number: int = 1) -> None:
        self._processes("pause_zookeeper").order("pause-server", f"zookeeper-{number}")

    def resume_zookeeper(self, number: int = 1) -> None:
        self._processes("resume_zookeeper").order("resume-server", f"zookeeper-{number}")

    # Waiting

    def wait_until(
        self, condition: Callable[[], T], timeout: float | None = None, what: str = "the condition"
    ) -> T:
        """The first answer of the condition that is true. `ClusterError` if there is none in that time."""
        return wait_until(condition, self.timeout_s if timeout is None else timeout, what)

    def wait_until_ready(self, timeout: float | None = None) -> None:
        """Until every node can be used: a controller leads, and every broker is unfenced."""
        self._started.wait_until_ready(self.timeout_s if timeout is None else timeout)

    # How

    def _fact(self, name: str) -> Any:
        if name not in self._facts:
            raise ClusterError("the cluster has not been started")
        return self._facts[name]

    def _listeners_of(self, node_id: int) -> list[str]:
        nodes = {one["id"]: one for one in self._fact("nodes")}
        if node_id not in nodes:
            raise ClusterError(f"there is no node {node_id}: the nodes are {', '.join(map(str, nodes))}")
        return list(nodes[node_id]["listeners"].values())

    @property
    def _started(self) -> _Nodes:
        if self._nodes is None:
            raise ClusterError("the cluster is not running")
        return self._nodes

    def _processes(self, what: str) -> Launched:
        nodes = self._started
        if not isinstance(nodes, Launched):
            raise ClusterError(f'{what}() needs a process per node: Cluster(..., mode="processes")')
        return nodes

    def _cut_again(self, node_id: int) -> None:
        """A node that starts does not know what it was cut off from."""
        if any(node_id in side for sides in self._cuts for side in sides):
            self.wait_until(lambda: self.node(node_id).admin, what=f"node {node_id} to listen")
            self._tell_cuts(node_id)

    def _tell_cuts(self, node_id: int) -> None:
        """Tells a node which addresses it cannot reach."""
        others: set[int] = set()
        for one, other in self._cuts:
            others |= other if node_id in one else one if node_id in other else set()
        addresses = sorted(address for other in others for address in self._listeners_of(other))
        node = self.node(node_id)
        if node.admin is None:
            return  # one that does not run is cut off when it starts
        path = f"/v1/lab/cut?addresses={quote(','.join(addresses))}"
        ask_admin(node.admin, path, method="POST", timeout_s=self.timeout_s)


class _Nodes(Protocol):
    """What `ThreadedNodes` and `Launched` have in common."""

    def state(self) -> State: ...
    def start(self, node_id: int) -> None: ...
    def restart(self, node_id: int, timeout_s: float) -> None: ...
    def stop(self, node_id: int, timeout_s: float) -> None: ...
    def wait_until_ready(self, timeout_s: float, *node_ids: int) -> object: ...
    def end(self) -> None: ...


def _node(state: State) -> ClusterNode:
    return ClusterNode(
        id=state["id"],
        roles=tuple(state["roles"]),
        state=state["state"],
        is_ready=state["ready"],
        pid=state["pid"],
        host=state["host"],
        port=state["port"],
        listeners=state["listeners"],
        admin=state["admin"],
        data=Path(state["data"]),
    )
