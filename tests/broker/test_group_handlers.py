"""Groups over the protocol: what coordinators must not see is sorted out, in every version."""

import asyncio
from unittest.mock import patch

import pytest

from broker.serving import BROKER_ID, Serving, in_loop, topic_id, turns
from quorate.broker.groups import ASSIGNMENT_INTERVAL, OFFSETS_TOPIC, Groups
from quorate.broker.handlers.group_admin import GroupAdministration
from quorate.broker.handlers.group_members import GroupMembers
from quorate.broker.handlers.group_offsets import GroupOffsets
from quorate.coordinator.group_places import place_hash
from quorate.coordinator.settings import GroupSettings
from quorate.metadata import records as r
from quorate.metadata.image import GROUP
from quorate.metadata.touched import Touched
from quorate.net.routes import RequestContext
from quorate.protocol.api.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from quorate.protocol.errors import ErrorCode
from quorate.protocol.frame import decode_request, encode_request

READ, DELETE, DESCRIBE = 3, 6, 8
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Coordinating(Serving):
    """A broker that coordinates all groups."""

    def __init__(self, directory, **settings):
        settings = {"group_initial_rebalance_delay_ms": 0, **settings}
        super().__init__(directory, groups=GroupSettings(**settings))
        self.groups = Groups(self.broker, lambda _: None)
        self.again = {}
        self.replicas.when_led = self.groups.led
        for one in (GroupMembers, GroupOffsets, GroupAdministration):
            for route in one(self.broker, self.groups).routes():
                self.handlers[route.request] = route.handler
                self.again[route.request] = route.again

    async def begin_to_coordinate(self, partitions=2):
        await self.topic(OFFSETS_TOPIC, partitions=partitions)
        await self.loaded()
        await self.topic("orders", partitions=3)

    async def known(self, request, version):
        """Whether the same would be answered again; None if that cannot be told."""
        answer = await self.ask(request, version)
        header, _ = decode_request(encode_request(request, version, 1, "test"), 4)
        context = RequestContext("PLAINTEXT", "127.0.0.1", 4711, "test")
        return self.again[type(request)](context, header, request, answer)

    async def loaded(self):
        while self.groups.shards.is_loading:
            await asyncio.sleep(0)

    async def join(self, group="g", member="", version=5, **more):
        return await self.ask(
            JoinGroupRequest(
                **{
                    "group_id": group,
                    "session_timeout_ms": 10_000,
                    "rebalance_timeout_ms": 10_000,
                    "member_id": member,
                    "protocol_type": "consumer",
                    "protocols": [JoinGroupRequest.Protocol(name="range", metadata=b"")],
                    **more,
                }
            ),
            version,
        )

    async def joined(self, group="g"):
        """A member of a stable group of one."""
        return await self.synced(await self.join(group, (await self.join(group)).member_id), group)

    async def synced(self, joined, group="g"):
        """It leads, and assigns everything to itself."""
        assert joined.error_code == ErrorCode.NONE
        synced = await self.ask(
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b"all")],
            ),
            3,
        )
        assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"all")
        return joined

    async def commit(self, *offsets, group="g", version=8, **more):
        request = OffsetCommitRequest.Topic
        return await self.ask(
            OffsetCommitRequest(
                group_id=group,
                topics=[
                    request(
                        name=name if version < 10 else "",
                        topic_id=topic_id(name),
                        partitions=[
                            request.Partition(
                                partition_index=partition, committed_offset=offset, committed_metadata=""
                            )
                        ],
                    )
                    for name, partition, offset in offsets
                ],
                **more,
            ),
            version,
        )

    async def fetch(self, *places, group="g", version=8):
        if version < 8:
            topics = None if not places else [_asked(OffsetFetchRequest.Topic, *one) for one in places]
            found = await self.ask(OffsetFetchRequest(group_id=group, topics=topics), version)
            assert found.error_code == ErrorCode.NONE
            return found.topics
        topics = [_asked(OffsetFetchRequest.Group.Topics, *one) for one in places] if places else None
        if version >= 10:
            for topic in topics or ():
                topic.topic_id, topic.name = topic_id(topic.name), ""
        asked = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=group, topics=topics)])
        (found,) = (await self.ask(asked, version)).groups
        assert found.error_code == ErrorCode.NONE
        return found.topics


