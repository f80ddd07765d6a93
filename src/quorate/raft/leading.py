"""The leader's side of replication: fetches answered, progress noted, records committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quorate.protocol import batch as batches
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Buffer
from quorate.raft import replication
from quorate.raft.control import control_records_in
from quorate.raft.effects import ReadLog, ReadSnapshot
from quorate.raft.messages import (
    HIGH_WATERMARK_UNKNOWN,
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    SnapshotAnswer,
)
from quorate.raft.positions import Diverging, NeedsSnapshot, Position
from quorate.raft.state import Leader, Parked, Resigned
from quorate.raft.voters import ReplicaKey

if TYPE_CHECKING:
    from quorate.raft.quorum import Quorum
    from quorate.raft.settings import Now

__all__ = ["Leading"]

PARKED_MAX: Final = 10_000


class Leading:
    """What a replica does while it leads, and how it refuses while it does not."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    # Asks

    def on_fetch(self, token: object, ask: Fetch, now: Now) -> None:
        quorum = self._quorum
        role = quorum.role
        error = self._error(ask.epoch)
        if (
            min(ask.max_wait_ms, ask.offset, ask.last_epoch) < 0
            or ask.last_epoch > ask.epoch
            or (error is ErrorCode.NONE and ask.replica.id == quorum.me.id)
        ):
            error = ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE or not isinstance(role, Leader):
            endpoint = quorum.leader_endpoint
            quorum.reply(token, FetchAnswer(error, quorum.epoch, quorum.leader_id, endpoint))
            return
        position = quorum.log.check(ask.offset, ask.last_epoch)
        if isinstance(position, NeedsSnapshot):
            quorum.reply(token, self._answer(snapshot=position.snapshot))
        elif isinstance(position, Diverging):
            quorum.reply(token, self._answer(diverging=position.end))
        else:
            self._on_valid_fetch(token, ask, role, now)

    def on_fetch_snapshot(self, token: object, ask: FetchSnapshot, now: Now) -> None:
        quorum = self._quorum
        error = self._error(ask.epoch)
        if error is ErrorCode.NONE and (ask.snapshot not in quorum.log.snapshots or ask.snapshot == (0, 0)):
            error = ErrorCode.SNAPSHOT_NOT_FOUND  # the first checkpoint is formatted, not replicated
        if error is ErrorCode.NONE and ask.byte_position < 0:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        endpoint, leader_id = quorum.leader_endpoint, quorum.leader_id
        answer = SnapshotAnswer(
            error, quorum.epoch, leader_id, endpoint, "", ask.snapshot, 0, ask.byte_position
        )
        if error is ErrorCode.NONE and isinstance(quorum.role, Leader):
            self.count_for_quorum(quorum.role, ask.replica, now)
            quorum.reply(token, answer, ReadSnapshot(ask.snapshot, ask.byte_position, ask.max_bytes))
        else:
            quorum.reply(token, answer)

    def _error(self, epoch: int) -> ErrorCode:
        quorum = self._quorum
        if epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > quorum.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if isinstance(quorum.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _on_valid_fetch(self, token: object, ask: Fetch, role: Leader, now: Now) -> None:
        quorum = self._quorum
        end_offset = quorum.log.end_offset
        if ask.replica.id >= 0:
            replication.record_fetch(role, ask.replica, ask.offset, end_offset, now.ms, now.wall_ms)
            self.count_for_quorum(role, ask.replica, now)
            self.advance_high_watermark(role, now)
            if quorum.role is not role:  # the fetch has committed our own removal
                quorum.reply(
                    token, FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, quorum.epoch, quorum.leader_id)
                )
                return
        answer = self._answer()
        may_wait = ask.max_wait_ms > 0 and ask.high_watermark >= answer.high_watermark
        if ask.offset < end_offset:
            quorum.reply(token, answer, ReadLog(ask.offset, ask.max_bytes))
        elif may_wait and len(role.parked) < PARKED_MAX:
            role.parked.append(Parked(token, ask, answer, now.ms + ask.max_wait_ms))
        else:
            quorum.reply(token, answer)

    def _answer(self, diverging: Position | None = None, snapshot: Position | None = None) -> FetchAnswer:
        quorum = self._quorum
        known = quorum.high_watermark
        return FetchAnswer(
            ErrorCode.NONE,
            quorum.epoch,
            quorum.leader_id,
            quorum.leader_endpoint,
            "",
            HIGH_WATERMARK_UNKNOWN if known is None else known,
            quorum.log.start_offset,
            diverging,
            snapshot,
        )

    # The log and what is committed of it

    def append(self, data: Buffer) -> None:
        """Puts a batch at the end of the log. What it says about voters counts from now on."""
        quorum = self._quorum
        role = quorum.role
        assert isinstance(role, Leader), "only a leader appends"
        header = batches.read_header(data)
        quorum.log.append(role.epoch, header.base_offset, header.next_offset)
        quorum.apply_control(control_records_in(data, header))
        quorum.effects.append.append(data)
        self._wake(role)

    def _wake(self, role: Leader) -> None:
        """Answers parked fetches: there are new records, or a new high watermark."""
        parked, role.parked = role.parked, []
        for one in parked:
            has_records = one.ask.offset < self._quorum.log.end_offset
            read = ReadLog(one.ask.offset, one.ask.max_bytes) if has_records else None
            self._quorum.reply(one.token, self._answer(), read)

    def advance_high_watermark(self, role: Leader, now: Now) -> None:
        quorum = self._quorum
        voters = quorum.voters.latest
        if not len(voters):
            return
        # Our own share counts only as far as it is on disk.
        mine = quorum.log.flushed_offset
        value = replication.high_watermark(voters, quorum.me, mine, role.replicas)
        # Records of earlier epochs are committed by the first record of this one, never by themselves.
        if value <= role.start_offset or value <= (quorum.high_watermark or 0):
            return
        quorum.commit(value)
        self._wake(role)
        quorum.changes.committed(value)
        is_removed = not voters.contains(quorum.me) and quorum.changes.is_settled(value)
        if quorum.role is role and is_removed:
            self.resign(role, now)

    # The end

    def resign(self, role: Leader, now: Now) -> None:
        """No longer leads, and asks the others to take over, those with the longest logs first."""
        quorum = self._quorum
        successors = replication.successors(role, quorum.voters.latest, quorum.me)
        unacked = dict.fromkeys(peer.id for peer in quorum.other_voters())
        resigned = Resigned(role.epoch, quorum.random_timeout(now), successors, unacked)
        quorum.become(resigned, is_durable=False)

    def send_end(self, role: Resigned) -> None:
        quorum = self._quorum
        for voter_id in role.unacked:
            peer = quorum.voter_peer(voter_id)
            if peer is not None:
                quorum.send(peer, EndEpoch(role.epoch, quorum.me.id, role.successors))

    # Time

    def count_for_quorum(self, role: Leader, key: ReplicaKey, now: Now) -> None:
        """A replica was heard. If enough voters were, the leader may be sure for another while."""
        quorum = self._quorum
        voters = quorum.voters.latest
        if voters.contains(key):
            role.fetched[key.id] = None
            role.begin_due_ms[key.id] = now.ms + quorum.settings.fetch_timeout_ms / 2
        if replication.is_quorum_heard(role, voters, quorum.me):
            role.fetched.clear()
            role.check_quorum_deadline_ms = now.ms + quorum.settings.check_quorum_ms

    def tick(self, role: Leader, now: Now) -> None:
        quorum = self._quorum
        due = [one for one in role.parked if one.deadline_ms <= now.ms]
        role.parked = [one for one in role.parked if one.deadline_ms > now.ms]
        for one in due:
            quorum.reply(one.token, one.answer)
        quorum.changes.tick(now)
        is_alone = quorum.voters.latest.is_only(quorum.me)
        if not is_alone and role.check_quorum_deadline_ms <= now.ms:
            self.resign(role, now)

    def deadline_ms(self, role: Leader) -> float:
        quorum = self._quorum
        deadlines = [quorum.changes.deadline_ms, *(parked.deadline_ms for parked in role.parked)]
        if not quorum.voters.latest.is_only(quorum.me):
            deadlines.append(role.check_quorum_deadline_ms)
        idle = [peer.id for peer in quorum.other_voters() if quorum.may_send_to(peer.id)]
        deadlines += [role.begin_due_ms.get(peer_id, 0.0) for peer_id in idle]
        return min(deadlines)

    def send_due(self, role: Leader, now: Now) -> None:
        """Tells voters that have not fetched for a while who leads: they may not know where."""
        quorum = self._quorum
        for peer in quorum.other_voters():
            if role.begin_due_ms.get(peer.id, 0.0) <= now.ms:
                ask = BeginEpoch(role.epoch, quorum.me.id, quorum.endpoints, quorum.key_of(peer.id))
                if quorum.send(peer, ask):
                    role.begin_due_ms[peer.id] = now.ms + quorum.settings.fetch_timeout_ms / 2
        quorum.changes.send_due()
