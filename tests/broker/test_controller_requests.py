"""LeaderAndIsr, UpdateMetadata and StopReplica: what a broker does, and what is too old to be done."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.serving import BROKER_ID, Serving, in_loop, topic_id
from quorate.broker.handlers.controller_requests import ControllerRequests
from quorate.broker.handlers.metadata import CLUSTER_NAME
from quorate.broker.pushed_replicas import Fences, Held, judge_state, judge_stop, state_of
from quorate.broker.serving import Operation
from quorate.metadata.partition import MIGRATING, UNASSIGNED
from quorate.protocol.api.zookeeper_era import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Record
from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError

NONE = ErrorCode.NONE
THREE = [1, 2, 3]
_Stop = StopReplicaRequest.TopicState.PartitionState


def a_state(
    leader: int = BROKER_ID, leader_epoch: int = 0, partition_epoch: int = 0, *, index: int = 0, **more: Any
) -> LeaderAndIsrPartitionState:
    replicas = more.pop("replicas", THREE)
    return LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=1,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=more.pop("isr", replicas),
        partition_epoch=partition_epoch,
        replicas=replicas,
        **more,
    )


class Broker(Serving):
    """A broker with a controller."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.read: list[str] = []
        self.leftovers: list[tuple[str, int]] = []
        self.published = 0
        self.requests = ControllerRequests(self.broker, self)
        for route in self.requests.routes():
            self.handlers[route.request] = route.handler

    # What the requests need of it

    def apply_pushed(self, records: Sequence[Record]) -> None:
        for one in records:
            self.apply(one)

    async def pushed(self) -> None:
        self.published += 1

    async def read_configs(self, topics: Sequence[str]) -> None:
        self.read += topics

    async def remove_leftover(self, topic: str, partition_id: int) -> None:
        self.leftovers.append((topic, partition_id))

    # What the controller sends

    async def tell(
        self,
        *states: LeaderAndIsrPartitionState,
        topic: str = "t",
        id_: Uuid | None = None,
        controller_epoch: int = 1,
        broker_epoch: int = 101,
        is_kraft: bool = False,
    ) -> Any:
        """What was answered for each partition; one code if nothing was taken at all."""
        request = LeaderAndIsrRequest(
            controller_id=2,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            is_kraft_controller=is_kraft,
            topic_states=[
                LeaderAndIsrRequest.TopicState(
                    topic_name=topic, topic_id=id_ or topic_id(topic), partition_states=list(states)
                )
            ],
            live_leaders=[],
        )
        answer = await self.ask(request, 7)
        if answer.error_code:
            assert not answer.topics
            return ErrorCode(answer.error_code)
        (found,) = answer.topics
        return [ErrorCode(one.error_code) for one in found.partition_errors]

    async def update(
        self,
        *states: UpdateMetadataPartitionState,
        topic: str = "t",
        controller_epoch: int = 1,
        broker_epoch: int = 101,
    ) -> ErrorCode:
        of_topic = UpdateMetadataRequest.TopicState(
            topic_name=topic, topic_id=topic_id(topic), partition_states=list(states)
        )
        request = UpdateMetadataRequest(
            controller_id=2,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=[of_topic] if states else [],
            live_brokers=[],
        )
        return ErrorCode((await self.ask(request, 8)).error_code)

    async def halt(
        self, leader_epoch: int, *, delete: bool, index: int = 0, controller_epoch: int = 1
    ) -> ErrorCode:
        request = StopReplicaRequest(
            controller_id=2,
            controller_epoch=controller_epoch,
            broker_epoch=101,
            topic_states=[
                StopReplicaRequest.TopicState(
                    topic_name="t",
                    partition_states=[
                        _Stop(partition_index=index, leader_epoch=leader_epoch, delete_partition=delete)
                    ],
                )
            ],
        )
        answer = await self.ask(request, 4)
        return ErrorCode(answer.error_code or answer.partition_errors[0].error_code)


# The rules


