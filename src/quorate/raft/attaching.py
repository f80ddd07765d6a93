"""Who leads: what others say about it, and what follows for us."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.protocol.errors import ErrorCode
from quorate.raft import election
from quorate.raft.messages import Answer, BeginEpoch, EndEpoch
from quorate.raft.state import Candidate, Follower, Prospective, SafetyError, Unattached
from quorate.raft.voters import Endpoint

if TYPE_CHECKING:
    from quorate.raft.quorum import Quorum
    from quorate.raft.settings import Now

__all__ = ["Attaching"]


class Attaching:
    """How a replica comes to a leader."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    def on_begin_epoch(self, ask: BeginEpoch, now: Now) -> Answer:
        quorum = self._quorum
        if ask.epoch < quorum.epoch:
            return quorum.answer(ErrorCode.FENCED_LEADER_EPOCH)
        if ask.leader_id < 0:
            return quorum.answer(ErrorCode.INVALID_REQUEST)
        self.learn(ask.epoch, ask.leader_id, ask.endpoints[0] if ask.endpoints else None, now)
        if not quorum.is_me(ask.voter):
            return quorum.answer(ErrorCode.INVALID_VOTER_KEY)
        return quorum.answer(ErrorCode.NONE)

    def on_end_epoch(self, ask: EndEpoch, now: Now) -> Answer:
        quorum = self._quorum
        if ask.epoch < quorum.epoch:
            return quorum.answer(ErrorCode.FENCED_LEADER_EPOCH)
        if ask.leader_id < 0:
            return quorum.answer(ErrorCode.INVALID_REQUEST)
        self.learn(ask.epoch, ask.leader_id, None, now)
        role = quorum.role
        if isinstance(role, Follower) and role.leader_id == ask.leader_id:
            max_ms = quorum.settings.election_backoff_max_ms
            role.fetch_deadline_ms = now.ms + election.successor_delay_ms(ask.successors, quorum.me, max_ms)
        return quorum.answer(ErrorCode.NONE)

    def learn(self, epoch: int, leader_id: int, endpoint: Endpoint | None, now: Now) -> None:
        """Someone says who leads which epoch."""
        quorum = self._quorum
        if epoch < quorum.epoch:
            return
        if leader_id == quorum.me.id:
            if epoch > quorum.epoch:
                quorum.become_unattached(epoch, now)
            return  # we know best whether we lead this epoch
        known = quorum.leader_id
        if epoch == quorum.epoch:
            if leader_id < 0:
                return
            if known >= 0 and known != leader_id:
                raise SafetyError(f"two leaders in epoch {epoch}: {known} and {leader_id}")
        role = quorum.role
        if epoch == quorum.epoch and isinstance(role, Follower):
            role.endpoint = endpoint or role.endpoint  # what a leader says of itself is newer than the log
            role.is_leader_silent = False  # others know no better one: it is worth another try
            return
        endpoint = endpoint or quorum.endpoint_of(leader_id)
        if leader_id < 0 or endpoint is None:
            if epoch > quorum.epoch:
                quorum.become_unattached(epoch, now, leader_id)
            elif isinstance(role, (Candidate, Unattached, Prospective)) and known < 0:
                # Its leader cannot be reached yet, but nobody else may be voted for any more.
                self._hold_leader(role, leader_id, now)
            return
        if epoch == quorum.epoch and isinstance(role, Prospective) and role.leader_endpoint is not None:
            return  # no news: it is the leader that we have not heard from
        voted = role.voted if epoch == quorum.epoch and isinstance(role, (Unattached, Prospective)) else None
        if epoch == quorum.epoch and isinstance(role, Candidate):
            voted = quorum.me
        quorum.become(Follower(epoch, leader_id, endpoint, now.ms + quorum.settings.fetch_timeout_ms, voted))

    def _hold_leader(self, role: Candidate | Unattached | Prospective, leader_id: int, now: Now) -> None:
        quorum = self._quorum
        if isinstance(role, Candidate):
            quorum.campaigning.become_prospective(now)
            role = quorum.role  # type: ignore[assignment]
        if isinstance(role, (Unattached, Prospective)):
            role.leader_id = leader_id
            quorum.effects.persist = quorum.election_state
