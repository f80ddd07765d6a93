"""Assignors: everybody gets its share, and as little as possible moves."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from quorate.coordinator.assignors import ASSIGNORS, MemberSpec, assign_range, assign_uniform
from quorate.protocol.types import Uuid

TOPICS = [Uuid(bytes(15) + bytes([number])) for number in range(1, 7)]
T, U, V = TOPICS[:3]


def specs(**members: tuple[set[Uuid], dict[Uuid, set[int]]]) -> dict[str, MemberSpec]:
    return {
        member_id: MemberSpec(frozenset(topics), {topic: frozenset(held) for topic, held in current.items()})
        for member_id, (topics, current) in members.items()
    }


def sizes(assignment: dict[str, dict[Uuid, frozenset[int]]]) -> dict[str, int]:
    return {member_id: sum(map(len, topics.values())) for member_id, topics in assignment.items()}


# Uniform, where all want the same


def test_nobody_gets_nothing() -> None:
    assert {name: assign({}, {T: 3}) for name, assign in ASSIGNORS.items()} == {"uniform": {}, "range": {}}


def test_each_topic_is_spread_over_the_members() -> None:
    assignment = assign_uniform(specs(a=({T, U}, {}), b=({T, U}, {})), {T: 4, U: 4})
    for topics in assignment.values():
        assert {topic: len(partitions) for topic, partitions in topics.items()} == {T: 2, U: 2}


def test_a_newcomer_takes_only_its_share() -> None:
    members = specs(a=({T}, {T: {0, 1, 2}}), b=({T}, {T: {3, 4, 5}}), c=({T}, {}))
    assignment = assign_uniform(members, {T: 6})
    assert sizes(assignment) == {"a": 2, "b": 2, "c": 2}
    assert assignment["a"][T] < {0, 1, 2}
    assert assignment["b"][T] < {3, 4, 5}


def test_whoever_has_one_more_than_the_others_stays_with_it() -> None:
    members = specs(a=({T}, {T: {0}}), b=({T}, {T: {1, 2}}))
    assert assign_uniform(members, {T: 3}) == {"a": {T: {0}}, "b": {T: {1, 2}}}


def test_what_a_leaver_had_goes_to_those_who_have_less() -> None:
    members = specs(a=({T}, {T: {0, 1, 2}}), b=({T}, {T: {3}}))
    assert assign_uniform(members, {T: 6}) == {"a": {T: {0, 1, 2}}, "b": {T: {3, 4, 5}}}


def test_more_members_than_partitions() -> None:
    assignment = assign_uniform(specs(a=({T}, {}), b=({T}, {}), c=({T}, {})), {T: 2})
    assert sorted(sizes(assignment).values()) == [0, 1, 1]


def test_topics_that_do_not_exist_are_nobodys() -> None:
    members = specs(a=({T, V}, {V: {0}}))
    for assign in ASSIGNORS.values():
        assert assign(members, {T: 1}) == {"a": {T: {0}}}


def test_partitions_that_do_not_exist_and_claims_that_collide_are_dropped() -> None:
    members = specs(a=({T}, {T: {0, 1, 9}}), b=({T}, {T: {0, 1}}))
    assert sizes(assign_uniform(members, {T: 2})) == {"a": 1, "b": 1}


# Uniform, where members want different topics


def test_whoever_alone_wants_a_topic_gets_less_of_the_others() -> None:
    assignment = assign_uniform(specs(a=({T, U}, {}), b=({T}, {})), {T: 4, U: 4})
    assert assignment == {"a": {U: {0, 1, 2, 3}}, "b": {T: {0, 1, 2, 3}}}


def test_nobody_gets_what_it_does_not_want() -> None:
    members = specs(a=({T}, {U: {0, 1}}), b=({U}, {T: {0}}))
    assert assign_uniform(members, {T: 2, U: 2}) == {"a": {T: {0, 1}}, "b": {U: {0, 1}}}


def test_a_balanced_assignment_stays_as_it_is() -> None:
    members = specs(a=({T, U}, {T: {0}, U: {1}}), b=({T, U, V}, {T: {1}, U: {0}}), c=({V}, {V: {0, 1}}))
    assignment = assign_uniform(members, {T: 2, U: 2, V: 2})
    assert assignment == {member_id: dict(spec.current) for member_id, spec in members.items()}


# Range


def test_everybody_gets_a_run_and_the_first_get_the_rest() -> None:
    assignment = assign_range(specs(a=({T}, {}), b=({T}, {}), c=({T}, {})), {T: 7})
    assert assignment == {"a": {T: {0, 1, 2}}, "b": {T: {3, 4}}, "c": {T: {5, 6}}}


def test_topics_of_one_size_are_divided_alike() -> None:
    assignment = assign_range(specs(a=({T, U}, {}), b=({T, U}, {})), {T: 3, U: 3})
    assert all(topics[T] == topics[U] for topics in assignment.values())


def test_static_members_come_first_by_their_names() -> None:
    members = {
        "z": MemberSpec(frozenset({T}), {}, "i1"),
        "a": MemberSpec(frozenset({T}), {}, "i2"),
        "b": MemberSpec(frozenset({T}), {}),
    }
    assert assign_range(members, {T: 3}) == {"z": {T: {0}}, "a": {T: {1}}, "b": {T: {2}}}
    restarted = {"n": members["z"], "a": members["a"], "b": members["b"]}
    assert assign_range(restarted, {T: 3})["n"] == {T: {0}}


def test_only_subscribers_share_a_topic() -> None:
    assignment = assign_range(specs(a=({T}, {}), b=({T, U}, {}), c=({U}, {})), {T: 4, U: 4})
    assert assignment == {"a": {T: {0, 1}}, "b": {T: {2, 3}, U: {0, 1}}, "c": {U: {2, 3}}}


# Laws


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, MemberSpec], dict[Uuid, int]]:
    counts = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12), max_size=5))
    same = draw(st.booleans())
    subscription = st.frozensets(st.sampled_from(TOPICS), max_size=5)
    common = draw(subscription)
    current = st.dictionaries(
        st.sampled_from(TOPICS), st.frozensets(st.integers(0, 14), min_size=1, max_size=6)
    )
    members = {
        f"m{number}": MemberSpec(
            common if same else draw(subscription),
            draw(current),
            draw(st.sampled_from([None, None, f"i{9 - number}"])),
        )
        for number in range(draw(st.integers(1, 7)))
    }
    return members, counts


@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_that_somebody_wants_is_given_to_one_who_wants_it(
    group: tuple[dict[str, MemberSpec], dict[Uuid, int]], name: str
) -> None:
    members, counts = group
    assignment = ASSIGNORS[name](members, counts)
    assert assignment.keys() == members.keys()
    given_out = Counter(
        (topic_id, partition)
        for topics in assignment.values()
        for topic_id, partitions in topics.items()
        for partition in partitions
    )
    wanted = {topic_id for spec in members.values() for topic_id in spec.topic_ids} & counts.keys()
    assert set(given_out) == {(topic_id, p) for topic_id in wanted for p in range(counts[topic_id])}
    assert set(given_out.values()) <= {1}
    for member_id, topics in assignment.items():
        assert topics.keys() <= members[member_id].topic_ids
        assert all(topics.values()), "no topic without partitions"


@given(groups())
def test_uniform_is_balanced(group: tuple[dict[str, MemberSpec], dict[Uuid, int]]) -> None:
    """No partition could go to somebody who has at least two less."""
    members, counts = group
    assignment = assign_uniform(members, counts)
    size = sizes(assignment)
    for member_id, topics in assignment.items():
        for topic_id in topics:
            for other, spec in members.items():
                if topic_id in spec.topic_ids:
                    assert size[member_id] - size[other] < 2


@given(groups())
def test_uniform_does_not_move_what_is_balanced(group: tuple[dict[str, MemberSpec], dict[Uuid, int]]) -> None:
    members, counts = group
    first = assign_uniform(members, counts)
    settled = {
        member_id: MemberSpec(spec.topic_ids, first[member_id], spec.instance_id)
        for member_id, spec in members.items()
    }
    assert assign_uniform(settled, counts) == first


@given(groups())
def test_uniform_moves_no_more_than_it_must_when_all_want_the_same(
    group: tuple[dict[str, MemberSpec], dict[Uuid, int]],
) -> None:
    """Of a settled group one member goes: the others keep all that they had."""
    members, counts = group
    common = next(iter(members.values())).topic_ids
    members = {member_id: MemberSpec(common) for member_id in members}
    first = assign_uniform(members, counts)
    leaver = min(members)
    left = {member_id: MemberSpec(common, first[member_id]) for member_id in members if member_id != leaver}
    after = assign_uniform(left, counts)
    for member_id in left:
        for topic_id, partitions in first[member_id].items():
            assert partitions <= after[member_id][topic_id]


@given(groups())
def test_range_gives_runs(group: tuple[dict[str, MemberSpec], dict[Uuid, int]]) -> None:
    members, counts = group
    for topics in assign_range(members, counts).values():
        for partitions in topics.values():
            assert max(partitions) - min(partitions) + 1 == len(partitions)
