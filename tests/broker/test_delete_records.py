"""Partitions that begin later because somebody says so; and who has written to them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from serving import START_MS, Serving, a_batch, fetch, in_loop, produce, turns, wanted

from quorate.broker.handlers.delete_records import DeletingRecords
from quorate.broker.handlers.describe_producers import DescribingProducers
from quorate.broker.serving import Operation
from quorate.metadata import records as r
from quorate.protocol.api.produce_fetch import DeleteRecordsRequest
from quorate.protocol.api.transactions import DescribeProducersRequest
from quorate.protocol.errors import ErrorCode
from quorate.storage.errors import StorageError

FETCH = 17
ALL = -1


def a_broker(directory: Path) -> Serving:
    serving = Serving(directory)
    serving.handlers[DeleteRecordsRequest] = DeletingRecords(serving.broker).delete_records
    serving.handlers[DescribeProducersRequest] = DescribingProducers(serving.broker).describe_producers
    return serving


def deletion(*asked: tuple[str, int, int], timeout_ms: int = 60_000) -> DeleteRecordsRequest:
    """A request of (topic, partition, offset)."""
    topics: dict[str, list[Any]] = {}
    for topic, partition_id, offset in asked:
        partition = DeleteRecordsRequest.Topic.Partition(partition_index=partition_id, offset=offset)
        topics.setdefault(topic, []).append(partition)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.Topic(name=name, partitions=some) for name, some in topics.items()],
        timeout_ms=timeout_ms,
    )


def said(response: Any) -> list[tuple[ErrorCode, int]]:
    return [
        (ErrorCode(one.error_code), one.low_watermark)
        for topic in response.topics
        for one in topic.partitions
    ]


async def append(serving: Serving, count: int, topic: str = "t") -> None:
    for _ in range(count):
        response = await serving.ask(produce((topic, 0, a_batch())), 12)
        assert response.responses[0].partition_responses[0].error_code == 0


async def follow(serving: Serving, follower: int, offset: int, log_start_offset: int) -> None:
    row = wanted("t", 0, offset, log_start_offset=log_start_offset)
    await serving.ask(fetch(row, version=FETCH, replica_id=follower, broker_epoch=100 + follower), FETCH)


@pytest.mark.parametrize("version", range(3))
@in_loop
async def test_every_version_raises_the_start(tmp_path: Path, version: int):
    serving = a_broker(tmp_path)
    await serving.topic("t")
    await append(serving, 5)
    assert said(await serving.ask(deletion(("t", 0, 3)), version)) == [(ErrorCode.NONE, 3)]
    assert serving.partition("t").log.start_offset == 3
    below = await serving.ask(fetch(wanted("t", 0, 2), version=FETCH), FETCH)
    assert below.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    await serving.close()


@in_loop
async def test_everything_that_is_committed(tmp_path: Path):
    serving = a_broker(tmp_path)
    await serving.topic("t")
    await append(serving, 5)
    assert said(await serving.ask(deletion(("t", 0, ALL)), 2)) == [(ErrorCode.NONE, 5)]
    await append(serving, 1)
    assert serving.partition("t").log.end_offset == 6
    await serving.close()


@in_loop
async def test_a_start_never_goes_back(tmp_path: Path):
    serving = a_broker(tmp_path)
    await serving.topic("t")
    await append(serving, 5)
    await serving.ask(deletion(("t", 0, 4)), 2)
    assert said(await serving.ask(deletion(("t", 0, 1)), 2)) == [(ErrorCode.NONE, 4)]
    await serving.close()


@in_loop
async def test_what_is_said_last_of_a_partition_counts(tmp_path: Path):
    serving = a_broker(tmp_path)
    await serving.topic("t")
    await append(serving, 5)
    assert said(await serving.ask(deletion(("t", 0, 4), ("t", 0, 2)), 2)) == [(ErrorCode.NONE, 2)]
    await serving.close()


@in_loop
async def test_what_is_refused(tmp_path: Path):
    serving = a_broker(tmp_path)
    await serving.topic("t", partitions=2)
    await serving.topic("followed", replicas=(1, 2), leader=2)
    await serving.topic("elsewhere", replicas=(2,), leader=2)
    await serving.topic("compacted", cleanup_policy="compact")
    await serving.topic("both", cleanup_policy="compact,delete")
    await serving.topic("__consumer_offsets")
    await serving.topic("offline")
    serving.partition("offline").stop(ErrorCode.KAFKA_STORAGE_ERROR, "gone")
    await serving.topic("secret")
    serving.denied.add((Operation.DELETE, "secret"))
    await append(serving, 2)
    asked = {
        ("t", 0, 3): ErrorCode.OFFSET_OUT_OF_RANGE,
        ("t", 1, -2): ErrorCode.OFFSET_OUT_OF_RANGE,
        ("t", 7, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("followed", 0, 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ("elsewhere", 0, 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ("compacted", 0, 0): ErrorCode.POLICY_VIOLATION,
        ("__consumer_offsets", 0, 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
        ("offline", 0, 0): ErrorCode.KAFKA_STORAGE_ERROR,
        ("secret", 0, 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    found = said(await serving.ask(deletion(*asked), 2))
    assert sorted(found) == sorted((code, -1) for code in asked.values())
    assert said(await serving.ask(deletion(("both", 0, 0)), 2)) == [(ErrorCode.NONE, 0)]
    await serving.close()


@in_loop
async def test_what_is_not_committed_cannot_be_deleted(tmp_path: Path):
    serving = a_broker(tmp_path)
    await serving.topic("t", replicas=(1, 2))
    await append(serving, 5)
    await follow(serving, 2, 3, 0)
    assert said(await serving.ask(deletion(("t", 0, 4)), 2)) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert serving.partition("t").log.start_offset == 0
    await serving.close()


@in_loop
async def test_it_waits_until_every_replica_begins_there(tmp_path: Path):
    serving = a_broker(tmp_path)
    await serving.topic("t", replicas=(1, 2, 3))
    await append(serving, 5)
    for follower in (2, 3):
        await follow(serving, follower, 5, 0)
    waiting = serving.park(deletion(("t", 0, 4)), 2)
    await turns()
    assert serving.partition("t").log.start_offset == 4
    await follow(serving, 2, 5, 4)
    await turns()
    assert not waiting.done()
    await follow(serving, 3, 5, 4)
    assert said(await waiting) == [(ErrorCode.NONE, 4)]
    await serving.close()


@in_loop
async def test_nobody_waits_for_a_broker_that_is_dead(tmp_path: Path):
    serving = a_broker(tmp_path)
    await serving.topic("t", replicas=(1, 2, 3), isr=(1, 2))
    await append(serving, 5)
    await follow(serving, 2, 5, 0)
    waiting = serving.park(deletion(("t", 0, 4)), 2)
    await turns()
    serving.apply(r.BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=103, fenced=1))
    await follow(serving, 2, 5, 4)
    assert said(await waiting) == [(ErrorCode.NONE, 4)]
    await serving.close()


@in_loop
async def test_when_the_time_is_over_it_says_how_far_it_came(tmp_path: Path):
    serving = a_broker(tmp_path)
    await serving.topic("t", replicas=(1, 2))
    await append(serving, 5)
    await follow(serving, 2, 5, 1)
    response = await serving.ask(deletion(("t", 0, 4), timeout_ms=0), 2)
    assert said(response) == [(ErrorCode.REQUEST_TIMED_OUT, 1)]
    assert serving.partition("t").log.start_offset == 4  # which stays so
    await serving.close()


async def _offline(serving: Serving) -> None:
    serving.broker.replicas.offline(serving.partition("t"), StorageError("/d", "gone"))


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda serving: serving.assign("t", replicas=(1, 2), leader=2, leader_epoch=1), 6),
        (_offline, 56),
    ],
)
@in_loop
async def test_whoever_leads_no_more_does_not_know(tmp_path: Path, end: Any, code: int):
    serving = a_broker(tmp_path)
    await serving.topic("t", replicas=(1, 2))
    await append(serving, 5)
    await follow(serving, 2, 5, 0)
    waiting = serving.park(deletion(("t", 0, 4)), 2)
    await turns()
    await end(serving)
    assert said(await waiting) == [(ErrorCode(code), -1)]
    await serving.close()


@in_loop
async def test_a_request_that_is_given_up_waits_nowhere(tmp_path: Path):
    serving = a_broker(tmp_path)
    await serving.topic("t", replicas=(1, 2))
    await append(serving, 5)
    await follow(serving, 2, 5, 0)
    waiting = serving.park(deletion(("t", 0, 4)), 2)
    await turns()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not len(serving.partition("t")._starts)
    await serving.close()


# Producers


def producers(*topics: tuple[str, list[int]]) -> DescribeProducersRequest:
    part = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(topics=[part(name=name, partition_indexes=some) for name, some in topics])


@in_loop
async def test_who_has_written(tmp_path: Path):
    serving = a_broker(tmp_path)
    await serving.topic("t")
    await append(serving, 1)
    for about in (
        {"producer_id": 7, "producer_epoch": 1, "base_sequence": 0},
        {"producer_id": 7, "producer_epoch": 1, "base_sequence": 2},
        {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True},
    ):
        batch = a_batch(2, timestamp=START_MS + 5, **about)
        serving.partition("t").append(memoryview(batch))
    response = await serving.ask(producers(("t", [0])), 0)
    (found,) = response.topics[0].partitions
    assert (found.error_code, found.error_message) == (0, None)
    assert [
        (
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.last_timestamp,
            one.coordinator_epoch,
            one.current_txn_start_offset,
        )
        for one in found.active_producers
    ] == [(7, 1, 3, START_MS + 6, -1, -1), (9, 0, 1, START_MS + 6, -1, 5)]
    await serving.close()


@in_loop
async def test_whom_it_is_not_asked_of(tmp_path: Path):
    serving = a_broker(tmp_path)
    await serving.topic("t")
    await serving.topic("followed", replicas=(1, 2), leader=2)
    await serving.topic("elsewhere", replicas=(2,), leader=2)
    await serving.topic("secret")
    serving.denied.add((Operation.READ, "secret"))
    asked = (("t", [0, 7]), ("followed", [0]), ("elsewhere", [0]), ("nowhere", [0]), ("secret", [0]))
    response = await serving.ask(producers(*asked), 0)
    codes = [ErrorCode(one.error_code) for topic in response.topics for one in topic.partitions]
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,  # a follower has read who has written, too
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ]
    await serving.close()
