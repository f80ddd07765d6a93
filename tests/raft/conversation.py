"""Scenarios as conversations: small text files in which nodes talk, and say what they expect.

One command or expectation stands on a line; a comment follows `#`. Nothing happens by itself: a message
waits until it is delivered, the clock stands still until it is told to move, and random numbers are 0 (an
election timeout is 1000 ms, a fetch timeout 2000 ms). After `->` stands what a line must lead to: facts with
commas between them, each of which must be among those that the line brings out.

Who there is

    voters 1 2 3                   in the configuration, as with kraft.version 0
    dynamic voters 1 2 3           in the first checkpoint, each with its directory A
    bootstrap 2                    whom those that follow here ask who leads
    observer 4                     a controller that has no vote yet
    broker 9                       never has one, and fetches without waiting for its disk
    given 1 epoch 3, leader 2, voted 3      what is on its disk when it starts
    given 1 log a b@1 c@2          two batches

What happens

    1 times out                    the clock goes on to the deadline of its role; it alone notices
    wait 500                       the clock goes on by that; everyone does what is due
    run 500                        the clock goes on by that, and everything is delivered at once
    deliver                        everything that waits, until nothing does
    deliver 1 to 2                 what waits now
    drop 1 to 2                    is lost; who asked is told so
    delay 1 to 2, deliver late     stays out until later
    repeat 1 to 2                  the last ask that was delivered there arrives again
    cut 1 from 2 3, cut 1 to 2     both ways, one way
    heal
    1 wins epoch 2                 times out and gets its votes; nothing else is delivered
    2 fetches, 2 catches up        one round trip with its leader, or as many as it takes
    1 appends a b                  one batch
    1 resigns
    slow disk 2, 2 flushes         from now on it syncs only when it is told
    crash 2, kill 2, start 2       a crash loses what is not flushed; a killed process does not
    wipe 2                         it gets an empty disk with another directory: B, C, ...
    2 moves                        its next run has another address
    1 snapshots at 5, 1 deletes before 5

Asks made by hand, from anyone: what is not said is as it would be from an honest replica that knows what the
receiver knows. `client hears` looks at an answer that came later.

    1 asks 2 vote epoch=3 last=5@2 voter=2B        or prevote
    1 asks 2 begin epoch=3 endpoint=no             or end, with successors=3,2
    1 asks 2 fetch epoch=3 offset=5 last=2 wait=500
    1 asks 2 snapshot id=5@2 at=0
    client asks 1 add voter=4A                     or remove, update

What must be true now

    1 leads epoch 2; 2 follows 1 in epoch 2; 3 is candidate in epoch 2
    1 log is a b@1 c@2             the data; `full log` has L, K, V for what the quorum itself writes
    1 has committed a b            as its state machine knows; everyone has committed a b
    1 acts in 500                  its next deadline
    1 stored -> epoch 2, leader 1, voted nobody
    1 announced -> 1 leads epoch 2
    1 asks -> 2 prevote, 3 prevote          everything it has on its way
    1 voters -> 1A 2A 3A
    1 high watermark -> 4
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from memory_node import Ask, Formatting, Node, Received, Snapshot, Told, endpoint_of, voter_of

from quorate.protocol import batch as batches
from quorate.protocol.batch import ControlType, Record
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid
from quorate.raft.effects import ElectionState
from quorate.raft.messages import (
    AddVoter,
    Answer,
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Probe,
    ProbeAnswer,
    RemoveVoter,
    SnapshotAnswer,
    UpdateVoter,
    Vote,
    VoteAnswer,
)
from quorate.raft.positions import Position
from quorate.raft.quorum import Now
from quorate.raft.state import Follower, Leader, SafetyError
from quorate.raft.voters import ReplicaKey, VoterSet

T = TypeVar("T")
Facts = Sequence[str]

SETTINGS = ("voters", "dynamic", "bootstrap", "observer", "broker", "given", "slow")
EXACT = re.compile(r"\d+ asks")  # where what is not expected is wrong
CONTROL_LETTERS = {
    ControlType.LEADER_CHANGE: "L",
    ControlType.KRAFT_VERSION: "K",
    ControlType.KRAFT_VOTERS: "V",
}
ASK_NAMES = {
    BeginEpoch: "begin",
    EndEpoch: "end",
    Fetch: "fetch",
    FetchSnapshot: "snapshot",
    UpdateVoter: "update",
    Probe: "probe",
}


class ScenarioError(Exception):
    """An expectation was not met: which, and what is true instead."""


class Steady:
    """Chance without surprises."""

    def randrange(self, _: int, /) -> int:
        return 0

    def choice(self, options: Sequence[T], /) -> T:
        return options[0]


class Speaker(Node):
    """A node in a conversation."""

    def __init__(self, key: ReplicaKey, conversation: Conversation, can_vote: bool = True) -> None:
        super().__init__(key, conversation.formatting, Steady(), can_vote)
        self.conversation = conversation
        self.is_slow = False

    def find_snapshot(self, position: Position, data: bytes) -> Snapshot | None:
        for node in self.conversation.nodes.values():
            snapshot = node.disk.snapshots.get(position)
            if snapshot is not None and snapshot.data == data:
                return snapshot
        return None

    @property
    def deadline_ms(self) -> float:
        """That of its role, whatever else it waits for."""
        role = self.quorum.role
        if isinstance(role, Leader):
            return role.check_quorum_deadline_ms
        return role.fetch_deadline_ms if isinstance(role, Follower) else role.deadline_ms


class Command(NamedTuple):
    pattern: re.Pattern[str]
    perform: Callable[..., Facts]


COMMANDS: list[Command] = []


def command(pattern: str) -> Callable[[Callable[..., Facts]], Callable[..., Facts]]:
    """Makes a method the meaning of a line. `N` in the pattern is a node, `WORDS` the rest of the line."""
    text = pattern.replace("WORDS", "(.+)").replace("NUMBER", r"(\d+)").replace("N", r"(\d+)")

    def register(method: Callable[..., Facts]) -> Callable[..., Facts]:
        COMMANDS.append(Command(re.compile(text), method))
        return method

    return register


class Conversation:
    def __init__(self) -> None:
        self.formatting = Formatting()
        self.voters: list[ReplicaKey] = []
        self.nodes: dict[int, Speaker] = {}
        self.ms = 0.0
        self.waiting: list[Ask | Told] = []
        self.late: list[Ask | Told] = []
        self.delivered: list[Ask] = []
        self.cuts: set[tuple[int, int]] = set()
        self.is_begun = False
        self.asked: dict[str, int] = {}  # how many asks were made by hand, by whom

    # Reading

    def run(self, text: str) -> None:
        for number, raw in enumerate(text.splitlines(), start=1):
            line = raw.split("#")[0].strip()
            if line:
                try:
                    self.say(line)
                except ScenarioError as error:
                    raise ScenarioError(f"line {number}: {raw.strip()}\n{error}") from None

    def say(self, line: str) -> None:
        words, arrow, expected = line.partition("->")
        facts = self._perform(words.strip())
        wanted = [fact.strip() for fact in expected.split(",")] if arrow else []
        is_complete = EXACT.fullmatch(words.strip()) is None or sorted(wanted) == sorted(facts)
        if not (is_complete and set(wanted) <= set(facts)):
            same(", ".join(wanted), ", ".join(facts) or "nothing")
        fatal = [fact for fact in facts if fact.startswith("fatal")]
        if fatal and not wanted:
            raise ScenarioError(f"  actual:   {fatal[0]}")

    def _perform(self, words: str) -> Facts:
        for pattern, perform in COMMANDS:
            match = pattern.fullmatch(words)
            if match is not None:
                is_setting = words.startswith(SETTINGS)
                if not is_setting:
                    self._begin()
                try:
                    return perform(self, *match.groups())
                except SafetyError as error:
                    return [f"fatal: {str(error).replace(',', '')}"]
                except ApiError as error:
                    return [error.code.name]
        raise ScenarioError(f"  nobody understands: {words}")

    def _begin(self) -> None:
        if not self.is_begun:
            self.is_begun = True
            for node in self.nodes.values():
                self.let(node, node.start)

    # Who there is

    @command("voters WORDS")
    def _voters(self, ids: str) -> Facts:
        keys = [ReplicaKey(int(node_id)) for node_id in ids.split()]
        self.formatting = Formatting(static=VoterSet.of(voter_of(key, (0, 0)) for key in keys))
        return self._add(keys)

    @command("dynamic voters WORDS")
    def _dynamic_voters(self, ids: str) -> Facts:
        keys = [key_of(node_id + "A") for node_id in ids.split()]
        bootstrap = [endpoint_of(key.id) for key in keys]
        self.formatting = Formatting(dynamic=VoterSet.of(map(voter_of, keys)), bootstrap=bootstrap)
        return self._add(keys)

    @command("bootstrap WORDS")
    def _bootstrap(self, ids: str) -> Facts:
        endpoints = [endpoint_of(int(node_id)) for node_id in ids.split()]
        self.formatting = replace(self.formatting, bootstrap=endpoints)
        return []

    @command("(observer|broker) WORDS")
    def _observer(self, kind: str, ids: str) -> Facts:
        return self._add([key_of(node_id + "A") for node_id in ids.split()], kind == "observer")

    def _add(self, keys: Iterable[ReplicaKey], can_vote: bool = True) -> Facts:
        for key in keys:
            node = Speaker(key_of(f"{key.id}A"), self, can_vote)
            self.nodes[key.id] = node
            if not can_vote:
                node.settings = node.settings.__class__(is_flushed_before_fetch=False)
            if self.is_begun:
                self.let(node, node.start)
        return []

    @command("given N log WORDS")
    def _given_log(self, node_id: str, text: str) -> Facts:
        disk = self.nodes[int(node_id)].disk
        for group in text.split("@")[0:-1]:
            text = text[len(group) + 1 :]
            epoch = re.match(r"\d+", text)
            assert epoch is not None, "every batch has an epoch"
            values = re.sub(r"^\d+", "", group).split()
            base = disk.end_offset
            records = [Record(base + index, 0, None, value.encode()) for index, value in enumerate(values)]
            disk.append(bytes(batches.build(records, base_offset=base, leader_epoch=int(epoch.group()))))
        return []

    @command("given N (epoch WORDS)")
    def _given_state(self, node_id: str, text: str, _: str) -> Facts:
        given = dict(fact.split() for fact in text.split(","))
        voted = given.get("voted")
        self.nodes[int(node_id)].disk.election = ElectionState(
            int(given["epoch"]), int(given.get("leader", -1)), None if voted is None else key_of(voted)
        )
        return []

    # Steps

    @property
    def now(self) -> Now:
        return Now(self.ms, int(self.ms))

    def let(self, node: Speaker, act: Callable[[Now], object]) -> None:
        """A node makes a step. What it says waits; its disk, if not slow, does its work."""
        try:
            act(self.now)
            while node.syncs and not node.is_slow:
                node.flush(self.now)
        except SafetyError:
            node.kill()
            raise
        self.waiting += node.outbox
        node.outbox.clear()

    def carry(self, message: Ask | Told) -> None:
        if message in self.waiting:
            self.waiting.remove(message)
        if isinstance(message, Told):
            node = self.nodes[message.to]
            if node.is_up and node.life == message.life:
                answer = None if (message.sender, message.to) in self.cuts else message.answer
                self.let(node, lambda now: node.answered(message.number, answer, now))
            return
        node = self.nodes.get(message.to)
        if node is None or not node.is_up or (message.sender, message.to) in self.cuts:
            self._fail(message)
        elif isinstance(message.send.ask, Probe):
            answer = ProbeAnswer(kraft_versions=(0, 1))
            told = Told(message.sender, message.life, message.send.number, message.to, answer)
            self.waiting.append(told)
        else:
            self.delivered.append(message)
            self.let(node, lambda now: node.receive(Received(message), message.send.ask, now))

    def _fail(self, ask: Ask) -> None:
        node = self.nodes[ask.sender]
        if node.is_up and node.life == ask.life:
            self.let(node, lambda now: node.answered(ask.send.number, None, now))

    def _between(self, sender: int, to: int) -> list[Ask | Told]:
        return [message for message in self.waiting if (message.sender, message.to) == (sender, to)]

    # Time

    @command("N times out")
    def _times_out(self, node_id: str) -> Facts:
        node = self.nodes[int(node_id)]
        self.ms = max(self.ms, node.deadline_ms)
        self.let(node, node.tick)
        return []

    @command("wait NUMBER")
    def _wait(self, duration: str) -> Facts:
        end_ms = self.ms + int(duration)
        while True:
            up = [node for node in self.nodes.values() if node.is_up]
            next_ms = min((node.quorum.deadline_ms for node in up), default=end_ms)
            if next_ms > end_ms:
                break
            self.ms = max(self.ms, next_ms)
            for node in up:
                if node.quorum.deadline_ms <= self.ms:
                    self.let(node, node.tick)
                    if node.quorum.deadline_ms <= self.ms:
                        raise ScenarioError(f"  actual:   {node.id} is in a busy loop: {node.quorum.role}")
        self.ms = end_ms
        return []

    @command("run NUMBER")
    def _run(self, duration: str) -> Facts:
        end_ms = self.ms + int(duration)
        while True:
            self._deliver()
            up = [node.quorum.deadline_ms for node in self.nodes.values() if node.is_up]
            next_ms = max(self.ms, min(up, default=end_ms))
            if next_ms > end_ms:
                self.ms = end_ms
                return []
            self.ms = next_ms
            self._wait("0")

    @command("N acts in NUMBER")
    def _acts_in(self, node_id: str, duration: str) -> Facts:
        left_ms = self.nodes[int(node_id)].quorum.deadline_ms - self.ms
        return same(duration, f"{left_ms:.0f}")

    # Messages

    @command("deliver")
    def _deliver(self) -> Facts:
        for _ in range(1000):
            if not self.waiting:
                return []
            self.carry(self.waiting[0])
        raise ScenarioError(f"  actual:   talk without end: {describe(self.waiting)}")

    @command("deliver N to N")
    def _deliver_between(self, sender: str, to: str) -> Facts:
        messages = self._between(int(sender), int(to))
        facts: list[str] = []
        for message in messages:
            self.carry(message)
            if isinstance(message, Told):
                facts += answer_facts(message.answer)
            else:
                facts += self._answer_to(message)
        return facts or ["nothing"]

    def _answer_to(self, ask: Ask) -> Facts:
        told = [one for one in self._between(ask.to, ask.sender) if isinstance(one, Told)]
        mine = [one for one in told if (one.life, one.number) == (ask.life, ask.send.number)]
        return answer_facts(mine[-1].answer) if mine else ["waits"]

    @command("deliver late")
    def _deliver_late(self) -> Facts:
        late, self.late = self.late, []
        for message in late:
            self.carry(message)
        return []

    @command("(drop|delay) N to N")
    def _take_out(self, what: str, sender: str, to: str) -> Facts:
        for message in self._between(int(sender), int(to)):
            self.waiting.remove(message)
            if what == "delay":
                self.late.append(message)
            elif isinstance(message, Ask):
                self._fail(message)
            else:
                self.carry(message._replace(answer=None))
        return []

    @command("repeat N to N")
    def _repeat(self, sender: str, to: str) -> Facts:
        asks = [one for one in self.delivered if (one.sender, one.to) == (int(sender), int(to))]
        if not asks:
            raise ScenarioError(f"  actual:   {sender} has asked {to} nothing")
        self.carry(asks[-1])
        return self._answer_to(asks[-1])

    @command("cut N (from|to) WORDS")
    def _cut(self, one: str, way: str, others: str) -> Facts:
        for other in others.split():
            self.cuts.add((int(one), int(other)))
            if way == "from":
                self.cuts.add((int(other), int(one)))
        return []

    @command("heal")
    def _heal(self) -> Facts:
        self.cuts.clear()
        return []

    @command("N asks")
    def _asks_now(self, node_id: str) -> Facts:
        node = self.nodes[int(node_id)]
        mine = [one for one in self._awaited(node) if isinstance(one, Ask)]
        return [f"{one.to} {ask_name(one.send.ask)}" for one in mine] or ["nobody"]

    # Elections

    @command("N wins epoch NUMBER")
    def _wins(self, node_id: str, epoch: str) -> Facts:
        node = self.nodes[int(node_id)]
        for _ in range(4):
            if not isinstance(node.quorum.role, Leader):
                self._times_out(node_id)
                self._carry_votes(node.id)
        return self._leads(node_id, epoch)

    def _carry_votes(self, candidate: int) -> None:
        while True:
            votes = [
                one
                for one in self.waiting
                if (isinstance(one, Ask) and one.sender == candidate and isinstance(one.send.ask, Vote))
                or (isinstance(one, Told) and one.to == candidate and isinstance(one.answer, VoteAnswer))
            ]
            if not votes:
                return
            self.carry(votes[0])

    @command("N leads epoch NUMBER")
    def _leads(self, node_id: str, epoch: str) -> Facts:
        return self._is(node_id, "leader", epoch)

    @command("N is (unattached|prospective|candidate|leader|resigned) in epoch NUMBER")
    def _is(self, node_id: str, role: str, epoch: str) -> Facts:
        return same(f"{role} in epoch {epoch}", self._role(node_id))

    @command("N follows N in epoch NUMBER")
    def _follows(self, node_id: str, leader_id: str, epoch: str) -> Facts:
        return same(f"follower of {leader_id} in epoch {epoch}", self._role(node_id))

    def _role(self, node_id: str) -> str:
        role = self.nodes[int(node_id)].quorum.role
        of = f" of {role.leader_id}" if isinstance(role, Follower) else ""
        return f"{type(role).__name__.lower()}{of} in epoch {role.epoch}"

    @command("N resigns")
    def _resigns(self, node_id: str) -> Facts:
        node = self.nodes[int(node_id)]
        self.let(node, node.resign)
        return []

    @command("N stored")
    def _stored(self, node_id: str) -> Facts:
        stored = self.nodes[int(node_id)].disk.election
        voted = "nobody" if stored.voted is None else text_of(stored.voted)
        leader = "nobody" if stored.leader_id < 0 else stored.leader_id
        return [f"epoch {stored.epoch}", f"leader {leader}", f"voted {voted}"]

    @command("N announced")
    def _announced(self, node_id: str) -> Facts:
        leadership = self.nodes[int(node_id)].leadership
        if leadership is None:
            return ["nothing"]
        who = "nobody" if leadership.leader_id is None else leadership.leader_id
        return [f"{who} leads epoch {leadership.epoch}"]

    # Logs

    @command("N appends WORDS")
    def _appends(self, node_id: str, values: str) -> Facts:
        node = self.nodes[int(node_id)]
        self.let(node, lambda now: node.append([value.encode() for value in values.split()], now))
        return [f"offset {node.disk.end_offset - 1}"]

    @command("N fetches")
    def _fetches(self, node_id: str) -> Facts:
        node = self.nodes[int(node_id)]
        for _ in range(6):
            answers = [
                one
                for one in self._awaited(node)
                if isinstance(one, Told) and isinstance(one.answer, (FetchAnswer, SnapshotAnswer))
            ]
            fetches = [
                one
                for one in self._awaited(node)
                if isinstance(one, Ask) and isinstance(one.send.ask, (Fetch, FetchSnapshot))
            ]
            begins = [
                one
                for one in self.waiting
                if isinstance(one, Ask) and one.to == node.id and isinstance(one.send.ask, BeginEpoch)
            ]
            if answers:
                self.carry(answers[0])
                return answer_facts(answers[0].answer)
            if fetches:
                self.carry(fetches[0])
                if not self._awaited(node) and not self._has_failed(fetches[0]):
                    return ["waits"]
            elif begins:
                self.carry(begins[0])
            else:
                self.ms += node.settings.retry_backoff_ms  # it may have been refused a moment ago
                self.let(node, node.tick)
        return ["nothing"]

    def _awaited(self, node: Speaker) -> list[Ask | Told]:
        """What is under way for the present role of a node: its asks, and answers to them."""
        mine = [
            (one, one.send.number if isinstance(one, Ask) else one.number)
            for one in self.waiting
            if one.life == node.life and node.id == (one.sender if isinstance(one, Ask) else one.to)
        ]
        return [one for one, number in mine if number in node.quorum._outstanding]

    def _has_failed(self, ask: Ask) -> bool:
        node = self.nodes.get(ask.to)
        return node is None or not node.is_up or (ask.sender, ask.to) in self.cuts

    @command("N catches up")
    def _catches_up(self, node_id: str) -> Facts:
        for _ in range(20):
            if self._fetches(node_id)[0] in ("waits", "nothing"):
                break
        return []

    @command("N log is WORDS")
    def _log_is(self, node_id: str, text: str) -> Facts:
        entries = [word for word in self._log(node_id) if word[0] not in "LKV"]
        return same(" ".join(spelled_out(text)), " ".join(entries) or "empty")

    @command("N full log is WORDS")
    def _full_log_is(self, node_id: str, text: str) -> Facts:
        return same(" ".join(spelled_out(text)), " ".join(self._log(node_id)) or "empty")

    def _log(self, node_id: str) -> list[str]:
        disk = self.nodes[int(node_id)].disk
        return [word for entry in disk.entries for word in words_in(entry.data)]

    @command("N has committed WORDS")
    def _has_committed(self, node_id: str, text: str) -> Facts:
        return same(text, self._committed(int(node_id)))

    @command("everyone has committed WORDS")
    def _all_have_committed(self, text: str) -> Facts:
        up = [node.id for node in self.nodes.values() if node.is_up]
        wanted = "; ".join(f"{node_id}: {text}" for node_id in up)
        return same(wanted, "; ".join(f"{node_id}: {self._committed(node_id)}" for node_id in up))

    def _committed(self, node_id: int) -> str:
        node = self.nodes[node_id]
        entries = [entry for entry in node.disk.entries if entry.next_offset <= node.committed]
        words = [word for entry in entries for word in words_in(entry.data) if word[0] not in "LKV"]
        return " ".join(word.split("@")[0] for word in words) or "nothing"

    @command("N high watermark")
    def _high_watermark(self, node_id: str) -> Facts:
        known = self.nodes[int(node_id)].quorum.high_watermark
        return ["unknown" if known is None else str(known)]

    @command("N voters")
    def _voters_of(self, node_id: str) -> Facts:
        voters = self.nodes[int(node_id)].quorum.voters.latest
        return [" ".join(text_of(voter.key) for voter in voters) or "nobody"]

    @command("N snapshots at NUMBER")
    def _snapshots(self, node_id: str, offset: str) -> Facts:
        node = self.nodes[int(node_id)]
        if int(offset) > node.committed:
            return ["not committed"]
        return [str(node.snapshot_at(int(offset)) or "not at the end of a batch")]

    @command("N deletes before NUMBER")
    def _deletes(self, node_id: str, offset: str) -> Facts:
        node = self.nodes[int(node_id)]
        node.delete_before(next(one for one in node.disk.snapshots if one.offset == int(offset)))
        return []

    # Disks and processes

    @command("slow disk N")
    def _slow_disk(self, node_id: str) -> Facts:
        self.nodes[int(node_id)].is_slow = True
        return []

    @command("N flushes")
    def _flushes(self, node_id: str) -> Facts:
        node = self.nodes[int(node_id)]
        while node.syncs:
            self.let(node, node.flush)
        return []

    @command("(crash|kill) N")
    def _stop(self, how: str, node_id: str) -> Facts:
        node = self.nodes[int(node_id)]
        held = [token.ask for token in node.held if isinstance(token, Received)]
        if how == "crash":
            node.crash()
        else:
            node.kill()
        for ask in held:
            self._fail(ask)
        return []

    @command("start N")
    def _start(self, node_id: str) -> Facts:
        node = self.nodes[int(node_id)]
        self.let(node, node.start)
        return []

    @command("wipe N")
    def _wipe(self, node_id: str) -> Facts:
        old = self.nodes[int(node_id)]
        directory = chr(old.key.directory[0] + 1)
        node = self.nodes[old.id] = Speaker(key_of(f"{old.id}{directory}"), self, old.can_vote)
        node.life = old.life
        return []

    @command("N moves")
    def _moves(self, node_id: str) -> Facts:
        node = self.nodes[int(node_id)]
        node.endpoint = node.endpoint._replace(host=node.endpoint.host + "-moved")
        return []

    # Asks made by hand

    @command("(\\w+) asks N (\\w+)( .+)?")
    def _asks(self, sender: str, to: str, kind: str, options: str | None) -> Facts:
        node = self.nodes[int(to)]
        given = dict(option.split("=") for option in (options or "").split())
        ask = made_by_hand(sender, kind, node, given)
        self.asked[sender] = self.asked.get(sender, 0) + 1
        token = (sender, self.asked[sender])
        self.let(node, lambda now: node.receive(token, ask, now))
        return self._hears(sender)

    @command("(\\w+) hears")
    def _hears(self, sender: str) -> Facts:
        tokens = [(token, answer) for node in self.nodes.values() for token, answer in node.told]
        mine = [answer for token, answer in tokens if token == (sender, self.asked[sender])]
        return answer_facts(mine[-1]) if mine else ["waits"]


def made_by_hand(sender: str, kind: str, node: Speaker, given: dict[str, str]) -> object:
    quorum = node.quorum
    epoch = int(given.get("epoch", quorum.epoch))
    key = key_of(given.get("from", f"{sender}A" if sender.isdigit() else "-1"))
    voter = key_of(given["voter"]) if "voter" in given else None
    if kind in ("vote", "prevote"):
        last = position_of(given["last"]) if "last" in given else quorum.log.end
        return Vote(epoch, key, last, kind == "prevote", voter)
    if kind == "begin":
        leader_id = int(given.get("leader", key.id))
        endpoints = () if given.get("endpoint") == "no" else (endpoint_of(leader_id),)
        return BeginEpoch(epoch, leader_id, endpoints, voter)
    if kind == "end":
        successors = [key_of(one) for one in given.get("successors", "").split(",") if one]
        return EndEpoch(epoch, int(given.get("leader", key.id)), tuple(successors))
    if kind == "fetch":
        offset = int(given.get("offset", quorum.log.end_offset))
        last_epoch = int(given.get("last", min(epoch, quorum.log.last_epoch)))
        known = int(given.get("hwm", (1 << 63) - 1))
        return Fetch(epoch, key, offset, last_epoch, int(given.get("wait", 0)), high_watermark=known)
    if kind == "snapshot":
        return FetchSnapshot(epoch, key, position_of(given["id"]), int(given.get("at", 0)))
    assert voter is not None, "whom?"
    if kind == "remove":
        return RemoveVoter(voter)
    lowest, highest = (int(level) for level in given.get("versions", "0-1").split("-"))
    changed = voter_of(voter, (lowest, highest))
    if given.get("endpoint") == "no":
        changed = changed.__class__(voter, (), changed.kraft_versions)
    if given.get("endpoint") == "new":
        endpoint = endpoint_of(voter.id)._replace(host="elsewhere")
        changed = changed.__class__(voter, (endpoint,), changed.kraft_versions)
    if kind == "add":
        return AddVoter(changed, given.get("ack") != "append")
    if kind == "update":
        return UpdateVoter(epoch, changed)
    raise ScenarioError(f"  nobody asks for {kind}")


# Texts


def same(expected: str, actual: str) -> Facts:
    if expected != actual:
        raise ScenarioError(f"  expected: {expected}\n  actual:   {actual}")
    return []


def answer_facts(answer: Answer | None) -> Facts:
    """Everything that an answer says, the most telling first."""
    if answer is None:
        return ["lost"]
    facts = [answer.error.name]
    if isinstance(answer, VoteAnswer) and answer.error is ErrorCode.NONE:
        facts = ["granted" if answer.granted else "refused"]
    if isinstance(answer, FetchAnswer) and answer.error is ErrorCode.NONE:
        facts = fetch_facts(answer)
    if isinstance(answer, SnapshotAnswer) and answer.error is ErrorCode.NONE:
        facts = [f"bytes {answer.byte_position}-{answer.byte_position + len(answer.data)}"]
    leader = "nobody" if answer.leader_id < 0 else answer.leader_id
    return [*facts, f"epoch {answer.epoch}", f"leader {leader}"]


def fetch_facts(answer: FetchAnswer) -> list[str]:
    known = "unknown" if answer.high_watermark < 0 else answer.high_watermark
    if answer.diverging is not None:
        return [f"diverged {answer.diverging}", f"committed {known}"]
    if answer.snapshot is not None:
        return [f"use snapshot {answer.snapshot}", f"committed {known}"]
    words = [word for header in batches.batches(answer.records) for word in words_in(answer.records, header)]
    return ["got " + (" ".join(words) or "nothing"), f"committed {known}"]


def words_in(data: bytes, header: batches.BatchHeader | None = None) -> list[str]:
    """The records of a batch, as in `a@1`."""
    header = header or batches.read_header(data)
    words = []
    for record in batches.records(data, header):
        if header.is_control:
            kind = batches.control_type(record)
            word = "?" if kind is None else CONTROL_LETTERS[kind]
        else:
            word = (record.value or b"").decode()
        words.append(f"{word}@{header.partition_leader_epoch}")
    return words


def spelled_out(text: str) -> list[str]:
    """`a b@1` as `a@1 b@1`."""
    words: list[str] = []
    epoch = ""
    for word in reversed(text.split()):
        value, at, own = word.partition("@")
        epoch = own if at else epoch
        words.append(f"{value}@{epoch}" if epoch else value)
    return words[::-1]


def key_of(text: str) -> ReplicaKey:
    """`2A` is node 2 with directory A, `2` a node 2 of which only the id is known."""
    match = re.fullmatch(r"(-?\d+)([A-Z]?)", text)
    if match is None:
        raise ScenarioError(f"  no replica is called {text}")
    node_id, directory = match.groups()
    return ReplicaKey(int(node_id), Uuid(directory.encode() * 16)) if directory else ReplicaKey(int(node_id))


def text_of(key: ReplicaKey) -> str:
    return f"{key.id}{chr(key.directory[0])}" if any(key.directory) else f"{key.id}"


def position_of(text: str) -> Position:
    offset, epoch = text.split("@")
    return Position(int(offset), int(epoch))


def ask_name(ask: object) -> str:
    if isinstance(ask, Vote):
        return "prevote" if ask.pre_vote else "vote"
    return ASK_NAMES[type(ask)]


def describe(messages: Iterable[Ask | Told]) -> str:
    asks = [f"{one.sender} to {one.to} {ask_name(one.send.ask)}" for one in messages if isinstance(one, Ask)]
    return ", ".join(asks)


def run_scenario(path: Path) -> None:
    try:
        Conversation().run(path.read_text())
    except ScenarioError as error:
        raise ScenarioError(f"{path.name}, {error}") from None
