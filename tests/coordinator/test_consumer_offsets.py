"""Offsets of consumer groups: who may commit and fetch them, and what protects them."""

from __future__ import annotations

from itertools import count

import pytest
from consumer_story import GROUP, OK, Consumer, ConsumerStory

from quorate.coordinator.effects import Caller
from quorate.protocol.api.groups import (
    DeleteGroupsRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from quorate.protocol.api.transactions import TxnOffsetCommitRequest
from quorate.protocol.errors import ErrorCode

STALE = ErrorCode.STALE_MEMBER_EPOCH


def commit(
    story: ConsumerStory, member_id: str, epoch: int, partition: int = 0, version: int = 9
) -> ErrorCode:
    topic = OffsetCommitRequest.Topic
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[
            topic(
                name="t",
                partitions=[
                    topic.Partition(partition_index=partition, committed_offset=5, committed_metadata="")
                ],
            )
        ],
    )
    response = story.asks(request, Caller(version, "client", "/10.0.0.1"))
    return ErrorCode(response.topics[0].partitions[0].error_code)


def commit_in_transaction(story: ConsumerStory, member_id: str, epoch: int) -> ErrorCode:
    topic = TxnOffsetCommitRequest.Topic
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=GROUP,
        producer_id=1,
        producer_epoch=0,
        generation_id=epoch,
        member_id=member_id,
        topics=[
            topic(
                name="t",
                partitions=[topic.Partition(partition_index=0, committed_offset=5, committed_metadata="")],
            )
        ],
    )
    response = story.asks(request, Caller(5, "client", "/10.0.0.1"))
    return ErrorCode(response.topics[0].partitions[0].error_code)


def fetch(story: ConsumerStory, member_id: str | None, epoch: int) -> ErrorCode:
    group = OffsetFetchRequest.Group(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=None)
    response = story.asks(OffsetFetchRequest(groups=[group]), Caller(9, "client", "/10.0.0.1"))
    return ErrorCode(response.groups[0].error_code)


def moved_on() -> tuple[ConsumerStory, Consumer]:
    """A member at epoch 3, which has had one partition since epoch 2 and got the other with epoch 3."""
    story = ConsumerStory({"t": 1})
    a = story.member("a").joins("t")
    story.has_topic("t", 2)
    assert a.beats().epoch == 3
    return story, a


def test_a_member_commits_at_its_epoch() -> None:
    story, _ = moved_on()
    assert commit(story, "a", 3) is OK


@pytest.mark.parametrize(
    ("member_id", "epoch", "partition", "code"),
    [
        ("a", 2, 0, OK),  # it has had this one since then, and has not heard of its new epoch
        ("a", 2, 1, STALE),  # this it got later
        ("a", 0, 0, STALE),
        ("a", -1, 0, STALE),
        ("a", 4, 0, STALE),
        ("b", 3, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 0, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_whoever_is_late_may_commit_what_was_its_own_all_along(
    member_id: str, epoch: int, partition: int, code: ErrorCode
) -> None:
    story, _ = moved_on()
    assert commit(story, member_id, epoch, partition) is code


def test_what_must_be_given_back_may_still_be_committed() -> None:
    story = ConsumerStory({"t": 2})
    a = story.member("a").joins("t")
    story.member("b").joins("t")
    a.beats()
    assert [commit(story, "a", 2, partition) for partition in (0, 1)] == [OK, OK]
    a.gives_back()
    (kept,) = a.has["t"]
    assert commit(story, "a", 2, kept) is OK
    assert commit(story, "a", 2, 1 - kept) is STALE


def test_a_version_that_knows_no_epochs_is_not_for_members() -> None:
    story, _ = moved_on()
    assert commit(story, "a", 3, version=8) is ErrorCode.UNSUPPORTED_VERSION


def test_an_empty_group_takes_the_offsets_of_anybody() -> None:
    story, a = moved_on()
    a.leaves()
    assert commit(story, "", -1) is OK
    assert commit(story, "a", 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_members_commit_by_their_generation() -> None:
    story = ConsumerStory({"t": 2})
    story.member("c").joins("t")
    classic = story.classic("a")
    classic.joins("t")
    assert commit(story, classic.id, classic.generation, version=5) is OK
    assert commit(story, classic.id, classic.generation + 1, version=5) is ErrorCode.ILLEGAL_GENERATION
    assert commit(story, classic.id, classic.generation - 1, version=5) is ErrorCode.ILLEGAL_GENERATION


def test_a_producer_need_not_be_a_member() -> None:
    story, _ = moved_on()
    assert commit_in_transaction(story, "", -1) is OK
    assert commit_in_transaction(story, "a", 3) is OK
    assert commit_in_transaction(story, "a", 7) is not OK
    assert commit_in_transaction(story, "b", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_whoever_says_who_it_is_must_be_it_to_fetch() -> None:
    story, _ = moved_on()
    assert fetch(story, None, -1) is OK
    assert fetch(story, "a", 3) is OK
    assert fetch(story, "a", 2) is STALE
    assert fetch(story, "b", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_topics_in_use_are_not_deleted() -> None:
    story, a = moved_on()
    commit(story, "a", 3)
    topic = OffsetDeleteRequest.Topic
    request = OffsetDeleteRequest(
        group_id=GROUP, topics=[topic(name="t", partitions=[topic.Partition(partition_index=0)])]
    )
    caller = Caller(0, "client", "/10.0.0.1")
    tickets = count(1000)

    def delete() -> ErrorCode:
        story.carry_out(story.shard.offset_delete(next(tickets), request, caller, story.moment))
        (answer,) = story.answered.values()
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    assert delete() is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    a.leaves()
    assert delete() is OK


def test_only_an_empty_group_is_deleted_and_then_nothing_of_it_is_left() -> None:
    story = ConsumerStory({"t": 1, "a1": 1})
    a = story.member("a", instance="i").joins("t", regex="a.*")
    story.passes(0)
    request, caller = DeleteGroupsRequest(groups_names=[GROUP]), Caller(2, "client", "/10.0.0.1")
    tickets = count(1000)

    def delete() -> ErrorCode:
        story.carry_out(story.shard.delete_groups(next(tickets), request, caller, story.moment))
        (answer,) = story.answered.values()
        return ErrorCode(answer.results[0].error_code)

    assert delete() is ErrorCode.NON_EMPTY_GROUP
    a.leaves()
    assert delete() is OK
    assert story.group is None
    last = dict(story.log)
    assert set(last.values()) == {None}, "the log keeps no record of it"


def test_groups_are_listed_by_state_and_type() -> None:
    story, _ = moved_on()

    def listed(**filters: list[str]) -> list[tuple[str, str, str, str]]:
        rows = story.shard.list_groups(ListGroupsRequest(**filters), Caller(5, "client", "/h"))
        return [(row.group_id, row.protocol_type, row.group_state, row.group_type) for row in rows]

    row = (GROUP, "consumer", "Stable", "consumer")
    assert listed() == [row]
    assert listed(types_filter=["Consumer"], states_filter=["stable"]) == [row]
    assert listed(types_filter=["classic"]) == []
    assert listed(states_filter=["Empty"]) == []
