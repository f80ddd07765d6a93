"""Every rule that keeps records safe is taken out once, and a storm, or a scenario, must notice.

A test of a test: a storm in which nothing can go wrong proves nothing.
"""

# ruff: noqa: ARG001, ARG005 (what is put in the place of a function takes its arguments)

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import storm
from conversation import ScenarioError, run_scenario

from quorate.protocol.errors import ErrorCode
from quorate.raft import election, replication
from quorate.raft.campaigning import Campaigning
from quorate.raft.effects import Effects, ElectionState
from quorate.raft.following import Following
from quorate.raft.leading import Leading
from quorate.raft.messages import Vote
from quorate.raft.positions import LogPositions, Position, Valid
from quorate.raft.quorum import Now, Quorum
from quorate.raft.reconfiguration import VoterChanges
from quorate.raft.state import Candidate, Leader, Progress, Prospective, Role, Unattached
from quorate.raft.voters import ReplicaKey, VoterSet

SEEDS_MAX = 300
SCENARIOS = Path(__file__).parent / "scenarios"
Patch = pytest.MonkeyPatch
Mutate = Callable[[Patch], None]


class Mutation(NamedTuple):
    mutate: Mutate
    scenario: str | None  # that notices; otherwise a storm must
    first_seed: int


MUTATIONS: list[Mutation] = []


def mutation(*, scenario: str | None = None, first_seed: int = 0) -> Callable[[Mutate], Mutate]:
    """A rule that is taken out. Some holes are so small that a storm seldom finds them: a scenario does."""

    def register(mutate: Mutate) -> Mutate:
        MUTATIONS.append(Mutation(mutate, scenario, first_seed))
        return mutate

    return register


@pytest.mark.parametrize("one", MUTATIONS, ids=lambda one: one.mutate.__name__)
def test_a_missing_rule_is_noticed(one: Mutation, monkeypatch: Patch) -> None:
    one.mutate(monkeypatch)
    if one.scenario is not None:
        with pytest.raises(ScenarioError):
            run_scenario(SCENARIOS / f"{one.scenario}.txt")
    elif not is_noticed_by_a_storm(range(one.first_seed, one.first_seed + SEEDS_MAX)):
        pytest.fail(f"{SEEDS_MAX} storms did not notice: {one.mutate.__doc__}")


def is_noticed_by_a_storm(seeds: range) -> bool:
    for seed in seeds:
        try:
            storm.run(seed)
        except storm.ViolationError:
            return True
    return False


@contextmanager
def instead(thing: object, name: str, value: object) -> Iterator[None]:
    """A field has another value for a moment."""
    original = getattr(thing, name)
    setattr(thing, name, value)
    try:
        yield
    finally:
        setattr(thing, name, original)


def wrapped(patch: Patch, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """`wrapper` gets the original method, then the arguments."""
    original = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **kwargs: wrapper(original, *args, **kwargs))


# Votes


@mutation()
def a_vote_is_not_stored(patch: Patch) -> None:
    """A vote that is forgotten in a crash can be given twice."""

    def grant(original: Any, self: Campaigning, candidate: ReplicaKey, now: Now) -> None:
        original(self, candidate, now)
        self._quorum.effects.persist = None

    wrapped(patch, Campaigning, "_grant", grant)


@mutation()
def a_candidacy_is_not_stored(patch: Patch) -> None:
    """A candidate that forgets its vote for itself can vote for another one."""

    def become(original: Any, self: Quorum, role: Role, *, is_durable: bool = True) -> None:
        original(self, role, is_durable=is_durable and not isinstance(role, Candidate))

    wrapped(patch, Quorum, "become", become)


@mutation()
def two_votes_in_one_epoch(patch: Patch) -> None:
    """A vote is given, whoever got one before."""

    def grants(original: Any, role: Role, ask: Vote, ours: Position) -> bool:
        if not ask.pre_vote and isinstance(role, (Unattached, Prospective)):
            return election.is_log_up_to_date(ask.last, ours)
        return bool(original(role, ask, ours))

    wrapped(patch, election, "grants", grants)


@mutation(first_seed=60)
def the_longer_log_wins(patch: Patch) -> None:
    """Logs are compared by length, not by their last epoch."""
    patch.setattr(election, "is_log_up_to_date", lambda theirs, ours: theirs.offset >= ours.offset)


@mutation()
def every_log_is_good_enough(patch: Patch) -> None:
    """Logs are not compared at all."""
    patch.setattr(election, "is_log_up_to_date", lambda theirs, ours: True)


@mutation(first_seed=27040)
def a_candidate_claims_what_is_not_on_its_disk(patch: Patch) -> None:
    """It may lose that in a crash, and still get the vote that it was promised for it."""

    def send_due(original: Any, self: Campaigning, role: Any) -> None:
        with instead(self._quorum.log, "flushed_offset", self._quorum.log.end_offset):
            original(self, role)

    wrapped(patch, Campaigning, "send_due", send_due)