def _asked(kind, name, partition):
    return kind(name=name, partition_indexes=[partition])


def errors(response, key=lambda topic: topic.name):
    """What was said of each partition."""
    return {
        (key(topic), one.partition_index): one.error_code
        for topic in response.topics
        for one in topic.partitions
    }


def offsets(topics, key=lambda topic: topic.name):
    return {
        (key(topic), one.partition_index): (one.committed_offset, one.error_code)
        for topic in topics
        for one in topic.partitions
    }


@pytest.fixture
def serving(tmp_path):
    return Coordinating(tmp_path)


@pytest.mark.parametrize("version", OffsetCommitRequest.__served__)
@in_loop
async def test_offsets_are_committed_as_far_as_their_partitions_exist(serving, version):
    await serving.begin_to_coordinate()
    found = await serving.commit(("orders", 0, 5), ("orders", 3, 6), ("nothing", 0, 7), version=version)
    if version < 10:
        assert errors(found) == {
            ("orders", 0): ErrorCode.NONE,
            ("orders", 3): UNKNOWN,
            ("nothing", 0): UNKNOWN,
        }
    else:
        assert errors(found, lambda topic: topic.topic_id) == {
            (topic_id("orders"), 0): ErrorCode.NONE,
            (topic_id("orders"), 3): UNKNOWN,
            (topic_id("nothing"), 0): ErrorCode.UNKNOWN_TOPIC_ID,
        }
    assert offsets(await serving.fetch()) == {("orders", 0): (5, 0)}


@pytest.mark.parametrize("version", OffsetFetchRequest.__served__)
@in_loop
async def test_offsets_are_fetched(serving, version):
    await serving.begin_to_coordinate()
    await serving.commit(("orders", 1, 5))
    found = await serving.fetch(("orders", 1), ("orders", 2), version=version)
    key = (lambda topic: topic.topic_id) if version >= 10 else (lambda topic: topic.name)
    name = topic_id("orders") if version >= 10 else "orders"
    assert offsets(found, key) == {(name, 1): (5, 0), (name, 2): (-1, 0)}
    if version >= 2:
        assert offsets(await serving.fetch(version=version), key) == {(name, 1): (5, 0)}


