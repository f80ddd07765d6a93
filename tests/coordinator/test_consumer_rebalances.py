"""When a rebalance of a consumer group ends, how long it took, and what set it off."""

import pytest
from consumer_story import GROUP, OK, ConsumerStory

from quorate.coordinator.consumer_events import ConsumerRebalanceEnded, GroupEpochBumped
from quorate.coordinator.consumer_rebalances import REMOVED_MAX
from quorate.protocol.errors import ErrorCode


def ended(story: ConsumerStory) -> list[ConsumerRebalanceEnded]:
    """What was told since the last time, of rebalances that ended."""
    found = [event for event in story.events if isinstance(event, ConsumerRebalanceEnded)]
    story.events.clear()
    return found


def bumps(story: ConsumerStory) -> list[GroupEpochBumped]:
    return [event for event in story.events if isinstance(event, GroupEpochBumped)]


def test_a_first_member_has_all_at_once() -> None:
    story = ConsumerStory({"t": 4})
    story.member("a").joins("t")
    assert ended(story) == [ConsumerRebalanceEnded(GROUP, 2, 1, 0, "a member joined")]


def test_it_has_ended_when_the_last_member_has_what_it_shall_have() -> None:
    story = ConsumerStory({"t": 4})
    a = story.member("a").joins("t")
    ended(story)
    story.passes(1_000)
    b = story.member("b").joins("t")
    story.passes(300)
    a.beats()
    story.passes(400)
    a.gives_back()
    assert ended(story) == []
    story.passes(120)
    b.beats()
    (event,) = ended(story)
    assert event == ConsumerRebalanceEnded(GROUP, 3, 2, 820, "a member joined")
    assert event.line() == (
        "Stabilized group g epoch 3 with 2 members duration_ms=820 trigger='a member joined'"
    )
    for member in (a, b):
        member.beats()
        member.gives_back()
    assert ended(story) == [], "nothing rebalances any more"


def test_epochs_on_the_way_are_part_of_it() -> None:
    story = ConsumerStory({"t": 4})
    a = story.member("a").joins("t")
    ended(story)
    b = story.member("b").joins("t")
    story.passes(1_000)
    c = story.member("c").joins("t")
    story.passes(500)
    for member in (a, b, c):
        member.beats()
        member.gives_back()
    b.beats()
    c.beats()
    assert [(one.epoch, one.members, one.duration_ms) for one in ended(story)] == [(4, 3, 1_500)]


def test_members_that_come_together_end_one_rebalance() -> None:
    story = ConsumerStory({"t": 4})
    members = [story.member(name) for name in "abc"]
    members[0].joins("t")
    ended(story)
    story.join_together([lambda one=one: one.joins("t") for one in members[1:]])
    story.passes(50)
    for member in members:
        member.beats()
        member.gives_back()
    for member in members:
        member.beats()
    assert [(one.epoch, one.members, one.duration_ms) for one in ended(story)] == [(4, 3, 50)]


def test_a_target_that_has_to_wait_is_waited_for() -> None:
    story = ConsumerStory({"t": 1, "u": 1}, group_consumer_assignment_interval_ms=1_000)
    a = story.member("a").joins("t")
    ended(story)
    a.wants("u")
    a.gives_back()
    assert ended(story) == [], "its epoch is that of the target, but the group's is another"
    story.passes(1_000)
    a.beats()
    a.gives_back()
    assert [(one.epoch, one.duration_ms) for one in ended(story)] == [(3, 1_000)]


def test_who_was_put_out_is_named() -> None:
    story = ConsumerStory({"t": 4})
    a = story.member("a", rebalance_ms=5_000).joins("t")
    b = story.member("b").joins("t")
    a.beats()  # and is told to give partitions back
    ended(story)
    story.passes(5_000)
    b.beats()
    (event,) = ended(story)
    assert (event.epoch, event.members, event.duration_ms) == (4, 1, 5_000)
    assert event.removed == ("a",)
    assert event.line().endswith(" duration_ms=5000 removed=a trigger='a member joined'")
    b.leaves()
    assert [one.removed for one in ended(story)] == [()], "whoever leaves was not put out"


