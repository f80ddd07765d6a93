"""The uniform assignor does what the plain one does, whatever members have and however they came to it."""

from hypothesis import given
from hypothesis import strategies as st
from uniform_model import assign_plainly

from quorate.coordinator.assignors import MemberSpec, assign_uniform
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
