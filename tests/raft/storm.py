"""Random histories of a quorum, and what must hold after every step of them.

A storm is one seed: a few nodes on memory disks, messages that arrive in any order, twice, late or not at
all, nodes that crash and return, disks that are slow, clocks that run differently, and all the while
records, snapshots and changes of voters. After every step the node that made it is checked (`Laws`); at the
end the weather clears, and the quorum must work again within bounded time.

    python tests/raft/storm.py 0 1000      runs seeds by hand, or one
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from random import Random

from memory_node import (
    Ask,
    Disk,
    Entry,
    Formatting,
    Node,
    Received,
    Snapshot,
    Told,
    endpoint_of,
    voter_of,
)

from quorate.protocol import batch as batches
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import Uuid
from quorate.raft.effects import Effects, ElectionState
from quorate.raft.messages import (
    AddVoter,
    Answer,
    FetchAnswer,
    Probe,
    ProbeAnswer,
    RemoveVoter,
    Vote,
    VoteAnswer,
)
from quorate.raft.positions import Position
from quorate.raft.quorum import Now, QuorumSettings
from quorate.raft.state import Candidate, Leader, Prospective, SafetyError
from quorate.raft.voters import ReplicaKey, VoterSet

STEPS = 2000
SETTLE_MS = 60_000
QUIET_EVENTS_MAX = 60  # of one node in a second, when there is nothing to do


class ViolationError(Exception):
    """A law of the quorum was broken."""


def require(holds: bool, message: str, *details: object) -> None:
    if not holds:
        raise ViolationError(": ".join([message, *map(str, details)]))


@dataclass
class Laws:
    """What all nodes have ever done, as far as it binds what they may do next."""

    leaders: dict[int, int] = field(default_factory=dict)  # by epoch
    votes: dict[tuple[ReplicaKey, int], ReplicaKey] = field(default_factory=dict)
    chains: dict[tuple[int, int], int] = field(default_factory=dict)  # by offset and epoch
    committed: dict[int, int] = field(default_factory=dict)  # chain by offset
    commits: dict[int, int] = field(default_factory=dict)  # the last offset committed by each epoch's leader
    snapshots: dict[Position, Snapshot] = field(default_factory=dict)
    disks: dict[ReplicaKey, Disk] = field(default_factory=dict)

    # Election safety

    def leads(self, node: Watched, epoch: int, leader_id: int) -> None:
        known = self.leaders.setdefault(epoch, leader_id)
        require(known == leader_id, "two leaders in one epoch", epoch, known, leader_id, f"node {node.id}")

    def granted(self, voter: ReplicaKey, epoch: int, candidate: ReplicaKey) -> None:
        known = self.votes.setdefault((voter, epoch), candidate)
        require(known == candidate, "two votes in one epoch", voter, epoch, known, candidate)

    # Log matching

    def wrote(self, node: Watched, entry: Entry) -> None:
        known = self.chains.setdefault((entry.base_offset, entry.epoch), entry.chain)
        require(known == entry.chain, "different logs with one offset and epoch", node.id, entry)

    def took_snapshot(self, node: Watched, position: Position, snapshot: Snapshot) -> None:
        known = self.snapshots.setdefault(position, snapshot)
        require(known == snapshot, "different snapshots with one name", node.id, position, known, snapshot)

    # Durability

    def cut(self, node: Watched, entries: list[Entry]) -> None:
        # A leader of a later epoch may commit what one of an earlier epoch has somebody cut off.
        epoch = node.quorum.epoch
        binding = max((offset for by, offset in self.commits.items() if by <= epoch), default=0)
        for entry in entries:
            is_committed = entry.next_offset <= binding
            lost = is_committed and self.committed.get(entry.next_offset) == entry.chain
            require(not lost, "a committed record was truncated", node.id, entry.base_offset)

    def knows_committed(self, node: Watched, offset: int, chain: int | None) -> None:
        require(chain is not None, "a high watermark within a batch", node.id, offset)
        assert chain is not None
        known = self.committed.setdefault(offset, chain)
        require(known == chain, "two committed logs", node.id, offset)

    def leader_committed(self, node: Watched, offset: int) -> None:
        quorum = node.quorum
        chain = self.committed[offset]
        voters = quorum.voters.latest
        holding = [voter.key.id for voter in voters if self._is_on_disk(voter.key, offset, chain)]
        text = f"{offset} is on {holding} of {len(voters)}"
        require(len(holding) >= voters.majority, "committed without a majority", node.id, text)
        self.commits[quorum.epoch] = max(offset, self.commits.get(quorum.epoch, 0))

    def _is_on_disk(self, key: ReplicaKey, offset: int, chain: int) -> bool:
        for disk_key, disk in self.disks.items():
            if disk_key.id == key.id and (not any(key.directory) or disk_key == key):
                return disk.flushed_offset >= offset and disk.chain_at(offset) in (chain, None)
        return False

    # Leader completeness

    def must_hold_committed(self, node: Watched) -> None:
        earlier = [offset for epoch, offset in self.commits.items() if epoch < node.quorum.epoch]
        offset = max(earlier, default=0)
        disk = node.disk
        holds = offset <= disk.end_offset and disk.chain_at(offset) in (self.committed.get(offset, 0), None)
        require(holds, "a leader without a committed record", node.id, offset, node.quorum.log.end)


class PowerFailureError(Exception):
    """A node stops in the middle of what it does."""


class Watched(Node):
    """A node whose every step is checked."""

    def __init__(self, key: ReplicaKey, storm: Storm, can_vote: bool = True) -> None:
        super().__init__(key, storm.formatting, storm.random, can_vote)
        self.storm = storm
        self.laws = storm.laws
        self.rate = storm.random.choice((0.8, 1.0, 1.0, 1.25))
        self.checked_role: object = None
        self.laws.disks[key] = self.disk
        if not can_vote:  # a broker: what it fetches counts for nothing, so it need not be on its disk
            self.settings = replace(self.settings, is_flushed_before_fetch=False)

    def clock(self, ms: float) -> Now:
        local_ms = ms * self.rate + 100 * self.id
        return Now(local_ms, int(local_ms))

    def start(self, now: Now) -> None:
        self.checked_role = None
        super().start(now)
        self.check()

    def persist(self, state: ElectionState) -> None:
        require(state.epoch >= self.disk.election.epoch, "a stored epoch went back", self.id, state)
        super().persist(state)

    def appended(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.laws.wrote(self, entry)

    def truncated(self, entries: list[Entry]) -> None:
        self.laws.cut(self, entries)

    def commit(self, high_watermark: int) -> None:
        before, laws = self.committed, self.laws
        require(high_watermark >= before, "a high watermark went back", self.id, before, high_watermark)
        super().commit(high_watermark)
        for entry in reversed(self.disk.entries):
            if entry.next_offset <= before:
                break
            if entry.next_offset <= high_watermark:
                laws.knows_committed(self, entry.next_offset, entry.chain)
        laws.knows_committed(self, high_watermark, self.disk.chain_at(high_watermark))
        if isinstance(self.quorum.role, Leader):
            laws.leader_committed(self, high_watermark)
            for other in self.storm.leaders():
                if other.quorum.epoch > self.quorum.epoch:
                    laws.must_hold_committed(other)

    def perform(self, effects: Effects, now: Now) -> None:
        failure = self.storm.failure()
        if failure == 1:
            effects = Effects(persist=effects.persist)
        elif failure == 2:
            effects = Effects(persist=effects.persist, truncate=effects.truncate)
        elif failure == 3:
            effects = replace(effects, send=[], reply=[], committed=None)
        super().perform(effects, now)
        if failure:
            raise PowerFailureError

    def find_snapshot(self, position: Position, data: bytes) -> Snapshot | None:
        snapshot = self.laws.snapshots[position]
        require(data == snapshot.data, "a snapshot was put together wrongly", self.id, position)
        return None if self.storm.is_unlucky() else snapshot

    def check(self) -> None:
        quorum, disk = self.quorum, self.disk
        role, log = quorum.role, quorum.log
        stored = disk.election
        require(
            stored == quorum.election_state, "not what is on disk", self.id, stored, quorum.election_state
        )
        if quorum.leader_id >= 0:
            self.laws.leads(self, role.epoch, quorum.leader_id)
        if role is not self.checked_role:
            self.checked_role = role
            if isinstance(role, Leader):
                self.laws.must_hold_committed(self)
            if isinstance(role, (Prospective, Candidate)):
                require(quorum.may_stand, "an observer wants to be elected", self.id)
        require(log.end_offset == disk.end_offset, "the picture of the log is wrong", self.id)
        require(log.start_offset == disk.start_offset, "the picture of the log is wrong", self.id)
        require(log.flushed_offset <= disk.flushed_offset, "not flushed", self.id)
        if quorum.high_watermark is not None:
            known = quorum.high_watermark
            require(log.start_offset <= known <= log.end_offset, "a high watermark outside the log", self.id)
            require(known == self.committed, "a high watermark that nobody was told", self.id, known)


@dataclass(frozen=True)
class Weather:
    """How often what happens. Drawn once for each seed: some are calm, some are not."""

    loss: float
    duplication: float
    time: float
    cut: float
    crash: float
    flush: float
    append: float
    snapshot: float
    change: float
    resign: float

    damage: float

    @classmethod
    def drawn(cls, random: Random) -> Weather:
        def some(*options: float) -> float:
            return random.choice(options)

        return cls(
            loss=some(0, 0.01, 0.05, 0.2),
            duplication=some(0, 0.02, 0.1),
            time=some(0.02, 0.06, 0.15),
            cut=some(0, 0.002, 0.01),
            crash=some(0, 0.002, 0.01),
            flush=some(0.1, 0.3, 0.6),
            append=some(0.01, 0.05),
            snapshot=some(0, 0.005, 0.02),
            change=some(0, 0.005, 0.02),
            resign=some(0, 0.001, 0.005),
            damage=some(0, 0, 0.05),
        )


class Storm:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.weather = Weather.drawn(random)
        self.is_calm = False
        self.is_dynamic = random.random() < 0.7
        self.ms = 0.0
        self.steps = 0
        self.flying: list[Ask | Told] = []
        self.cuts: set[tuple[int, int]] = set()
        self.laws = Laws()
        self.asked: object = None
        self.numbers = count(1)
        self.directories = count(1)
        voter_count = random.choice((1, 3, 3, 3, 5)) if self.is_dynamic else random.choice((3, 3, 5))
        observers = random.choice((1, 2, 3)) if self.is_dynamic else 1
        keys = [self._new_key(node_id) for node_id in range(1, voter_count + observers + 1)]
        self.formatting = self._formatting(keys[:voter_count])
        # one that has never heard of pre-votes
        self.old_id = random.choice((0, 0, 0, 1))
        self.nodes = {key.id: Watched(key, self) for key in keys}
        broker = self._new_key(9)
        self.nodes[broker.id] = Watched(broker, self, can_vote=False)
        for node in self.nodes.values():
            self.let(node, node.start)

    def _new_key(self, node_id: int) -> ReplicaKey:
        return ReplicaKey(node_id, Uuid(next(self.directories).to_bytes(16, "big")))

    def _formatting(self, voters: list[ReplicaKey]) -> Formatting:
        bootstrap = tuple(endpoint_of(key.id) for key in voters)
        settings = QuorumSettings(fetch_max_wait_ms=self.random.choice((0, 100, 500)))
        if self.is_dynamic:
            dynamic = VoterSet.of(voter_of(key) for key in voters)
            return Formatting(dynamic=dynamic, bootstrap=bootstrap, settings=settings)
        static = VoterSet.of(voter_of(ReplicaKey(key.id), (0, 0)) for key in voters)
        return Formatting(static=static, bootstrap=bootstrap, settings=settings)

    # One step

    def run(self, steps: int = STEPS) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        self.steps += 1
        weather, draw = self.weather, self.random.random
        if draw() < weather.append:
            self.append()
        if draw() < weather.flush:
            self.flush()
        if draw() < weather.cut:
            self.cut_or_heal()
        if draw() < weather.crash:
            self.crash_or_start()
        if draw() < weather.snapshot:
            self.snapshot()
        if draw() < weather.change:
            self.change_voters()
        if draw() < weather.resign:
            self.resign()
        if not self.flying or draw() < weather.time:
            self.pass_time()
        else:
            self.carry()

    def up(self) -> list[Watched]:
        return [node for node in self.nodes.values() if node.is_up]

    def leaders(self) -> list[Watched]:
        return [node for node in self.up() if isinstance(node.quorum.role, Leader)]

    def let(self, node: Watched, act: Callable[[Now], object]) -> None:
        """A node makes a step, and is as it should be afterwards. What it sends is on its way."""
        try:
            act(node.clock(self.ms))
        except PowerFailureError:
            self.stop(node, node.crash)
            return
        if node.outbox:
            for message in node.outbox:
                if isinstance(message, Told) and isinstance(message.answer, VoteAnswer):
                    self._note_vote(node, message.answer)
            self.flying += node.outbox
            node.outbox.clear()
        node.check()

    def _note_vote(self, node: Watched, answer: VoteAnswer) -> None:
        ask = self.asked
        if answer.granted and isinstance(ask, Vote) and not ask.pre_vote:
            self.laws.granted(node.key, ask.epoch, ask.candidate)

    def failure(self) -> int:
        """Now and then the power fails before everything is done: after the first, second or third part."""
        if self.is_calm or self.random.random() > self.weather.crash / 10:
            return 0
        return self.random.choice((1, 2, 3))

    def is_unlucky(self) -> bool:
        return not self.is_calm and self.random.random() < self.weather.damage

    # Messages

    def carry(self) -> None:
        """One message arrives, or does not."""
        random, flying = self.random, self.flying
        index = random.randrange(len(flying)) if random.random() < 0.5 else 0
        message = flying[index]
        flying[index] = flying[-1]
        flying.pop()
        if isinstance(message, Ask):
            fate = random.random()
            if fate < self.weather.loss:
                self._fail(message)
            else:
                if fate > 1 - self.weather.duplication:
                    # a retry: the sender may have given up, the receiver may be another by then
                    flying.append(message)
                    if random.random() < 0.5:
                        self._fail(message)
                self.ask(message)
        elif random.random() < self.weather.loss:
            flying.append(message._replace(answer=None))
        else:
            self.tell(message)

    def _fail(self, ask: Ask) -> None:
        self.flying.append(Told(ask.sender, ask.life, ask.send.number, ask.to, None))

    def ask(self, message: Ask) -> None:
        node, ask = self.nodes[message.to], message.send.ask
        if not node.is_up or (message.sender, message.to) in self.cuts:
            self._fail(message)
            return
        self.asked = ask
        if isinstance(ask, Probe):
            self._answer(message, ProbeAnswer(kraft_versions=(0, 1)))
        elif isinstance(ask, Vote) and ask.pre_vote and node.id == self.old_id:
            self._answer(message, VoteAnswer(ErrorCode.UNSUPPORTED_VERSION))
        else:
            self.let(node, lambda now: node.receive(Received(message), ask, now))

    def _answer(self, message: Ask, answer: Answer) -> None:
        """For what is answered outside the quorum, from the versions that a node supports."""
        self.flying.append(Told(message.sender, message.life, message.send.number, message.to, answer))

    def tell(self, message: Told) -> None:
        node = self.nodes[message.to]
        if not node.is_up or node.life != message.life:
            return
        answer = None if (message.sender, message.to) in self.cuts else message.answer
        if isinstance(answer, FetchAnswer) and len(answer.records) > 0 and self.is_unlucky():
            answer = replace(answer, records=self._damaged(answer.records))
        self.let(node, lambda now: node.answered(message.number, answer, now))

    def _damaged(self, records: bytes) -> bytes:
        """A bit is wrong, not in an epoch: those are all that no checksum covers and nothing contradicts."""
        header = self.random.choice(list(batches.batches(records)))
        places = [place for place in range(header.size_bytes) if not 12 <= place < 16]
        damaged = bytearray(records)
        damaged[header.position + self.random.choice(places)] ^= 1 << self.random.randrange(8)
        return bytes(damaged)

    # Time and faults

    def pass_time(self) -> None:
        self.ms += self.random.choice((1, 5, 25, 25, 100, 400, 1500))
        for node in self.up():
            if self.random.random() < 0.9:  # a busy node comes later
                self.tick(node)

    def tick(self, node: Watched) -> None:
        now_ms = node.clock(self.ms).ms
        if node.quorum.deadline_ms > now_ms:
            return
        self.let(node, node.tick)
        deadline_ms = node.quorum.deadline_ms
        require(deadline_ms > now_ms or not node.is_up, "a busy loop", node.id, node.quorum.role)

    def cut_or_heal(self) -> None:
        random = self.random
        ids = list(self.nodes)
        kind = random.random()
        if self.cuts and kind < 0.5:
            self.cuts.clear()
        elif kind < 0.7:  # one way, between two
            self.cuts.add((random.choice(ids), random.choice(ids)))
        elif kind < 0.85:  # one alone
            alone = random.choice(ids)
            self.cuts |= {(alone, other) for other in ids} | {(other, alone) for other in ids}
        else:  # two sides
            side = {node_id for node_id in ids if random.random() < 0.5}
            self.cuts |= {(a, b) for a in ids for b in ids if (a in side) != (b in side)}

    def crash_or_start(self) -> None:
        random = self.random
        node = random.choice(list(self.nodes.values()))
        if node.is_up:
            self.stop(node, node.crash if random.random() < 0.7 else node.kill)
            if random.random() < 0.3:
                self._wipe(node)
            if random.random() < 0.2:
                self._move(self.nodes[node.id])
            if random.random() < 0.5:
                return
        node = self.nodes[node.id]
        self.let(node, node.start)

    def stop(self, node: Watched, stop: Callable[[], None]) -> None:
        held = list(node.held)
        stop()
        for token in held:
            if isinstance(token, Received):
                self._fail(token.ask)

    def _move(self, node: Watched) -> None:
        """A node gets another name: its voters have to learn it. (The port still says who it is.)"""
        node.endpoint = node.endpoint._replace(host=f"node{node.id}-{node.life}")

    def _wipe(self, node: Watched) -> None:
        """A disk is lost: one that no voter set counts on, and none that is about to be written."""
        pending = [one.quorum.changes._pending for one in self.up()]
        is_joining = any(one is not None and one.voter is not None for one in pending)
        if not self.is_dynamic or is_joining or self._is_counted_on(node.key):
            return
        del self.laws.disks[node.key]
        wiped = Watched(self._new_key(node.id), self, node.can_vote)
        wiped.life = node.life
        self.nodes[node.id] = wiped

    def _is_counted_on(self, key: ReplicaKey) -> bool:
        disks = self.laws.disks.values()
        sets = [voters for disk in disks for voters in disk.voters(None).undecided(0)]
        sets += [one.voters for one in self.laws.snapshots.values() if one.voters is not None]
        return any(voters.contains(key) for voters in sets)

    def flush(self) -> None:
        syncing = [node for node in self.up() if node.syncs]
        if syncing:
            node = self.random.choice(syncing)
            index = self.random.randrange(len(node.syncs))
            self.let(node, lambda now: node.flush(now, index))

    # Work

    def append(self) -> None:
        for node in self.leaders():
            values = [b"%d" % next(self.numbers) for _ in range(self.random.choice((1, 1, 2, 3)))]
            self.let(node, partial(node.append, values))

    def resign(self) -> None:
        for node in self.leaders():
            self.let(node, node.resign)

    def snapshot(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        if not node.is_up or not node.committed:
            return
        ends = [entry.next_offset for entry in node.disk.entries if entry.next_offset <= node.committed]
        if ends:
            position = node.snapshot_at(self.random.choice(ends[-3:]))
            assert position is not None
            self.laws.took_snapshot(node, position, node.disk.snapshots[position])
        taken = [position for position in node.disk.snapshots if position.offset > 0]
        if taken and self.random.random() < 0.5:
            node.delete_before(self.random.choice(taken))
        node.check()

    def change_voters(self) -> None:
        if not self.is_dynamic:
            return
        for node in self.leaders():
            target = self.random.choice([one for one in self.nodes.values() if one.can_vote])
            if node.quorum.voters.latest.contains(target.key):
                ask: AddVoter | RemoveVoter = RemoveVoter(target.key)
            else:
                ask = AddVoter(voter_of(target.key), self.random.random() < 0.5)
            token = ("client", next(self.numbers))
            self.let(node, partial(node.receive, token, ask))

    # The end

    def settle(self) -> None:
        """The weather clears: within bounded time one node leads, and everyone has all of its log."""
        self.is_calm = True
        self.cuts.clear()
        for node in self.nodes.values():
            if not node.is_up:
                self.let(node, node.start)
        events = self._calm()
        self._settle_within(SETTLE_MS, events)
        for node in self.leaders():
            self.let(node, partial(node.append, [b"the end"]))
        self._settle_within(SETTLE_MS, events)
        if self.formatting.settings.fetch_max_wait_ms:
            self._stay_quiet(events)

    def _stay_quiet(self, events: Iterator[None]) -> None:
        """When there is nothing to do, everyone waits: otherwise two nodes would talk without end."""
        end_ms = self.ms + 1000
        limit = QUIET_EVENTS_MAX * len(self.nodes)
        number = next((number for number, _ in enumerate(events) if self.ms > end_ms or number > limit))
        require(number <= limit, "talk without end", self.describe())

    def _settle_within(self, limit_ms: int, events: Iterator[None]) -> None:
        end_ms = self.ms + limit_ms
        for _ in events:
            if self._is_settled():
                return
            if self.ms > end_ms:
                raise ViolationError(f"no agreement in calm weather:\n{self.describe()}")

    def _calm(self) -> Iterator[None]:
        """Every message arrives after a few milliseconds, every deadline is kept."""
        order = count()
        heap: list[tuple[float, int, Ask | Told]] = []
        while True:
            for node in self.up():
                while node.syncs:
                    self.let(node, node.flush)
            for message in self.flying:
                heapq.heappush(heap, (self.ms + self.random.randrange(1, 5), next(order), message))
            self.flying.clear()
            due = {node.id: self._global_ms(node) for node in self.up()}
            first = min(due, key=due.__getitem__)
            if heap and heap[0][0] <= due[first]:
                self.ms, _, message = heapq.heappop(heap)
                if isinstance(message, Ask):
                    self.ask(message)
                else:
                    self.tell(message)
            else:
                self.ms = max(self.ms, due[first])
                self.tick(self.nodes[first])
            yield

    def _global_ms(self, node: Watched) -> float:
        # a little later, so that rounding does not wake a node just before its time
        return (node.quorum.deadline_ms - 100 * node.id) / node.rate + 0.01

    def _is_settled(self) -> bool:
        leaders = self.leaders()
        if len(leaders) != 1 or leaders[0].quorum.high_watermark is None:
            return False
        if any(not isinstance(token, Received) for token in leaders[0].held):
            return False  # a client waits
        end_offset = leaders[0].quorum.log.end_offset
        return all(node.quorum.high_watermark == end_offset for node in self.nodes.values())

    def describe(self) -> str:
        return "\n".join(
            f"{node.id} {node.quorum.role} ends at {node.quorum.log.end}, "
            f"committed {node.quorum.high_watermark}, voters "
            f"{[(at, [str(one.key) for one in voters]) for at, voters in node.quorum.voters._sets]}"
            for node in self.up()
        )


def run(seed: int, steps: int = STEPS) -> Storm:
    """One seed from beginning to end. A broken law says which seed it was, and when."""
    storm = None
    try:
        storm = Storm(seed)
        storm.run(steps)
        storm.settle()
    except (ViolationError, SafetyError, AssertionError) as error:
        step = 0 if storm is None else storm.steps
        raise ViolationError(f"seed {seed}, step {step}: {error}") from error
    return storm


def main(first: int, last: int) -> None:
    failed = 0
    for seed in range(first, last):
        try:
            run(seed)
        except ViolationError as violation:
            failed += 1
            print(violation, flush=True)
    print(f"{last - first} seeds, {failed} failed")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else int(sys.argv[1]) + 1)