@pytest.mark.parametrize("version", [1, 2, 7])
@in_loop
async def test_what_is_wrong_with_a_group_is_said_of_each_partition_where_there_is_no_other_place(
    serving, version
):
    """Or else a group of which nothing may be told, or is known yet, seems to have committed nothing."""

    async def is_told(code):
        places = [("orders", 1), ("secret", 0), ("orders", 2)]
        topics = [_asked(OffsetFetchRequest.Topic, *one) for one in places]
        found = await serving.ask(OffsetFetchRequest(group_id="g", topics=topics), version)
        said = [
            (topic.name, one.partition_index, one.error_code)
            for topic in found.topics
            for one in topic.partitions
        ]
        if version >= 2:
            assert (found.error_code, said) == (code, [])
        else:
            assert said == [(*one, code) for one in places]
            assert {one.committed_offset for topic in found.topics for one in topic.partitions} == {-1}

    await is_told(ErrorCode.NOT_COORDINATOR)
    await serving.begin_to_coordinate(partitions=1)
    await serving.topic("secret")
    await serving.commit(("orders", 1, 5))
    serving.denied.add((DESCRIBE, "secret"))
    serving.denied.add((DESCRIBE, "g"))
    await is_told(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    serving.denied.remove((DESCRIBE, "g"))
    await serving.assign(OFFSETS_TOPIC, leader=2, leader_epoch=1, replicas=(BROKER_ID, 2))
    await is_told(ErrorCode.NOT_COORDINATOR)
    await serving.assign(OFFSETS_TOPIC, leader_epoch=2)
    assert serving.groups.shards.is_loading
    await is_told(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    await serving.loaded()


@in_loop
async def test_a_topic_that_has_no_such_id_has_no_offsets(serving):
    await serving.begin_to_coordinate()
    found = await serving.fetch(("nothing", 1), ("orders", 0), version=10)
    assert offsets(found, lambda topic: topic.topic_id) == {
        (topic_id("nothing"), 1): (-1, ErrorCode.UNKNOWN_TOPIC_ID),
        (topic_id("orders"), 0): (-1, 0),
    }


@in_loop
async def test_groups_of_several_coordinators_are_fetched_together(serving):
    await serving.begin_to_coordinate(partitions=7)
    groups = [f"group-{number}" for number in range(20)]
    for number, group in enumerate(groups):
        await serving.commit(("orders", 0, number), group=group)
    asked = [OffsetFetchRequest.Group(group_id=group, topics=None) for group in groups]
    found = await serving.ask(OffsetFetchRequest(groups=asked), 8)
    assert [one.group_id for one in found.groups] == groups
    assert [one.topics[0].partitions[0].committed_offset for one in found.groups] == list(range(20))


@in_loop
async def test_offsets_of_others_are_not_touched(serving):
    await serving.begin_to_coordinate()
    await serving.topic("secret")
    await serving.commit(("secret", 0, 1))
    serving.denied |= {(READ, "secret"), (DESCRIBE, "secret")}
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    found = await serving.commit(("orders", 0, 5), ("secret", 0, 6))
    assert errors(found) == {("orders", 0): ErrorCode.NONE, ("secret", 0): denied}
    assert offsets(await serving.fetch(("orders", 0), ("secret", 0))) == {
        ("orders", 0): (5, 0),
        ("secret", 0): (-1, denied),
    }
    assert offsets(await serving.fetch()) == {("orders", 0): (5, 0)}
    serving.denied |= {(READ, "g"), (DELETE, "g"), (DESCRIBE, "g")}
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert set(errors(await serving.commit(("orders", 0, 5))).values()) == {refused}
    asked = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id="g", topics=None)])
    assert (await serving.ask(asked, 8)).groups[0].error_code == refused
    assert (await serving.ask(OffsetDeleteRequest(group_id="g", topics=[]), 0)).error_code == refused
    assert (await serving.join()).error_code == refused
    (deleted,) = (await serving.ask(DeleteGroupsRequest(groups_names=["g"]), 2)).results
    assert deleted.error_code == refused
    (described,) = (await serving.ask(DescribeGroupsRequest(groups=["g"]), 5)).groups
    assert described.error_code == refused
    serving.denied |= {(DESCRIBE, "kafka-cluster")}
    assert (await serving.ask(ListGroupsRequest(), 5)).groups == []


class Counted(str):
    """A text that counts how often it is looked at."""

    looks = 0

    def lower(self):
        Counted.looks += 1
        return super().lower()


@in_loop
async def test_what_groups_are_asked_for_is_looked_at_once_for_all_coordinators(serving):
    await serving.begin_to_coordinate()
    assert len(list(serving.groups.shards.all_active())) > 1
    await serving.commit(("orders", 0, 5))
    context = RequestContext("PLAINTEXT", "127.0.0.1", 4711, "test")
    for states, count in (["EMPTY", "none"], 1), (["none", "of these"], 0):
        request = ListGroupsRequest(states_filter=states)
        header, request = decode_request(encode_request(request, 5, 1, "test"), 4)
        Counted.looks, request.states_filter = 0, list(map(Counted, states))
        assert len(serving.handlers[ListGroupsRequest](context, header, request).groups) == count
        assert Counted.looks == len(states)


