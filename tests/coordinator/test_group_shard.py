"""One shard with groups of both protocols: which group a request belongs to, and groups that change over."""

from __future__ import annotations

from typing import Any

import pytest
from group_story import GROUP, OK, Groups, code_of, topic_id

from quorate.coordinator.consumer_protocol import ConsumerProtocolAssignment
from quorate.coordinator.effects import Caller
from quorate.protocol import codec
from quorate.protocol.api.groups import ConsumerGroupDescribeRequest, OffsetFetchRequest
from quorate.protocol.errors import ErrorCode

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def assignment(*partitions: int) -> bytes:
    """What a leader assigns, as consumers understand it."""
    topic = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=list(partitions))
    return b"\0\0" + bytes(codec.encode(ConsumerProtocolAssignment(assigned_partitions=[topic]), 0))


def with_topics() -> Groups:
    groups = Groups()
    groups.has_topics(t=4)
    return groups


def described(groups: Groups, group_id: str = GROUP) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    (one,) = groups.shard.consumer_group_describe(request, Caller(1, "admin", "/admin"))
    return one


class TestConsumerGroups:
    def test_a_member_joins_lives_and_leaves(self) -> None:
        groups = with_topics()
        joined = groups.hears("m").response
        assert joined.member_epoch == 2
        (assigned,) = joined.assignment.topic_partitions
        assert (assigned.topic_id, assigned.partitions) == (topic_id("t"), [0, 1, 2, 3])
        assert groups.hears("m", 2).code is OK
        assert groups.hears("m", -1).code is OK
        assert described(groups).group_state == "Empty"

    def test_silence_puts_a_member_out(self) -> None:
        groups = with_topics()
        groups.hears("m")
        groups.passes(45_000)
        assert groups.hears("m", 1).code is UNKNOWN

    def test_operators_see_each_kind_where_it_belongs(self) -> None:
        groups = with_topics()
        groups.hears("m", group_id="modern")
        groups.started("a")
        assert [(one.group_id, one.group_type, one.protocol_type) for one in groups.listed()] == [
            (GROUP, "classic", "consumer"),
            ("modern", "consumer", "consumer"),
        ]
        assert [one.group_id for one in groups.listed(types=["Consumer"])] == ["modern"]
        assert [one.group_id for one in groups.listed(types=["classic"])] == [GROUP]
        assert [one.group_id for one in groups.listed(states=["stable"])] == [GROUP, "modern"]
        assert groups.listed(states=["Dead"]) == []
        assert groups.described("modern").error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert described(groups, "modern").group_epoch == 2
        assert described(groups, GROUP).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    def test_who_asks_for_a_group_by_the_wrong_protocol_is_told_so(self) -> None:
        groups = with_topics()
        groups.hears("m", group_id="modern")
        groups.started("a")
        assert groups.described("modern").error_message == "Group modern is not a classic group."
        assert groups.described("nobody's").error_message == "Group nobody's not found."
        assert described(groups, GROUP).error_message == f"Group {GROUP} is not a consumer group."
        assert described(groups, "nobody's").error_message == "Group nobody's not found."

    def test_it_survives_another_coordinator(self) -> None:
        groups = with_topics()
        groups.hears("m")
        groups.fails_over()
        groups.has_topics(t=4)
        assert groups.hears("m", 2).code is OK
        assert [one.group_type for one in groups.listed()] == ["consumer"]

    def test_a_group_that_the_log_refuses_is_not_there(self) -> None:
        groups = with_topics()
        groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert groups.hears("m").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert groups.listed() == []

    def test_an_expiry_that_the_log_refuses_is_tried_again(self) -> None:
        groups = with_topics()
        groups.hears("m")
        groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        groups.passes(45_000)
        assert groups.refuses is None
        assert len(described(groups).members) == 1
        groups.passes(45_000)
        assert described(groups).members == []

    def test_a_topic_that_grows_is_assigned_anew(self) -> None:
        groups = with_topics()
        groups.hears("m")
        groups.has_topics(t=5)
        groups.passes(2_000)
        (assigned,) = groups.hears("m", 2).response.assignment.topic_partitions
        assert assigned.partitions == [0, 1, 2, 3, 4]

    def test_a_group_has_a_configuration(self) -> None:
        groups = with_topics()
        groups.shard.configure(GROUP, {"consumer.heartbeat.interval.ms": "7000"})
        assert groups.hears("m").response.heartbeat_interval_ms == 7_000


