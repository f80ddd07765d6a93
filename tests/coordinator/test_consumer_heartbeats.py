"""Joining, living in and leaving a consumer group, told as conversations."""

import pytest
from consumer_story import GROUP, OK, Consumer, ConsumerStory, topic_id

from quorate.coordinator import log_format
from quorate.coordinator.consumer_events import GroupEpochBumped, TargetComputed
from quorate.coordinator.consumer_members import MemberState
from quorate.coordinator.effects import Caller, LogRecord
from quorate.coordinator.events import MemberRemoved
from quorate.coordinator.group_records import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)
from quorate.protocol.api.groups import ConsumerGroupHeartbeatRequest
from quorate.protocol.errors import ErrorCode


def kinds(story: ConsumerStory) -> list[str]:
    """What the last step wrote: the key's type, and whether it is a tombstone."""
    return [f"{record.key.__key__}{'-' if record.value is None else ''}" for record in story.written]


# Joining


def test_the_first_member_creates_the_group_and_has_everything() -> None:
    story = ConsumerStory({"t": 4})
    a = story.member("a").joins("t")
    assert (a.error, a.epoch, a.has, a.interval_ms) == (OK, 2, {"t": {0, 1, 2, 3}}, 5000)
    assert kinds(story) == ["5", "3", "7", "6", "8"]
    assert story.state.phase == "Stable"


def test_a_second_member_gets_its_share_once_the_first_has_given_it_back() -> None:
    story = ConsumerStory({"t": 4})
    a, b = story.member("a"), story.member("b")
    a.joins("t")
    b.joins("t")
    assert (b.epoch, b.told) == (3, {}), "everything is still in the other's hands"
    assert story.state.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    a.beats()
    assert (a.epoch, len(a.has["t"])) == (2, 2), "told to give two back, at its old epoch"
    assert story.state.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    b.beats()
    assert b.told is None, "nothing new: not released yet"
    a.gives_back()
    assert (a.epoch, a.told) == (3, None), "it is at the new epoch; its partitions are what they were"
    b.beats()
    assert b.has["t"] | a.has["t"] == {0, 1, 2, 3}
    assert not b.has["t"] & a.has["t"]
    assert story.state.phase == "Stable"


def test_a_heartbeat_that_changes_nothing_writes_nothing_and_tells_nothing() -> None:
    story = ConsumerStory({"t": 4})
    a = story.member("a").joins("t")
    a.beats()
    assert (a.error, a.epoch, a.told, story.written) == (OK, 2, None, [])


def test_a_full_request_is_told_the_assignment_again() -> None:
    story = ConsumerStory({"t": 2})
    a = story.member("a").joins("t")
    a.repeats()
    assert a.told == {"t": {0, 1}}
    assert story.written == []


def test_version_0_is_given_an_id_if_it_brings_none() -> None:
    story = ConsumerStory({"t": 1})
    a = story.member("", version=0).joins("t")
    assert (a.error, a.id) == (OK, "id-1")
    b = story.member("own", version=0).joins("t")
    assert b.id == "own"


def test_a_member_without_any_topic_is_a_member() -> None:
    story = ConsumerStory({})
    a = story.member("a").joins("nowhere")
    assert (a.error, a.epoch, a.told) == (OK, 2, {})
    b = story.member("b").joins()
    assert (b.error, b.told) == (OK, {})


def test_the_host_and_the_client_are_noted_and_follow_the_member() -> None:
    story = ConsumerStory({"t": 1})
    a = story.member("a").joins("t")
    a.caller = Caller(1, "other", "/10.0.0.9")
    a.beats()
    assert kinds(story) == ["5"], "it is written down, and nobody has to rebalance"
    assert story.state.members["a"].client_host == "/10.0.0.9"


# Requests that are wrong


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"member_id": "  "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {
                "topic_partitions": [
                    ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id("t"), partitions=[0])
                ]
            },
            "TopicPartitions must be empty when (re-)joining.",
        ),
        ({"subscribed_topic_names": None}, "Either SubscribedTopicNames or SubscribedTopicRegex"),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_a_request_that_cannot_be_meant(fields: dict[str, object], message: str) -> None:
    story = ConsumerStory({"t": 1})
    good = {
        "member_id": "a",
        "rebalance_timeout_ms": 1,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    response = story.hears(Caller(1, "c", "/h"), **{**good, **fields})
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.error_message.startswith(message)
    assert (story.written, story.group) == ([], None)


@pytest.mark.parametrize("epoch", [5, -1])
def test_version_0_needs_an_id_too_once_it_has_one(epoch: int) -> None:
    story = ConsumerStory({"t": 1})
    response = story.hears(Caller(0, "c", "/h"), member_id="", member_epoch=epoch)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_an_assignor_that_does_not_exist() -> None:
    story = ConsumerStory({"t": 1})
    a = story.member("a").joins("t", server_assignor="sticky")
    assert a.error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert a.message is not None
    assert "uniform, range" in a.message


@pytest.mark.parametrize("epoch", [1, -1])
def test_a_group_that_does_not_exist(epoch: int) -> None:
    story = ConsumerStory({"t": 1})
    assert story.member("a").sends(member_epoch=epoch).error is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [1, -1])
