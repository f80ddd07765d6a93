"""Changing the voters while the quorum works: one at a time, each change committed before the next.

A new set counts from the moment it is written, on the leader first. The gate in `_refusal` makes sure that
two sets that follow each other always have a majority in common, and that a new leader has committed in its
own epoch before it changes anything: changes of earlier leaders are then settled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from quorate.protocol.errors import ErrorCode
from quorate.raft.control import voters_batch
from quorate.raft.effects import Peer
from quorate.raft.messages import AddVoter, Probe, ProbeAnswer, RemoveVoter, UpdateVoter
from quorate.raft.state import Follower, Leader
from quorate.raft.voters import ReplicaKey, Voter, VoterSet
from quorate.values import dataclass

if TYPE_CHECKING:
    from quorate.raft.quorum import Quorum
    from quorate.raft.settings import Now

__all__ = ["VoterChanges"]

# A new voter must have been caught up, and must have fetched within this time.
CAUGHT_UP_WITHIN_MS: Final = 3_600_000


@dataclass(slots=True)
class _Pending:
    """A change under way. `offset` is that of its record, once it is written."""

    token: object | None
    deadline_ms: float
    voter: Voter | None = None  # one to be added, not probed or not caught up yet
    ack_when_committed: bool = True
    is_probed: bool = False
    offset: int | None = None


class VoterChanges:
    """The change that a leader has under way, if any."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._pending: _Pending | None = None

    @property
    def deadline_ms(self) -> float:
        return float("inf") if self._pending is None else self._pending.deadline_ms

    def wants_update(self, role: Follower) -> bool:
        """Whether our entry in the voter set is out of date, so that the leader must be told."""
        quorum = self._quorum
        if quorum.voters.kraft_version < 1 or not quorum.is_voter:
            return False
        voter = quorum.voters.latest.get(quorum.me.id)
        return voter is not None and voter != quorum.my_voter and role.has_fetched

    # Asks

    def on_add(self, token: object, ask: AddVoter, now: Now) -> None:
        refusal = self._refusal(ask.voter.key)
        if refusal is None and not ask.voter.endpoints:
            refusal = ErrorCode.INVALID_REQUEST, "a voter needs an endpoint"
        if refusal is None and self._quorum.voters.latest.get(ask.voter.key.id) is not None:
            refusal = ErrorCode.DUPLICATE_VOTER, f"there is a voter with id {ask.voter.key.id} already"
        if refusal is not None:
            self._answer(token, *refusal)
            return
        deadline_ms = now.ms + self._quorum.settings.request_timeout_ms
        self._pending = _Pending(token, deadline_ms, ask.voter, ask.ack_when_committed)

    def on_remove(self, token: object, ask: RemoveVoter, now: Now) -> None:
        voters = self._quorum.voters.latest
        refusal = self._refusal(ask.key)
        voter = voters.get(ask.key.id)
        if refusal is None and (voter is None or voter.key != ask.key or len(voters) == 1):
            refusal = ErrorCode.VOTER_NOT_FOUND, f"{ask.key} is not a voter that can be removed"
        if refusal is not None:
            self._answer(token, *refusal)
            return
        self._pending = _Pending(token, now.ms + self._quorum.settings.request_timeout_ms)
        self._write(voters.minus(ask.key), now)

    def on_update(self, token: object, ask: UpdateVoter, now: Now) -> None:
        quorum = self._quorum
        if ask.epoch != quorum.epoch:
            is_old = ask.epoch < quorum.epoch
            error = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            self._answer(token, error, f"this is epoch {quorum.epoch}")
            return
        refusal = self._refusal(ask.voter.key)
        voter = quorum.voters.latest.get(ask.voter.key.id)
        if refusal is None and not ask.voter.endpoints:
            refusal = ErrorCode.INVALID_REQUEST, "a voter needs an endpoint"
        if refusal is None and not self._supports(ask.voter.kraft_versions):
            refusal = ErrorCode.INVALID_REQUEST, f"{ask.voter.key} does not support kraft.version 1"
        if refusal is None and (voter is None or voter.key != ask.voter.key):
            refusal = ErrorCode.VOTER_NOT_FOUND, f"{ask.voter.key} is not a voter"
        if refusal is not None:
            self._answer(token, *refusal)
            return
        # Answered at once: the commit may need the very voter that waits for this answer.
        self._answer(token, ErrorCode.NONE, "")
        assert isinstance(quorum.role, Leader)
        quorum.leading.count_for_quorum(quorum.role, ask.voter.key, now)
        if voter != ask.voter:
            self._pending = _Pending(None, float("inf"))
            self._write(quorum.voters.latest.updated(ask.voter), now)

    def on_probe(self, voter_id: int, answer: ProbeAnswer | None, now: Now) -> None:
        pending = self._pending
        if pending is None or pending.voter is None or pending.is_probed or pending.voter.key.id != voter_id:
            return
        if answer is None or answer.error is not ErrorCode.NONE:
            self._fail(ErrorCode.REQUEST_TIMED_OUT, f"{pending.voter.key} did not say its versions")
        elif not self._supports(answer.kraft_versions):
            level = self._quorum.voters.kraft_version
            self._fail(
                ErrorCode.INVALID_REQUEST, f"{pending.voter.key} does not support kraft.version {level}"
            )
        else:
            pending.is_probed = True
            pending.voter = replace(pending.voter, kraft_versions=answer.kraft_versions)
            self._add_if_caught_up(now)

    # What happens meanwhile

    def send_due(self) -> None:
        pending = self._pending
        if pending is not None and pending.voter is not None and not pending.is_probed:
            peer = Peer(pending.voter.key.id, pending.voter.endpoints[0])
            self._quorum.send(peer, Probe())

    def committed(self, high_watermark: int) -> None:
        pending = self._pending
        if pending is None:
            return
        if pending.offset is not None and pending.offset < high_watermark:
            self._pending = None
            if pending.token is not None:
                self._answer(pending.token, ErrorCode.NONE, "")

    def is_settled(self, high_watermark: int) -> bool:
        """Whether the latest voter set is committed."""
        latest = self._quorum.voters.latest_offset
        return latest is not None and latest < high_watermark

    def tick(self, now: Now) -> None:
        pending = self._pending
        if pending is not None and pending.deadline_ms <= now.ms:
            if pending.offset is None:
                self._fail(ErrorCode.REQUEST_TIMED_OUT, "the new voter is not caught up")
            else:
                # It is written and may still be committed; only nobody waits for it any more.
                self._answer(pending.token, ErrorCode.REQUEST_TIMED_OUT, "not committed in time")
                self._pending = replace(pending, token=None, deadline_ms=float("inf"))

    def fail_pending(self) -> None:
        """Leadership is lost: whether the change happens is now for others to say."""
        if self._pending is not None:
            self._fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, "leadership was lost")

    # Parts

    def _refusal(self, key: ReplicaKey) -> tuple[ErrorCode, str] | None:
        """Why no change can begin now, in the order of the checks; None if one can."""
        quorum = self._quorum
        if not isinstance(quorum.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the leader is {quorum.leader_id}"
        if key.id < 0 or not any(key.directory):
            return ErrorCode.INVALID_REQUEST, "a voter has an id and a directory"
        if self._pending is not None:
            return ErrorCode.REQUEST_TIMED_OUT, "another change of voters is under way"
        if quorum.high_watermark is None:
            return ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed in its epoch yet"
        if quorum.voters.kraft_version < 1:
            return ErrorCode.UNSUPPORTED_VERSION, "voters cannot change at kraft.version 0"
        if (quorum.voters.latest_offset or 0) >= quorum.high_watermark:
            return ErrorCode.REQUEST_TIMED_OUT, "the last change of voters is not committed yet"
        return None

    def _supports(self, kraft_versions: tuple[int, int]) -> bool:
        lowest, highest = kraft_versions
        return lowest <= self._quorum.voters.kraft_version <= highest

    def _add_if_caught_up(self, now: Now) -> None:
        quorum, pending = self._quorum, self._pending
        assert isinstance(quorum.role, Leader)
        assert pending is not None
        assert pending.voter is not None
        progress = quorum.role.replicas.get(pending.voter.key)
        if (
            progress is None
            or progress.caught_up_wall_ms < 0
            or now.ms - progress.last_fetch_ms > CAUGHT_UP_WITHIN_MS
        ):
            self._fail(ErrorCode.REQUEST_TIMED_OUT, f"{pending.voter.key} is not caught up")
            return
        voter, pending.voter = pending.voter, None
        self._write(quorum.voters.latest.plus(voter), now)
        if not pending.ack_when_committed and self._pending is not None:
            self._answer(pending.token, ErrorCode.NONE, "")
            self._pending = replace(self._pending, token=None)

    def _write(self, voters: VoterSet, now: Now) -> None:
        quorum = self._quorum
        assert self._pending is not None
        assert isinstance(quorum.role, Leader)
        if quorum.voters.latest.is_only(quorum.me):
            # Alone there was nobody to hear from; the time for that begins now.
            quorum.role.check_quorum_deadline_ms = now.ms + quorum.settings.check_quorum_ms
        self._pending.offset = quorum.log.end_offset
        quorum.leading.append(voters_batch(voters, quorum.log.end_offset, quorum.epoch, now.wall_ms))

    def _fail(self, error: ErrorCode, message: str) -> None:
        pending, self._pending = self._pending, None
        if pending is not None and pending.token is not None:
            self._answer(pending.token, error, message)

    def _answer(self, token: object, error: ErrorCode, message: str) -> None:
        if token is not None:
            self._quorum.reply(token, self._quorum.answer(error, message))
