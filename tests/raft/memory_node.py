"""A shell around `Quorum` for tests: it does what `Effects` say, with a disk that is a few lists.

What leaves the node is put in `outbox`; who carries it, and when, is for the test to say.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from zlib import crc32

from quorate.protocol import batch as batches
from quorate.protocol.errors import ErrorCode
from quorate.raft.control import control_records_in
from quorate.raft.effects import Effects, ElectionState, Leadership, ReadLog, ReadSnapshot, Reply, Send
from quorate.raft.messages import Answer, FetchAnswer, SnapshotAnswer
from quorate.raft.positions import LogPositions, Position
from quorate.raft.quorum import Chance, Now, Quorum, QuorumSettings
from quorate.raft.voters import Endpoint, ReplicaKey, Voter, VoterHistory, VoterSet

NO_SNAPSHOTS = Position(0, 0)


class Entry(NamedTuple):
    """A batch. Logs with the same `chain` at a place have the same bytes up to there."""

    base_offset: int
    next_offset: int
    epoch: int
    chain: int
    data: bytes


class Snapshot(NamedTuple):
    chain: int
    voters: VoterSet | None
    kraft_version: int
    data: bytes


@dataclass
class Disk:
    """What a node finds again when it restarts. Entries from `flushed_offset` on do not survive a crash."""

    election: ElectionState = field(default_factory=ElectionState)
    entries: list[Entry] = field(default_factory=list)
    start_offset: int = 0
    flushed_offset: int = 0
    snapshots: dict[Position, Snapshot] = field(default_factory=dict)

    @property
    def end_offset(self) -> int:
        return self.entries[-1].next_offset if self.entries else self.start_offset

    def chain_at(self, offset: int) -> int | None:
        """The chain of everything below an offset, if a batch or a snapshot ends there."""
        index = bisect_left(self.entries, offset, key=lambda entry: entry.next_offset)
        if index < len(self.entries) and self.entries[index].next_offset == offset:
            return self.entries[index].chain
        if offset == 0:
            return 0
        return next((kept.chain for at, kept in self.snapshots.items() if at.offset == offset), None)

    def append(self, data: bytes) -> list[Entry]:
        """Batches behind each other; `data` holds at least one."""
        added = []
        chain = self.chain_at(self.end_offset) or 0
        for header in batches.batches(data):
            assert header.base_offset == self.end_offset, "a batch goes on where the log ends"
            one = data[header.position : header.end]
            chain = crc32(one, chain)
            entry = Entry(header.base_offset, header.next_offset, header.partition_leader_epoch, chain, one)
            self.entries.append(entry)
            added.append(entry)
        return added

    def truncate(self, end_offset: int) -> list[Entry]:
        cut = bisect_left(self.entries, end_offset, key=lambda entry: entry.base_offset)
        gone = self.entries[cut:]
        del self.entries[cut:]
        assert self.end_offset == end_offset, "a cut between batches"
        self.flushed_offset = min(self.flushed_offset, end_offset)
        return gone

    def begin_at(self, position: Position, snapshot: Snapshot) -> None:
        self.entries = []
        self.snapshots = {position: snapshot}
        self.start_offset = self.flushed_offset = position.offset

    def delete_before(self, position: Position) -> None:
        self.start_offset = position.offset
        self.entries = [entry for entry in self.entries if entry.base_offset >= position.offset]
        self.snapshots = {at: one for at, one in self.snapshots.items() if at.offset >= position.offset}

    def lose_unflushed(self) -> None:
        self.entries = [entry for entry in self.entries if entry.next_offset <= self.flushed_offset]

    def read(self, offset: int) -> bytes:
        index = bisect_left(self.entries, offset, key=lambda entry: entry.base_offset)
        return b"".join([entry.data for entry in self.entries[index:]])

    def positions(self) -> LogPositions:
        epochs: list[tuple[int, int]] = []
        for entry in self.entries:
            if not epochs or epochs[-1][0] != entry.epoch:
                epochs.append((entry.epoch, entry.base_offset))
        return LogPositions(self.start_offset, self.end_offset, epochs, self.snapshots)

    def voters(self, static: VoterSet | None) -> VoterHistory:
        """Of the snapshot that the log begins with, and of everything in the log."""
        history = VoterHistory(static)
        for position, snapshot in self.snapshots.items():
            if position.offset == self.start_offset:
                history.reset(snapshot.voters, snapshot.kraft_version, position.offset)
        for entry in self.entries:
            control = control_records_in(entry.data, batches.read_header(entry.data))
            for offset, version in control.versions:
                history.add_version(offset, version)
            for offset, voters in control.voters:
                history.add_voters(offset, voters)
        return history


@dataclass(frozen=True)
class Formatting:
    """What a cluster is set up with: a static voter set, or one in the first checkpoint of every voter."""

    static: VoterSet | None = None
    dynamic: VoterSet | None = None
    bootstrap: Sequence[Endpoint] = ()
    settings: QuorumSettings = field(default_factory=QuorumSettings)

    def disk_of(self, key: ReplicaKey) -> Disk:
        if self.dynamic is None or not self.dynamic.contains(key):
            return Disk()
        return Disk(snapshots={NO_SNAPSHOTS: Snapshot(0, self.dynamic, 1, b"")})


def endpoint_of(node_id: int) -> Endpoint:
    return Endpoint("CONTROLLER", f"node{node_id}", node_id)


def voter_of(key: ReplicaKey, kraft_versions: tuple[int, int] = (0, 1)) -> Voter:
    return Voter(key, (endpoint_of(key.id),), kraft_versions)


class Ask(NamedTuple):
    """An ask on its way. The life says which run of the sender waits for the answer."""

    sender: int
    life: int
    to: int
    send: Send


class Received:
    """The token of an ask that arrived. If it arrives twice, these are two."""

    __slots__ = ("ask",)

    def __init__(self, ask: Ask) -> None:
        self.ask = ask


class Told(NamedTuple):
    """An answer on its way back; None says that there will be none."""

    to: int
    life: int
    number: int
    sender: int
    answer: Answer | None


class Node:
    """One run after the other of a replica, on a disk that stays."""

    CHUNK_BYTES = 40

    def __init__(self, key: ReplicaKey, formatting: Formatting, chance: Chance, can_vote: bool = True):
        self.key = key
        self.formatting = formatting
        self.chance = chance
        self.can_vote = can_vote
        self.settings = formatting.settings
        self.disk = formatting.disk_of(key)
        self.endpoint = endpoint_of(key.id)
        self.life = 0
        self.is_up = False
        self.outbox: list[Ask | Told] = []
        self.told: list[tuple[object, Answer]] = []  # answers to clients, who are no nodes
        self.held: dict[object, None] = {}  # asks that were received and not answered yet

    @property
    def id(self) -> int:
        return self.key.id

    # Its life

    def start(self, now: Now) -> None:
        assert not self.is_up
        self.is_up = True
        self.life += 1
        self.committed = 0
        self.leadership: Leadership | None = None
        self.syncs: list[tuple[int, int]] = []
        self.partial = bytearray()
        disk = self.disk
        disk.flushed_offset = disk.end_offset  # a shell syncs what it finds before it relies on it
        self.quorum = Quorum(
            self.key,
            (self.endpoint,),
            log=disk.positions(),
            voters=disk.voters(self.formatting.static),
            bootstrap=self.formatting.bootstrap,
            settings=self.settings,
            random=self.chance,
            can_vote=self.can_vote,
        )
        self.perform(self.quorum.start(disk.election, now), now)

    def crash(self) -> None:
        """The power fails: what was not flushed is gone."""
        self.disk.lose_unflushed()
        self.kill()

    def kill(self) -> None:
        """The process ends; the disk keeps everything that was written."""
        self.is_up = False
        self.held.clear()
        self.outbox.clear()

    # Inputs

    def receive(self, token: object, ask: object, now: Now) -> None:
        self.held[token] = None
        self.perform(self.quorum.receive(token, ask, now), now)

    def answered(self, number: int, answer: Answer | None, now: Now) -> None:
        self.perform(self.quorum.answered(number, answer, now), now)

    def tick(self, now: Now) -> None:
        self.perform(self.quorum.tick(now), now)

    def append(self, values: Iterable[bytes], now: Now) -> int:
        offset, effects = self.quorum.append(list(values), self.quorum.epoch, now)
        self.perform(effects, now)
        return offset

    def resign(self, now: Now) -> None:
        self.perform(self.quorum.resign(now), now)

    def flush(self, now: Now, index: int = 0) -> None:
        """One of the syncs under way is complete. It vouches for what was there when it began."""
        end_offset, generation = self.syncs.pop(index)
        if generation == self.quorum.log.generation:
            self.disk.flushed_offset = max(self.disk.flushed_offset, end_offset)
        self.perform(self.quorum.flushed(end_offset, generation, now), now)

    def snapshot_at(self, offset: int) -> Position | None:
        """Writes a snapshot of everything below an offset, which must be committed."""
        assert offset <= self.committed
        entry = next((entry for entry in self.disk.entries if entry.next_offset == offset), None)
        if entry is None:
            return None
        position = Position(offset, entry.epoch)
        voters, kraft_version = self.quorum.voters.at(offset)
        text = f"everything below {position}: {entry.chain}".ljust(60)
        data = text.encode() * (1 + offset % 3)
        self.disk.snapshots[position] = Snapshot(entry.chain, voters, kraft_version, data)
        self.quorum.log.add_snapshot(position)
        return position

    def delete_before(self, position: Position) -> None:
        self.disk.delete_before(position)
        self.quorum.log.delete_before(position)
        self.quorum.voters.trim(position.offset)

    # What an input leads to

    def perform(self, effects: Effects, now: Now) -> None:
        if effects.persist is not None:
            self.persist(effects.persist)
        if effects.truncate is not None:
            self.truncated(self.disk.truncate(effects.truncate))
        for data in effects.append:
            self.appended(self.disk.append(bytes(data)))
        if effects.append:
            self.syncs.append((self.disk.end_offset, self.quorum.log.generation))
        if effects.chunk is not None:
            chunk = effects.chunk
            del self.partial[chunk.byte_position :]
            assert len(self.partial) == chunk.byte_position
            self.partial += chunk.data
        installed = None if effects.install is None else self.install(effects.install, now)
        for send in effects.send:
            self.outbox.append(Ask(self.id, self.life, send.to.endpoint.port, send))
        for reply in effects.reply:
            self._reply(reply)
        if effects.committed is not None:
            self.commit(effects.committed)
        if effects.leadership is not None:
            self.leadership = effects.leadership
        if installed is not None:
            self.perform(installed, now)

    def persist(self, state: ElectionState) -> None:
        self.disk.election = state

    def appended(self, entries: list[Entry]) -> None:
        """For tests that watch."""

    def truncated(self, entries: list[Entry]) -> None:
        """For tests that watch."""

    def commit(self, high_watermark: int) -> None:
        self.committed = high_watermark

    def install(self, position: Position, now: Now) -> Effects:
        snapshot = self.find_snapshot(position, bytes(self.partial))
        if snapshot is None:
            return self.quorum.install_failed(now)
        self.disk.begin_at(position, snapshot)
        return self.quorum.installed(position, snapshot.voters, snapshot.kraft_version, now)

    def find_snapshot(self, position: Position, data: bytes) -> Snapshot | None:
        """What the bytes of a snapshot mean. Here a snapshot is only its name: others know the content."""
        raise NotImplementedError

    def _reply(self, reply: Reply) -> None:
        self.held.pop(reply.token, None)
        answer = self._filled(reply)
        if isinstance(reply.token, Received):
            ask = reply.token.ask
            self.outbox.append(Told(ask.sender, ask.life, ask.send.number, self.id, answer))
        else:
            self.told.append((reply.token, answer))

    def _filled(self, reply: Reply) -> Answer:
        answer, read = reply.answer, reply.read
        if isinstance(read, ReadLog):
            assert isinstance(answer, FetchAnswer)
            return replace(answer, records=self.disk.read(read.offset))
        if isinstance(read, ReadSnapshot):
            assert isinstance(answer, SnapshotAnswer)
            snapshot = self.disk.snapshots.get(read.snapshot)
            if snapshot is None:
                return replace(answer, error=ErrorCode.SNAPSHOT_NOT_FOUND)
            if read.byte_position >= len(snapshot.data):
                return replace(answer, error=ErrorCode.POSITION_OUT_OF_RANGE)
            end = read.byte_position + min(read.max_bytes, self.CHUNK_BYTES)
            data = snapshot.data[read.byte_position : end]
            return replace(answer, size_bytes=len(snapshot.data), data=data)
        return answer
