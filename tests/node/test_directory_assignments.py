"""What the controller is told about the directories of replicas, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from quorate.broker.partition import TopicPartition
from quorate.metadata.partitions import UNASSIGNED
from quorate.net.connections import Backoff
from quorate.node import directory_assignments
from quorate.node.directory_assignments import DirectoryAssignments
from quorate.protocol.api.brokers import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid

HERE, THERE = Uuid(b"here............"), Uuid(b"there...........")
SECONDS_MAX = 30


def key(name: str, partition_id: int = 0) -> TopicPartition:
    return TopicPartition(name, Uuid(name.encode().ljust(16, b".")), partition_id)


class Controller:
    """Answers as it is told, and with success after that."""

    def __init__(self, *answers: ErrorCode | ApiError | dict[str, ErrorCode]) -> None:
        self.asked: list[dict[str, list[str]]] = []
        self._answers = list(answers)

    async def ask(
        self, request: AssignReplicasToDirsRequest, *, timeout_ms: float
    ) -> AssignReplicasToDirsResponse:
        assert (request.broker_id, request.broker_epoch, timeout_ms > 0) == (101, 7, True)
        self.asked.append({_name(one.id): _partitions(one) for one in request.directories})
        answer = self._answers.pop(0) if self._answers else ErrorCode.NONE
        if isinstance(answer, ApiError):
            raise answer
        codes = answer if isinstance(answer, dict) else {}
        data = AssignReplicasToDirsResponse.DirectoryData
        return AssignReplicasToDirsResponse(
            throttle_time_ms=0,
            error_code=answer if isinstance(answer, ErrorCode) else 0,
            directories=[
                data(
                    id=one.id,
                    topics=[
                        data.TopicData(
                            topic_id=topic.topic_id,
                            partitions=[
                                data.TopicData.PartitionData(
                                    partition_index=each.partition_index,
                                    error_code=codes.get(_name(topic.topic_id), ErrorCode.NONE),
                                )
                                for each in topic.partitions
                            ],
                        )
                        for topic in one.topics
                    ],
                )
                for one in request.directories
            ],
        )


def _name(uuid: Uuid) -> str:
    return uuid.rstrip(b".").decode()


def _partitions(data: Any) -> list[str]:
    return [
        f"{_name(topic.topic_id)}-{one.partition_index}" for topic in data.topics for one in topic.partitions
    ]


def run(
    controller: Controller,
    begin: Callable[[DirectoryAssignments], None],
    is_ours: Callable[[TopicPartition], bool] = lambda _: True,
) -> list[dict[str, list[str]]]:
    """What is asked until everything has been reported."""

    async def scenario() -> None:
        channel: Any = controller
        assignments = DirectoryAssignments(101, lambda: 7, is_ours, channel, Random(1))
        assignments._backoff = Backoff(first_ms=1, max_ms=2)
        running = asyncio.create_task(assignments.run())
        begin(assignments)
        async with asyncio.timeout(SECONDS_MAX):
            while len(assignments) and not running.done():
                await asyncio.sleep(0.001)
        assert not running.done(), running
        running.cancel()

    asyncio.run(scenario())
    return controller.asked


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_assignments, "GATHERING_S", 0.001)


def test_what_the_metadata_has_wrong_is_reported_together():
    def begin(to: DirectoryAssignments) -> None:
        to.note(key("t"), actual=HERE, known=THERE)
        to.note(key("t", 1), actual=HERE, known=UNASSIGNED)
        to.note(key("u"), actual=THERE, known=HERE)
        to.note(key("right"), actual=HERE, known=HERE)
        to.note(key("nowhere"), actual=UNASSIGNED, known=HERE)

    assert run(Controller(), begin) == [{"here": ["t-0", "t-1"], "there": ["u-0"]}]


def test_what_is_newest_counts():
    def begin(to: DirectoryAssignments) -> None:
        to.note(key("t"), actual=HERE, known=UNASSIGNED)
        to.note(key("t"), actual=THERE, known=UNASSIGNED)
        to.note(key("u"), actual=HERE, known=THERE)
        to.note(key("u"), actual=HERE, known=HERE)

    assert run(Controller(), begin) == [{"there": ["t-0"]}]


def test_what_is_not_ours_any_more_is_nobodys_concern():
    def begin(to: DirectoryAssignments) -> None:
        to.note(key("gone"), actual=HERE, known=THERE)
        to.note(key("t"), actual=HERE, known=THERE)

    assert run(Controller(), begin, lambda one: one.topic != "gone") == [{"here": ["t-0"]}]


@pytest.mark.parametrize(
    "answer",
    [
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.NOT_CONTROLLER,
        ApiError(ErrorCode.REQUEST_TIMED_OUT, "nobody answers"),
        {"t": ErrorCode.UNKNOWN_TOPIC_ID},
    ],
    ids=str,
)
def test_what_failed_is_reported_again(answer: Any):
    asked = run(Controller(answer, answer), lambda to: to.note(key("t"), actual=HERE, known=THERE))
    assert asked == [{"here": ["t-0"]}] * 3


def test_what_is_refused_holds_up_nobody(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(directory_assignments, "ASSIGNMENTS_MAX", 1)

    def begin(to: DirectoryAssignments) -> None:
        for name in ("bad", "t", "u"):
            to.note(key(name), actual=HERE, known=THERE)

    asked = run(Controller({"bad": ErrorCode.UNKNOWN_TOPIC_ID}), begin)
    assert [one["here"] for one in asked] == [["bad-0"], ["t-0"], ["u-0"], ["bad-0"]]
