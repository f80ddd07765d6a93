"""What a node shows of itself to those who ask it: see `admin`, `metrics` and `broker_metrics`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from quorate.controller.sessions import Sessions
from quorate.controller.settings import ControllerSettings
from quorate.metadata.image import ClusterImage
from quorate.net.budget import Budget
from quorate.net.server import Server
from quorate.protocol.types import Uuid
from quorate.raft.quorum import Now, Quorum
from quorate.raft.replication import progress_of
from quorate.raft.state import Leader
from quorate.values import dataclass

__all__ = [
    "ActiveState",
    "AdminView",
    "BrokerStatus",
    "BrokerView",
    "QuorumView",
    "ReplicaCounts",
    "VoterView",
    "quorum_view",
]


class ActiveState(Protocol):
    """What only the active controller has. `controller.ActiveController` is one."""

    image: ClusterImage  # with what is not committed yet
    sessions: Sessions
    epoch: int


@dataclass(frozen=True, slots=True)
class VoterView:
    """A voter, as the leader sees it; nobody else knows how far it is."""

    id: int
    log_end_offset: int | None
    lag: int | None  # offsets behind the leader
    ms_since_fetch: int | None  # None for the leader itself, and for one that has not fetched yet
    is_caught_up: bool | None


@dataclass(frozen=True, slots=True)
class QuorumView:
    leader_id: int  # -1 if nobody is known to lead
    epoch: int
    high_watermark: int  # -1 if it is not known yet
    log_end_offset: int  # of this node
    voters: tuple[VoterView, ...]


class AdminView(Protocol):
    """Everything that may be asked about. Each attribute is read when it is needed, and not kept."""

    @property
    def node_id(self) -> int: ...

    @property
    def settings(self) -> ControllerSettings: ...

    @property
    def image(self) -> ClusterImage:
        """The committed one."""

    @property
    def applied_offset(self) -> int:
        """Of the last record in that image, -1 if there is none."""

    @property
    def applied_timestamp_ms(self) -> int:
        """When that record was appended."""

    @property
    def active(self) -> ActiveState | None:
        """None on a standby."""

    def quorum(self) -> QuorumView: ...

    def now_ms(self) -> float:
        """Monotonic, the time that sessions are kept in."""

    def wall_ms(self) -> int: ...

    def admin_address_of(self, node_id: int) -> str | None:
        """Where another controller answers such questions, `http://host:port`, if that is known."""


# Brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """A broker, as it sees itself."""

    broker_id: int
    state: str
    state_number: int  # Kafka's
    epoch: int  # -1 as long as it has none
    is_fenced: bool | None  # None as long as its own metadata do not know it
    incarnation_id: Uuid
    metadata_offset: int  # the last one that was carried out, -1 if there is none
    metadata_lag: int | None  # offsets that are committed and have not been; None if that is not known
    metadata_lag_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCounts:
    partitions: int
    led: int
    offline: int
    under_replicated: int
    under_min_isr: int
    at_min_isr: int


class BrokerView(Protocol):
    """What may be asked about a broker."""

    budget: Budget

    def status(self) -> BrokerStatus: ...

    def replica_counts(self) -> ReplicaCounts: ...

    def listeners(self) -> Sequence[Server]: ...


# Quorums


def quorum_view(quorum: Quorum, now: Now) -> QuorumView:
    """A quorum as one of its replicas sees it.

    A voter has caught up if it has fetched lately and, doing so, was not behind by more than it takes to be
    replaced: it could go on if the others stopped.
    """
    return QuorumView(
        leader_id=quorum.leader_id,
        epoch=quorum.epoch,
        high_watermark=-1 if quorum.high_watermark is None else quorum.high_watermark,
        log_end_offset=quorum.log.end_offset,
        voters=tuple(_voter_view(quorum, voter_id, now) for voter_id in _voter_ids(quorum)),
    )


def _voter_ids(quorum: Quorum) -> list[int]:
    return sorted(voter.key.id for voter in quorum.voters.latest)


def _voter_view(quorum: Quorum, voter_id: int, now: Now) -> VoterView:
    role, end_offset = quorum.role, quorum.log.end_offset
    if not isinstance(role, Leader):
        return VoterView(voter_id, None, None, None, None)
    if voter_id == quorum.me.id:
        return VoterView(voter_id, end_offset, 0, None, True)
    voter = quorum.voters.latest.get(voter_id)
    assert voter is not None
    progress = progress_of(role.replicas, quorum.voters.latest, voter.key)
    if progress.offset < 0:
        return VoterView(voter_id, None, None, None, False)
    ms_since_fetch = round(now.ms - progress.last_fetch_ms)
    tolerated_ms = quorum.settings.fetch_timeout_ms
    is_caught_up = (
        ms_since_fetch <= tolerated_ms
        and progress.caught_up_wall_ms >= 0
        and progress.last_fetch_wall_ms - progress.caught_up_wall_ms <= tolerated_ms
    )
    return VoterView(
        voter_id, progress.offset, max(0, end_offset - progress.offset), ms_since_fetch, is_caught_up
    )
