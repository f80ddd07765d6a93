"""What a leader knows of its followers: how far each is, who is in sync, and what is therefore committed.

Pure. The high watermark is the smallest end offset of all that count: the leader, everyone in sync, everyone
who was proposed for the ISR and may be in it already, and those who are about to join (waiting for them keeps
them from chasing an end that always moves). It never goes back while one leads, and it does not move while
fewer are in sync than must be.

Changes of the ISR are proposals: the controller decides. Until it has, a proposed newcomer counts for the
high watermark and a proposed leaver still does, so nothing is committed that either outcome could lose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from quorate.controller.proposals import Proposal
from quorate.metadata.partitions import Partition as PartitionState
from quorate.values import dataclass

__all__ = ["Follower", "Heard", "Leadership", "Proposal"]

NEVER = float("-inf")


@dataclass(slots=True)
class Heard:
    """When a follower has fetched last in a session: that counts for all its partitions that are at rest."""

    at_ms: float = NEVER


@dataclass(slots=True)
class Follower:
    """One of them, as its fetches tell.

    As long as it is `at_rest`, it has everything and asks for nothing else: then every fetch of its session
    says that it is caught up, and nothing is noted here.
    """

    end_offset: int = -1  # unknown
    log_start_offset: int = -1
    caught_up_ms: float = NEVER
    fetched_ms: float = NEVER
    leader_end_offset: int = -1  # the leader's end when it fetched last
    broker_epoch: int = -1
    told_high_watermark: int = -1  # with the last answer
    at_rest: Heard | None = None

    @property
    def last_caught_up_ms(self) -> float:
        return self.caught_up_ms if self.at_rest is None else max(self.caught_up_ms, self.at_rest.at_ms)

    def is_caught_up(self, leader_end_offset: int, now_ms: float, lag_ms_max: float) -> bool:
        return self.end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_ms_max

    def stir(self, heard: Heard) -> None:
        """It is not at rest any more, in that session: from now on its fetches count one by one."""
        if self.at_rest is heard:
            self.caught_up_ms = max(self.caught_up_ms, heard.at_ms)
            self.fetched_ms = max(self.fetched_ms, heard.at_ms)
            self.at_rest = None


@dataclass(slots=True)
class Leadership:
    """One epoch of leading one partition."""

    broker_id: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    epoch_start_offset: int
    high_watermark: int
    is_recovering: bool = False
    followers: dict[int, Follower] = field(default_factory=dict)
    proposal: Proposal | None = None

    @classmethod
    def begin(
        cls, broker_id: int, state: PartitionState, end_offset: int, high_watermark: int, now_ms: float
    ) -> Leadership:
        """The followers have yet to be heard of; those in sync are believed to be caught up for now."""
        leadership = cls(
            broker_id=broker_id,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=state.replicas,
            isr=state.isr,
            epoch_start_offset=end_offset,
            high_watermark=high_watermark,
            is_recovering=state.is_recovering,
        )
        for one in state.replicas:
            if one != broker_id:
                caught_up_ms = now_ms if one in state.isr else NEVER
                leadership.followers[one] = Follower(caught_up_ms=caught_up_ms)
        return leadership

    def update(self, state: PartitionState) -> None:
        """The controller has changed the partition within the same leader epoch. If it says nothing new, what
        was proposed since may still be granted, and counts until it is answered."""
        if state.partition_epoch > self.partition_epoch:
            self.proposal = None
        self.partition_epoch = state.partition_epoch
        self.isr = state.isr
        self.replicas = state.replicas
        self.is_recovering = state.is_recovering
        self.followers = {
            one: self.followers.get(one, Follower()) for one in state.replicas if one != self.broker_id
        }

    # Followers

    def fetched(
        self,
        follower_id: int,
        offset: int,
        log_start_offset: int,
        broker_epoch: int,
        end_offset: int,
        now_ms: float,
    ) -> None:
        """A follower asks for `offset`: so it has everything before. `end_offset` is where our log ends."""
        follower = self.followers[follower_id]
        if offset >= end_offset:
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        elif offset >= follower.leader_end_offset >= 0:
            # It has all that there was when it asked before, so it was caught up then.
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.end_offset = offset
        follower.log_start_offset = log_start_offset
        follower.broker_epoch = broker_epoch
        follower.fetched_ms = now_ms
        follower.leader_end_offset = end_offset

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Everyone who is in sync, or will be if the controller agrees."""
        if self.proposal is None:
            return self.isr
        return self.isr + tuple(one for one in self.proposal.isr if one not in self.isr)

    def advance(
        self,
        end_offset: int,
        min_isr: int,
        lag_ms_max: float,
        now_ms: float,
        is_eligible: Callable[[int], bool],
    ) -> bool:
        """Raises the high watermark as far as it may go. Whether it moved."""
        in_sync = len(self.isr)
        if in_sync < min_isr and in_sync < len(self.replicas):
            return False
        committed = end_offset
        if self.followers:
            counting = self.isr if self.proposal is None else self.maximal_isr
            for one, follower in self.followers.items():
                if follower.end_offset < committed and (
                    one in counting
                    or (follower.is_caught_up(end_offset, now_ms, lag_ms_max) and is_eligible(one))
                ):
                    committed = follower.end_offset
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    # The ISR

    def newcomer(self, follower_id: int, is_eligible: Callable[[int], bool]) -> Proposal | None:
        """The ISR to ask for when this follower has caught up, if it has and may."""
        if self.proposal is not None or follower_id in self.isr or follower_id not in self.followers:
            return None
        end_offset = self.followers[follower_id].end_offset
        if end_offset < max(self.high_watermark, self.epoch_start_offset) or not is_eligible(follower_id):
            return None
        return self._propose((*self.isr, follower_id))

    def without_laggards(self, end_offset: int, now_ms: float, lag_ms_max: float) -> Proposal | None:
        """The ISR to ask for without those who have not caught up for too long, if there are any."""
        if self.proposal is not None:
            return None
        staying = tuple(
            one
            for one in self.isr
            if one == self.broker_id
            or one not in self.followers
            or self.followers[one].is_caught_up(end_offset, now_ms, lag_ms_max)
        )
        return None if staying == self.isr else self._propose(staying)

    def _propose(self, isr: tuple[int, ...]) -> Proposal:
        epochs = {one: self.followers[one].broker_epoch for one in isr if one in self.followers}
        self.proposal = Proposal(isr, self.leader_epoch, self.partition_epoch, epochs)
        return self.proposal

    def accepted(self, isr: tuple[int, ...], partition_epoch: int, *, is_recovering: bool) -> None:
        """The controller has answered a proposal. Its metadata may have been here before it."""
        if partition_epoch > self.partition_epoch:
            self.isr = isr
            self.partition_epoch = partition_epoch
            self.is_recovering = is_recovering
        self.proposal = None

    def refused(self) -> None:
        """The controller has said no: the ISR is what it was."""
        self.proposal = None