def test_not_more_of_them_are_named_than_one_would_read() -> None:
    story = ConsumerStory({"t": 1})
    story.member("stays").joins("t")
    for number in range(REMOVED_MAX + 1):
        story.member(f"m{number}").joins("t")
    story.passes(44_000)
    story.member("stays").joins("t")
    story.passes(2_000)
    story.member("stays").joins("t")
    (event,) = ended(story)[-1:]
    assert (event.members, len(event.removed)) == (1, REMOVED_MAX)


@pytest.mark.parametrize("silent", [False, True])
def test_a_group_without_members_has_come_to_rest(silent: bool) -> None:
    story = ConsumerStory({"t": 4})
    a = story.member("a").joins("t")
    ended(story)
    if silent:
        story.passes(60_000)
    else:
        a.leaves()
    (event,) = ended(story)
    assert (event.epoch, event.members, event.duration_ms) == (3, 0, 0)
    assert event.removed == (("a",) if silent else ())
    assert event.line().startswith("Group g with epoch 3 is now empty duration_ms=0")


def test_when_it_began_is_not_known_to_another_coordinator() -> None:
    story = ConsumerStory({"t": 4})
    a = story.member("a").joins("t")
    b = story.member("b").joins("t")
    ended(story)
    story.fails_over()
    story.passes(1_000)
    a.beats()
    a.gives_back()
    c = story.member("c").joins("t")  # nor is it if the epoch goes up once more
    for member in (a, b, c, b, c):
        member.beats()
        member.gives_back()
    (event,) = ended(story)
    assert (event.epoch, event.duration_ms, event.trigger) == (4, None, "")
    assert event.line() == "Stabilized group g epoch 4 with 3 members duration_ms=unknown"
    c.leaves()
    story.passes(10)
    for member in (a, b, a, b):
        member.beats()
        member.gives_back()
    assert [one.duration_ms for one in ended(story)] == [10], "of the next one all is known"


def test_a_group_at_rest_is_at_rest_for_another_coordinator() -> None:
    story = ConsumerStory({"t": 4})
    a = story.member("a").joins("t")
    ended(story)
    story.fails_over()
    a.gives_back()
    a.beats()
    assert ended(story) == []


def test_a_static_member_that_goes_for_a_moment_sets_nothing_off() -> None:
    story = ConsumerStory({"t": 4})
    a = story.member("a", instance="i").joins("t")
    ended(story)
    a.leaves(-2)
    story.passes(1_000)
    story.member("a2", instance="i").joins("t")
    assert story.state.phase == "Stable"
    assert ended(story) == []


def test_a_rebalance_waits_for_a_static_member_that_is_away() -> None:
    story = ConsumerStory({"t": 4})
    a = story.member("a", instance="i").joins("t")
    ended(story)
    a.leaves(-2)
    b = story.member("b").joins("t")
    story.passes(1_000)
    b.beats()
    assert ended(story) == []
    story.member("a2", instance="i").joins("t")
    b.beats()
    assert [(one.epoch, one.members, one.duration_ms) for one in ended(story)] == [(3, 2, 1_000)]


def test_what_the_log_refused_is_no_beginning() -> None:
    story = ConsumerStory({"t": 4})
    a = story.member("a").joins("t")
    ended(story)
    story.refuses = True
    assert story.member("b").joins("t").error is not OK
    story.refuses = False
    story.passes(1_000)
    ended(story)
    b = story.member("b").joins("t")
    for member in (a, b):
        member.beats()
        member.gives_back()
    b.beats()
    assert [one.duration_ms for one in ended(story)] == [0]