def test_a_member_that_does_not_exist(epoch: int) -> None:
    story = ConsumerStory({"t": 1})
    story.member("a").joins("t")
    assert story.member("b").sends(member_epoch=epoch).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_is_full() -> None:
    story = ConsumerStory({"t": 4}, group_consumer_max_size=2)
    a = story.member("a").joins("t")
    story.member("b").joins("t")
    assert story.member("c").joins("t").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.beats().error is OK, "who is in has its place"
    assert story.member("b").joins("t").error is OK


def test_a_group_whose_members_say_too_much() -> None:
    long = "t" * 1000
    story = ConsumerStory({"t": 4}, group_metadata_max_bytes=5000)
    a = story.member("a").joins("t", long)
    b = story.member("b").joins("t", long)
    assert story.member("c").joins("t").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert b.sends(subscribed_topic_names=["t", long, long[1:]]).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.beats().error is OK, "who says no more than before has its place"
    assert story.member("b").joins("t", long).error is OK
    a.leaves()
    assert story.member("c").joins("t").error is OK


def test_classic_members_of_it_count_as_well() -> None:
    story = ConsumerStory({"t": 4}, group_metadata_max_bytes=5000)
    story.member("a").joins("t")
    refused = story.classic("b").joins("t" * 9000)
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert story.classic("b").joins("t").error_code == OK


# Epochs


def test_an_epoch_from_the_future_is_fenced() -> None:
    story = ConsumerStory({"t": 1})
    a = story.member("a").joins("t")
    assert a.sends(member_epoch=7).error is ErrorCode.FENCED_MEMBER_EPOCH


def two_stable_members(story: ConsumerStory) -> tuple[Consumer, Consumer]:
    a, b = story.member("a"), story.member("b")
    a.joins("t")
    b.joins("t")
    a.beats()
    a.gives_back()
    b.beats()
    return a, b


def test_a_lost_answer_is_told_again_to_whoever_still_has_only_its_own() -> None:
    story = ConsumerStory({"t": 4})
    a, b = story.member("a"), story.member("b")
    a.joins("t")
    b.joins("t")
    a.beats()
    a.gives_back(keep=True)
    assert (a.epoch, story.state.members["a"].epoch) == (2, 3), "the answer did not arrive"
    a.repeats()
    assert (a.error, a.epoch, a.told) == (OK, 3, a.has)


def test_the_epoch_before_is_fenced_if_it_comes_with_what_is_not_its_own() -> None:
    story = ConsumerStory({"t": 4})
    a, _ = two_stable_members(story)
    everything = a.listed({"t": {0, 1, 2, 3}})
    refused = story.hears(a.caller, member_id="a", member_epoch=2, topic_partitions=everything)
    assert refused.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    silent = story.hears(a.caller, member_id="a", member_epoch=2)
    assert silent.error_code == ErrorCode.FENCED_MEMBER_EPOCH, "nor if it does not say what it has"


def test_an_epoch_before_the_last_is_fenced() -> None:
    story = ConsumerStory({"t": 4, "u": 1})
    a = story.member("a").joins("t")
    a.wants("t", "u")
    a.wants("t")
    a.gives_back()
    assert a.epoch == 4
    assert a.sends(member_epoch=2, topic_partitions=[]).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_epoch_0_is_always_a_beginning() -> None:
    story = ConsumerStory({"t": 4})
    a, b = two_stable_members(story)
    had = a.has
    a.joins("t")
    assert (a.error, a.epoch, a.told) == (OK, 3, had), "it is told what it has"
    assert not story.written
    assert b.beats().told is None


def test_a_member_that_begins_again_in_the_middle_of_giving_back_has_given_back() -> None:
    story = ConsumerStory({"t": 4})
    a, b = story.member("a").joins("t"), story.member("b").joins("t")
    a.beats()
    a.joins("t")
    assert a.epoch == 3
    b.beats()
    assert len(b.has["t"]) == 2


# Subscriptions


def test_other_topics_are_a_reason_to_rebalance_and_the_same_are_not() -> None:
    story = ConsumerStory({"t": 2, "u": 2})
    a = story.member("a").joins("t")
    a.wants("u", "t")
    assert (a.epoch, a.has) == (3, {"t": {0, 1}, "u": {0, 1}})
    a.wants("t", "u")
    assert (a.epoch, story.written) == (3, [])


