"""The seam between a broker and whatever decides about it: KRaft, or ZooKeeper and an elected controller.

It has two directions. State changes come in as `Changes`: which replicas are ours, who leads them, who is
alive, which settings topics have. Requests go out over `ControlPlane`: proposals for in-sync replicas, topics
to be created, blocks of producer ids, and whatever a client asks of a broker that only the controller can do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from quorate.controller.proposals import IsrAnswer, Proposal, TopicPartition
from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import Partition as PartitionState
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = ["Assignment", "Changes", "ControlPlane", "IsrAnswer"]


class Assignment(NamedTuple):
    """A replica that is ours, and what the cluster says of its partition."""

    key: TopicPartition
    state: PartitionState


@dataclass(frozen=True, slots=True)
class Changes:
    """What is different from before. `image` is the cluster as it is now."""

    image: ClusterImage
    assigned: Sequence[Assignment] = ()  # new or changed
    removed: Sequence[tuple[Uuid, int]] = ()  # not ours any more
    configured: Sequence[str] = ()  # topics whose settings changed; all of ours if `is_configured_all`
    is_configured_all: bool = False


class ControlPlane(Protocol):
    """What a broker may ask of the cluster."""

    async def propose(
        self, proposals: Sequence[tuple[TopicPartition, Proposal]]
    ) -> dict[TopicPartition, IsrAnswer] | ErrorCode:
        """Asks for other in-sync replicas; the error is one for all."""

    async def forward(self, request: Request, version: int, principal: str, client_id: str) -> Response:
        """What a client asked, answered by the controller. Raises `ApiError` if it cannot be asked."""

    async def allocate_producer_ids(self) -> range:
        """A block of producer ids that nobody else has."""