@in_loop
async def test_offsets_are_deleted_with_their_topic(serving):
    await serving.begin_to_coordinate()
    await serving.topic("short")
    await serving.commit(("orders", 0, 5), ("short", 0, 6))
    serving.apply(r.RemoveTopicRecord(topic_id=topic_id("short")))
    serving.groups.follow(serving.image, Touched(topics_removed={topic_id("short"): "short"}))
    while offsets(await serving.fetch()) != {("orders", 0): (5, 0)}:
        await asyncio.sleep(0)


@in_loop
async def test_offsets_are_deleted(serving):
    await serving.begin_to_coordinate()
    await serving.commit(("orders", 0, 5), ("orders", 1, 6))
    topic = OffsetDeleteRequest.Topic
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            topic(name="orders", partitions=[topic.Partition(partition_index=0)]),
            topic(name="nothing", partitions=[topic.Partition(partition_index=0)]),
        ],
    )
    found = await serving.ask(request, 0)
    assert found.error_code == ErrorCode.NONE
    assert errors(found) == {("orders", 0): ErrorCode.NONE, ("nothing", 0): UNKNOWN}
    assert offsets(await serving.fetch()) == {("orders", 1): (6, 0)}


@in_loop
async def test_a_group_lives(serving):
    await serving.begin_to_coordinate()
    joined = await serving.joined()

    async def beat():
        request = HeartbeatRequest(
            group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
        )
        return (await serving.ask(request, 3)).error_code

    assert await beat() == ErrorCode.NONE
    (described,) = (await serving.ask(DescribeGroupsRequest(groups=["g"]), 5)).groups
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert [(one.client_id, one.client_host) for one in described.members] == [("test", "/127.0.0.1")]
    (listed,) = (await serving.ask(ListGroupsRequest(), 5)).groups
    assert (listed.group_id, listed.group_state, listed.group_type) == ("g", "Stable", "classic")
    (refused,) = (await serving.ask(DeleteGroupsRequest(groups_names=["g"]), 2)).results
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    left = await serving.ask(LeaveGroupRequest(group_id="g", member_id=joined.member_id), 2)
    assert left.error_code == ErrorCode.NONE
    assert await beat() == ErrorCode.UNKNOWN_MEMBER_ID
    (deleted,) = (await serving.ask(DeleteGroupsRequest(groups_names=["g"]), 2)).results
    assert deleted.error_code == ErrorCode.NONE
    assert (await serving.ask(ListGroupsRequest(), 5)).groups == []


