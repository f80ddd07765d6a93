"""A cluster that clients can use: controllers and brokers, each a `quorate node` process of its own.

    with ClusterProcesses(tmp_path, controllers=3, brokers=3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.kill(102)
        cluster.start(102)
        cluster.wait_until_unfenced(102)

Controllers are 1, 2, 3..., brokers 101, 102, 103...; with `combined=3` nodes 1, 2 and 3 are both. Inside the
block everything has been started, and every broker serves and knows of all the others. Starting, killing,
terminating, pausing and resuming by id, and what the nodes have logged, are those of `Processes`.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from node.processes import CLUSTER_ID, HOST, Processes
from quorate.net.client import ConnectionLost
from quorate.node.config_file import load_config
from quorate.node.format import format_storage
from quorate.node.host import real_host
from quorate.protocol.api.admin import DescribeClusterRequest, DescribeClusterResponse
from quorate.protocol.api.produce_fetch import ListOffsetsRequest, ListOffsetsResponse
from quorate.protocol.api.topics import MetadataRequest, MetadataResponse
from quorate.protocol.errors import ApiError
from quorate.protocol.message import Request, Response

FIRST_BROKER = 101
LISTENERS = {"PLAINTEXT": HOST}
CALM = {
    # Beside Java machines on two cores a node may have to wait for its turn.
    "controller_quorum_fetch_timeout_ms": "2000",
    "controller_quorum_request_timeout_ms": "2000",
    "metadata_max_idle_interval_ms": "100",
    "broker_session_timeout_ms": "6000",
    "broker_heartbeat_interval_ms": "500",
}
_PORTS_OF_LISTENERS = 1000  # ports are kept by number: a node's own, and from here on those for clients


class ClusterProcesses(Processes):
    """`listeners` are the names of the brokers' listeners, the first for the brokers among themselves, and
    the host that each is advertised with. Settings are for all nodes, written with underscores."""

    def __init__(
        self,
        root: Path,
        *,
        controllers: int = 3,
        brokers: int = 3,
        combined: int = 0,
        listeners: Mapping[str, str] = LISTENERS,
        **settings: str,
    ) -> None:
        super().__init__(root, **(CALM | settings))
        self.listeners = listeners
        if combined:
            controllers, brokers = combined, 0
        self.controller_ids = range(1, controllers + 1)
        self.broker_ids = range(FIRST_BROKER, FIRST_BROKER + brokers) if brokers else range(1, combined + 1)

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self.prepare()
            self.start(*self.node_ids)
            self.wait_until_unfenced(*self.broker_ids)
        except BaseException:
            self.__exit__()
            raise
        return self

    @property
    def node_ids(self) -> list[int]:
        return sorted({*self.controller_ids, *self.broker_ids})

    # Files

    def prepare(self) -> None:
        """Writes all configurations, and formats all directories, as `quorate storage format` does."""
        for one in self.node_ids:
            self.configure_node(one)
            config = load_config(str(self.configuration(one)))
            asyncio.run(format_storage(real_host("tests"), config, CLUSTER_ID))

    def configure_node(self, node_id: int, **changes: str | None) -> None:
        """Writes the configuration of a node anew; it counts when the node starts again."""
        voters = ",".join(f"{one}@{HOST}:{self.port(one)}" for one in self.controller_ids)
        roles, listeners, advertised = [], [], []
        if node_id in self.broker_ids:
            roles.append("broker")
            for name, host in self.listeners.items():
                port = self.client_port(node_id, name)
                listeners.append(f"{name}://{HOST}:{port}")
                advertised.append(f"{name}://{host}:{port}")
        if node_id in self.controller_ids:
            roles.append("controller")
            listeners.append(f"CONTROLLER://{HOST}:{self.port(node_id)}")
        names = [*self.listeners, "CONTROLLER"]
        settings: dict[str, Any] = {
            "process_roles": ",".join(roles),
            "controller_quorum_voters": voters,
            "listeners": ",".join(listeners),
            "listener_security_protocol_map": ",".join(f"{name}:PLAINTEXT" for name in names),
            "metadata_log_dir": None,
            "log_dirs": str(self.directory(node_id)),
        }
        if node_id in self.broker_ids:
            settings["advertised_listeners"] = ",".join(advertised)
            settings["inter_broker_listener_name"] = next(iter(self.listeners))
        self.configure(node_id, **(settings | changes))

    def partition_directory(self, broker_id: int, topic: str, partition: int = 0) -> Path:
        return self.directory(broker_id) / f"{topic}-{partition}"

    # Addresses

    def client_port(self, broker_id: int, listener: str | None = None) -> int:
        return self.port(self._door(broker_id, listener))

    @property
    def bootstrap(self) -> str:
        return self.bootstrap_by(next(iter(self.listeners)))

    def bootstrap_by(self, listener: str) -> str:
        """Where clients of a listener begin."""
        return ",".join(f"{HOST}:{self.client_port(one, listener)}" for one in self.broker_ids)

    @property
    def controllers(self) -> str:
        """Where tools begin that ask controllers."""
        return ",".join(f"{HOST}:{self.port(one)}" for one in self.controller_ids)

    def _door(self, broker_id: int, listener: str | None = None) -> int:
        """The number under which `port`, `address` and `ask` know a listener of a broker."""
        names = list(self.listeners)
        at = 0 if listener is None else names.index(listener)
        return broker_id + _PORTS_OF_LISTENERS * (at + 1)

    # Questions

    def describe(self, *node_ids: int) -> dict[str, Any] | None:
        """What the leader of the quorum says, looked for among these controllers or all that run."""
        return super().describe(*(node_ids or [one for one in self.controller_ids if one in self._running]))

    def ask_broker(
        self, broker_id: int, request: Request, version_cap: int | None = None, *, listener: str | None = None
    ) -> Response:
        """One request on a connection of its own, by the first listener unless another is named."""
        return self.ask(self._door(broker_id, listener), request, version_cap)

    def brokers_known_to(self, broker_id: int, *, listener: str | None = None) -> dict[int, tuple[str, int]]:
        """Who is alive and where, as a client is told by a broker; empty as long as it does not answer."""
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        try:
            found = self.ask_broker(broker_id, request, listener=listener)
        except (ApiError, ConnectionLost):
            return {}
        assert isinstance(found, DescribeClusterResponse)
        return {one.broker_id: (one.host, one.port) for one in found.brokers}

    def leaders_known_to(self, broker_id: int, topic: str) -> dict[int, int]:
        """Who leads the partitions of a topic, as a broker knows it; empty if it does not know the topic."""
        asked = MetadataRequest.Topic(name=topic)
        found = self.ask_broker(broker_id, MetadataRequest(topics=[asked], allow_auto_topic_creation=False))
        assert isinstance(found, MetadataResponse)
        return {one.partition_index: one.leader_id for one in found.topics[0].partitions}

    def wait_until_led(self, topic: str, partitions: int = 1) -> dict[int, int]:
        """Until all brokers know that a topic has so many partitions, and who leads them, and these know it
        themselves. Clients may keep it in mind for long that a topic is not there yet."""

        def leaders() -> dict[int, int] | None:
            known = [self.leaders_known_to(one, topic) for one in self.broker_ids if one in self._running]
            found = known[0]
            if len(found) != partitions or -1 in found.values() or any(one != found for one in known):
                return None
            return found if all(self._leads(leader, topic, one) for one, leader in found.items()) else None

        return self.wait(f"{partitions} partitions of {topic} have leaders", leaders)

    def _leads(self, broker_id: int, topic: str, partition: int) -> bool:
        at = ListOffsetsRequest.Topic.Partition(partition_index=partition, timestamp=-1)
        asked = ListOffsetsRequest.Topic(name=topic, partitions=[at])
        found = self.ask_broker(broker_id, ListOffsetsRequest(replica_id=-1, topics=[asked]))
        assert isinstance(found, ListOffsetsResponse)
        return found.topics[0].partitions[0].error_code == 0

    def wait_until_unfenced(self, *broker_ids: int) -> None:
        """Until these brokers serve, and all that run know that they do."""
        wanted = set(broker_ids)
        for one in [one for one in self.broker_ids if one in self._running]:
            self.wait(
                f"brokers {sorted(wanted)} are alive for broker {one}",
                lambda one=one: wanted <= self.brokers_known_to(one).keys(),  # type: ignore[misc]
            )

    def wait_until_fenced(self, *broker_ids: int) -> None:
        """Until all other brokers that run know that these are gone."""
        for one in [one for one in self.broker_ids if one in self._running and one not in broker_ids]:
            self.wait(
                f"brokers {broker_ids} are gone for broker {one}",
                lambda one=one: (known := self.brokers_known_to(one)) and known.keys().isdisjoint(broker_ids),
            )