def test_a_topic_given_up_is_taken_away_before_the_next_target() -> None:
    """The target may be a while in coming; the member must not keep what it does not want."""
    story = ConsumerStory({"t": 2, "u": 2}, group_consumer_assignment_interval_ms=1000)
    a = story.member("a").joins("t", "u")
    a.wants("t")
    assert (a.epoch, a.has) == (2, {"t": {0, 1}})
    assert story.state.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    story.passes(1000)
    a.gives_back()
    assert (a.epoch, a.has) == (3, {"t": {0, 1}})


def test_targets_follow_each_other_at_an_interval() -> None:
    story = ConsumerStory({"t": 2}, group_consumer_assignment_interval_ms=1000)
    a, b = story.member("a").joins("t"), story.member("b").joins("t")
    assert (b.epoch, b.told, story.state.epoch, story.state.target_epoch) == (2, {}, 3, 2)
    assert story.state.phase == "Assigning"
    story.passes(999)
    assert a.beats().told is None
    story.passes(1)
    assert len(a.beats().has["t"]) == 1
    assert story.state.target_epoch == 3


def test_a_clock_that_goes_back_does_not_hold_targets_up() -> None:
    story = ConsumerStory({"t": 2}, group_consumer_assignment_interval_ms=1000)
    a = story.member("a").joins("t")
    story.now_ms -= 5_000
    story.member("b").joins("t")
    assert story.state.target_epoch == 3
    assert a.beats().error is OK


def test_the_assignor_that_most_members_name_is_used() -> None:
    story = ConsumerStory({"t": 2})
    story.member("a").joins("t", server_assignor="range")
    assert story.describe().assignor_name == "range"
    story.member("b").joins("t", server_assignor="uniform")
    story.member("c").joins("t", server_assignor="uniform")
    computed = [event for event in story.events if isinstance(event, TargetComputed)]
    assert [event.assignor for event in computed] == ["range", "range", "uniform"]


# Topics


def test_a_topic_that_grows_is_shared_out_at_the_next_heartbeat() -> None:
    story = ConsumerStory({"t": 1})
    a = story.member("a").joins("t")
    story.has_topic("t", 3)
    a.beats()
    assert (a.epoch, a.has) == (3, {"t": {0, 1, 2}})
    assert [event.trigger for event in story.events if isinstance(event, GroupEpochBumped)][-1] == (
        "the topics have changed"
    )


def test_a_topic_that_was_awaited_is_assigned_when_it_comes() -> None:
    story = ConsumerStory({})
    a = story.member("a").joins("t")
    story.has_topic("t", 2)
    assert a.beats().has == {"t": {0, 1}}


def test_a_deleted_topic_is_nobodys() -> None:
    story = ConsumerStory({"t": 2, "u": 1})
    a = story.member("a").joins("t", "u")
    story.loses_topic("u")
    a.beats()
    assert (a.epoch, a.has) == (2, {"t": {0, 1}}), "it has to give it back, though it is gone"
    assert a.gives_back().epoch == 3


def test_a_topic_made_anew_is_another_topic() -> None:
    story = ConsumerStory({"t": 2})
    a = story.member("a").joins("t")
    before = story.state.metadata_hash
    story.loses_topic("t")
    a.beats()
    story.has_topic("t", 2)
    assert story.state.metadata_hash != before
    a.gives_back()
    assert a.has == {"t": {0, 1}}
    assert story.state.metadata_hash == before, "the hash knows topics, not times"


def test_topics_that_nobody_wants_do_not_matter() -> None:
    story = ConsumerStory({"t": 2})
    a = story.member("a").joins("t")
    story.has_topic("other", 2)
    assert a.beats().epoch == 2


def test_what_was_found_while_the_log_refused_is_found_again() -> None:
    story = ConsumerStory({"t": 1})
    a = story.member("a").joins("t")
    story.has_topic("t", 2)
    story.refuses = True
    a.beats()
    story.refuses = False
    assert story.state.epoch == 2
    assert a.beats().has == {"t": {0, 1}}


def test_who_cannot_be_put_out_now_is_put_out_a_second_later() -> None:
    story = ConsumerStory({"t": 2})
    a, b = story.member("a"), story.member("b")
    a.rebalance_ms = 0
    a.joins("t")
    b.joins("t")
    a.beats()  # it has to give a partition back, and has no time for it
    story.refuses = True
    story.passes(900)
    story.refuses = False
    assert a.id in story.state.members
    story.passes(100)
    assert a.id not in story.state.members


def test_a_group_whose_first_records_are_refused_does_not_exist() -> None:
    story = ConsumerStory({"t": 1})
    story.refuses = True
    a = story.member("a").joins("t")
    assert a.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert story.group is None
    story.refuses = False
    assert a.joins("t").epoch == 2


# Leaving, and time