async def comes(serving, member_id):
    """A member to a consumer group: by how many epochs is the target behind then?"""
    request = ConsumerGroupHeartbeatRequest(
        group_id="n",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    await serving.ask(request, 1)
    (group,) = serving.groups.of("n").shard.consumer_groups
    return group.state.epoch - group.state.target_epoch


@in_loop
async def test_how_often_groups_are_assigned_anew_is_set_while_they_are_coordinated(serving):
    await serving.begin_to_coordinate()
    assert [await comes(serving, "a"), await comes(serving, "b")] == [0, 1]
    serving.groups.set_assignment_interval(0)
    assert await comes(serving, "c") == 0


@in_loop
async def test_how_often_groups_are_assigned_anew_stays_within_the_bounds_of_the_file(tmp_path, caplog):
    serving = Coordinating(
        tmp_path, group_consumer_assignment_interval_ms=0, group_consumer_max_assignment_interval_ms=0
    )
    await serving.begin_to_coordinate()
    serving.groups.set_assignment_interval(86_400_000)
    assert [await comes(serving, "a"), await comes(serving, "b")] == [0, 0]
    assert [one.message for one in caplog.records if one.levelname == "WARNING"] == [
        f"config key={ASSIGNMENT_INTERVAL} value=86400000 is out of the bounds of this broker: it counts as 0"
    ]


def give(serving, group, **values):
    """The configuration of a group, or more of it."""
    for key, value in values.items():
        name = f"consumer.{key.replace('_', '.')}"
        record = r.ConfigRecord(resource_type=GROUP, resource_name=group, name=name, value=value)
        serving.image.apply(record, 0)


def told_of_bounds(caplog):
    told = [one.message for one in caplog.records if "bounds" in one.message]
    caplog.clear()
    return told


def does_not_fit(group, value):
    return (
        f"config group={group} key=consumer.session.timeout.ms value={value} does not fit the bounds of this"
        " broker: it counts as 60000"
    )


@in_loop
async def test_what_a_group_was_given_and_cannot_have_its_coordinator_tells_once(serving, caplog):
    await serving.begin_to_coordinate()
    give(serving, "g", session_timeout_ms="70000", heartbeat_interval_ms="6000")
    serving.groups.follow(serving.image, None)
    assert told_of_bounds(caplog) == [does_not_fit("g", 70000)]
    serving.groups.follow(serving.image, None)
    assert told_of_bounds(caplog) == []
    give(serving, "g", session_timeout_ms="80000")
    serving.groups.follow(serving.image, None)
    assert told_of_bounds(caplog) == [does_not_fit("g", 80000)]


@in_loop
async def test_what_a_group_was_given_and_cannot_have_is_told_of_by_nobody_else(serving, caplog):
    give(serving, "g", session_timeout_ms="70000")
    serving.groups.follow(serving.image, None)
    assert told_of_bounds(caplog) == []


@in_loop
async def test_whoever_begins_to_coordinate_tells_what_groups_cannot_have(serving, caplog):
    give(serving, "a", session_timeout_ms="70000")
    give(serving, "b", session_timeout_ms="80000")
    await serving.begin_to_coordinate(partitions=1)
    assert told_of_bounds(caplog) == [does_not_fit("a", 70000), does_not_fit("b", 80000)]


@in_loop
async def test_a_group_that_a_whole_new_image_says_nothing_of_has_no_configuration_any_more(serving):
    await serving.begin_to_coordinate()
    give(serving, "n", session_timeout_ms="50000", heartbeat_interval_ms="6000")
    serving.groups.follow(serving.image, None)

    async def interval_ms():
        return (await serving.ask(heartbeat("n", names=["orders"], owned=[]), 1)).heartbeat_interval_ms

    assert await interval_ms() == 6000
    give(serving, "n", session_timeout_ms=None, heartbeat_interval_ms=None)
    serving.groups.follow(serving.image, None)
    assert await interval_ms() == 5000


async def known_heartbeats(serving):
    """Of a classic member and of one of the consumer protocol: whether each is still taken as it was."""
    joined = await serving.joined()
    classic = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    new = ConsumerGroupHeartbeatRequest(
        group_id="n",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    new = ConsumerGroupHeartbeatRequest(
        group_id="n", member_id="m", member_epoch=(await serving.ask(new, 1)).member_epoch
    )
    return [await serving.known(classic, 4), await serving.known(new, 1)]


@in_loop
async def test_heartbeats_are_known_again_unless_their_answer_may_tell_to_be_quiet(serving):
    await serving.begin_to_coordinate()
    for again in await known_heartbeats(serving):
        assert again()
        serving.broker.quotas.request.is_set = True
        assert not again()
        serving.broker.quotas.request.is_set = False
        assert again()


@in_loop
async def test_no_heartbeat_is_known_by_whoever_coordinates_no_more_or_may_not_be_asked(serving):
    await serving.begin_to_coordinate()
    known = await known_heartbeats(serving)
    assert all(again() for again in known)
    with patch.object(type(serving.broker), "authorize", return_value=False):
        assert not any(again() for again in known)
    for hosted in list(serving.groups.shards):
        hosted.drop()
    assert not any(again() for again in known)


@in_loop
async def test_no_heartbeat_is_known_that_was_answered_otherwise(serving):
    await serving.begin_to_coordinate()
    joined = await serving.joined()
    request = HeartbeatRequest(group_id="g", generation_id=7, member_id=joined.member_id)
    assert (await serving.ask(request, 4)).error_code == ErrorCode.ILLEGAL_GENERATION
    assert await serving.known(request, 4) is None


@in_loop
async def test_what_may_be_done_to_a_group_is_told_on_request(serving):
    await serving.begin_to_coordinate()
    await serving.joined()
    request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    (described,) = (await serving.ask(request, 5)).groups
    assert described.authorized_operations == sum(1 << one for one in (3, 6, 8, 10, 11))


@in_loop
async def test_a_member_that_gives_others_no_time_to_come_back_holds_up_nobody(serving):
    await serving.begin_to_coordinate()
    await serving.synced(await serving.join(version=9, group_instance_id="i"))
    again = await serving.join(version=9, group_instance_id="i", rebalance_timeout_ms=0)
    assert (again.error_code, again.generation_id) == (ErrorCode.NONE, 1)
    passing = await serving.join(version=9)
    assert passing.error_code == ErrorCode.MEMBER_ID_REQUIRED
    leaving = LeaveGroupRequest.MemberIdentity(member_id=passing.member_id)
    await serving.ask(LeaveGroupRequest(group_id="g", members=[leaving]), 5)
    for _ in range(3):
        await asyncio.sleep(0.001)
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=again.member_id)
        assert (await serving.ask(beat, 3)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = await serving.join(version=9, member=again.member_id, group_instance_id="i")
    assert (rejoined.error_code, rejoined.generation_id) == (ErrorCode.NONE, 2)


@in_loop
async def test_a_group_survives_its_coordinator(serving):
    await serving.begin_to_coordinate(partitions=1)
    joined = await serving.joined()
    await serving.commit(
        ("orders", 2, 9),
        generation_id_or_member_epoch=joined.generation_id,
        member_id=joined.member_id,
    )
    await serving.assign(OFFSETS_TOPIC, leader=2, leader_epoch=1, replicas=(BROKER_ID, 2))
    request = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    assert (await serving.ask(request, 3)).error_code == ErrorCode.NOT_COORDINATOR
    await serving.assign(OFFSETS_TOPIC, leader_epoch=2)
    assert serving.groups.shards.is_loading
    assert (await serving.ask(request, 3)).error_code == ErrorCode.NONE  # it is not to rebalance for that
    assert (await serving.join()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await serving.ask(ListGroupsRequest(), 5)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await serving.loaded()
    assert (await serving.ask(request, 3)).error_code == ErrorCode.NONE
    assert offsets(await serving.fetch()) == {("orders", 2): (9, 0)}


async def asked_without_a_name(serving):
    """What each request to a group without a name is answered."""
    member = {"group_id": "", "generation_id": 1, "member_id": "m"}

    async def code(request, version):
        return (await serving.ask(request, version)).error_code

    def place(kind, **partition):
        return kind(name="orders", partitions=[kind.Partition(partition_index=0, **partition)])

    fetched = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id="", topics=None)])
    (described,) = (await serving.ask(DescribeGroupsRequest(groups=[""]), 6)).groups
    shown = ConsumerGroupDescribeRequest(group_ids=[""], include_authorized_operations=False)
    deletion = OffsetDeleteRequest(group_id="", topics=[place(OffsetDeleteRequest.Topic)])
    return {
        "JoinGroup": (await serving.join("")).error_code,
        "SyncGroup": await code(SyncGroupRequest(**member, assignments=[]), 3),
        "Heartbeat": await code(HeartbeatRequest(**member), 3),
        "LeaveGroup": await code(LeaveGroupRequest(group_id="", member_id="m"), 2),
        "ConsumerGroupHeartbeat": await code(heartbeat("", names=["orders"]), 1),
        "ConsumerGroupDescribe": (await serving.ask(shown, 1)).groups[0].error_code,
        "OffsetDelete": await code(deletion, 0),
        "OffsetCommit": errors(await serving.commit(("orders", 0, 5), group=""))["orders", 0],
        "OffsetFetch": (await serving.ask(fetched, 8)).groups[0].error_code,
        "DescribeGroups": described.error_code,
        "DeleteGroups": (await serving.ask(DeleteGroupsRequest(groups_names=[""]), 2)).results[0].error_code,
    }


