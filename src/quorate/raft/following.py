"""The follower's side of replication: fetching, truncating, appending, taking over snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.protocol import batch as batches
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Buffer
from quorate.raft.control import control_records_in
from quorate.raft.effects import Chunk, Peer, Send
from quorate.raft.messages import (
    HIGH_WATERMARK_UNKNOWN,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    SnapshotAnswer,
    UpdateVoter,
)
from quorate.raft.state import Download, Follower, SafetyError

if TYPE_CHECKING:
    from quorate.raft.quorum import Quorum
    from quorate.raft.settings import Now

__all__ = ["Following"]


class Following:
    """What a replica does to get the leader's log."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    # Answers

    def on_fetch_answer(self, send: Send, answer: FetchAnswer, role: Follower, now: Now) -> None:
        quorum = self._quorum
        assert isinstance(send.ask, Fetch)
        if (send.ask.offset, send.ask.last_epoch) != quorum.log.end:
            return  # our log has changed since
        self.heard(role, now)
        if answer.diverging is not None:
            self._truncate(quorum.log.truncation_for(answer.diverging))
        elif answer.snapshot is not None:
            if answer.snapshot.epoch < 0 or answer.snapshot.offset <= quorum.committed_offset:
                quorum.back_off(send.to.id, now)  # it would take us back
            else:
                role.download = Download(answer.snapshot)
        else:
            self._append(answer.records, send.to.id, now)
            self._follow_high_watermark(answer.high_watermark)

    def on_snapshot_answer(self, send: Send, answer: SnapshotAnswer, role: Follower, now: Now) -> None:
        download = role.download
        if download is None:
            return
        place = download.snapshot, download.byte_position
        is_next = (answer.snapshot, answer.byte_position) == place and len(answer.data) > 0
        if answer.error is not ErrorCode.NONE or not is_next:
            role.download = None
            self._quorum.back_off(send.to.id, now)
            return
        self.heard(role, now)
        self._quorum.effects.chunk = Chunk(download.snapshot, download.byte_position, answer.data)
        download.byte_position += len(answer.data)
        if download.byte_position >= answer.size_bytes:
            self._quorum.effects.install = download.snapshot

    def heard(self, role: Follower, now: Now) -> None:
        """The leader lives."""
        role.has_fetched = True
        role.is_leader_silent = False
        role.fetch_deadline_ms = now.ms + self._quorum.settings.fetch_timeout_ms

    def on_silence(self, role: Follower, now: Now) -> None:
        """The leader was not heard for the fetch timeout. A voter looks for another; who is none waits."""
        quorum = self._quorum
        if quorum.may_stand:
            quorum.campaigning.become_prospective(now)
        else:
            role.is_leader_silent = True  # others may know a new one
            role.fetch_deadline_ms = now.ms + quorum.settings.fetch_timeout_ms

    def _truncate(self, end_offset: int) -> None:
        quorum = self._quorum
        kept_offset = max(quorum.committed_offset, quorum.log.start_offset)
        if end_offset < kept_offset:
            raise SafetyError(f"a leader asks to cut the log at {end_offset}, below {kept_offset}")
        quorum.effects.truncate = end_offset
        quorum.log.truncate(end_offset)
        quorum.voters.truncate(end_offset)

    def _append(self, records: Buffer, leader_id: int, now: Now) -> None:
        """Appends whole and undamaged batches as far as they go on where our log ends."""
        quorum = self._quorum
        view = memoryview(records)
        position = 0
        try:
            for header in batches.batches(view):
                batches.validate(view, header.position)
                is_next = header.base_offset == quorum.log.end_offset
                # neither is covered by the checksum
                if not is_next or not quorum.log.last_epoch <= header.partition_leader_epoch <= quorum.epoch:
                    raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"batch at offset {header.base_offset}")
                control = control_records_in(view, header)
                quorum.log.append(header.partition_leader_epoch, header.base_offset, header.next_offset)
                quorum.apply_control(control)
                position = header.end
        except ApiError:
            quorum.back_off(
                leader_id, now
            )  # damaged on the way: what came before is kept, the rest asked again
        if position:
            quorum.effects.append.append(view[:position])

    def _follow_high_watermark(self, leaders: int) -> None:
        quorum = self._quorum
        value = min(leaders, quorum.log.end_offset)
        known = HIGH_WATERMARK_UNKNOWN if quorum.high_watermark is None else quorum.high_watermark
        if value > known:
            quorum.commit(value)

    # Sending

    def send_due(self, role: Follower, now: Now) -> None:
        quorum = self._quorum
        leader = Peer(role.leader_id, role.endpoint)
        if role.is_leader_silent or (not quorum.is_voter and not quorum.may_send_to(leader.id)):
            self.discover()
        elif role.download is not None:
            if quorum.effects.install is None:
                snapshot, byte_position = role.download.snapshot, role.download.byte_position
                quorum.send(leader, FetchSnapshot(role.epoch, quorum.me, snapshot, byte_position))
        elif quorum.changes.wants_update(role) and role.update_due_ms <= now.ms:
            if quorum.send(leader, UpdateVoter(role.epoch, quorum.my_voter)):
                role.update_due_ms = now.ms + quorum.settings.fetch_timeout_ms
        elif quorum.is_idle and self._is_ready_to_fetch():
            quorum.send(leader, self._fetch())

    def discover(self) -> None:
        """Asks anyone who might know the leader."""
        quorum = self._quorum
        if not quorum.is_idle or not self._is_ready_to_fetch():
            return  # one fetch at a time: two answers could change the log at the same place
        peers = [*quorum.bootstrap, *quorum.other_voters()]  # either list may be out of date
        mine = {(one.host, one.port) for one in quorum.endpoints}
        others = {(peer.endpoint.host, peer.endpoint.port): peer for peer in peers}
        ready = [peer for at, peer in others.items() if at not in mine and quorum.may_send_to(peer.id)]
        if ready:
            quorum.send(quorum.chance.choice(ready), self._fetch())

    def _is_ready_to_fetch(self) -> bool:
        """A voter's fetch says that everything below its offset is on its disk."""
        return self._quorum.log.is_flushed or not self._quorum.settings.is_flushed_before_fetch

    def _fetch(self) -> Fetch:
        quorum = self._quorum
        known = HIGH_WATERMARK_UNKNOWN if quorum.high_watermark is None else quorum.high_watermark
        end = quorum.log.end
        wait_ms = quorum.settings.fetch_max_wait_ms
        return Fetch(quorum.epoch, quorum.me, end.offset, end.epoch, wait_ms, high_watermark=known)