def test_what_a_member_had_is_free_when_it_leaves() -> None:
    story = ConsumerStory({"t": 4})
    a, b = two_stable_members(story)
    a.leaves()
    assert (a.error, a.epoch) == (OK, -1)
    assert kinds(story) == ["8-", "7-", "5-", "3"]
    b.beats()
    assert (b.epoch, b.has) == (4, {"t": {0, 1, 2, 3}})


def test_a_group_outlives_its_members() -> None:
    story = ConsumerStory({"t": 1})
    a = story.member("a").joins("t")
    a.leaves()
    assert (story.state.phase, story.state.epoch) == ("Empty", 3)
    assert a.joins("t").epoch == 4


def test_a_member_is_put_out_after_its_session_and_not_before() -> None:
    story = ConsumerStory({"t": 2})
    a, b = two_stable_members(story)
    story.passes(40_000)
    a.beats()
    story.passes(5_000)
    assert set(story.state.members) == {"a"}
    assert b.beats().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert a.beats().has == {"t": {0, 1}}
    removed = [event for event in story.events if isinstance(event, MemberRemoved)]
    assert [(event.member_id, event.check) for event in removed] == [("b", "missed its heartbeats")]


def test_a_member_that_does_not_give_back_in_time_is_put_out() -> None:
    story = ConsumerStory({"t": 2})
    a = story.member("a", rebalance_ms=10_000).joins("t")
    b = story.member("b").joins("t")
    a.beats()
    for _ in range(3):
        story.passes(3_000)
        a.beats()
        b.beats()
    story.passes(1_000)
    assert a.beats().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.beats().has == {"t": {0, 1}}


def test_a_member_that_gave_back_in_time_stays() -> None:
    story = ConsumerStory({"t": 2})
    a, b = story.member("a", rebalance_ms=10_000).joins("t"), story.member("b").joins("t")
    a.beats()
    story.passes(9_000)
    a.gives_back()
    b.beats()
    story.passes(9_000)
    assert (a.beats().error, b.beats().error) == (OK, OK)


def test_a_new_coordinator_gives_everybody_a_full_session_and_full_time_to_give_back() -> None:
    story = ConsumerStory({"t": 2})
    a, b = story.member("a", rebalance_ms=10_000).joins("t"), story.member("b").joins("t")
    a.beats()
    story.passes(8_000)
    story.fails_over()
    assert story.state.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    story.passes(8_000)
    assert a.gives_back().epoch == 3
    story.passes(36_000)
    assert set(story.state.members) == {"a", "b"}
    story.passes(1_000)
    assert set(story.state.members) == {"a"}, "b was last heard of by the coordinator before"
    assert b.beats().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_can_have_time_outs_of_its_own() -> None:
    story = ConsumerStory({"t": 1})
    story.configures(consumer_session_timeout_ms="60000", consumer_heartbeat_interval_ms="7000")
    a = story.member("a").joins("t")
    assert a.interval_ms == 7000
    story.passes(59_000)
    assert a.beats().error is OK
    story.configures()
    assert a.beats().interval_ms == 5000
    story.passes(45_000)
    assert story.state.is_empty


# Describing, and the log


def test_a_group_describes_itself() -> None:
    story = ConsumerStory({"t": 4})
    story.member("a", rack="r1").joins("t")
    story.member("b", instance="i").joins("t")
    story.member("a").sends(member_epoch=2)
    row = story.describe()
    assert (row.group_id, row.group_state, row.group_epoch, row.assignment_epoch) == (
        GROUP,
        "Reconciling",
        3,
        3,
    )
    assert row.assignor_name == "uniform"
    first, second = row.members
    assert (first.member_id, first.rack_id, first.member_epoch, first.member_type) == ("a", "r1", 2, 1)
    assert [entry.topic_name for entry in first.assignment.topic_partitions] == ["t"]
    assert first.assignment.topic_partitions[0].partitions == [0, 1, 2, 3], "with what it must give back"
    assert len(first.target_assignment.topic_partitions[0].partitions) == 2
    assert (second.instance_id, second.assignment.topic_partitions) == ("i", [])
    assert second.subscribed_topic_names == ["t"]


def test_a_group_that_is_not_there_is_described_so() -> None:
    row = ConsumerStory({}).describe()
    assert row.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_what_kafka_4_0_noted_of_the_topics_is_removed() -> None:
    story = ConsumerStory({"t": 1})
    a = story.member("a").joins("t")
    noted = LogRecord(
        ConsumerGroupPartitionMetadataKey(group_id=GROUP), ConsumerGroupPartitionMetadataValue(topics=[])
    )
    story.log.append(log_format.encode(noted))
    story.fails_over()
    a.beats()
    assert kinds(story) == ["4-"]
    a.beats()
    assert kinds(story) == []
