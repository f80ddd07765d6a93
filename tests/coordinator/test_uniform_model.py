"""The uniform assignor does what the plain one does, whatever members have and however they came to it."""

from hypothesis import given
from hypothesis import strategies as st
from uniform_model import assign_plainly

from quorate.coordinator.assignor_uniform import reassign_same
from quorate.coordinator.assignors import MemberSpec, assign_uniform
from quorate.coordinator.consumer_targets import Targets
from quorate.protocol.types import Uuid

TOPICS = [Uuid(bytes(15) + bytes([number])) for number in range(1, 5)]
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9), max_size=3)
held = st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(-1, 10), max_size=5), max_size=3)
names = st.text("abcdef", min_size=1, max_size=2)


@given(st.dictionaries(names, held, max_size=6), counts, st.frozensets(st.sampled_from(TOPICS), max_size=3))
def test_from_anything(
    current: dict[str, dict[Uuid, frozenset[int]]], sizes: dict[Uuid, int], wanted: frozenset[Uuid]
) -> None:
    members = {name: MemberSpec(wanted, one) for name, one in current.items()}
    assert assign_uniform(members, sizes) == assign_plainly(members, sizes)


@given(st.lists(st.tuples(names, st.booleans()), max_size=20), counts)
def test_step_by_step(steps: list[tuple[str, bool]], sizes: dict[Uuid, int]) -> None:
    """Members come and go, and each time the last assignment is what they have."""
    wanted = frozenset(TOPICS)
    members: dict[str, MemberSpec] = {}
    for name, comes in steps:
        if comes:
            members.setdefault(name, MemberSpec(wanted))
        else:
            members.pop(name, None)
        found = assign_uniform(members, sizes)
        assert found == assign_plainly(members, sizes)
        members = {one: MemberSpec(wanted, has) for one, has in found.items()}


def test_whoever_keeps_everything_keeps_it_as_it_is() -> None:
    (topic, *_) = TOPICS
    wanted = frozenset({topic})
    members = {name: MemberSpec(wanted) for name in "abc"}
    members = {name: MemberSpec(wanted, has) for name, has in assign_uniform(members, {topic: 6}).items()}
    again = assign_uniform(members, {topic: 6})
    assert all(again[name] is members[name].current for name in "abc")


@given(st.dictionaries(names, held, max_size=6), st.sets(names, max_size=3), counts)
def test_what_changes_is_all_that_changes(
    current: dict[str, dict[Uuid, frozenset[int]]], more: set[str], sizes: dict[Uuid, int]
) -> None:
    """Without looking at each member either the same is found, or nothing."""
    targets = _targets(current)
    ids = {*current, *more}
    changed = reassign_same(targets, ids, TOPICS, sizes)
    if changed is not None:
        members = {name: MemberSpec(frozenset(TOPICS), targets.get(name) or {}) for name in ids}
        assert {**targets.by_member, **changed} == assign_plainly(members, sizes)


@given(st.lists(st.tuples(names, st.booleans()), max_size=20), counts)
def test_what_changes_step_by_step(steps: list[tuple[str, bool]], sizes: dict[Uuid, int]) -> None:
    targets = _targets({})
    for name, comes in steps:
        if not comes:
            targets.drop(name)
            continue
        ids = {*targets.by_member, name}
        members = {one: MemberSpec(frozenset(TOPICS), targets.get(one) or {}) for one in ids}
        changed = reassign_same(targets, ids, TOPICS, sizes)
        assert changed is not None, "what it has left behind itself is never too difficult"
        assert {**targets.by_member, **changed} == assign_plainly(members, sizes)
        for one, has in changed.items():
            targets.put(one, has)


def test_somebody_who_is_gone_and_still_has_a_target_is_too_difficult() -> None:
    (topic, *_) = TOPICS
    targets = _targets({"gone": {topic: frozenset({0})}})
    assert reassign_same(targets, ["a"], [topic], {topic: 2}) is None


def _targets(current: dict[str, dict[Uuid, frozenset[int]]]) -> Targets:
    targets = Targets()
    for name, one in current.items():
        targets.put(name, {topic: partitions for topic, partitions in one.items() if partitions})
    return targets
