"""Static members of consumer groups: they come back under the same name."""

import pytest
from consumer_story import OK, ConsumerStory

from quorate.coordinator.consumer_members import MemberState
from quorate.coordinator.events import MemberFenced
from quorate.protocol.errors import ErrorCode


def test_a_static_member_that_will_be_back_keeps_everything_and_nobody_rebalances() -> None:
    story = ConsumerStory({"t": 4})
    a = story.member("a", instance="i").joins("t")
    b = story.member("b").joins("t")
    a.beats()
    a.gives_back()
    b.beats()
    had, epoch = a.has, story.state.epoch
    a.leaves(-2)
    assert (a.error, a.epoch) == (OK, -2)
    assert b.beats().told is None
    back = story.member("a2", instance="i").joins("t")
    assert (back.error, back.epoch, back.has) == (OK, epoch, had)
    assert story.state.epoch == epoch, "nothing to rebalance for"
    assert set(story.state.members) == {"a2", "b"}
    assert [event.fenced_member_id for event in story.events if isinstance(event, MemberFenced)] == ["a"]


def test_the_one_before_is_fenced() -> None:
    story = ConsumerStory({"t": 1})
    a = story.member("a", instance="i").joins("t")
    a.leaves(-2)
    story.member("b", instance="i").joins("t")
    a.epoch = 2
    assert a.beats().error is ErrorCode.FENCED_INSTANCE_ID
    assert a.leaves().error is ErrorCode.FENCED_INSTANCE_ID


def test_a_name_that_is_in_use_is_not_given_away() -> None:
    story = ConsumerStory({"t": 1})
    story.member("a", instance="i").joins("t")
    assert story.member("b", instance="i").joins("t").error is ErrorCode.UNRELEASED_INSTANCE_ID


def test_the_holder_itself_may_ask_again() -> None:
    story = ConsumerStory({"t": 1})
    a = story.member("a", instance="i").joins("t")
    a.joins("t")
    assert (a.error, a.has) == (OK, {"t": {0}})


def test_the_holder_may_come_back_with_the_same_id_after_leaving() -> None:
    story = ConsumerStory({"t": 1})
    a = story.member("a", instance="i").joins("t")
    a.leaves(-2)
    a.joins("t")
    assert (a.error, a.epoch, a.has) == (OK, 2, {"t": {0}})
    assert story.state.static == {"i": "a"}


@pytest.mark.parametrize("epoch", [1, -1, -2])
def test_a_name_that_nobody_has(epoch: int) -> None:
    story = ConsumerStory({"t": 1})
    story.member("a").joins("t")
    stranger = story.member("a", instance="i")
    assert stranger.sends(member_epoch=epoch).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_come_back_is_put_out_after_its_session() -> None:
    story = ConsumerStory({"t": 2})
    a, b = story.member("a", instance="i").joins("t"), story.member("b").joins("t")
    a.beats()
    a.gives_back()
    b.beats()
    a.leaves(-2)
    story.passes(44_000)
    b.beats()
    assert "a" in story.state.members
    story.passes(1_000)
    assert "a" not in story.state.members
    assert b.beats().has == {"t": {0, 1}}


def test_a_static_member_that_leaves_for_good_is_gone_at_once() -> None:
    story = ConsumerStory({"t": 2})
    a = story.member("a", instance="i").joins("t")
    a.leaves(-1)
    assert (story.state.members, story.state.static) == ({}, {})


def test_what_it_was_about_to_give_back_is_free_when_it_goes() -> None:
    story = ConsumerStory({"t": 2})
    a, b = story.member("a", instance="i").joins("t"), story.member("b").joins("t")
    a.beats()
    assert story.state.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    a.leaves(-2)
    assert len(b.beats().has["t"]) == 1
    story.passes(30_000)
    assert "a" in story.state.members, "nobody waits for it to give back any more"
    back = story.member("a2", instance="i").joins("t")
    assert len(back.has["t"]) == 1
    assert not back.has["t"] & b.has["t"]


def test_a_returning_member_may_want_something_else() -> None:
    story = ConsumerStory({"t": 2, "u": 1})
    a = story.member("a", instance="i").joins("t")
    a.leaves(-2)
    back = story.member("a2", instance="i").joins("u")
    assert (back.epoch, back.has) == (3, {"u": {0}})


def test_a_full_group_takes_its_own_static_members_back() -> None:
    story = ConsumerStory({"t": 1}, group_consumer_max_size=1)
    story.member("a", instance="i").joins("t").leaves(-2)
    assert story.member("b", instance="i").joins("t").error is OK
    assert story.member("c", instance="j").joins("t").error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_the_return_survives_a_failover() -> None:
    story = ConsumerStory({"t": 2})
    a = story.member("a", instance="i").joins("t")
    a.leaves(-2)
    story.fails_over()
    back = story.member("a2", instance="i").joins("t")
    assert (back.error, back.has) == (OK, {"t": {0, 1}})


def test_a_dynamic_member_may_take_a_name_later() -> None:
    story = ConsumerStory({"t": 1})
    a = story.member("a").joins("t")
    a.instance = "i"
    a.joins("t")
    assert (a.error, a.has, story.state.static) == (OK, {"t": {0}}, {"i": "a"})