@mutation()
def half_is_a_majority(patch: Patch) -> None:
    """Two halves of the voters can each elect a leader."""
    patch.setattr(VoterSet, "majority", property(lambda self: max(1, len(self.voters) // 2)))


# Restarts


@mutation()
def a_restarted_leader_still_leads(patch: Patch) -> None:
    """Records that were lost in the crash get their offsets given away again, in the same epoch."""

    def start(original: Any, self: Quorum, stored: ElectionState, now: Now) -> Effects:
        effects: Effects = original(self, stored, now)
        if stored.leader_id == self.me.id and stored.epoch == self.epoch:
            self.role = Leader(stored.epoch, self.log.end_offset, now.ms + self.settings.check_quorum_ms)
        return effects

    wrapped(patch, Quorum, "start", start)


@mutation(scenario="kafka-10661-restarted-leader-votes")
def a_restarted_leader_forgets_that_it_led(patch: Patch) -> None:
    """It gives its vote away in an epoch in which it got one."""

    def start(original: Any, self: Quorum, stored: ElectionState, now: Now) -> Effects:
        if stored.leader_id == self.me.id:
            stored = ElectionState(stored.epoch)
        effects: Effects = original(self, stored, now)
        effects.persist = self.election_state
        return effects

    wrapped(patch, Quorum, "start", start)


# What is committed


@mutation()
def old_epochs_are_committed_directly(patch: Patch) -> None:
    """A majority that holds a record of an earlier epoch does not make it safe: see figure 8 of Raft."""

    def advance(original: Any, self: Leading, role: Leader, now: Now) -> None:
        with instead(role, "start_offset", -1):
            original(self, role, now)

    wrapped(patch, Leading, "advance_high_watermark", advance)


@mutation()
def a_leader_counts_itself_before_its_disk(patch: Patch) -> None:
    """What is counted is lost in a crash."""

    def advance(original: Any, self: Leading, role: Leader, now: Now) -> None:
        with instead(self._quorum.log, "flushed_offset", self._quorum.log.end_offset):
            original(self, role, now)

    wrapped(patch, Leading, "advance_high_watermark", advance)


@mutation()
def a_follower_fetches_before_its_disk(patch: Patch) -> None:
    """A fetch says that everything before it is on disk."""
    patch.setattr(Following, "_is_ready_to_fetch", lambda self: True)


@mutation()
def observers_are_counted(patch: Patch) -> None:
    """Copies on replicas that have no vote do not make a record safe."""

    def high_watermark(
        voters: VoterSet, me: ReplicaKey, my_offset: int, replicas: Mapping[ReplicaKey, Progress]
    ) -> int:
        offsets = [my_offset, *(one.offset for one in replicas.values()), *[-1] * len(voters)]
        return sorted(offsets, reverse=True)[len(voters) // 2]

    patch.setattr(replication, "high_watermark", high_watermark)


@mutation()
def a_removed_leader_counts_itself(patch: Patch) -> None:
    """A leader that has removed itself is no part of the majority."""

    def high_watermark(original: Any, voters: VoterSet, me: ReplicaKey, my_offset: int, replicas: Any) -> int:
        value = int(original(voters, me, my_offset, replicas))
        return value if voters.contains(me) else max(value, my_offset)

    wrapped(patch, replication, "high_watermark", high_watermark)


@mutation(scenario="fetch-refusals-in-order")
def acknowledgements_of_other_epochs_count(patch: Patch) -> None:
    """What a replica had in another epoch may have been cut off since."""
    patch.setattr(
        Leading,
        "_error",
        lambda self, epoch: (
            ErrorCode.NONE if isinstance(self._quorum.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER
        ),
    )


@mutation()
def a_sync_vouches_for_what_came_after_a_cut(patch: Patch) -> None:
    """The sync began before the log was cut; what is there now was written later."""

    def flushed(original: Any, self: Quorum, end_offset: int, generation: int, now: Now) -> Effects:
        effects: Effects = original(self, end_offset, self.log.generation, now)
        return effects

    wrapped(patch, Quorum, "flushed", flushed)


# Logs


@mutation()
def nothing_is_truncated(patch: Patch) -> None:
    """A follower keeps what its leader never had."""
    patch.setattr(Following, "_truncate", lambda self, end_offset: None)


@mutation()
def positions_are_not_checked(patch: Patch) -> None:
    """A follower goes on at an offset, whatever is before it."""

    def check(original: Any, self: LogPositions, offset: int, epoch: int) -> object:
        return Valid() if self.start_offset <= offset <= self.end_offset else original(self, offset, epoch)

    wrapped(patch, LogPositions, "check", check)


@mutation()
def only_offsets_are_compared(patch: Patch) -> None:
    """A position is checked without its epoch."""
    wrapped(
        patch,
        LogPositions,
        "check",
        lambda original, self, offset, epoch: original(self, offset, self.last_epoch),
    )


@mutation()
def two_fetches_at_a_time(patch: Patch) -> None:
    """The answer to one can cut off what the answer to the other has brought."""

    def on_fetch_answer(original: Any, self: Following, send: Any, answer: Any, role: Any, now: Now) -> None:
        end = self._quorum.log.end
        if send.ask.offset == end.offset:
            object.__setattr__(send.ask, "last_epoch", end.epoch)
        original(self, send, answer, role, now)

    patch.setattr(Quorum, "is_idle", property(lambda self: True))
    wrapped(patch, Following, "on_fetch_answer", on_fetch_answer)


# Voters


@mutation(first_seed=160)
def voters_change_before_the_last_change_is_committed(patch: Patch) -> None:
    """Two sets that do not follow each other need not have a voter in common."""

    def refusal(original: Any, self: VoterChanges, key: ReplicaKey) -> object:
        self.fail_pending()
        with instead(self._quorum, "high_watermark", self._quorum.log.end_offset + 1):
            return original(self, key)

    wrapped(patch, VoterChanges, "_refusal", refusal)


@mutation()
def a_voter_set_outlives_its_record(patch: Patch) -> None:
    """A truncated voter set still counts."""
    patch.setattr("quorate.raft.voters.VoterHistory.truncate", lambda self, end_offset: None)