@in_loop
async def test_a_group_without_a_name_has_no_members_but_may_have_offsets(serving):
    """Consumers of old need not have said a name, and what they have stored is described and deleted."""
    await serving.begin_to_coordinate()
    invalid, nothing = ErrorCode.INVALID_GROUP_ID, ErrorCode.NONE
    answers = {
        "JoinGroup": invalid,
        "SyncGroup": invalid,
        "Heartbeat": invalid,
        "LeaveGroup": invalid,
        "ConsumerGroupHeartbeat": ErrorCode.INVALID_REQUEST,
        "ConsumerGroupDescribe": invalid,
        "OffsetDelete": invalid,
        "OffsetCommit": nothing,
        "OffsetFetch": nothing,
        "DeleteGroups": nothing,
    }
    missing = ErrorCode.GROUP_ID_NOT_FOUND
    assert await asked_without_a_name(serving) == answers | {"DescribeGroups": missing}
    assert (await serving.ask(heartbeat("", names=["orders"]), 1)).error_message == "GroupId can't be empty."
    await serving.commit(("orders", 0, 5), group="")
    assert offsets(await serving.fetch(group="")) == {("orders", 0): (5, 0)}
    (described,) = (await serving.ask(DescribeGroupsRequest(groups=[""]), 6)).groups
    assert (described.error_code, described.group_id, described.group_state) == (nothing, "", "Empty")
    assert await asked_without_a_name(serving) == answers | {"DescribeGroups": nothing}
    assert offsets(await serving.fetch(group="")) == {}


