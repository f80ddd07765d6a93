"""Subscriptions by regular expression, told as conversations."""

import pytest
from consumer_story import OK, ConsumerStory

from quorate.coordinator import consumer_expressions
from quorate.coordinator.consumer_expressions import REFRESH_MIN_INTERVAL_MS, resolve
from quorate.coordinator.consumer_group import Surroundings
from quorate.coordinator.deadlines import Deadlines
from quorate.coordinator.events import GroupAppendRefused
from quorate.coordinator.step import AGAIN_MIN_MS, Step
from quorate.coordinator.topic_matches import Allowance
from quorate.protocol.errors import ErrorCode


def test_an_expression_is_looked_up_a_moment_later_and_then_assigned() -> None:
    story = ConsumerStory({"a1": 1, "a2": 2, "b": 1})
    a = story.member("a").joins(regex="a.*")
    assert (a.error, a.epoch, a.told) == (OK, 1, {})
    story.passes(0)
    assert story.state.regexes["a.*"].topics == {"a1", "a2"}
    assert story.state.epoch == 2
    a.beats()
    assert (a.epoch, a.has) == (2, {"a1": {0}, "a2": {0, 1}})


def test_names_and_an_expression_together() -> None:
    story = ConsumerStory({"a1": 1, "b": 1, "c": 1})
    a = story.member("a").joins("b", regex="a.*")
    assert a.has == {"b": {0}}, "what has a name need not be looked up"
    story.passes(0)
    assert a.beats().has == {"a1": {0}, "b": {0}}


def test_an_expression_that_is_none() -> None:
    story = ConsumerStory({"t": 1})
    a = story.member("a").joins(regex="a(b")
    assert a.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert a.message is not None
    assert a.message.startswith(
        "SubscribedTopicRegex `a(b` is not a valid regular expression: missing closing )"
    )
    assert story.group is None


def test_new_topics_are_found_but_not_more_often_than_every_ten_seconds() -> None:
    story = ConsumerStory({"a1": 1})
    a = story.member("a").joins(regex="a.*")
    story.passes(0)
    a.beats()
    story.has_topic("a2", 1)
    story.passes(10_000)
    a.beats()
    story.passes(0)
    assert a.beats().has == {"a1": {0}}, "the last look was ten seconds ago, not more"
    story.passes(1)
    a.beats()
    story.passes(0)
    assert a.beats().has == {"a1": {0}, "a2": {0}}


def test_topics_that_do_not_match_are_no_reason_to_rebalance() -> None:
    story = ConsumerStory({"a1": 1})
    a = story.member("a").joins(regex="a.*")
    story.passes(0)
    a.beats()
    story.has_topic("b", 1)
    story.passes(10_001)
    a.beats()
    story.passes(0)
    assert a.beats().epoch == 2
    assert story.state.regexes["a.*"].version == story.topics_version


def test_a_look_every_ten_minutes_even_if_nothing_is_known_to_have_changed() -> None:
    story = ConsumerStory({"a1": 1})
    a = story.member("a").joins(regex="a.*")
    story.passes(0)
    a.beats()
    looked = story.state.regexes["a.*"].wall_ms
    for _ in range(20):
        story.passes(30_000)
        a.beats()
    story.passes(1)
    assert story.state.regexes["a.*"].wall_ms == looked
    a.beats()
    story.passes(0)
    assert story.state.regexes["a.*"].wall_ms > looked


def test_a_topic_that_matches_and_grows_is_noticed_at_once() -> None:
    story = ConsumerStory({"a1": 1})
    a = story.member("a").joins(regex="a.*")
    story.passes(0)
    a.beats()
    story.has_topic("a1", 2)
    assert a.beats().has == {"a1": {0, 1}}


def test_a_second_member_with_a_known_expression_is_assigned_at_once() -> None:
    story = ConsumerStory({"a1": 2})
    a = story.member("a").joins(regex="a.*")
    story.passes(0)
    a.beats()
    b = story.member("b").joins(regex="a.*")
    assert b.epoch == 3
    a.beats()
    a.gives_back()
    assert len(b.beats().has["a1"]) == 1


def test_an_expression_that_nobody_has_any_more_is_forgotten() -> None:
    story = ConsumerStory({"a1": 1, "b1": 1})
    a, b = story.member("a").joins(regex="a.*"), story.member("b").joins(regex="a.*")
    story.passes(0)
    a.leaves()
    assert set(story.state.regexes) == {"a.*"}
    b.leaves()
    assert story.state.regexes == {}
    assert story.replayed().regexes == {}


def test_changing_an_expression_takes_away_what_it_no_longer_matches() -> None:
    story = ConsumerStory({"a1": 1, "b1": 1})
    a = story.member("a").joins(regex="a.*")
    story.passes(0)
    a.beats()
    a.sends(subscribed_topic_regex="b.*")
    assert a.has == {}, "the new one is not looked up yet, and the old one is gone"
    assert set(story.state.regexes) == set()
    story.passes(10_001)
    a.gives_back()
    story.passes(0)
    a.gives_back()
    assert a.has == {"b1": {0}}


