"""Members that come at the same time: see `coordinator.consumer_announcing`."""

from functools import partial
from typing import Any

import pytest
from consumer_story import OK, Consumer, ConsumerStory

from quorate.coordinator.consumer_events import GroupEpochBumped, TargetComputed
from quorate.protocol.errors import ErrorCode


def joins(members: list[Consumer], *names: str, **fields: Any) -> list[partial[Consumer]]:
    return [partial(member.joins, *names, **fields) for member in members]


def test_the_target_is_computed_once_for_all_that_come_together() -> None:
    story = ConsumerStory({"t": 12})
    first = story.member("a").joins("t")
    story.events.clear()
    others = [story.member(name) for name in "bcd"]
    assert story.join_together(joins(others, "t")) == [True, True, True]
    assert [one.error for one in others] == [OK] * 3
    assert {one.epoch for one in others} == {story.state.target_epoch} == {5}
    assert sum(isinstance(event, GroupEpochBumped) for event in story.events) == 3
    assert [event.members for event in story.events if isinstance(event, TargetComputed)] == [4]
    first.beats()
    first.gives_back()
    for one in others:
        one.beats()
    assert sorted(len(one.has["t"]) for one in (first, *others)) == [3, 3, 3, 3]
    assert story.state.phase == "Stable"
    assert story.replayed().members == story.state.members


def test_they_get_as_much_as_they_would_one_by_one() -> None:
    together, alone = ConsumerStory({"t": 7}), ConsumerStory({"t": 7})
    for story in (together, alone):
        story.member("a").joins("t")
    together.join_together(joins([together.member("b"), together.member("c")], "t"))
    for name in "bc":
        alone.member(name).joins("t")
    assert together.state.epoch == alone.state.epoch
    assert together.state.targets.by_size == alone.state.targets.by_size
    assert together.state.metadata_hash == alone.state.metadata_hash


def test_who_is_not_plainly_new_is_heard_at_once() -> None:
    story = ConsumerStory({"t": 4}, group_consumer_max_size=3)
    story.member("a").joins("t")
    known, static = story.member("a"), story.member("s", instance="i")
    by_expression, nothing = story.member("r"), story.member("n")
    found = story.join_together(
        [
            partial(known.joins, "t"),
            partial(static.joins, "t"),
            partial(by_expression.joins, regex="t.*"),
            partial(nothing.joins),
            partial(story.member("bad").joins, "t", server_assignor="nobody's"),
        ]
    )
    assert found == [False] * 5
    late = story.member("late")
    assert story.join_together(joins([late], "t")) == [False], "there is no room"
    assert late.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_the_first_of_a_group_is_heard_at_once() -> None:
    story = ConsumerStory({"t": 4})
    members = [story.member(name) for name in "ab"]
    assert story.join_together(joins(members, "t")) == [False, False]
    assert [one.error for one in members] == [OK, OK]


def test_nobody_is_there_who_was_announced_in_vain() -> None:
    story = ConsumerStory({"t": 4})
    story.member("a").joins("t")
    story.refuses = True
    b = story.member("b")
    story.join_together(joins([b], "t"))
    assert b.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert list(story.state.members) == ["a"]
    story.refuses = False
    assert b.joins("t").error is OK
    assert story.state.target_epoch == story.state.epoch


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_coordinator_that_takes_over_in_between(is_heard: bool) -> None:
    """Whoever was announced and never heard is a member that does not answer."""
    story = ConsumerStory({"t": 4})
    story.member("a").joins("t")
    b = story.member("b")
    story.announced = []
    b.joins("t")
    story.announced = None
    story.fails_over()
    if is_heard:
        assert b.joins("t").error is OK
    story.passes(46_000)
    assert set(story.state.members) == set()
