"""What every handler of a broker has at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from random import Random
from typing import TYPE_CHECKING

from quorate.broker.control_plane import ControlPlane
from quorate.broker.dynamic_config import DynamicConfig
from quorate.broker.isr_proposals import IsrProposals
from quorate.broker.quotas import Quotas
from quorate.broker.replicas import Replicas
from quorate.broker.settings import BrokerSettings
from quorate.broker.throttled_replication import ReplicationThrottle
from quorate.metadata.image import ClusterImage
from quorate.net.routes import RequestContext
from quorate.values import dataclass

if TYPE_CHECKING:
    from quorate.broker.partition import Partition

__all__ = ["Broker", "Operation", "ResourceKind"]


class Operation:
    """What somebody may want to do; the numbers are those of ACLs."""

    READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = 3, 4, 5, 6, 7, 8, 9
    DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 10, 11, 12


class ResourceKind:
    """To what."""

    TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5


@dataclass(slots=True)
class Broker:
    """One broker, while it serves."""

    settings: BrokerSettings
    configs: DynamicConfig
    replicas: Replicas
    proposals: IsrProposals
    control_plane: ControlPlane
    random: Random
    now_ms: Callable[[], float]
    wall_ms: Callable[[], int]
    current_image: Callable[[], ClusterImage]
    broker_epoch: Callable[[], int]
    quotas: Quotas = field(default_factory=Quotas)
    leader_throttle: ReplicationThrottle = field(default_factory=ReplicationThrottle)
    count_appended: Callable[[str, int, int], None] = lambda _topic, _records, _bytes: None
    """Is told what producers have appended to a topic."""
    count_committed: Callable[[int], None] = lambda _offsets: None
    """Is told of offsets that were committed without a response being made for it."""
    controller_id: Callable[[], int] | None = None
    """Who the controller is, -1 if nobody; None where any broker passes on what only a controller can do."""

    @property
    def image(self) -> ClusterImage:
        """The cluster, as far as this broker has read."""
        return self.current_image()

    def authorize(self, _context: RequestContext, _operation: int, _kind: int, _name: str) -> bool:
        """Whether the asker may do something to a resource. Everybody may do everything, for now."""
        return True

    def partition(self, topic: str, partition_id: int) -> Partition | None:
        return self.replicas.named(topic, partition_id)