def heartbeat(group, epoch=0, *, names=None, regex=None, owned=None):
    """Of the member `m`. Whoever comes says everything, and has nothing."""
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=-1 if epoch else 1000,
        subscribed_topic_names=names,
        subscribed_topic_regex=regex,
        topic_partitions=owned if epoch else [],
    )


async def assigned(serving, group, regex):
    """The topics that the member of a group has come to have, after all that is waited for."""
    for _ in range(5):
        found = await serving.ask(heartbeat(group, regex=regex), 1)
        assert found.error_code == ErrorCode.NONE
        serving.now_ms += 1000
        serving.wall_ms += 1000
        await turns()
    return {one.topic_id for one in found.assignment.topic_partitions}


async def described(serving, *groups):
    found = await serving.ask(
        ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=False), 1
    )
    return {one.group_id: (one.error_code, len(one.members)) for one in found.groups}


@in_loop
async def test_nobody_subscribes_to_a_topic_that_it_may_not_know_of(serving):
    await serving.begin_to_coordinate()
    await serving.topic("secret")
    serving.denied.add((DESCRIBE, "secret"))
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    both, one = ["orders", "secret"], ["orders"]
    assert (await serving.ask(heartbeat("n", names=both), 1)).error_code == denied
    assert await described(serving, "n") == {"n": (ErrorCode.GROUP_ID_NOT_FOUND, 0)}
    serving.denied.add((READ, "n"))
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert (await serving.ask(heartbeat("n", names=both), 1)).error_code == refused
    serving.denied.remove((READ, "n"))
    epoch = (await serving.ask(heartbeat("n", names=one), 1)).member_epoch
    assert epoch > 0
    assert (await serving.ask(heartbeat("n", epoch, names=both), 1)).error_code == denied
    assert (await serving.ask(heartbeat("n", epoch, names=one), 1)).error_code == ErrorCode.NONE