class TestOffsetsOfConsumerGroups:
    def test_a_member_commits_at_its_epoch(self) -> None:
        groups = with_topics()
        groups.hears("m")
        member = groups.consumer("m", member_id="m", generation=2)
        assert code_of(member.commits(5)) is OK
        assert groups.fetched() == (5, OK)
        assert code_of(member.commits(6, generation_id_or_member_epoch=3)) is ErrorCode.STALE_MEMBER_EPOCH
        assert code_of(member.commits(6, version=8)) is ErrorCode.UNSUPPORTED_VERSION
        assert code_of(groups.commits_offset(6, member_id="x")) is UNKNOWN

    def test_a_producer_commits_for_it(self) -> None:
        groups = with_topics()
        groups.hears("m")
        assert code_of(groups.commits_in_transaction(1, 5)) is OK
        stale = groups.commits_in_transaction(1, 5, member_id="m", generation_id=7)
        assert code_of(stale) is ErrorCode.ILLEGAL_GENERATION

    @pytest.mark.parametrize(
        ("member_id", "epoch", "code"),
        [(None, -1, OK), ("m", 2, OK), ("m", 7, ErrorCode.STALE_MEMBER_EPOCH), ("x", 1, UNKNOWN)],
    )
    def test_a_member_fetches_at_its_epoch(self, member_id: str | None, epoch: int, code: ErrorCode) -> None:
        groups = with_topics()
        groups.hears("m")
        group = OffsetFetchRequest.Group(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=None)
        request, caller, shard = OffsetFetchRequest(groups=[group]), Caller(9, "m", "/m"), groups.shard
        reply = groups.ask(9, lambda ticket, moment: shard.offset_fetch(ticket, request, caller, moment))
        assert reply.response.groups[0].error_code == code

    def test_topics_that_are_in_use_keep_theirs(self) -> None:
        groups = with_topics()
        groups.hears("m")
        member = groups.consumer("m", member_id="m", generation=2)
        member.commits(5, "t")
        member.commits(6, "u")
        assert code_of(groups.deletes_offsets("t", [0])) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert code_of(groups.deletes_offsets("u", [0])) is OK

    def test_only_an_empty_group_can_be_deleted(self) -> None:
        groups = with_topics()
        groups.hears("m")
        groups.consumer("m", member_id="m", generation=2).commits(5)
        assert groups.deletes(GROUP) == [ErrorCode.NON_EMPTY_GROUP]
        groups.hears("m", -1)
        assert groups.deletes(GROUP) == [OK]
        assert groups.listed() == []
        assert groups.fetched() == (-1, OK)
        assert groups.replayed().consumer_groups.get(GROUP) is None

    def test_offsets_and_groups_expire(self) -> None:
        groups = with_topics()
        groups.hears("m")
        groups.consumer("m", member_id="m", generation=2).commits(5)
        groups.hears("m", -1)
        groups.passes(8 * 86_400_000)
        assert groups.fetched() == (-1, OK)
        assert groups.listed() == []