def test_an_empty_expression_ends_the_subscription() -> None:
    story = ConsumerStory({"a1": 1, "t": 1})
    a = story.member("a").joins("t", regex="a.*")
    story.passes(0)
    assert a.beats().has == {"a1": {0}, "t": {0}}
    a.sends(subscribed_topic_regex="")
    assert a.has == {"t": {0}}
    a.gives_back()
    assert a.epoch == story.state.epoch


def test_the_result_is_in_the_log() -> None:
    story = ConsumerStory({"a1": 1})
    a = story.member("a").joins(regex="a.*")
    story.passes(0)
    story.fails_over()
    assert a.beats().has == {"a1": {0}}


def test_a_look_that_was_about_to_happen_happens_after_a_failover() -> None:
    story = ConsumerStory({"a1": 1})
    a = story.member("a").joins(regex="a.*")
    story.fails_over()
    a.beats()
    story.passes(0)
    assert a.beats().has == {"a1": {0}}


def test_only_topics_that_the_member_may_know_of_match() -> None:
    story = ConsumerStory({"a1": 1, "a-not-for-joe": 1})
    a = story.member("a", client="joe").joins(regex="a.*")
    assert story.group is not None
    around = Surroundings(
        story.topics,
        may_describe=lambda caller, name: name != f"a-not-for-{caller.client_id}",
        matches=story.matches,
    )
    step = Step(story.settings, Deadlines(), story.moment)
    resolve(story.group, around, Allowance(1_000_000), step)
    story.carry_out(step.effects())
    assert a.beats().has == {"a1": {0}}


# In parts

MANY = {f"{letter}{number:02}": 1 for number in range(30) for letter in "ab"}


def test_many_topics_are_looked_up_in_parts_and_assigned_at_the_last() -> None:
    story = ConsumerStory(MANY)
    a = story.member("a").joins(regex="a.*")
    parts = 0
    while story.resolving:
        assert story.state.regexes == {}
        story.resolves(steps=5_000)
        parts += 1
    assert 10 < parts < 60
    assert len(a.beats().has) == 30


def test_a_part_is_one_name_at_least() -> None:
    story = ConsumerStory(MANY)
    a = story.member("a").joins(regex="a.*")
    for _ in range(len(MANY) + 30 + 1):
        if story.resolving:
            story.resolves(steps=1)
    assert len(a.beats().has) == 30


def test_the_member_who_asked_may_leave_in_between() -> None:
    story = ConsumerStory(MANY)
    a, b = story.member("a").joins(regex="a.*"), story.member("b").joins(regex="b.*")
    story.resolves(steps=20_000)
    a.leaves()
    story.passes(0)
    assert set(story.state.regexes) == {"b.*"}
    assert len(b.beats().has) == 30


def test_the_last_member_may_leave_in_between() -> None:
    story = ConsumerStory(MANY)
    a = story.member("a").joins(regex="a.*")
    story.resolves(steps=20_000)
    a.leaves()
    story.passes(0)
    assert story.state.regexes == {}
    assert story.resolving == []
    b = story.member("b").joins(regex="b.*")
    story.passes(0)
    assert len(b.beats().has) == 30


def test_topics_may_come_and_go_in_between() -> None:
    story = ConsumerStory(MANY)
    a = story.member("a").joins(regex="a.*")
    story.resolves(steps=20_000)
    story.loses_topic("a00")
    story.loses_topic("a29")
    story.has_topic("a-new", 1)
    story.has_topic("b-new", 1)
    story.passes(0)
    assert a.beats().has.keys() == {name for name in story.sizes if name.startswith("a")}


def test_another_expression_may_come_in_between() -> None:
    story = ConsumerStory(MANY)
    a = story.member("a").joins(regex="a.*")
    story.resolves(steps=20_000)
    a.sends(subscribed_topic_regex="b0.*")
    story.passes(0)
    assert set(story.state.regexes) == {"b0.*"}
    assert len(a.beats().has) == 10


def test_the_coordinator_may_go_in_between() -> None:
    story = ConsumerStory(MANY)
    a = story.member("a").joins(regex="a.*")
    story.resolves(steps=20_000)
    story.shard.unload()
    story.carry_out(story.shard.resolve("g", Allowance(1_000), story.moment))
    assert not story.shard.is_resolving("g")
    story.fails_over()
    a.beats()
    story.passes(0)
    assert len(a.beats().has) == 30


def test_what_is_too_much_for_any_log_is_not_written_but_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_expressions, "MATCHED_MAX", 29)
    story = ConsumerStory(MANY)
    a = story.member("a").joins(regex="a.*")
    story.passes(0)
    assert story.state.regexes == {}
    assert [one.error for one in story.events if isinstance(one, GroupAppendRefused)] == ["MESSAGE_TOO_LARGE"]
    a.beats()
    assert story.resolving == []
    story.passes(REFRESH_MIN_INTERVAL_MS)
    a.beats()
    assert story.resolving == ["g"]


def test_what_the_log_refuses_is_looked_up_again_but_not_at_once() -> None:
    story = ConsumerStory({"a1": 1})
    a = story.member("a").joins(regex="a.*")
    story.refuses = True
    story.passes(0)
    a.beats()
    assert story.resolving == []
    story.refuses = False
    story.passes(AGAIN_MIN_MS)
    a.beats()
    story.passes(0)
    assert a.beats().has == {"a1": {0}}
