"""A controller and brokers that do what they are told, on a real ZooKeeper; kazoo reads what is written."""

import asyncio
import json

import pytest
from plane_town import Clerk, town_at
from sessions import DEADLINE_S, expire, kazoo_at, until

from quorate.controller.proposals import Proposal, TopicPartition
from quorate.node.zookeeper_metrics import ZooKeeperMetrics
from quorate.protocol.api.admin import IncrementalAlterConfigsRequest
from quorate.protocol.api.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import ZERO_UUID

pytestmark = pytest.mark.zookeeper


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 2 * DEADLINE_S))


def creation(name, partitions=1, replicas=1, assignments=None, **configs):
    topic = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(
        topics=[
            topic(
                name=name,
                num_partitions=-1 if assignments else partitions,
                replication_factor=-1 if assignments else replicas,
                assignments=[
                    topic.CreatableReplicaAssignment(partition_index=number, broker_ids=some)
                    for number, some in enumerate(assignments or ())
                ],
                configs=[
                    topic.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        ],
        timeout_ms=30_000,
        validate_only=False,
    )


def node(client, path):
    return json.loads(client.get(path)[0])


def test_a_topic_is_created_led_and_told_of(connect):
    async def story():
        async with town_at(connect, 1, 2, 3) as town:
            other = next(one for one in town.clerks if one != town.controller.plane.broker_id)
            response = await town.ask(creation("t", 4, 3, retention_ms="1000"), via=other)
            assert [one.error_code for one in response.topics] == [0]
            again = await town.ask(creation("t", 4, 3), via=other)
            assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            with kazoo_at(connect) as client:
                topic = node(client, "/brokers/topics/t")
                assert topic["version"] == 3
                assert topic["topic_id"] == str(response.topics[0].topic_id)
                assert sorted(topic["partitions"]) == ["0", "1", "2", "3"]
                assert node(client, "/config/topics/t") == {"version": 1, "config": {"retention.ms": "1000"}}
                state = node(client, "/brokers/topics/t/partitions/0/state")
                assert state == {
                    "version": 1,
                    "leader": topic["partitions"]["0"][0],
                    "leader_epoch": 0,
                    "controller_epoch": 1,
                    "isr": topic["partitions"]["0"],
                }
            for clerk in town.clerks.values():
                await until(lambda clerk=clerk: len(clerk.states) == 4 and len(clerk.metadata) == 4)
                assert all(one.is_new for one in clerk.states.values())

    run(story())


def test_leaders_move_from_a_broker_that_dies_and_come_back_to_it(connect):
    async def story():
        async with town_at(connect, 1, 2, 3) as town:
            await town.ask(creation("t", assignments=[[2, 3, 1], [3, 2, 1], [1, 2, 3]]))
            dead = next(one for one in (2, 3) if not town.clerks[one].plane.is_controller)
            other = 5 - dead
            clerk = town.clerks.pop(dead)
            await clerk.vanish()
            led = dead - 2
            await until(lambda: town.clerks[1].metadata["t", led].leader == other)
            state = town.context.states["t", led]
            assert dead not in state.isr
            assert state.leader_epoch == 1
            await until(lambda: all(dead not in one.isr for one in town.clerks[1].metadata.values()))
            assert dead in town.clerks[1].metadata["t", 2].offline_replicas
            await town.add(dead)
            back = town.clerks[dead]
            await until(lambda: len(back.states) == 3 and len(back.metadata) == 3)
            assert back.states["t", led].leader == other
            # It catches up: its leader proposes it, and then it may lead again.
            await _rejoin(town, "t", led, other, (dead, other, 1))
            response = await town.ask(
                ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=30_000)
            )
            assert response.error_code == 0
            assert town.context.states["t", led].leader == dead

    run(story())


async def _rejoin(town, topic, number, leader, isr):
    state = town.context.states[topic, number]
    key = TopicPartition(topic, town.context.topics[topic].id, number)
    proposal = Proposal(isr, state.leader_epoch, state.partition_epoch)
    answers = await town.clerks[leader].plane.propose([(key, proposal)])
    assert answers[key].error is ErrorCode.NONE
    assert set(answers[key].isr) == set(isr)
    return answers[key]


def test_proposals_are_granted_once_and_judged(connect):
    async def story():
        async with town_at(connect, 1, 2) as town:
            await town.ask(creation("t", assignments=[[1, 2]]))
            first = await _rejoin(town, "t", 0, 1, (1,))
            assert first.partition_epoch == 1
            again = await _rejoin(town, "t", 0, 1, (1,))  # it is so already
            assert again.partition_epoch == 1
            key = TopicPartition("t", town.context.topics["t"].id, 0)

            async def verdict(isr, leader_epoch=0, partition_epoch=1, number=0):
                asked = key._replace(partition_id=number)
                proposal = Proposal(isr, leader_epoch, partition_epoch)
                return (await town.clerks[1].plane.propose([(asked, proposal)]))[asked].error

            assert await verdict((1, 2), leader_epoch=1) is ErrorCode.NOT_CONTROLLER
            assert await verdict((1, 2), leader_epoch=-1) is ErrorCode.FENCED_LEADER_EPOCH
            assert await verdict((1, 2), partition_epoch=0) is ErrorCode.INVALID_UPDATE_VERSION
            assert await verdict((1, 2), number=7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            town.context.shutting_down.add(2)
            assert await verdict((1, 2)) is ErrorCode.INELIGIBLE_REPLICA
            town.context.shutting_down.discard(2)
            assert await verdict((1, 2)) is ErrorCode.NONE

    run(story())


def test_a_broker_that_asks_to_go_leads_nothing_when_it_goes(connect):
    async def story():
        async with town_at(connect, 1, 2, 3) as town:
            await town.ask(creation("t", assignments=[[1, 2, 3], [2, 3, 1], [3, 1, 2]]))
            controller = town.controller.plane.broker_id
            first = next(one for one in (1, 2, 3) if one != controller)
            for leaving in (first, controller):
                assert await town.clerks[leaving].plane.controlled_shutdown()
                for state in town.context.states.values():
                    assert state.leader != leaving
                    assert leaving not in state.isr
                await town.remove(leaving)
                await town.until_controlled()
            (last,) = town.clerks
            assert {one.leader for one in town.context.states.values()} == {last}
            assert not await town.clerks[last].plane.controlled_shutdown()  # there is nobody else

    run(story())


def test_topics_are_deleted_when_all_replicas_are(connect):
    async def story():
        async with town_at(connect, 1, 2) as town:
            await town.ask(creation("t", assignments=[[1, 2], [2, 1]]))
            town.clerks[2].cannot_delete = True
            request = DeleteTopicsRequest(
                topics=[DeleteTopicsRequest.DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=30_000
            )
            response = await town.ask(request)
            assert response.responses[0].error_code == 0
            await until(lambda: len(town.clerks[1].stopped) == 2 and len(town.clerks[2].stopped) == 2)
            assert all(one.delete_partition for one in town.clerks[1].stopped.values())
            assert not town.clerks[1].metadata
            assert "t" in town.context.topics  # one broker could not
            await town.remove(2)
            await town.add(2)
            with kazoo_at(connect) as client:
                await until(lambda: client.exists("/admin/delete_topics/t") is None)
                assert client.exists("/brokers/topics/t") is None
                assert client.exists("/config/topics/t") is None
            assert "t" not in (await town.until_controlled()).plane._terms.own.office.context.topics
            assert (await town.ask(creation("t"))).topics[0].error_code == 0

    run(story())


def test_partitions_are_added(connect):
    async def story():
        async with town_at(connect, 1, 2) as town:
            await town.ask(creation("t", 1, 2))
            topic = CreatePartitionsRequest.Topic(name="t", count=3, assignments=None)
            request = CreatePartitionsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
            response = await town.ask(request)
            assert response.results[0].error_code == 0
            await until(lambda: len(town.clerks[2].metadata) == 3)
            with kazoo_at(connect) as client:
                value = node(client, "/brokers/topics/t")
                assert sorted(value["partitions"]) == ["0", "1", "2"]
                # Tools of old times wrote the node themselves.
                value["partitions"]["3"] = [2, 1]
                client.set("/brokers/topics/t", json.dumps(value).encode())
            await until(lambda: ("t", 3) in town.clerks[1].metadata)
            assert town.clerks[1].metadata["t", 3].leader == 2

    run(story())


def test_a_partition_moves_and_a_move_is_taken_back(connect):
    async def story():
        async with town_at(connect, 1, 2, 3) as town:
            await town.ask(creation("t", assignments=[[1, 2], [1, 2]]))

            def moves(**targets):
                topic = AlterPartitionReassignmentsRequest.ReassignableTopic
                return AlterPartitionReassignmentsRequest(
                    timeout_ms=30_000,
                    topics=[
                        topic(
                            name="t",
                            partitions=[
                                topic.ReassignablePartition(partition_index=int(number[1:]), replicas=target)
                                for number, target in targets.items()
                            ],
                        )
                    ],
                )

            response = await town.ask(moves(p0=[3, 2], p1=[3]))
            assert [one.error_code for one in response.responses[0].partitions] == [0, 0]
            with kazoo_at(connect) as client:
                value = node(client, "/brokers/topics/t")
                assert value["partitions"]["0"] == [3, 2, 1]
                assert value["adding_replicas"] == {"0": [3], "1": [3]}
                assert value["removing_replicas"] == {"0": [1], "1": [1, 2]}
            listed = await town.ask(ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None))
            assert [one.partition_index for one in listed.topics[0].partitions] == [0, 1]
            await until(lambda: ("t", 0) in town.clerks[3].states)
            assert town.clerks[3].states["t", 0].is_new
            await _rejoin(town, "t", 0, 1, (1, 2, 3))
            await until(lambda: ("t", 0) not in town.context.moving)
            assert town.context.states["t", 0].leader == 3
            assert set(town.context.states["t", 0].isr) == {2, 3}
            await until(lambda: ("t", 0) in town.clerks[1].stopped)
            assert town.clerks[1].stopped["t", 0].delete_partition
            response = await town.ask(moves(p1=None))
            assert response.responses[0].partitions[0].error_code == 0
            with kazoo_at(connect) as client:
                value = node(client, "/brokers/topics/t")
                assert value["partitions"] == {"0": [3, 2], "1": [1, 2]}
                assert value["adding_replicas"] == value["removing_replicas"] == {}
            response = await town.ask(moves(p1=None))
            verdict = response.responses[0].partitions[0].error_code
            assert verdict == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    run(story())


def test_configurations_reach_all_brokers(connect):
    async def story():
        async with town_at(connect, 1, 2) as town:
            await town.ask(creation("t"))
            for clerk in town.clerks.values():
                clerk.image.topics.add("t", town.context.topics["t"].id)  # it would be told by UpdateMetadata
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource
            request = IncrementalAlterConfigsRequest(
                resources=[
                    resource(
                        resource_type=2,
                        resource_name="t",
                        configs=[
                            resource.AlterableConfig(name="retention.ms", config_operation=0, value="5000")
                        ],
                    )
                ],
                validate_only=False,
            )
            for via in (1, 2):
                response = await town.ask(request, via=via)
                assert response.responses[0].error_code == 0
            for clerk in town.clerks.values():
                await until(lambda clerk=clerk: clerk.image.configs.get((2, "t")) == {"retention.ms": "5000"})
            with kazoo_at(connect) as client:
                assert client.get_children("/config/changes")
                client.set("/config/topics/t", b'{"version":1,"config":{}}')
                client.create(
                    "/config/changes/config_change_",
                    b'{"version":1,"entity_type":"topics","entity_name":"t"}',
                    sequence=True,
                )
            for clerk in town.clerks.values():
                await until(lambda clerk=clerk: (2, "t") not in clerk.image.configs)

    run(story())


def test_producer_ids_are_given_once(connect):
    async def story():
        async with town_at(connect, 1, 2) as town:
            blocks = [await town.clerks[1 + turn % 2].plane.allocate_producer_ids() for turn in range(4)]
            assert sorted(one.start for one in blocks) == [0, 1000, 2000, 3000]
            with kazoo_at(connect) as client:
                assert node(client, "/latest_producer_id_block") == {
                    "version": 1,
                    "broker": 2,
                    "block_start": "3000",
                    "block_end": "3999",
                }

    run(story())


def test_a_request_that_was_passed_on_is_not_passed_on_again(connect):
    async def story():
        async with town_at(connect, 1, 2) as town:
            other = next(one for one in town.clerks.values() if not one.plane.is_controller)
            with pytest.raises(ApiError) as refused:
                await other.plane.forward(creation("t"), 7, "User:ANONYMOUS", "quorate-1")
            assert refused.value.code is ErrorCode.NOT_CONTROLLER

    run(story())


def test_an_expired_session_is_replaced_and_the_broker_is_back(connect):
    async def story():
        async with town_at(connect, 1, 2) as town:
            await town.ask(creation("t", assignments=[[1, 2], [2, 1]]))
            for clerk in (town.controller, *town.clerks.values()):
                before = clerk.plane.broker_epoch
                await expire(connect, clerk.plane.session)
                await until(lambda clerk=clerk, before=before: clerk.plane.broker_epoch > before)
            await town.until_controlled()
            await until(lambda: len(town.context.members) == 2)
            await until(lambda: town.context.leaderless(town.context.keys()) == [])
            epoch = town.controller.plane.controller_epoch
            await until(lambda: all(one.controller_epoch == epoch for one in town.clerks.values()))
            assert all(one.refused == 0 for one in town.clerks.values())

    run(story())


def test_clerks_get_ids_from_the_sequence(connect):
    async def story():
        first, second = await Clerk(connect).start(), await Clerk(connect).start()
        try:
            assert [first.plane.broker_id, second.plane.broker_id] == [1001, 1002]
            assert first.plane.cluster_id == second.plane.cluster_id
        finally:
            await first.stop()
            await second.stop()

    run(story())


def test_what_there_is_to_count(connect):
    async def story():
        async with town_at(connect, 1, 2) as town:
            await town.ask(creation("t", assignments=[[1, 2], [2, 1]]))

            def counted(clerk):
                return {
                    sample.name.rpartition("_kafkacontroller_")[2]: sample.value
                    for family in ZooKeeperMetrics(clerk.plane).collect()
                    for sample in family.samples
                }

            found = counted(town.controller)
            assert found["activecontrollercount"] == 1
            assert (found["globalpartitioncount"], found["activebrokercount"]) == (2, 2)
            other = counted(next(one for one in town.clerks.values() if not one.plane.is_controller))
            assert other["activecontrollercount"] == 0
            assert "globalpartitioncount" not in other
            assert other["kafka_server_sessionexpirelistener_connected"] == 1

    run(story())
