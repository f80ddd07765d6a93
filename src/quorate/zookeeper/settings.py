"""What a broker's configuration says about ZooKeeper and about the controller that a broker may become."""

from __future__ import annotations

from dataclasses import field

from quorate.controller.settings import ControllerSettings
from quorate.values import dataclass

__all__ = ["ZooKeeperSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSettings:
    """Names and defaults are those of Kafka's configuration."""

    connect: str
    """`zookeeper.connect`: host:port,host:port/chroot."""
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int | None = None
    """How long a broker that starts tries to reach ZooKeeper; None tries for as long as it takes."""
    max_in_flight_requests: int = 10
    digest: str | None = None
    """`user:password`, for ZooKeeper's scheme of this name; None authenticates as nobody."""
    is_acl_set: bool = False
    """`zookeeper.set.acl`: what is created belongs to whoever we authenticated as."""

    broker_id: int = -1
    """`broker.id`; -1 takes the one of meta.properties, or a new one."""
    is_broker_id_generated: bool = True
    reserved_broker_max_id: int = 1000

    inter_broker_listener: str = "PLAINTEXT"
    """Where the controller finds brokers, and brokers the controller."""
    control_plane_listener: str = ""
    """Where the controller finds brokers that have this listener: `control.plane.listener.name`."""
    controlled_shutdown_retries_max: int = 3
    controlled_shutdown_retry_backoff_ms: int = 5_000
    controller_socket_timeout_ms: int = 30_000
    """How long the controller waits for an answer of a broker before it asks again."""
    leader_imbalance_per_broker_percentage: int = 10
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    """Defaults of topics, and what else a controller of either kind goes by."""