@pytest.mark.parametrize(
    ("broker_epoch", "controller_epoch", "expected"),
    [
        (100, 7, NONE),
        (101, 8, NONE),  # our registration is known to the controller before it is to us
        (-1, 7, NONE),  # of an older version
        (99, 7, ErrorCode.STALE_BROKER_EPOCH),
        (100, 6, ErrorCode.STALE_CONTROLLER_EPOCH),
        (99, 6, ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_who_may_tell_us_what_to_do(broker_epoch: int, controller_epoch: int, expected: ErrorCode):
    assert Fences(broker_epoch=100, controller_epoch=7).admit(broker_epoch, controller_epoch) is expected


def test_a_request_for_an_earlier_life_does_not_make_its_sender_the_controller():
    fences = Fences(broker_epoch=100, controller_epoch=7)
    fences.admit(99, 9)
    assert fences.controller_epoch == 7
    fences.admit(100, 9)
    assert fences.controller_epoch == 9


HELD = Held(topic_id("t"), leader_epoch=5)


@pytest.mark.parametrize(
    ("state", "held", "is_equal_allowed", "expected"),
    [
        (a_state(leader_epoch=0), None, False, NONE),
        (a_state(leader_epoch=6), HELD, False, NONE),
        (a_state(leader_epoch=5), HELD, False, ErrorCode.STALE_CONTROLLER_EPOCH),
        (a_state(leader_epoch=5), HELD, True, NONE),
        (a_state(leader_epoch=4), HELD, True, ErrorCode.STALE_CONTROLLER_EPOCH),
        (a_state(leader_epoch=6, replicas=[2, 3]), HELD, False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (a_state(leader_epoch=6), Held(topic_id("u"), 5), False, ErrorCode.INCONSISTENT_TOPIC_ID),
        (
            a_state(leader_epoch=6),
            Held(topic_id("t"), 5, has_failed=True),
            False,
            ErrorCode.KAFKA_STORAGE_ERROR,
        ),
    ],
)
def test_which_states_count(
    state: LeaderAndIsrPartitionState, held: Held | None, is_equal_allowed: bool, expected: ErrorCode
):
    found = judge_state(BROKER_ID, topic_id("t"), state, held, is_equal_allowed=is_equal_allowed)
    assert found is expected


@pytest.mark.parametrize(
    ("leader_epoch", "held", "expected"),
    [
        (5, HELD, NONE),
        (6, HELD, NONE),
        (4, HELD, ErrorCode.FENCED_LEADER_EPOCH),
        (-1, HELD, NONE),
        (-2, HELD, NONE),
        (0, None, NONE),
        (5, Held(topic_id("t"), 5, has_failed=True), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_which_replicas_stop(leader_epoch: int, held: Held | None, expected: ErrorCode):
    state = _Stop(partition_index=0, leader_epoch=leader_epoch, delete_partition=True)
    assert judge_stop(state, held) is expected


def test_what_a_state_means():
    found = state_of(a_state(2, 3, 4, isr=[1, 2, 9], adding_replicas=[3], leader_recovery_state=1))
    assert (found.leader, found.leader_epoch, found.partition_epoch) == (2, 3, 4)
    assert found.isr == (1, 2)
    assert found.adding == (3,)
    assert found.is_recovering
    assert set(found.directories) == {MIGRATING}
    assert set(state_of(a_state(is_new=True)).directories) == {UNASSIGNED}


# What becomes of it


@in_loop
async def test_a_replica_leads_follows_and_leads_again(tmp_path: Path):
    broker = Broker(tmp_path)
    assert await broker.tell(a_state(BROKER_ID, 0, is_new=True)) == [NONE]
    partition = broker.partition("t")
    assert partition.leading is not None
    assert broker.read == ["t"]
    assert await broker.tell(a_state(2, 1, 1)) == [NONE]
    assert partition.leading is None
    assert partition.leader_id == 2
    assert await broker.tell(a_state(BROKER_ID, 1, 1)) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert await broker.tell(a_state(BROKER_ID, 0)) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert partition.leading is None
    assert await broker.tell(a_state(BROKER_ID, 2, 2)) == [NONE]
    assert partition.leading is not None
    await broker.close()


@in_loop
async def test_every_partition_has_an_answer_of_its_own(tmp_path: Path):
    broker = Broker(tmp_path)
    await broker.tell(a_state(leader_epoch=3))
    found = await broker.tell(
        a_state(leader_epoch=3), a_state(index=1), a_state(index=2, replicas=[2, 3], leader=2)
    )
    assert found == [ErrorCode.STALE_CONTROLLER_EPOCH, NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.replicas.named("t", 1) is not None
    assert broker.replicas.named("t", 2) is None
    await broker.close()


@in_loop
async def test_a_deposed_controller_changes_nothing(tmp_path: Path):
    broker = Broker(tmp_path)
    await broker.tell(a_state(BROKER_ID, 0), controller_epoch=5)
    assert await broker.tell(a_state(2, 9), controller_epoch=4) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert await broker.halt(9, delete=True, controller_epoch=4) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert await broker.update(controller_epoch=4) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.partition("t").leading is not None
    assert sorted(broker.image.brokers) == [1, 2, 3]  # the update would have emptied it
    await broker.close()


@in_loop
async def test_one_kind_of_request_fences_the_others(tmp_path: Path):
    broker = Broker(tmp_path)
    assert await broker.update(controller_epoch=6) is NONE
    assert await broker.tell(a_state(), controller_epoch=5) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert await broker.tell(a_state(), controller_epoch=7) == [NONE]
    assert await broker.update(controller_epoch=6) is ErrorCode.STALE_CONTROLLER_EPOCH
    await broker.close()


@in_loop
async def test_what_was_meant_for_an_earlier_life_is_refused(tmp_path: Path):
    broker = Broker(tmp_path)
    broker.requests.fences.broker_epoch = 101
    assert await broker.tell(a_state(), broker_epoch=100) is ErrorCode.STALE_BROKER_EPOCH
    assert await broker.update(broker_epoch=100) is ErrorCode.STALE_BROKER_EPOCH
    assert await broker.tell(a_state(), broker_epoch=102) == [NONE]
    await broker.close()


@in_loop
async def test_an_older_partition_epoch_is_passed_over(tmp_path: Path):
    """The answer to a proposal of ours was here first."""
    broker = Broker(tmp_path)
    await broker.tell(a_state(BROKER_ID, 1, 1))
    partition = broker.partition("t")
    partition.isr_answered((1, 2), 5, is_recovering=False)
    assert await broker.tell(a_state(BROKER_ID, 1, 4), is_kraft=True) == [NONE]
    assert partition.leading is not None
    assert partition.leading.isr == (1, 2)
    await broker.close()


@in_loop
async def test_a_replica_stops_and_one_is_deleted(tmp_path: Path):
    broker = Broker(tmp_path)
    await broker.tell(a_state(2, 3))
    assert await broker.halt(2, delete=True) is ErrorCode.FENCED_LEADER_EPOCH
    assert await broker.halt(4, delete=False) is NONE
    assert broker.replicas.named("t", 0) is not None
    assert await broker.halt(-2, delete=True) is NONE
    assert broker.replicas.named("t", 0) is None
    assert await broker.halt(-2, delete=True, index=7) is NONE
    assert broker.leftovers == [("t", 7)]
    await broker.close()


@in_loop
async def test_a_disk_that_failed_is_told_to_the_controller(tmp_path: Path):
    broker = Broker(tmp_path)
    await broker.tell(a_state())
    broker.replicas.offline(broker.partition("t"), StorageError("/d", "gone"))
    assert await broker.tell(a_state(leader_epoch=1)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert await broker.halt(1, delete=True) is ErrorCode.KAFKA_STORAGE_ERROR
    await broker.close()


@in_loop
async def test_metadata_do_not_touch_replicas(tmp_path: Path):
    broker = Broker(tmp_path)
    await broker.tell(a_state(BROKER_ID, 0))
    pushed = UpdateMetadataPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=2,
        leader_epoch=1,
        isr=THREE,
        zk_version=1,
        replicas=THREE,
    )
    assert await broker.update(pushed) is NONE
    assert broker.published == 1
    known = broker.image.partition(topic_id("t"), 0)
    assert known is not None
    assert known.leader == 2
    assert broker.partition("t").leading is not None  # until LeaderAndIsr says otherwise
    assert broker.requests.has_metadata.is_set()
    await broker.close()


@in_loop
async def test_requests_are_carried_out_one_after_the_other_and_to_their_end(tmp_path: Path):
    broker = Broker(tmp_path)
    may_read, order = asyncio.Event(), []

    async def slowly(topics: Sequence[str]) -> None:
        await may_read.wait()
        order.append(f"configs of {', '.join(topics)}")

    broker.read_configs = slowly  # type: ignore[method-assign]
    first = asyncio.create_task(broker.tell(a_state(BROKER_ID, 0)))
    await asyncio.sleep(0)
    second = asyncio.create_task(broker.halt(5, delete=True))
    await asyncio.sleep(0)
    first.cancel()  # whoever sent it has hung up
    may_read.set()
    assert await second is NONE
    assert order == ["configs of t"]
    assert broker.replicas.named("t", 0) is None  # it was opened, and then deleted
    assert broker.leftovers == []
    await broker.close()


@in_loop
async def test_who_may_not_is_told_so(tmp_path: Path):
    broker = Broker(tmp_path)
    broker.denied.add((Operation.CLUSTER_ACTION, CLUSTER_NAME))
    assert await broker.update() is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await broker.tell(a_state()) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    await broker.close()
