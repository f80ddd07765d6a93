"""ZooKeeper's control plane as a broker sees it: `broker.control_plane.ControlPlane`, and a life around it.

    plane = ZooKeeperPlane(settings, random=..., wall_ms=..., connections=..., broker=...)
    await plane.connect(known_cluster_id=..., known_broker_id=...)   # from meta.properties, None if not there
    ...                       # plane.cluster_id and plane.broker_id go to meta.properties; logs are opened,
                              # listeners bound, with plane.routes() among what they serve
    await plane.register(listeners, rack=..., features=...)          # plane.broker_epoch from here on
    await plane.run()         # a duty, until it is cancelled; raises `Fatal` for what nobody can go on with
    await plane.controlled_shutdown()
    await plane.stop()

What the broker is to have and to lead comes as requests (LeaderAndIsr, UpdateMetadata, StopReplica) to its
listener, from whichever broker is the controller, itself included. Configurations come from znodes, as
records for the image (`BrokerSide.apply_records`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Protocol

from quorate.controller.events import Event
from quorate.controller.proposals import IsrAnswer, Proposals, TopicPartition
from quorate.metadata.brokers import Listener
from quorate.metadata.image import ClusterImage
from quorate.net.connections import Connections
from quorate.net.routes import Route
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Record, Request, Response
from quorate.zookeeper.settings import ZooKeeperSettings

__all__ = ["BrokerSide", "Fatal", "ZooKeeperPlane"]


class Fatal(Exception):  # noqa: N818
    """Nothing that waiting would help against: another has our id, or the cluster is not the one we know."""


class BrokerSide(Protocol):
    """What the plane asks of the broker that it belongs to."""

    def current_image(self) -> ClusterImage:
        """The cluster as this broker knows it: what configurations are judged by."""

    def apply_records(self, records: Sequence[Record]) -> None:
        """Configurations, quotas and credentials that have changed, or that there are at the beginning."""

    def epoch_changed(self, broker_epoch: int) -> None:
        """This broker is registered, perhaps once more: a request for an older epoch is not for it."""


class ZooKeeperPlane:
    """One broker's part in the cluster: a member, perhaps its controller."""

    def __init__(
        self,
        settings: ZooKeeperSettings,
        *,
        random: Random,
        wall_ms: Callable[[], int],
        connections: Callable[[], Connections],
        broker: BrokerSide,
        saw: Callable[[Sequence[Event]], None] = lambda _: None,
    ) -> None:
        """`connections` makes a set of connections to brokers, with TLS if the inter-broker listener has it;
        the plane closes what it was given."""
        raise NotImplementedError

    # Life

    async def connect(self, *, known_cluster_id: str | None, known_broker_id: int | None) -> None:
        """A session, the paths that everybody expects, and who we are. `ConfigError`-like `Fatal` if the
        cluster is another than the known one, or the id is not known and may not be generated. Afterwards
        `cluster_id`, `broker_id`, and all configurations have been given to `BrokerSide.apply_records`."""
        raise NotImplementedError

    async def register(
        self, listeners: Sequence[Listener], *, rack: str | None, features: Mapping[str, tuple[int, int]]
    ) -> None:
        """Becomes a member. `Fatal` if another process has our id, or an address of ours."""
        raise NotImplementedError

    async def run(self) -> None:
        """Keeps the membership, and takes part in electing the controller, until it is cancelled."""
        raise NotImplementedError

    async def controlled_shutdown(self) -> bool:
        """Has the controller move our leaderships away; whether it could."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Resigns and closes the session: our znodes are gone at once. `run` has been cancelled before."""
        raise NotImplementedError

    # Who we are

    @property
    def cluster_id(self) -> str:
        raise NotImplementedError

    @property
    def broker_id(self) -> int:
        raise NotImplementedError

    @property
    def broker_epoch(self) -> int:
        """-1 until we are registered."""
        raise NotImplementedError

    @property
    def controller_id(self) -> int:
        """-1 if there is none, as far as is known."""
        raise NotImplementedError

    @property
    def is_controller(self) -> bool:
        raise NotImplementedError

    # What others ask of us

    def routes(self) -> list[Route]:
        """AlterPartition, ControlledShutdown and AllocateProducerIds, which brokers send to the controller."""
        raise NotImplementedError

    # What the broker asks: `ControlPlane`, and `handlers.forwarding.Forwarder`

    async def propose(self, proposals: Proposals) -> dict[TopicPartition, IsrAnswer] | ErrorCode:
        raise NotImplementedError

    async def forward(
        self, request: Request, version: int, principal: str, client_id: str, client_host: str = ""
    ) -> Response:
        """The answer of the controller, which may be this broker. Configurations, quotas and credentials are
        not the controller's: whichever broker is asked writes them. One that was forwarded to us already is
        not forwarded again: NOT_CONTROLLER."""
        raise NotImplementedError

    @property
    def controller_versions(self) -> Mapping[int, range] | None:
        """What `forward` can be asked, by key."""
        raise NotImplementedError

    async def allocate_producer_ids(self) -> range:
        raise NotImplementedError

    # Asked for by the broker's side (see docs/zookeeper.md, "Between the two halves")

    async def read_topic_configs(self, topics: Sequence[str]) -> None:
        """Reads `/config/topics/<t>` of topics that this broker hears of for the first time, and gives what it
        finds to `BrokerSide.apply_records` before it returns: nobody notifies of configurations of topics that
        are created with them. What cannot be read is retried, or left out with a line in the log."""
        raise NotImplementedError

    async def log_directory_failed(self) -> None:
        """Tells the controller (`/log_dir_event_notification`), again and again until it is written."""
        raise NotImplementedError