@in_loop
async def test_a_member_that_names_its_topics_is_asked_for_its_rights_each_time(serving):
    await serving.begin_to_coordinate()
    epoch = (await serving.ask(heartbeat("n", names=["orders"]), 1)).member_epoch
    names, quiet = heartbeat("n", epoch, names=["orders"]), heartbeat("n", epoch)
    assert await serving.known(names, 1) is None
    again = await serving.known(quiet, 1)
    assert again()
    serving.denied.add((DESCRIBE, "orders"))
    assert (await serving.ask(names, 1)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (await serving.ask(quiet, 1)).error_code == ErrorCode.NONE  # it names nothing
    assert again()


@in_loop
async def test_an_expression_matches_what_its_member_may_know_of(serving):
    await serving.begin_to_coordinate()
    await serving.topic("orders-secret")
    serving.groups.follow(serving.image, None)
    serving.denied.add((DESCRIBE, "orders-secret"))
    found = await serving.ask(heartbeat("n", regex="orders.*"), 1)
    assert found.error_code == ErrorCode.NONE
    assert await assigned(serving, "n", "orders.*") == {topic_id("orders")}
    serving.denied.clear()
    assert await assigned(serving, "n", "orders.*") == {topic_id("orders")}
    serving.wall_ms += 600_001  # expressions are looked up again
    assert await assigned(serving, "n", "orders.*") == {topic_id("orders"), topic_id("orders-secret")}


@in_loop
async def test_a_consumer_group_is_not_shown_with_topics_that_the_asker_may_not_know_of(serving):
    await serving.begin_to_coordinate()
    await serving.topic("secret")
    serving.groups.follow(serving.image, None)
    await serving.ask(heartbeat("open", names=["orders"]), 1)
    await serving.ask(heartbeat("closed", names=["orders", "secret"]), 1)
    seen = (ErrorCode.NONE, 1)
    assert await described(serving, "open", "closed") == {"open": seen, "closed": seen}
    serving.denied.add((DESCRIBE, "secret"))
    hidden = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)
    assert await described(serving, "open", "closed") == {"open": seen, "closed": hidden}


@in_loop
async def test_the_consumer_protocol_is_there_as_long_as_the_cluster_has_the_feature(serving):
    await serving.begin_to_coordinate()

    def level_is(level):
        serving.apply(r.FeatureLevelRecord(name="metadata.version", feature_level=30))
        serving.apply(r.FeatureLevelRecord(name="group.version", feature_level=level))
        serving.groups.follow(serving.image, Touched(features={"metadata.version", "group.version"}))

    level_is(1)
    again = await known_heartbeats(serving)
    assert [one() for one in again] == [True, True]
    level_is(0)
    assert [one() for one in again] == [True, False]
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    serving.denied.add((READ, "closed"))
    for group, epoch in (("n", 0), ("n", 1), ("new", 0), ("closed", 0), ("", 0)):
        asked = heartbeat(group, epoch, names=["orders"], owned=[])
        assert (await serving.ask(asked, 1)).error_code == unsupported
    assert await described(serving, "n", "g") == {"n": (unsupported, 0), "g": (unsupported, 0)}
    level_is(1)
    assert [one() for one in again] == [True, True]
    assert (await described(serving, "n"))["n"] == (ErrorCode.NONE, 1)


@in_loop
async def test_a_broker_may_do_without_the_consumer_protocol(tmp_path):
    serving = Coordinating(tmp_path, consumer_protocol=False)
    await serving.begin_to_coordinate()
    answer = await serving.ask(heartbeat("n", names=["orders"], owned=[]), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await serving.joined()).error_code == ErrorCode.NONE
    await serving.close()


@pytest.mark.parametrize(("length", "is_remembered"), [(1, True), (255, True), (256, False), (32_000, False)])
@in_loop
async def test_names_of_groups_are_remembered_unless_they_are_long(serving, length, is_remembered):
    await serving.begin_to_coordinate()
    group = "g" * length
    with patch("quorate.broker.groups.place_hash", wraps=place_hash) as hashing:
        assert {serving.groups.partition_of(group) for _ in range(3)} == {place_hash(group) % 2}
        assert (hashing.call_count == 1) == is_remembered
    hosted = serving.groups.of(group)
    assert serving.groups.of(group) is hosted
    assert (group in serving.groups.recent) == is_remembered
    joined = await serving.joined(group)
    request = HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    again = await serving.known(request, 4)
    assert again()
    assert again()
