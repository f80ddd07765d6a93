"""Elections: giving a vote, asking for votes, winning and losing.

A replica asks twice. As Prospective it asks whether it would be elected; that costs nobody anything. Only if
a majority would does it raise the epoch and ask again, as Candidate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from quorate.protocol.errors import ErrorCode
from quorate.raft import election
from quorate.raft.control import leader_change_batch
from quorate.raft.effects import Send
from quorate.raft.messages import Vote, VoteAnswer
from quorate.raft.state import Candidate, Follower, Leader, Prospective, Resigned, Tally, Unattached
from quorate.raft.voters import ReplicaKey

if TYPE_CHECKING:
    from quorate.raft.quorum import Quorum
    from quorate.raft.settings import Now

__all__ = ["Campaigning"]


class Campaigning:
    """What a replica does to find out who leads next, and to be the one."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    # Giving votes

    def on_vote(self, ask: Vote, now: Now) -> VoteAnswer:
        quorum = self._quorum
        if not election.is_well_formed(ask):
            return self._answer(ErrorCode.INVALID_REQUEST)
        if ask.epoch < quorum.epoch:
            return self._answer(ErrorCode.FENCED_LEADER_EPOCH)
        if ask.candidate.id < 0:
            return self._answer(ErrorCode.INVALID_REQUEST)
        if ask.epoch > quorum.epoch:
            quorum.become_unattached(ask.epoch, now)
        if not quorum.is_me(ask.voter):
            return self._answer(ErrorCode.INVALID_VOTER_KEY)
        granted = quorum.me.id >= 0 and election.grants(quorum.role, ask, quorum.log.end)
        if granted and not ask.pre_vote:
            self._grant(ask.candidate, now)
        return self._answer(ErrorCode.NONE, granted)

    def _grant(self, candidate: ReplicaKey, now: Now) -> None:
        quorum = self._quorum
        role = quorum.role
        assert isinstance(role, (Unattached, Prospective)), "only these grant votes"
        if role.voted is not None:
            return
        deadline_ms = quorum.election_deadline(now)
        if isinstance(role, Unattached):
            quorum.role = replace(role, voted=candidate, deadline_ms=deadline_ms)
        else:
            tally = Tally(quorum.voters.latest, quorum.me)
            quorum.role = replace(role, voted=candidate, deadline_ms=deadline_ms, tally=tally)
        quorum.effects.persist = quorum.election_state

    def _answer(self, error: ErrorCode, granted: bool = False) -> VoteAnswer:
        quorum = self._quorum
        return VoteAnswer(error, quorum.epoch, quorum.leader_id, quorum.leader_endpoint, "", granted)

    # Asking for votes

    def become_prospective(self, now: Now) -> None:
        quorum = self._quorum
        role = quorum.role
        leader_id, endpoint, voted = -1, None, None
        if isinstance(role, Follower):
            leader_id, endpoint, voted = role.leader_id, role.endpoint, role.voted
        elif isinstance(role, Candidate):
            voted = quorum.me
        elif isinstance(role, Unattached):
            leader_id, voted = role.leader_id, role.voted
        tally = Tally(quorum.voters.latest, quorum.me)
        deadline_ms = quorum.election_deadline(now)
        prospective = Prospective(quorum.epoch, deadline_ms, tally, leader_id, endpoint, voted)
        quorum.become(prospective, is_durable=False)
        if tally.is_won:
            self.become_candidate(now)

    def give_up(self, role: Prospective, now: Now) -> None:
        """Back to where we came from: a leader we know is still the best guess."""
        quorum = self._quorum
        if role.leader_endpoint is not None:
            deadline_ms = now.ms + quorum.settings.fetch_timeout_ms
            quorum.become(Follower(role.epoch, role.leader_id, role.leader_endpoint, deadline_ms, role.voted))
        else:
            deadline_ms = quorum.election_deadline(now)
            quorum.become(Unattached(role.epoch, deadline_ms, role.leader_id, role.voted))

    def become_candidate(self, now: Now) -> None:
        quorum = self._quorum
        tally = Tally(quorum.voters.latest, quorum.me)
        quorum.become(Candidate(quorum.epoch + 1, quorum.election_deadline(now), tally))
        if tally.is_won:
            self._become_leader(tally, now)

    def elect_only_voter(self, now: Now) -> None:
        """There is nobody to wait for."""
        quorum = self._quorum
        if isinstance(quorum.role, Resigned):
            quorum.become_unattached(quorum.epoch + 1, now)
        if isinstance(quorum.role, Candidate):
            self._become_leader(quorum.role.tally, now)
        else:
            self.become_prospective(now)

    def send_due(self, role: Prospective | Candidate) -> None:
        """Asks who has not answered, once the log that is claimed is on disk.

        A candidate that loses a part of it in a crash goes on asking in the same epoch, and who has granted
        it a vote does so again without another look.
        """
        quorum = self._quorum
        if not quorum.log.is_flushed:
            return
        is_pre_vote = isinstance(role, Prospective)
        for voter_id in role.tally.unanswered:
            peer = quorum.voter_peer(voter_id)
            if peer is not None:
                quorum.send(
                    peer, Vote(role.epoch, quorum.me, quorum.log.end, is_pre_vote, quorum.key_of(voter_id))
                )

    def on_vote_answer(self, send: Send, answer: VoteAnswer, role: Prospective | Candidate, now: Now) -> None:
        assert isinstance(send.ask, Vote)
        if send.ask.pre_vote != isinstance(role, Prospective):
            return
        role.tally.record(send.to.id, answer.granted)
        if role.tally.is_won:
            if isinstance(role, Prospective):
                self.become_candidate(now)
            else:
                self._become_leader(role.tally, now)
        elif role.tally.is_lost and isinstance(role, Prospective):
            # A candidate waits its time out instead: who has lost must not come first again.
            self.give_up(role, now)

    def on_unsupported(self, now: Now) -> None:
        """A voter that does not know pre-votes: the only way to ask it is to stand."""
        if isinstance(self._quorum.role, Prospective):
            self.become_candidate(now)

    def _become_leader(self, tally: Tally, now: Now) -> None:
        quorum = self._quorum
        epoch, start_offset = quorum.epoch, quorum.log.end_offset
        quorum.become(Leader(epoch, start_offset, now.ms + quorum.settings.check_quorum_ms))
        quorum.high_watermark = None  # what was committed before is known again once this epoch has committed
        quorum.log.begin_epoch(epoch, start_offset)
        change = leader_change_batch(
            quorum.voters, quorum.my_voter, tally.granting, start_offset, epoch, now.wall_ms
        )
        quorum.leading.append(change)
