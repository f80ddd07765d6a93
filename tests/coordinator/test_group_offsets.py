"""Committing, fetching and deleting offsets, with and without transactions."""

from typing import Any

import pytest
from group_story import GROUP, OK, START_WALL_MS, Consumer, Groups, code_of, subscription

from quorate.coordinator.effects import Caller
from quorate.protocol.api.groups import OffsetCommitRequest, OffsetFetchRequest
from quorate.protocol.errors import ErrorCode

UNKNOWN, REBALANCING = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS


def in_state(state: str, **about: Any) -> Consumer:
    """A member of a group in a state, or one that was."""
    groups = Groups()
    member = groups.consumer("a", **about)
    member.joins()
    groups.passes(3_000)
    if state != "CompletingRebalance":
        member.syncs({member: b""})
    if state == "PreparingRebalance":
        groups.consumer("b").joins()
    if state == "Empty":
        member.leaves()
    assert groups.state == state
    return member


class TestCommit:
    @pytest.mark.parametrize(
        ("state", "of_member", "of_nobody"),
        [
            ("Empty", UNKNOWN, OK),
            ("PreparingRebalance", OK, UNKNOWN),
            ("CompletingRebalance", REBALANCING, UNKNOWN),
            ("Stable", OK, UNKNOWN),
        ],
    )
    def test_every_state(self, state: str, of_member: ErrorCode, of_nobody: ErrorCode) -> None:
        member = in_state(state)
        assert code_of(member.commits(5)) is of_member
        assert code_of(member.groups.commits_offset(6)) is of_nobody
        committed = 5 if of_member is OK else 6 if of_nobody is OK else -1
        assert member.groups.fetched() == (committed, OK)

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"generation_id_or_member_epoch": 9}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation_id_or_member_epoch": -1}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "x", "group_instance_id": None}, UNKNOWN),
            ({"member_id": "x", "group_instance_id": "i"}, ErrorCode.FENCED_INSTANCE_ID),
            ({"group_instance_id": "x"}, UNKNOWN),
        ],
    )
    def test_who_may_not(self, changes: dict[str, Any], code: ErrorCode) -> None:
        member = in_state("Stable", instance_id="i")
        assert code_of(member.commits(5, **changes)) is code
        assert member.groups.fetched() == (-1, OK)

    def test_a_group_without_members_begins_with_its_first_offset(self) -> None:
        groups = Groups()
        assert code_of(groups.commits_offset(5)) is OK
        assert groups.kinds_of_records() == ["OffsetCommit"]
        assert groups.state == "Empty"
        (listed,) = groups.listed()
        assert (listed.protocol_type, listed.group_type) == ("", "classic")

    @pytest.mark.parametrize(
        ("version", "code"), [(9, ErrorCode.GROUP_ID_NOT_FOUND), (8, ErrorCode.ILLEGAL_GENERATION)]
    )
    def test_a_generation_of_a_group_that_is_not_there(self, version: int, code: ErrorCode) -> None:
        groups = Groups()
        a = groups.consumer("a", member_id="x", generation=3)
        assert code_of(a.commits(5, version=version)) is code
        assert groups.listed() == []

    @pytest.mark.parametrize("version", range(2, 11))
    def test_every_version(self, version: int) -> None:
        groups = Groups()
        assert code_of(groups.commits_offset(5, version=version, member_id="")) is OK
        assert groups.fetched() == (5, OK)

    @pytest.mark.parametrize(
        ("metadata", "code"),
        [
            (None, OK),
            ("x" * 4096, OK),
            ("x" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
            ("é" * 4096, OK),  # characters are counted, not bytes
            ("𝄞" * 2048, OK),  # but as Java counts them
            ("𝄞" * 2049, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ],
    )
    def test_metadata_have_a_limit(self, metadata: str | None, code: ErrorCode) -> None:
        groups = Groups()
        assert code_of(groups.commits_offset(5, metadata=metadata)) is code

    def test_metadata_that_are_too_long_are_the_partitions_own_affair(self) -> None:
        groups = Groups()
        topics = OffsetCommitRequest.Topic
        request = OffsetCommitRequest(
            group_id=GROUP,
            topics=[
                topics(
                    name="t",
                    partitions=[
                        topics.Partition(
                            partition_index=index, committed_offset=index, committed_metadata="x" * size
                        )
                        for index, size in enumerate([5, 5000, 5])
                    ],
                )
            ],
        )
        caller = Caller(9, "a", "/a")
        shard = groups.shard
        reply = groups.ask(9, lambda ticket, moment: shard.offset_commit(ticket, request, caller, moment))
        codes = [partition.error_code for partition in reply.response.topics[0].partitions]
        assert codes == [OK, ErrorCode.OFFSET_METADATA_TOO_LARGE, OK]
        assert [groups.fetched(partition=index)[0] for index in range(3)] == [0, -1, 2]

    def test_what_the_log_refuses_was_not_committed(self) -> None:
        groups = Groups()
        groups.commits_offset(5)
        groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert code_of(groups.commits_offset(6)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert groups.fetched() == (5, OK)

    @pytest.mark.parametrize(
        ("storage", "told"),
        [
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
            (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ],
    )
    def test_what_errors_of_the_log_mean(self, storage: ErrorCode, told: ErrorCode) -> None:
        groups = Groups()
        groups.refuses = storage
        assert code_of(groups.commits_offset(6)) is told

    def test_what_is_written(self) -> None:
        groups = Groups()
        groups.commits_offset(5, metadata="m")
        groups.commits_offset(6, version=4, retention_time_ms=1000)
        first, second = (record.value for record in groups.records())
        assert first is not None
        assert second is not None
        assert (first.offset, first.leader_epoch, first.metadata) == (5, 4, "m")
        assert (first.commit_timestamp, first.expire_timestamp) == (START_WALL_MS + 1000, -1)
        assert second.expire_timestamp == START_WALL_MS + 2000
        versions = [
            int.from_bytes(logged.value or b"", "big") >> 8 * (len(logged.value or b"") - 2)
            for logged in groups.log
        ]
        assert versions == [3, 1]


class TestFetch:
    def test_what_was_never_committed(self) -> None:
        groups = Groups()
        (topic,) = groups.fetches({"t": [0]}).response.groups[0].topics
        (partition,) = topic.partitions
        assert (partition.committed_offset, partition.committed_leader_epoch) == (-1, -1)
        assert (partition.metadata, partition.error_code) == ("", OK)
        assert groups.fetches(None).response.groups[0].topics == []
        assert groups.listed() == []

    def test_all_topics(self) -> None:
        groups = Groups()
        for topic, partition, offset in [("t", 1, 5), ("u", 0, 6), ("t", 0, 7)]:
            groups.commits_offset(offset, topic, partition)
        topics = groups.fetches(None).response.groups[0].topics
        found = {
            (topic.name, one.partition_index): one.committed_offset
            for topic in topics
            for one in topic.partitions
        }
        assert found == {("t", 1): 5, ("u", 0): 6, ("t", 0): 7}

    @pytest.mark.parametrize("version", range(1, 11))
    def test_every_version(self, version: int) -> None:
        groups = Groups()
        groups.commits_offset(5, metadata="m")
        if version < 8:
            one = OffsetFetchRequest.Topic(name="t", partition_indexes=[0, 1])
            request = OffsetFetchRequest(group_id=GROUP, topics=[one])
        else:
            group = OffsetFetchRequest.Group
            named = group.Topics(name="t", partition_indexes=[0, 1])
            request = OffsetFetchRequest(groups=[group(group_id=GROUP, topics=[named])])
        caller = Caller(version, "a", "/a")
        shard = groups.shard
        reply = groups.ask(
            version, lambda ticket, moment: shard.offset_fetch(ticket, request, caller, moment)
        )
        topics = reply.response.topics if version < 8 else reply.response.groups[0].topics
        assert [(one.committed_offset, one.metadata) for one in topics[0].partitions] == [(5, "m"), (-1, "")]

    def test_before_v8_all_topics_are_none_named(self) -> None:
        groups = Groups()
        groups.commits_offset(5)
        request = OffsetFetchRequest(group_id=GROUP, topics=None)
        caller = Caller(7, "a", "/a")
        shard = groups.shard
        reply = groups.ask(7, lambda ticket, moment: shard.offset_fetch(ticket, request, caller, moment))
        assert [topic.name for topic in reply.response.topics] == ["t"]

    def test_many_groups_at_once(self) -> None:
        groups = Groups()
        groups.commits_offset(5, group_id="x")
        groups.commits_offset(6, group_id="y")
        group = OffsetFetchRequest.Group
        request = OffsetFetchRequest(groups=[group(group_id=one, topics=None) for one in ("x", "y", "z")])
        caller = Caller(8, "a", "/a")
        shard = groups.shard
        reply = groups.ask(8, lambda ticket, moment: shard.offset_fetch(ticket, request, caller, moment))
        found = [
            (one.group_id, [topic.partitions[0].committed_offset for topic in one.topics])
            for one in reply.response.groups
        ]
        assert found == [("x", [5]), ("y", [6]), ("z", [])]

    def test_nobody_sees_what_is_not_committed_to_the_log(self) -> None:
        groups = Groups()
        groups.commits = False
        groups.commits_offset(5)
        fetched = groups.fetches({"t": [0]})
        assert fetched.waits
        groups.is_committed()
        assert fetched.response.groups[0].topics[0].partitions[0].committed_offset == 5

    def test_a_fetch_that_waits_in_vain_must_look_elsewhere(self) -> None:
        groups = Groups()
        groups.commits = False
        groups.commits_offset(5)
        fetched = groups.fetches({"t": [0]})
        groups.times_out()
        assert fetched.response.groups[0].error_code == ErrorCode.NOT_COORDINATOR


class TestTransactions:
    def test_what_is_pending_is_not_there_yet(self) -> None:
        groups = Groups()
        groups.commits_offset(5)
        assert code_of(groups.commits_in_transaction(1, 9)) is OK
        assert groups.fetched() == (5, OK)
        assert groups.fetched(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert groups.fetched(partition=1, stable=True) == (-1, OK)
        groups.marks(1, "commit")
        assert groups.fetched(stable=True) == (9, OK)

    def test_what_is_aborted_was_never_there(self) -> None:
        groups = Groups()
        groups.commits_offset(5)
        groups.commits_in_transaction(1, 9)
        groups.marks(1, "abort")
        assert groups.fetched(stable=True) == (5, OK)

    def test_a_later_commit_stands_though_the_marker_comes_last(self) -> None:
        groups = Groups()
        groups.commits_in_transaction(1, 9)
        groups.commits_offset(5)
        groups.marks(1, "commit")
        assert groups.fetched() == (5, OK)

    def test_two_producers(self) -> None:
        groups = Groups()
        groups.commits_in_transaction(1, 9)
        groups.commits_in_transaction(2, 10)
        groups.marks(2, "commit")
        assert groups.fetched() == (10, OK)
        assert groups.fetched(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        groups.marks(1, "commit")
        assert groups.fetched(stable=True) == (10, OK)

    def test_a_marker_of_nobody(self) -> None:
        groups = Groups()
        groups.commits_in_transaction(1, 9)
        groups.marks(7, "commit")
        assert groups.fetched() == (-1, OK)

    def test_all_topics_says_what_is_unstable(self) -> None:
        groups = Groups()
        groups.commits_offset(5)
        groups.commits_in_transaction(1, 9)
        (topic,) = groups.fetches(None, stable=True).response.groups[0].topics
        assert topic.partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT

    def test_a_group_has_a_name(self) -> None:
        reply = Groups().commits_in_transaction(1, 9, group_id="")
        assert code_of(reply) is ErrorCode.INVALID_GROUP_ID

    @pytest.mark.parametrize("state", ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable"])
    def test_the_state_of_the_group_does_not_matter(self, state: str) -> None:
        member = in_state(state)
        assert code_of(member.groups.commits_in_transaction(1, 5)) is OK

    @pytest.mark.parametrize(
        ("about", "code"),
        [
            ({"generation_id": 7, "member_id": "a-id1"}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation_id": 1, "member_id": "x"}, UNKNOWN),
            ({"generation_id": 1, "member_id": "x", "group_instance_id": "y"}, UNKNOWN),
            ({"generation_id": 1, "member_id": "a-id1"}, OK),
            ({}, OK),
        ],
    )
    def test_members_are_checked_if_they_say_who_they_are(
        self, about: dict[str, Any], code: ErrorCode
    ) -> None:
        member = in_state("Stable")
        assert code_of(member.groups.commits_in_transaction(1, 5, **about)) is code

    def test_no_such_group(self) -> None:
        groups = Groups()
        assert code_of(groups.commits_in_transaction(1, 5, generation_id=3)) is ErrorCode.ILLEGAL_GENERATION
        assert code_of(groups.commits_in_transaction(1, 5)) is OK

    def test_metadata_have_a_limit(self) -> None:
        groups = Groups()
        refused = groups.commits_in_transaction(1, 5, metadata="x" * 5000)
        assert code_of(refused) is ErrorCode.OFFSET_METADATA_TOO_LARGE

    def test_it_survives_another_coordinator(self) -> None:
        groups = Groups()
        groups.commits_in_transaction(1, 9)
        groups.fails_over()
        assert groups.fetched(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        groups.marks(1, "commit")
        assert groups.fetched() == (9, OK)
        groups.fails_over()
        assert groups.fetched(stable=True) == (9, OK)


class TestDelete:
    def test_offsets_of_an_empty_group(self) -> None:
        groups = Groups()
        groups.commits_offset(5)
        groups.commits_offset(6, "t", 1)
        reply = groups.deletes_offsets("t", [0, 7])
        assert reply.code is OK
        assert [one.error_code for one in reply.response.topics[0].partitions] == [OK, OK]
        assert groups.fetched() == (-1, OK)
        assert groups.fetched(partition=1) == (6, OK)
        assert groups.kinds_of_records()[-1] == "OffsetCommit gone"
        assert len(groups.log) == 3  # nothing is written for what was not there

    def test_what_is_pending_is_deleted_too(self) -> None:
        groups = Groups()
        groups.commits_in_transaction(1, 9)
        groups.deletes_offsets("t", [0])
        groups.marks(1, "commit")
        assert groups.fetched(stable=True) == (-1, OK)

    def test_topics_that_are_in_use_keep_theirs(self) -> None:
        groups = Groups()
        (a,) = groups.started("a", protocols=[("range", subscription("t"))])
        a.commits(5)
        a.commits(6, "u")
        assert code_of(groups.deletes_offsets("t", [0])) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert code_of(groups.deletes_offsets("u", [0])) is OK
        assert groups.fetched() == (5, OK)
        assert groups.fetched("u") == (-1, OK)

    def test_a_subscription_that_cannot_be_read_may_be_to_anything(self) -> None:
        groups = Groups()
        groups.started("a", protocols=[("range", b"?")])
        assert code_of(groups.deletes_offsets("t", [0])) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC

    def test_other_kinds_of_groups_must_be_empty(self) -> None:
        groups = Groups()
        (worker,) = groups.started("a", protocol_type="connect")
        assert groups.deletes_offsets("t", [0]).code is ErrorCode.NON_EMPTY_GROUP
        worker.leaves()
        assert groups.deletes_offsets("t", [0]).code is OK

    def test_no_such_group(self) -> None:
        assert Groups().deletes_offsets("t", [0]).code is ErrorCode.GROUP_ID_NOT_FOUND


class TestDeletingGroups:
    def test_an_empty_group_goes_with_its_offsets(self) -> None:
        groups = Groups()
        (a,) = groups.started("a")
        a.commits(5)
        groups.commits_in_transaction(1, 9, "t", 1)
        a.leaves()
        before = len(groups.log)
        assert groups.deletes(GROUP) == [OK]
        gone = ["OffsetCommit gone", "OffsetCommit gone", "GroupMetadata gone"]
        assert groups.kinds_of_records(before) == gone
        assert groups.listed() == []
        groups.marks(1, "commit")
        assert groups.fetched("t", 1) == (-1, OK)
        groups.fails_over()
        assert groups.listed() == []

    def test_each_is_answered_by_itself(self) -> None:
        groups = Groups()
        groups.started("a")
        groups.commits_offset(5, group_id="simple")
        codes = groups.deletes(GROUP, "simple", "nobody", "simple")
        assert codes == [ErrorCode.NON_EMPTY_GROUP, OK, ErrorCode.GROUP_ID_NOT_FOUND]

    def test_what_the_log_refuses_was_not_deleted(self) -> None:
        groups = Groups()
        groups.commits_offset(5)
        groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert groups.deletes(GROUP, "nobody") == [
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ]
        assert groups.fetched() == (5, OK)
        assert groups.state == "Empty"

    def test_an_id_that_was_given_out_is_gone_with_its_group(self) -> None:
        groups = Groups()
        a = groups.consumer("a")
        a.member_id = a.asks_to_join().response.member_id
        assert groups.deletes(GROUP) == [OK]
        assert a.asks_to_join().code is UNKNOWN
        groups.passes(100_000)
        assert groups.listed() == []


class TestDeletedTopics:
    def test_their_offsets_go(self) -> None:
        groups = Groups()
        groups.commits_offset(5)
        groups.commits_offset(6, "u")
        groups.commits_offset(7, group_id="other")
        groups.deletes_topics("t")
        assert groups.fetched() == (-1, OK)
        assert groups.fetched("u") == (6, OK)
        assert groups.fetched(group_id="other") == (-1, OK)

    def test_also_what_is_pending(self) -> None:
        groups = Groups()
        groups.commits_in_transaction(1, 9)
        groups.deletes_topics("t")
        groups.marks(1, "commit")
        assert groups.fetched() == (-1, OK)

    def test_many_go_in_several_steps(self) -> None:
        groups = Groups()
        for partition in range(2_500):
            groups.commits_offset(1, "t", partition)
        groups.deletes_topics("t")
        assert len(groups.log) == 3_500
        groups.passes(100)
        assert len(groups.log) == 5_000
        assert groups.fetches(None).response.groups[0].topics == []

    def test_a_new_topic_of_the_same_name_keeps_its_offsets(self) -> None:
        groups = Groups()
        for partition in range(1_001):
            groups.commits_offset(1, "t", partition)
        groups.deletes_topics("t")
        groups.commits_offset(2, "t", 1_000)
        groups.passes(100)
        assert groups.fetched("t", 1_000) == (2, OK)

    def test_what_the_log_refuses_is_tried_again(self) -> None:
        groups = Groups()
        groups.commits_offset(5)
        groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        groups.deletes_topics("t")
        assert groups.fetched() == (5, OK)
        groups.passes(1_000)
        assert groups.fetched() == (-1, OK)

    def test_which_topics_there_are_offsets_for(self) -> None:
        groups = Groups()
        groups.commits_offset(5)
        groups.commits_offset(5, "u", group_id="other")
        assert groups.shard.topics_with_offsets() == {"t", "u"}
