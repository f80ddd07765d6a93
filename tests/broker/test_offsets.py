"""Which offset belongs to a time, and where an epoch ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from serving import START_MS, Serving, a_batch, fetch, in_loop, produce, wanted

from quorate.broker.serving import Operation
from quorate.protocol.api.produce_fetch import ListOffsetsRequest, OffsetForLeaderEpochRequest
from quorate.protocol.batch import ControlType, build_control
from quorate.protocol.errors import ErrorCode
from quorate.storage.errors import StorageError
from quorate.storage.partition_log import DamagedBatchError

NEWEST = 11
LATEST, EARLIEST, MAX, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


def listing(
    *asked: tuple[str, int, int], replica_id: int = -1, isolation_level: int = 0, epoch: int = -1
) -> ListOffsetsRequest:
    """A request of (topic, partition, timestamp)."""
    part = ListOffsetsRequest.Topic
    topics: dict[str, list[Any]] = {}
    for topic, partition_id, timestamp in asked:
        topics.setdefault(topic, []).append(
            part.Partition(partition_index=partition_id, current_leader_epoch=epoch, timestamp=timestamp)
        )
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[part(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


async def look_up(serving: Serving, timestamp: int, version: int = NEWEST, **about: Any) -> Any:
    response = await serving.ask(listing(("t", 0, timestamp), **about), version)
    return response.topics[0].partitions[0]


async def offset_of(serving: Serving, timestamp: int, **about: Any) -> tuple[int, int, int]:
    found = await look_up(serving, timestamp, **about)
    assert found.error_code == 0
    return found.offset, found.timestamp, found.leader_epoch


async def code_of(serving: Serving, timestamp: int, version: int = NEWEST, **about: Any) -> ErrorCode:
    found = await look_up(serving, timestamp, version, **about)
    if found.error_code:
        assert (found.offset, found.timestamp, found.leader_epoch) == (-1, -1, -1)
    return ErrorCode(found.error_code)


async def append(serving: Serving, *timestamps: int, **about: Any) -> None:
    data = a_batch(timestamps=[START_MS + one for one in timestamps], **about)
    response = await serving.ask(produce(("t", 0, data)), 12)
    assert response.responses[0].partition_responses[0].error_code == 0


# ListOffsets


@pytest.mark.parametrize("version", range(1, 12))
@in_loop
async def test_every_version_answers(tmp_path: Path, version: int):
    serving = Serving(tmp_path)
    await serving.topic("t", leader_epoch=3)
    await append(serving, 0, 10)
    epoch = 3 if version >= 4 else -1
    for timestamp, expected in ((LATEST, (2, -1)), (EARLIEST, (0, -1)), (START_MS + 5, (1, START_MS + 10))):
        found = await look_up(serving, timestamp, version)
        assert (found.error_code, found.offset, found.timestamp) == (0, *expected)
        assert found.leader_epoch == epoch
    await serving.close()


@in_loop
async def test_times_need_not_be_in_order(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", leader_epoch=1)
    await append(serving, 50, 20, 30)
    await append(serving, 10, 90, 90)
    await serving.assign("t", leader_epoch=4)
    await append(serving, 60)
    for timestamp, offset, actual, epoch in (
        (0, 0, 50, 1),
        (50, 0, 50, 1),
        (51, 4, 90, 1),
        (90, 4, 90, 1),
    ):
        assert await offset_of(serving, START_MS + timestamp) == (offset, START_MS + actual, epoch)
    assert await offset_of(serving, START_MS + 91) == (-1, -1, -1)
    assert await offset_of(serving, MAX) == (4, START_MS + 90, 1)
    assert await offset_of(serving, 0) == (0, START_MS + 50, 1)
    await serving.close()


@in_loop
async def test_an_empty_log(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", leader_epoch=2)
    assert await offset_of(serving, LATEST) == (0, -1, 2)
    assert await offset_of(serving, EARLIEST) == (0, -1, 2)
    assert await offset_of(serving, MAX) == (-1, -1, -1)
    assert await offset_of(serving, 5) == (-1, -1, -1)
    await serving.close()


@in_loop
async def test_a_log_whose_beginning_is_gone(tmp_path: Path):
    serving = Serving(tmp_path)
    partition = await serving.topic("t")
    assert partition is not None
    await append(serving, 25, 10)
    await serving.assign("t", leader_epoch=1)
    await append(serving, 20, 30)
    await partition.log.delete_until(3, START_MS)
    assert await offset_of(serving, EARLIEST) == (3, -1, 1)
    assert await offset_of(serving, EARLIEST_LOCAL) == (3, -1, 1)
    assert await offset_of(serving, START_MS) == (3, START_MS + 30, 1)
    assert await offset_of(serving, MAX) == (3, START_MS + 30, 1)
    await serving.close()


@pytest.mark.parametrize(
    ("timestamp", "since"),
    [(MAX, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING_UPLOAD, 11), (-7, 99), (-100, 99)],
)
@in_loop
async def test_what_stands_for_an_offset_is_known_since_some_version(
    tmp_path: Path, timestamp: int, since: int
):
    serving = Serving(tmp_path)
    await serving.topic("t")
    for version in range(1, 12):
        expected = ErrorCode.NONE if version >= since else ErrorCode.UNSUPPORTED_VERSION
        assert await code_of(serving, timestamp, version) is expected
    if timestamp in (LATEST_TIERED, PENDING_UPLOAD):
        assert await offset_of(serving, timestamp) == (-1, -1, -1)
    await serving.close()


@in_loop
async def test_how_far_one_may_see(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2))
    await append(serving, 0)
    about = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    partition = serving.partition("t")
    partition.append(memoryview(a_batch(timestamps=[START_MS + 10], **about)))
    await append(serving, 20)
    assert await offset_of(serving, LATEST) == (0, -1, 0)
    serving.begin(fetch(wanted("t", 0, 2), version=12, replica_id=2), 12)
    assert await offset_of(serving, LATEST) == (2, -1, 0)
    assert await offset_of(serving, LATEST, isolation_level=1) == (1, -1, 0)
    assert await offset_of(serving, LATEST, replica_id=2) == (3, -1, 0)
    assert await offset_of(serving, LATEST, replica_id=-2) == (3, -1, 0)
    assert await offset_of(serving, START_MS + 10) == (1, START_MS + 10, 0)
    assert await offset_of(serving, START_MS + 10, isolation_level=1) == (-1, -1, -1)
    assert await offset_of(serving, START_MS + 20) == (-1, -1, -1)
    assert await offset_of(serving, START_MS + 20, replica_id=2) == (2, START_MS + 20, 0)
    marker = build_control(
        [(ControlType.COMMIT, bytes(6))],
        timestamp=0,
        producer_id=1,
        producer_epoch=0,
        is_transactional=True,
    )
    partition.log.append_control(marker, 0, START_MS)
    serving.begin(fetch(wanted("t", 0, 4), version=12, replica_id=2), 12)
    assert await offset_of(serving, LATEST, isolation_level=1) == (4, -1, 0)
    await serving.close()


@in_loop
async def test_a_new_leader_that_does_not_know_yet_what_is_committed(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2))
    await append(serving, 0, 10)
    await serving.assign("t", replicas=(1, 2), leader_epoch=1)
    for timestamp in (LATEST, START_MS, MAX):
        version = 7 if timestamp == MAX else 5
        assert await code_of(serving, timestamp, version) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert await code_of(serving, LATEST, 4) is ErrorCode.LEADER_NOT_AVAILABLE
    assert await offset_of(serving, EARLIEST) == (0, -1, 0)
    assert await offset_of(serving, LATEST, replica_id=2) == (2, -1, 1)
    serving.begin(fetch(wanted("t", 0, 2), version=12, replica_id=2), 12)
    assert await offset_of(serving, LATEST) == (2, -1, 1)
    assert await offset_of(serving, START_MS + 5) == (1, START_MS + 10, 0)
    await serving.close()


@in_loop
async def test_who_cannot_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    serving = Serving(tmp_path)
    await serving.topic("followed", replicas=(1, 2), leader=2)
    await serving.topic("elsewhere", replicas=(2,), leader=2)
    partition = await serving.topic("t", leader_epoch=4)
    assert partition is not None
    request = listing(("followed", 0, LATEST), ("elsewhere", 0, LATEST), ("x", 0, LATEST), ("t", 5, LATEST))
    response = await serving.ask(request, NEWEST)
    assert [ErrorCode(topic.partitions[0].error_code) for topic in response.topics] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    debugging = await serving.ask(listing(("followed", 0, LATEST), replica_id=-2), NEWEST)
    assert debugging.topics[0].partitions[0].error_code == 0
    assert await code_of(serving, LATEST, epoch=3) is ErrorCode.FENCED_LEADER_EPOCH
    assert await code_of(serving, LATEST, epoch=5) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert await code_of(serving, LATEST, epoch=4) is ErrorCode.NONE
    twice = await serving.ask(listing(("t", 0, LATEST), ("t", 0, EARLIEST)), NEWEST)
    assert [one.error_code for one in twice.topics[0].partitions] == [ErrorCode.INVALID_REQUEST]
    serving.denied.add((Operation.DESCRIBE, "t"))
    assert await code_of(serving, LATEST) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    serving.denied.clear()

    def damage(*_: Any, **__: Any) -> None:
        raise DamagedBatchError("disk", "no batch")

    def fail(*_: Any, **__: Any) -> None:
        raise StorageError("disk", "gone")

    monkeypatch.setattr(partition.log, "offset_for_time", damage)
    assert await code_of(serving, 5) is ErrorCode.CORRUPT_MESSAGE
    monkeypatch.setattr(partition.log, "offset_for_time", fail)
    assert await code_of(serving, 5) is ErrorCode.KAFKA_STORAGE_ERROR
    assert await code_of(serving, LATEST) is ErrorCode.KAFKA_STORAGE_ERROR
    await serving.close()


# OffsetForLeaderEpoch


def epoch_request(*asked: tuple[str, int, int, int]) -> OffsetForLeaderEpochRequest:
    """A request of (topic, partition, current epoch, epoch)."""
    part = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    return OffsetForLeaderEpochRequest(
        replica_id=-2,
        topics=[
            part(
                topic=topic,
                partitions=[
                    part.OffsetForLeaderPartition(
                        partition=partition_id, current_leader_epoch=current, leader_epoch=epoch
                    )
                ],
            )
            for topic, partition_id, current, epoch in asked
        ],
    )


@pytest.mark.parametrize("version", [2, 3, 4])
@in_loop
async def test_where_epochs_ended(tmp_path: Path, version: int):
    serving = Serving(tmp_path)
    await serving.topic("t", leader_epoch=1)
    await append(serving, 0, 0)
    await serving.assign("t", leader_epoch=4)
    await append(serving, 0)
    await serving.assign("t", leader_epoch=6)
    for epoch, expected in (
        (0, (0, 0)),
        (1, (1, 2)),
        (2, (1, 2)),
        (4, (4, 3)),
        (5, (4, 3)),
        (6, (6, 3)),
        (7, (-1, -1)),
        (-1, (-1, -1)),
    ):
        response = await serving.ask(epoch_request(("t", 0, 6, epoch)), version)
        found = response.topics[0].partitions[0]
        assert (found.error_code, found.partition) == (0, 0)
        assert (found.leader_epoch, found.end_offset) == expected
    await serving.close()


@in_loop
async def test_who_does_not_know_where_epochs_ended(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("followed", replicas=(1, 2), leader=2)
    await serving.topic("elsewhere", replicas=(2,), leader=2)
    await serving.topic("t", leader_epoch=4)

    async def codes(*asked: tuple[str, int, int, int]) -> list[ErrorCode]:
        response = await serving.ask(epoch_request(*asked), 4)
        found = [topic.partitions[0] for topic in response.topics]
        assert {(one.leader_epoch, one.end_offset) for one in found if one.error_code} <= {(-1, -1)}
        return [ErrorCode(one.error_code) for one in found]

    assert await codes(("followed", 0, -1, 0), ("elsewhere", 0, -1, 0), ("x", 0, -1, 0), ("t", 9, -1, 0)) == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await codes(("t", 0, 3, 0), ("t", 0, 5, 0), ("t", 0, 4, 0)) == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NONE,
    ]
    serving.denied.add((Operation.DESCRIBE, "t"))
    assert await codes(("t", 0, 4, 0)) == [ErrorCode.NONE], "brokers may"
    serving.denied.add((Operation.CLUSTER_ACTION, "kafka-cluster"))
    assert await codes(("t", 0, 4, 0)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    serving.denied.clear()
    serving.partition("t").stop(ErrorCode.KAFKA_STORAGE_ERROR, "gone")
    assert await codes(("t", 0, 4, 0)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    await serving.close()


@in_loop
async def test_a_consumer_finds_out_that_what_it_read_is_gone(tmp_path: Path):
    """After an unclean election it asks where the epoch of its last record ended, and that is before it."""
    serving = Serving(tmp_path)
    await serving.topic("t", leader_epoch=1)
    await append(serving, 0, 0)
    partition = serving.partition("t")
    await serving.assign("t", replicas=(1, 2), leader=2, leader_epoch=2)
    await partition.truncate_to(0)
    await serving.assign("t", replicas=(1, 2), isr=(1,), leader_epoch=3)
    await append(serving, 0)
    response = await serving.ask(epoch_request(("t", 0, 3, 1)), 4)
    assert response.topics[0].partitions[0].end_offset < 2
    await serving.close()
