"""What a group consumer needs of its membership, whichever protocol that speaks."""

from __future__ import annotations

import asyncio
from typing import Protocol

from quorate.client.group_offsets import Member
from quorate.client.metadata import TopicPartition
from quorate.values import dataclass

__all__ = ["Membership", "MembershipSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSettings:
    """How a member takes part. Coordinators of consumer groups set session and heartbeats themselves."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000
    instance_id: str | None = None
    rack: str | None = None


class Membership(Protocol):
    """Lives in the background; what concerns records happens in `settle`, when their reader has time."""

    news: asyncio.Event
    """Set whenever `settle` has something to do, or something went wrong."""

    @property
    def member(self) -> Member:
        """Who commits."""

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """What is ours to read."""

    @property
    def to_revoke(self) -> frozenset[TopicPartition]:
        """What must be given up, after committing how far it was read."""

    def lose_all(self) -> bool:
        """Whether everything was lost since this was asked last: others may read it already."""

    async def settle(self) -> None:
        """What was to be revoked has been: goes on, until the next assignment or revocation is known. If it
        is cancelled, the next one goes on where this was. Raises what cannot be mended."""

    async def close(self) -> None:
        """Leaves the group, unless it is a static member, which is expected back."""