def test_who_could_not_be_put_out_is_not_named() -> None:
    story = ConsumerStory({"t": 4})
    a = story.member("a", rebalance_ms=5_000).joins("t")
    b = story.member("b").joins("t")
    a.beats()
    story.refuses = True
    story.passes(5_000)
    story.refuses = False
    ended(story)
    a.gives_back()
    b.beats()
    (event,) = ended(story)
    assert (event.members, event.removed) == (2, ())


def test_an_end_that_the_log_refused_is_told_again() -> None:
    story = ConsumerStory({"t": 4})
    a = story.member("a").joins("t")
    b = story.member("b").joins("t")
    a.beats()
    a.gives_back()
    story.refuses = True
    assert b.beats().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    story.refuses = False
    ended(story)
    story.passes(700)
    b.beats()
    assert [one.duration_ms for one in ended(story)] == [700]


def test_classic_members_are_waited_for_too() -> None:
    story = ConsumerStory({"t": 4})
    a = story.member("a").joins("t")
    ended(story)
    classic = story.classic("c", eager=False)
    classic.joins("t")
    a.beats()
    a.gives_back()
    assert ended(story) == []
    story.passes(2_000)
    classic.joins("t")
    assert [(one.epoch, one.members, one.duration_ms) for one in ended(story)] == [(3, 2, 2_000)]


# What set it off


def test_topics_that_have_changed_are_named_and_no_member_is_blamed() -> None:
    story = ConsumerStory({"t": 1, "u": 1, "v": 1})
    a = story.member("a").joins("t", "u")
    story.events.clear()
    story.has_topic("v", 2)
    story.has_topic("u", 2)
    story.has_topic("t", 3)
    a.beats()
    (event,) = bumps(story)
    assert (event.topics, event.member_id, event.client_id, event.client_host) == (("t", "u"), "", "", "")
    assert event.line() == "Group g is at epoch 3: the topics have changed topics=t,u members=1"
    story.events.clear()
    story.has_topic("u", 3)
    a.beats()
    assert [one.topics for one in bumps(story)] == [("u",)]


def test_of_many_topics_only_the_first_are_named() -> None:
    names = [f"t{number:02}" for number in range(13)]
    story = ConsumerStory(dict.fromkeys(names, 1))
    a = story.member("a").joins(*names)
    story.events.clear()
    for name in names:
        story.has_topic(name, 2)
    a.beats()
    (event,) = bumps(story)
    assert (event.topics, event.more_topics) == (tuple(names[:10]), 3)
    assert event.line().endswith(",t08,t09 and 3 more members=1")


def test_topics_of_an_expression_are_named_too() -> None:
    story = ConsumerStory({"t": 1})
    a = story.member("a").joins(regex="t.*")
    story.passes(1)
    a.beats()
    story.events.clear()
    story.has_topic("t", 2)
    a.beats()
    assert [one.topics for one in bumps(story)] == [("t",)]


def test_what_changed_while_another_coordinated_is_not_known() -> None:
    story = ConsumerStory({"t": 1})
    a = story.member("a").joins("t")
    story.sizes["t"] = 2
    story.fails_over()
    story.events.clear()
    a.beats()
    (event,) = bumps(story)
    assert (event.trigger, event.topics) == ("the topics have changed", ())


def test_what_changed_is_still_known_after_the_log_refused() -> None:
    story = ConsumerStory({"t": 1, "u": 1})
    a = story.member("a").joins("t", "u")
    story.has_topic("t", 2)
    story.refuses = True
    a.beats()
    story.refuses = False
    story.has_topic("u", 2)
    story.events.clear()
    a.beats()
    assert [one.topics for one in bumps(story)] == [("t", "u")]


def test_a_member_that_joins_is_named_and_no_topics() -> None:
    story = ConsumerStory({"t": 1})
    story.member("a").joins("t")
    story.has_topic("t", 2)
    story.events.clear()
    story.member("b").joins("t")
    (event,) = bumps(story)
    assert (event.trigger, event.member_id, event.topics) == ("a member joined", "b", ())
