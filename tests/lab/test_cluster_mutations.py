"""Rules of controllers, brokers and coordinators are taken out one at a time: simulated clusters must notice.

A test of the tests: checkers that notice nothing prove nothing. Each mutation has a seed that is tried first,
because it is known to notice; if the simulation changes, the next ones are tried too.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import pytest

from quorate.broker import coordinators, coordinators_loading, partition
from quorate.broker.handlers import produce
from quorate.broker.leadership import Leadership
from quorate.controller import bulk_election, fencing
from quorate.controller.bulk_election import Consequences
from quorate.coordinator import classic, consumer_reconciliation, consumer_steps
from quorate.lab.cluster import run_cluster
from quorate.lab.faults import Fault
from quorate.lab.world import SECOND
from quorate.node.metadata_log import MetadataLog
from quorate.raft import election
from quorate.raft.voters import VoterSet
from quorate.storage import producer_states
from quorate.storage.partition_log import PartitionLog

pytestmark = pytest.mark.simulation

SEEDS_MAX = 12
WORKERS = 2
DURATION_NS = 15 * SECOND

Mutate = Callable[[], None]


class Mutation(NamedTuple):
    break_it: Mutate
    first_seed: int
    faults: list[Fault] | None  # instead of those of the seed


MUTATIONS: list[Mutation] = []


def at(seconds: float, kind: str, *args: Any) -> Fault:
    return Fault(int(seconds * SECOND), kind, args)


def mutation(first_seed: int = 1, faults: list[Fault] | None = None) -> Callable[[Mutate], Mutate]:
    def register(break_it: Mutate) -> Mutate:
        MUTATIONS.append(Mutation(break_it, first_seed, faults))
        return break_it

    return register


@pytest.fixture(scope="module")
def noticed() -> Iterator[dict[str, Future[tuple[int, str | None]]]]:
    """What was found of each mutation, in a process of its own, which is thrown away with its broken rule."""
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(WORKERS, context) as pool:
        yield {
            one.break_it.__name__: pool.submit(_look_apart, number) for number, one in enumerate(MUTATIONS)
        }


@pytest.mark.parametrize("one", MUTATIONS, ids=lambda one: one.break_it.__name__)
def test_a_missing_rule_is_noticed(one: Mutation, noticed, record_property):
    seed, violation = noticed[one.break_it.__name__].result()
    assert violation is not None, f"{SEEDS_MAX} seeds did not notice: {one.break_it.__doc__}"
    record_property("figure", f"mutation {one.break_it.__name__}: seed {seed}: {violation[:90]}")


def _look_apart(number: int) -> tuple[int, str | None]:
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_look, args=(MUTATIONS[number], sending))
    process.start()
    sending.close()
    try:
        found: tuple[int, str | None] = receiving.recv()
    finally:
        process.join()
    return found


def _look(one: Mutation, sending: Any) -> None:
    one.break_it()
    for seed in range(one.first_seed, one.first_seed + SEEDS_MAX):
        violation = run_cluster(seed, DURATION_NS, one.faults).violation
        if violation is not None:
            sending.send((seed, violation))
            return
    sending.send((-1, None))


def wrapped(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: wrapper(original, *args, **kwargs))


# The quorum


# One controller misses something; then those who have it are away, but for one who may be asked to vote.
A_VOTER_THAT_LAGS = [
    *(at(1, "isolate", "v3"), at(5, "kill", "v1"), at(5, "kill", "v2"), at(5.1, "rejoin", "v3")),
    *(at(5.1, "restart", "v1"), at(9, "isolate", "v1"), at(9, "restart", "v2"), at(12, "rejoin", "v1")),
]
# All controllers lose their power at once, again and again.
BLACKOUTS = [
    at(second + (0 if kind == "power_loss" else 0.5), kind, controller)
    for second in (3, 7, 11)
    for kind in ("power_loss", "restart")
    for controller in ("v1", "v2", "v3")
]
# All controllers begin anew, and two of them hear only of the third, and late: both may ask it for a vote.
TWO_CANDIDATES = sorted(
    fault
    for turn, (one, other) in enumerate((("v1", "v2"), ("v2", "v3"), ("v1", "v3"), ("v1", "v2")))
    for second in (1 + 3.5 * turn,)
    for fault in (
        *(at(second, "kill", voter) for voter in ("v1", "v2", "v3")),
        *(at(second, "slow_link", *pair, 300.0) for pair in permutations(("v1", "v2", "v3"), 2)),
        at(second + 0.01, "cut", one, other),
        *(at(second + 0.1, "restart", voter) for voter in ("v1", "v2", "v3")),
        at(second + 3.2, "heal", one, other),
    )
)
# Every broker in turn reaches its clients and nobody else: what it writes then is not replicated.
EVERY_BROKER_ALONE = [
    at(1 + 4 * turn + (0 if kind == "cut" else 3.9), kind, broker, other)
    for turn, broker in enumerate(("b101", "b102", "b103"))
    for kind in ("cut", "heal")
    for other in ("b101", "b102", "b103", "v1", "v2", "v3")
    if other != broker
]
# A member of the classic group does nothing for so long that another one gets its partitions.
A_MEMBER_SLEEPS = [at(2, "pause", "member2", 12 * SECOND), at(2, "pause", "member4", SECOND)]
# A member of the consumer group is away until the other one has everything, and then wants its part again.
A_MEMBER_COMES_BACK = [at(1, "kill", "member1"), at(8, "restart", "member1")]
# Meanwhile the other one can speak, but does not hear what it is told.
AND_THE_OTHER_IS_DEAF = [
    *A_MEMBER_COMES_BACK,
    *(at(8, "cut_one_way", broker, "member3") for broker in ("b101", "b102", "b103")),
    *(at(11.5, "heal", broker, "member3") for broker in ("b101", "b102", "b103")),
]
# The last leader loses its power, and is back before those who have what it lost.
THE_LAST_LEADER_CRASHES = [
    *(at(2, "leave", "b102"), at(2.3, "leave", "b103")),
    *(at(7, "power_loss", "b101"), at(7.2, "restart", "b101")),
]


@mutation(faults=A_VOTER_THAT_LAGS)
def every_log_is_good_enough_for_a_vote() -> None:
    """Voters do not ask whether a candidate has what is committed."""
    election.is_log_up_to_date = lambda *_: True


@mutation()
def one_of_three_is_a_majority() -> None:
    """Leaders are elected, and records committed, by too few."""
    VoterSet.majority = property(lambda self: max(1, len(self.voters) // 2))  # type: ignore[assignment]


@mutation(faults=TWO_CANDIDATES)
def a_vote_is_given_twice() -> None:
    """A voter gives its vote of an epoch to everybody who asks."""
    election._is_same_candidate = lambda *_: True


@mutation(faults=BLACKOUTS)
def controllers_do_not_wait_for_their_disks() -> None:
    """What a controller has written counts before it is safe from a power failure."""

    async def flush(_self: MetadataLog) -> None:
        pass

    MetadataLog.flush = flush  # type: ignore[method-assign]


@mutation(faults=BLACKOUTS)
def votes_are_not_stored() -> None:
    """A controller forgets epochs and votes when it ends."""

    async def persist(self: MetadataLog, state: Any, *_: Any) -> None:
        self.election_state = state

    MetadataLog.persist = persist  # type: ignore[method-assign]


# The controller


@mutation()
def a_fenced_broker_goes_on_leading() -> None:
    """Fencing changes nothing but the registration."""

    def fence(original: Any, situation: Any, broker_id: int) -> Consequences:
        found = original(situation, broker_id)
        found.records = found.records[-1:]
        return found

    wrapped(fencing, "fence", fence)
    from quorate.controller import heartbeats

    if hasattr(heartbeats, "fence"):
        heartbeats.fence = fencing.fence


@mutation()
def anybody_alive_may_lead() -> None:
    """Elections do not ask who is in sync."""

    def elect(_original: Any, self: Any) -> Any:
        elected = bulk_election._lowest(self.acceptable & ~self.leaving)
        return elected, np.zeros(len(elected), bool)

    wrapped(bulk_election._Ballot, "_elect", elect)


@mutation(faults=THE_LAST_LEADER_CRASHES)
def every_broker_claims_to_have_left_in_order() -> None:
    """A broker that comes back after a power loss is still counted on for what it lost."""

    fencing.clear_way = lambda *_, **__: Consequences()


# The broker


@mutation(faults=EVERY_BROKER_ALONE)
def what_is_written_is_committed() -> None:
    """The high watermark does not wait for followers."""

    def advance(self: Leadership, end_offset: int, *_: Any) -> bool:
        has_moved, self.high_watermark = (
            end_offset > self.high_watermark,
            max(self.high_watermark, end_offset),
        )
        return has_moved

    Leadership.advance = advance  # type: ignore[method-assign]


@mutation(faults=EVERY_BROKER_ALONE)
def producers_are_answered_at_once() -> None:
    """acks=all does not wait for anybody."""
    produce._not_committed = lambda _: []


@mutation(faults=EVERY_BROKER_ALONE)
def consumers_read_what_is_not_committed() -> None:
    """A leader gives consumers everything that it has."""
    partition.Partition.limit = lambda self, _isolation: self.log.end_offset  # type: ignore[method-assign]


@mutation()
def repetitions_are_appended_again() -> None:
    """A leader forgets what idempotent producers have sent."""
    producer_states.ProducerStates.check = lambda *_: None  # type: ignore[method-assign]
    producer_states.ProducerDraft.check = lambda *_: None  # type: ignore[attr-defined]


@mutation()
def every_replica_has_the_same_epoch() -> None:
    """A leader writes batches without the epoch in which it leads."""

    def append_produced(original: Any, self: Any, buffer: Any, header: Any, _epoch: int, wall_ms: int) -> Any:
        return original(self, buffer, header, 0, wall_ms)

    wrapped(PartitionLog, "append_produced", append_produced)


# The coordinator


@mutation(faults=EVERY_BROKER_ALONE)
def commits_are_answered_before_they_are_safe() -> None:
    """A coordinator answers as soon as it has written, before anybody else has it."""

    def flush(original: Any, self: Any) -> None:
        steps = [] if self._batch is None else list(self._batch.steps)
        for step in steps:
            self._answer(step.answers)
        original(self)

    wrapped(coordinators.Hosted, "_flush", flush)


@mutation()
def a_new_coordinator_knows_nothing() -> None:
    """Loading does not apply what is in the log."""
    coordinators_loading._apply = lambda *_: 0


@mutation(faults=A_MEMBER_SLEEPS)
def generations_are_not_counted() -> None:
    """A classic group begins anew with the number that it had."""
    name = next(name for name, one in vars(classic).items() if hasattr(one, "begin_generation"))
    owner = getattr(classic, name)

    def begin(original: Any, self: Any, wall_ms: int) -> None:
        before = self.generation
        original(self, wall_ms)
        self.generation = max(before, 1)

    wrapped(owner, "begin_generation", begin)


@mutation(faults=A_MEMBER_COMES_BACK)
def partitions_are_given_away_before_they_are_given_back() -> None:
    """A consumer group does not ask who still holds a partition."""
    consumer_steps._owners = lambda *_: lambda *_: None


@mutation(faults=AND_THE_OTHER_IS_DEAF)
def a_member_that_was_not_asked_has_given_back() -> None:
    """A consumer group takes partitions from a member without waiting until it says that it gave them up."""
    consumer_reconciliation._still_has = lambda *_: False