class TestChangingOver:
    def test_a_classic_group_is_upgraded_while_it_works(self) -> None:
        groups = with_topics()
        a, b = groups.consumer("a"), groups.consumer("b")
        a.joins()
        b.joins()
        groups.passes(6_000)
        a.syncs({a: assignment(0, 1), b: assignment(2, 3)})
        b.syncs()
        a.commits(5)
        assert groups.hears("m").code is OK
        assert [one.group_type for one in groups.listed()] == ["consumer"]
        assert {one.member_id for one in described(groups).members} == {a.member_id, b.member_id, "m"}
        assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS
        assert a.joins().code is OK
        assert a.syncs().code is OK
        assert groups.fetched() == (5, OK)
        groups.fails_over()
        assert [one.group_type for one in groups.listed()] == ["consumer"]

    def test_whoever_waits_is_sent_back(self) -> None:
        groups = with_topics()
        (a,) = groups.started("a")
        a.syncs()
        a.joins()
        a.syncs({a: assignment(0)})
        waits = groups.consumer("b").joins()
        assert waits.waits
        assert groups.hears("m").code is OK
        assert waits.code is ErrorCode.REBALANCE_IN_PROGRESS
        assert groups.waiting == 0

    def test_an_upgrade_that_the_log_refuses_has_not_happened(self) -> None:
        groups = with_topics()
        a, b = groups.consumer("a"), groups.consumer("b")
        a.joins()
        b.joins()
        groups.passes(6_000)
        a.syncs({a: assignment(0, 1), b: assignment(2, 3)})
        b.syncs()
        groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert groups.hears("m").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert groups.state == "Stable"
        assert (a.beats(), b.beats()) == (OK, OK)
        groups.passes(9_999)
        assert a.beats() is OK
        groups.passes(1)
        assert b.beats() is UNKNOWN

    @pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
    def test_nor_while_the_group_rebalances(self, state: str) -> None:
        groups = with_topics()
        a, b = groups.consumer("a"), groups.consumer("b")
        a.joins()
        b.joins()
        groups.passes(6_000)
        if state == "PreparingRebalance":
            a.syncs({a: assignment(0, 1), b: assignment(2, 3)})
            b.syncs()
            a.joins()
        groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert groups.hears("m").code is not OK
        groups.refuses = None
        assert groups.state == state
        for _ in range(30):
            groups.passes(5_000)
        assert groups.state == "Empty"
        assert groups.waiting == 0

    def test_a_group_that_only_has_offsets(self) -> None:
        groups = with_topics()
        groups.commits_offset(5)
        groups.hears("m")
        assert [one.group_type for one in groups.listed()] == ["consumer"]
        assert groups.fetched() == (5, OK)

    def test_an_empty_consumer_group_makes_room(self) -> None:
        groups = with_topics()
        groups.hears("m")
        groups.consumer("m", member_id="m", generation=2).commits(5)
        groups.hears("m", -1)
        a = groups.consumer("a")
        a.joins()
        groups.passes(3_000)
        groups.settles(a)
        assert [one.group_type for one in groups.listed()] == ["classic"]
        assert groups.fetched() == (5, OK)
        groups.fails_over()
        assert [one.group_type for one in groups.listed()] == ["classic"]

    def test_but_not_for_somebody_who_may_not_join(self) -> None:
        groups = with_topics()
        groups.hears("m")
        groups.hears("m", -1)
        refused = groups.consumer("a", protocols=[]).joins()
        assert refused.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert [one.group_type for one in groups.listed()] == ["consumer"]

    def test_nor_if_the_log_refuses(self) -> None:
        groups = with_topics()
        groups.hears("m")
        groups.hears("m", -1)
        groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert groups.consumer("a").joins().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert [one.group_type for one in groups.listed()] == ["consumer"]

    def test_when_the_last_modern_member_goes_the_group_is_classic_again(self) -> None:
        groups = with_topics()
        (a,) = groups.started("a")
        a.joins()
        a.syncs({a: assignment(0, 1, 2, 3)})
        groups.hears("m")
        a.beats()
        a.joins()
        a.syncs()
        assert groups.hears("m", -1).code is OK
        assert [one.group_type for one in groups.listed()] == ["classic"]
        assert groups.state == "PreparingRebalance"
        assert a.joins().code is OK
        groups.settles(a)
        assert groups.state == "Stable"
        groups.fails_over()
        assert groups.state == "Stable"

    def test_a_downgrade_that_the_log_refuses_has_not_happened(self) -> None:
        groups = with_topics()
        (a,) = groups.started("a")
        a.joins()
        a.syncs({a: assignment(0, 1, 2, 3)})
        groups.hears("m")
        groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert groups.hears("m", -1).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert [one.group_type for one in groups.listed()] == ["consumer"]
        groups.passes(45_000)
        assert "m" not in {one.member_id for one in described(groups).members}

    def test_classic_members_of_a_consumer_group_leave(self) -> None:
        groups = with_topics()
        groups.hears("m")
        a = groups.consumer("a")
        a.joins()
        assert a.leaves().response.members[0].error_code == OK
        b = groups.consumer("b", join_version=3)
        b.joins()
        assert b.leaves(version=2).code is OK
        assert {one.member_id for one in described(groups).members} == {"m"}
