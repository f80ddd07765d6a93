"""Fetching: limits, waiting, epochs, isolation, followers, and every error once."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest
from serving import (
    START_MS,
    Serving,
    a_batch,
    fetch,
    in_loop,
    offsets_in,
    produce,
    topic_id,
    turns,
    wanted,
)

from quorate.broker.leadership import Proposal
from quorate.broker.partition import Partition
from quorate.broker.serving import Operation
from quorate.net.client import Connection
from quorate.net.file_sending import FileSender
from quorate.net.routes import Route, RouteTable
from quorate.net.server import Server
from quorate.protocol.batch import ControlType, build_control
from quorate.protocol.errors import ErrorCode
from quorate.storage.errors import StorageError
from quorate.storage.partition_log import DamagedBatchError

NEWEST = 18
VERSIONS = list(range(4, 19))
LONG_MS = 100_000
STABLE = 1


def found(response: Any) -> dict[tuple[str, int], Any]:
    """The partitions of an answer."""
    assert response.error_code == 0
    names = {topic_id(name): name for name in ("t", "u", "v", "x", "followed", "elsewhere")}
    return {
        (topic.topic or names[topic.topic_id], one.partition_index): one
        for topic in response.responses
        for one in topic.partitions
    }


def only(response: Any) -> Any:
    (one,) = found(response).values()
    return one


async def fetched(serving: Serving, *partitions: Any, version: int = NEWEST, **about: Any) -> Any:
    return await serving.ask(fetch(*partitions, version=version, **about), version)


async def code_of(serving: Serving, partition: Any, version: int = NEWEST, **about: Any) -> ErrorCode:
    one = only(await fetched(serving, partition, version=version, **about))
    if one.error_code:
        assert (one.high_watermark, one.last_stable_offset, one.log_start_offset) == (-1, -1, -1)
        assert bytes(one.records) == b""
    return ErrorCode(one.error_code)


async def filled(serving: Serving, batches: int, name: str = "t", partition: int = 0, **about: Any) -> int:
    """Appends batches of two records; the size of one."""
    data = a_batch(2, **about)
    for _ in range(batches):
        response = await serving.ask(produce((name, partition, bytearray(data))), 12)
        assert response.responses[0].partition_responses[0].error_code == 0
    return len(data)


# What is given


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_every_version_reads(tmp_path: Path, version: int):
    serving = Serving(tmp_path)
    await serving.topic("t")
    await filled(serving, 3)
    response = await fetched(serving, wanted("t"), version=version)
    one = only(response)
    assert offsets_in(one.records) == [0, 1, 2, 3, 4, 5]
    assert (one.error_code, one.high_watermark, one.last_stable_offset) == (0, 6, 6)
    assert one.log_start_offset == (0 if version >= 5 else -1)
    assert one.aborted_transactions is None
    assert one.preferred_read_replica == -1
    assert one.diverging_epoch is None
    assert response.session_id == 0
    await serving.close()


@in_loop
async def test_a_read_begins_with_the_batch_that_holds_the_offset(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    await filled(serving, 3)
    assert offsets_in(only(await fetched(serving, wanted("t", 0, 3))).records) == [2, 3, 4, 5]
    assert offsets_in(only(await fetched(serving, wanted("t", 0, 6))).records) == []
    await serving.close()


@in_loop
async def test_a_read_ends_with_its_segment(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", segment_bytes=1024 * 1024)
    size = await filled(serving, 3, value_bytes=400_000)
    assert size < 1024 * 1024 < 2 * size
    one = only(await fetched(serving, wanted("t", 0, 0, max_bytes=10 << 20)))
    assert offsets_in(one.records) == [0, 1]
    await serving.close()


@pytest.mark.parametrize("is_plain", [True, False])
@in_loop
async def test_records_go_from_the_log_to_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_plain: bool
):
    if not is_plain:
        monkeypatch.setattr(FileSender, "of", lambda *_: None)
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=3)
    handlers = serving.handlers
    server = Server("PLAINTEXT", RouteTable([Route(cls, handler) for cls, handler in handlers.items()]))
    await server.start("127.0.0.1", 0)
    connection = await Connection.connect("127.0.0.1", server.port, timeout_ms=10_000)
    for count, size in ((1, 10), (9, 100), (20, 10_000), (1, 300_000)):
        batches = [("t", index, a_batch(count + index, value_bytes=size)) for index in range(3)]
        response = await connection.request(produce(*batches), 9, timeout_ms=10_000)
        assert [one.error_code for one in response.responses[0].partition_responses] == [0, 0, 0]
    order = [wanted("t", index, max_bytes=5 << 20) for index in range(3)]
    response = await connection.request(fetch(*order, version=12), 12, timeout_ms=10_000)
    for index, one in enumerate(response.responses[0].partitions):
        assert bytes(one.records) == bytes(serving.partition("t", index).log.read(0, 5 << 20))
        assert offsets_in(one.records) == list(range(31 + 4 * index))
    await connection.close()
    await server.close(timeout_ms=1000)
    await serving.close()


# Limits


@in_loop
async def test_the_limit_of_a_partition(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    size = await filled(serving, 5)
    for max_bytes, count in ((size * 3, 6), (size * 3 - 1, 4), (size, 2), (size - 1, 2), (1, 2), (0, 2)):
        one = only(await fetched(serving, wanted("t", max_bytes=max_bytes)))
        assert offsets_in(one.records) == list(range(count)), "at least a batch, or nobody gets on"
    await serving.close()


@in_loop
async def test_only_the_first_batch_may_be_too_large(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=4)
    for index in (1, 2, 3):
        size = await filled(serving, 2, partition=index)
    order = [wanted("t", index, max_bytes=size - 1) for index in range(4)]
    response = await fetched(serving, *order)
    counts = [len(offsets_in(found(response)["t", index].records)) for index in range(4)]
    assert counts == [0, 2, 0, 0], "the first that has any"
    await serving.close()


@in_loop
async def test_the_limit_of_a_request(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=3)
    for index in range(3):
        size = await filled(serving, 3, partition=index)

    async def counts(max_bytes: int, **settings: Any) -> list[int]:
        response = await fetched(
            serving, *(wanted("t", index) for index in (2, 0, 1)), max_bytes=max_bytes, **settings
        )
        return [len(offsets_in(found(response)["t", index].records)) // 2 for index in (2, 0, 1)]

    assert await counts(size * 9) == [3, 3, 3]
    assert await counts(size * 5) == [3, 2, 0]
    assert await counts(size * 4 - 1) == [3, 0, 0]
    assert await counts(size) == [1, 0, 0]
    assert await counts(1) == [1, 0, 0]
    assert await counts(0) == [1, 0, 0]
    assert await counts(-5) == [1, 0, 0]
    await serving.close()


@in_loop
async def test_the_brokers_own_limit(tmp_path: Path):
    serving = Serving(tmp_path, fetch_max_bytes=100)
    await serving.topic("t", partitions=2)
    for index in range(2):
        await filled(serving, 3, partition=index)
    response = await fetched(serving, wanted("t", 0), wanted("t", 1), min_bytes=1 << 20, max_wait_ms=LONG_MS)
    counts = [len(offsets_in(one.records)) for one in found(response).values()]
    assert counts == [2, 0], "and so much is enough, whatever the client would like to wait for"
    await serving.close()


# Waiting


@in_loop
async def test_who_finds_nothing_waits_for_data(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=2)
    request = fetch(wanted("t", 0), wanted("t", 1), version=12, max_wait_ms=LONG_MS)
    parked = serving.park(request, 12)
    await turns()
    assert not parked.done()
    await filled(serving, 1, partition=1)
    one = found(await parked)["t", 1]
    assert offsets_in(one.records) == [0, 1]
    assert one.high_watermark == 2
    assert_nobody_waits(serving)
    await serving.close()


def assert_nobody_waits(serving: Serving) -> None:
    assert not any(partition.data_waits for partition in serving.replicas)


@in_loop
async def test_it_waits_no_longer_than_it_wants(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    one = only(await fetched(serving, wanted("t"), max_wait_ms=5))
    assert offsets_in(one.records) == []
    assert_nobody_waits(serving)
    await serving.close()


@pytest.mark.parametrize("about", [{"max_wait_ms": 0}, {"max_wait_ms": LONG_MS, "min_bytes": 0}])
@in_loop
async def test_who_does_not_want_to_wait_is_answered(tmp_path: Path, about: dict[str, int]):
    serving = Serving(tmp_path)
    await serving.topic("t")
    response = serving.begin(fetch(wanted("t"), version=12, **about), 12)
    assert not inspect.isawaitable(response)
    assert serving.begin(fetch(version=12, max_wait_ms=LONG_MS), 12).responses == []
    await serving.close()


@in_loop
async def test_it_waits_until_it_is_enough_of_all_together(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=3)
    size = await filled(serving, 1)
    order = [wanted("t", index) for index in range(3)]
    parked = serving.park(fetch(*order, version=12, max_wait_ms=LONG_MS, min_bytes=size * 4), 12)
    for index in (1, 0):
        await turns()
        await filled(serving, 1, partition=index)
        await turns()
        assert not parked.done()
    await filled(serving, 1, partition=2)
    response = await parked
    assert [len(offsets_in(one.records)) for one in found(response).values()] == [4, 2, 2]
    await serving.close()


@in_loop
async def test_what_a_partition_may_not_give_is_not_waited_for(tmp_path: Path):
    """No more of a partition counts than it will give."""
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=2)
    size = await filled(serving, 1)
    order = [wanted("t", 0, max_bytes=size), wanted("t", 1)]
    parked = serving.park(fetch(*order, version=12, max_wait_ms=LONG_MS, min_bytes=size * 2), 12)
    await filled(serving, 5)
    await turns()
    assert not parked.done()
    await filled(serving, 1, partition=1)
    await parked
    await serving.close()


@in_loop
async def test_a_segment_that_is_over_is_not_waited_at(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", segment_bytes=1024 * 1024)
    await filled(serving, 3, value_bytes=400_000)
    response = await fetched(serving, wanted("t"), max_wait_ms=LONG_MS, min_bytes=5 << 20)
    assert offsets_in(only(response).records) == [0, 1]
    await serving.close()


@in_loop
async def test_what_is_not_committed_is_not_waited_for(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2))
    consumer = serving.park(fetch(wanted("t"), version=12, max_wait_ms=LONG_MS), 12)
    follower = serving.park(fetch(wanted("t"), version=12, max_wait_ms=LONG_MS, replica_id=2), 12)
    await turns()
    await filled(serving, 1)
    assert offsets_in(only(await follower).records) == [0, 1]
    await turns()
    assert not consumer.done()
    follower = serving.park(fetch(wanted("t", 0, 2), version=12, max_wait_ms=LONG_MS, replica_id=2), 12)
    assert offsets_in(only(await consumer).records) == [0, 1]
    follower.cancel()
    await turns()
    assert_nobody_waits(serving)
    await serving.close()


@in_loop
async def test_a_lost_connection_leaves_nothing_behind(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    for steps in (0, 5):
        parked = serving.park(fetch(wanted("t"), version=12, max_wait_ms=LONG_MS), 12)
        await turns(steps)
        parked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await parked
        assert_nobody_waits(serving)
    await serving.close()


@pytest.mark.parametrize("steps", [0, 5])
@in_loop
async def test_a_change_of_the_leader_ends_the_wait(tmp_path: Path, steps: int):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2), leader_epoch=3)
    parked = [
        serving.park(fetch(wanted("t", current_leader_epoch=epoch), version=10, max_wait_ms=LONG_MS), 10)
        for epoch in (3, -1)
    ]
    await turns(steps)
    await serving.assign("t", replicas=(1, 2), leader=2, leader_epoch=4)
    codes = [ErrorCode(only(await one).error_code) for one in parked]
    assert codes == [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    await serving.close()


@in_loop
async def test_what_is_known_to_be_wrong_does_not_end_the_wait_of_the_rest(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    await serving.topic("u")
    serving.denied.add((Operation.READ, "u"))
    order = [wanted("u"), wanted("x"), wanted("t", 7), wanted("t")]
    parked = serving.park(fetch(*order, version=12, max_wait_ms=LONG_MS), 12)
    await filled(serving, 1)
    codes = {key: ErrorCode(one.error_code) for key, one in found(await parked).items()}
    assert codes == {
        ("u", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ("x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 0): ErrorCode.NONE,
    }
    # if nothing is left to wait for, nobody waits
    assert len(found(serving.begin(fetch(*order[:3], version=12, max_wait_ms=LONG_MS), 12))) == 3
    # and an error of reading is news at once
    out_of_range = serving.begin(fetch(wanted("t", 0, 99), version=12, max_wait_ms=LONG_MS), 12)
    assert only(out_of_range).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    await serving.close()


# Errors


@in_loop
async def test_where_there_is_nothing_to_read(tmp_path: Path):
    serving = Serving(tmp_path)
    partition = await serving.topic("t")
    assert partition is not None
    await filled(serving, 3)
    await partition.log.delete_until(2, START_MS)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await code_of(serving, wanted("x"), 12) is unknown
    assert await code_of(serving, wanted("x"), 13) is ErrorCode.UNKNOWN_TOPIC_ID
    assert await code_of(serving, wanted("t", 8), 12) is unknown
    assert await code_of(serving, wanted("t", 8), 13) is unknown
    assert await code_of(serving, wanted("t", 0, 1)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert await code_of(serving, wanted("t", 0, 7)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert await code_of(serving, wanted("t", 0, -1)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert await code_of(serving, wanted("t", 0, 2)) is ErrorCode.NONE
    await serving.close()


@in_loop
async def test_a_topic_that_was_made_again(tmp_path: Path):
    """The metadata knows the new topic, and the replica of the old one is still there."""
    serving = Serving(tmp_path)
    await serving.topic("t")
    old = serving.image.topics.by_name["t"]
    serving.image.topics.remove(old.id)
    serving.image.topics.add("t", topic_id("new"))
    (_, partition) = wanted("t")
    request = fetch(("t", partition), version=13)
    request.topics[0].topic_id = topic_id("new")
    response = await serving.ask(request, 13)
    assert response.responses[0].partitions[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    await serving.close()


@pytest.mark.parametrize("version", [4, 5, 15, 16, 18])
@in_loop
async def test_who_does_not_lead_says_who_does(tmp_path: Path, version: int):
    serving = Serving(tmp_path)
    await serving.topic("followed", replicas=(1, 2), leader=2, leader_epoch=6)
    await serving.topic("elsewhere", replicas=(3,), leader=3, leader_epoch=8)
    fenced = wanted("followed", current_leader_epoch=5) if version >= 9 else wanted("followed")
    not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER
    for partition, expected, leader, epoch in (
        (fenced, ErrorCode.FENCED_LEADER_EPOCH if version >= 9 else not_leader, 2, 6),
        (wanted("elsewhere"), not_leader, 3, 8),
    ):
        response = await fetched(serving, partition, version=version)
        one = only(response)
        assert ErrorCode(one.error_code) is expected
        if version < 16:
            assert one.current_leader is None
            assert response.node_endpoints == []
        else:
            assert (one.current_leader.leader_id, one.current_leader.leader_epoch) == (leader, epoch)
            assert [(node.node_id, node.port) for node in response.node_endpoints] == [
                (leader, 9000 + leader)
            ]
    await serving.close()


@in_loop
async def test_epochs_are_compared(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", leader_epoch=5)
    for version in (9, 12, 18):
        for epoch, expected in (
            (4, ErrorCode.FENCED_LEADER_EPOCH),
            (5, ErrorCode.NONE),
            (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (-1, ErrorCode.NONE),
        ):
            assert await code_of(serving, wanted("t", current_leader_epoch=epoch), version) is expected
    await serving.close()


@in_loop
async def test_a_consumer_may_read_from_a_follower(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2), leader=2)
    partition = serving.partition("t")
    data = a_batch(3)
    partition.append_fetched(0, 0, memoryview(data), 2)
    assert await code_of(serving, wanted("t"), 10) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    one = only(await fetched(serving, wanted("t"), version=11))
    assert one.high_watermark == 2
    assert offsets_in(one.records) == [], "the batch goes on after what is committed"
    parked = serving.park(fetch(wanted("t", 0, 0), version=12, max_wait_ms=LONG_MS), 12)
    await turns()
    partition.append_fetched(0, 3, memoryview(b""), 3)
    assert offsets_in(only(await parked).records) == [0, 1, 2]
    await serving.close()


@in_loop
async def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    serving = Serving(tmp_path)
    partition = await serving.topic("t")
    assert partition is not None
    await filled(serving, 1)

    def damage(*_: Any, **__: Any) -> None:
        raise DamagedBatchError("disk", "no batch")

    monkeypatch.setattr(partition.log, "range", damage)
    assert await code_of(serving, wanted("t")) is ErrorCode.CORRUPT_MESSAGE
    assert partition.failure is None

    def fail(*_: Any, **__: Any) -> None:
        raise StorageError("disk", "gone")

    monkeypatch.setattr(partition.log, "range", fail)
    assert await code_of(serving, wanted("t"), 6) is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.failure == "disk: gone"
    assert await code_of(serving, wanted("t"), 6) is ErrorCode.KAFKA_STORAGE_ERROR
    assert await code_of(serving, wanted("t"), 5) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await serving.close()


# Isolation


def transactional(sequence: int, producer: int = 7) -> bytearray:
    about = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
    return a_batch(2, **about, is_transactional=True)


def mark(partition: Partition, kind: ControlType, producer: int = 7) -> None:
    """What a coordinator writes at the end of a transaction."""
    data = build_control(
        [(kind, bytes(6))], timestamp=START_MS, producer_id=producer, producer_epoch=0, is_transactional=True
    )
    partition.log.append_control(data, partition.leader_epoch, START_MS)
    partition._advance(partition.leadership())


@in_loop
async def test_open_transactions_are_not_read_by_those_who_want_committed_data(tmp_path: Path):
    serving = Serving(tmp_path)
    partition = await serving.topic("t")
    assert partition is not None
    await filled(serving, 1)
    partition.append(memoryview(transactional(0)))
    await filled(serving, 1)
    one = only(await fetched(serving, wanted("t")))
    assert (one.high_watermark, one.last_stable_offset, one.aborted_transactions) == (6, 2, None)
    assert offsets_in(one.records) == [0, 1, 2, 3, 4, 5]
    one = only(await fetched(serving, wanted("t"), isolation_level=STABLE))
    assert (one.high_watermark, one.last_stable_offset, one.aborted_transactions) == (6, 2, [])
    assert offsets_in(one.records) == [0, 1]
    request = fetch(wanted("t", 0, 2), version=12, isolation_level=STABLE, max_wait_ms=LONG_MS)
    parked = serving.park(request, 12)
    await filled(serving, 1)
    await turns()
    assert not parked.done()
    mark(partition, ControlType.ABORT)
    one = only(await parked)
    assert offsets_in(one.records) == [2, 3, 4, 5, 6, 7, 8]
    assert [(gone.producer_id, gone.first_offset) for gone in one.aborted_transactions] == [(7, 2)]
    one = only(await fetched(serving, wanted("t", 0, 9), isolation_level=STABLE))
    assert (one.last_stable_offset, one.aborted_transactions) == (9, [])
    await serving.close()


# Followers


def following(offset: int, epoch: int = -1, *, last: int = -1, **about: Any) -> Any:
    return wanted("t", 0, offset, current_leader_epoch=epoch, last_fetched_epoch=last, **about)


@in_loop
async def test_what_a_follower_asks_for_is_what_it_has(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2, 3))
    await filled(serving, 2)
    partition = serving.partition("t")
    one = only(await fetched(serving, following(0), replica_id=2))
    assert offsets_in(one.records) == [0, 1, 2, 3]
    assert one.high_watermark == 0
    await fetched(serving, following(4), replica_id=2)
    assert partition.high_watermark == 0
    one = only(await fetched(serving, following(2), replica_id=3))
    assert partition.high_watermark == one.high_watermark == 2
    await fetched(serving, following(4), replica_id=3)
    assert partition.high_watermark == 4
    await serving.close()


@in_loop
async def test_a_follower_that_waits_is_heard_once(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2))
    partition = serving.partition("t")
    parked = serving.park(fetch(following(0), version=17, replica_id=2, max_wait_ms=LONG_MS), 17)
    await turns()
    serving.now_ms = 500
    await filled(serving, 1)
    await parked
    follower = partition.leadership().followers[2]
    assert (follower.fetched_ms, follower.end_offset) == (0, 0)
    await serving.close()


@in_loop
async def test_a_follower_that_has_caught_up_is_proposed(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2), isr=(1,))
    partition = serving.partition("t")
    await filled(serving, 1)
    await fetched(serving, following(0), replica_id=2, broker_epoch=102)
    assert serving.proposals.added == []
    await fetched(serving, following(2), replica_id=2, broker_epoch=102)
    assert serving.proposals.added == [(partition, Proposal((1, 2), 0, 0))]
    await fetched(serving, following(2), replica_id=2, broker_epoch=102)
    assert len(serving.proposals.added) == 1
    await serving.close()


@in_loop
async def test_followers_that_are_not_who_they_were(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2), isr=(1,), leader_epoch=4)
    partition = serving.partition("t")
    stranger = {"replica_id": 3}
    assert await code_of(serving, following(0), **stranger) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await code_of(serving, following(0, 4), **stranger) is ErrorCode.UNKNOWN_LEADER_EPOCH
    old = {"replica_id": 2, "broker_epoch": 101}
    assert await code_of(serving, following(0, 4), **old) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.leadership().followers[2].end_offset == -1
    # one of whom the metadata does not know yet may read, and not join
    new = {"replica_id": 2, "broker_epoch": 200}
    assert await code_of(serving, following(0, 4), **new) is ErrorCode.NONE
    assert serving.proposals.added == []
    serving.denied.add((Operation.CLUSTER_ACTION, "kafka-cluster"))
    assert await code_of(serving, following(0), **new) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await serving.close()


@in_loop
async def test_followers_are_told_where_their_log_went_another_way(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2), leader_epoch=1)
    partition = serving.partition("t")
    await filled(serving, 2)  # epoch 1: 0 to 3
    await serving.assign("t", replicas=(1, 2), leader_epoch=5)
    await filled(serving, 1)  # epoch 5: 4 and 5

    async def ask(offset: int, last: int) -> Any:
        return only(await fetched(serving, following(offset, 5, last=last), replica_id=2))

    async def diverging(offset: int, last: int) -> tuple[int, int] | None:
        one = await ask(offset, last)
        assert one.error_code == 0
        if one.diverging_epoch is None:
            return None
        assert bytes(one.records) == b""
        assert one.log_start_offset == 0
        return one.diverging_epoch.epoch, one.diverging_epoch.end_offset

    assert await diverging(4, 1) is None
    assert await diverging(6, 5) is None
    assert partition.leadership().followers[2].end_offset == 6
    assert await diverging(6, 1) == (1, 4), "it has more of that epoch than we"
    assert await diverging(5, 3) == (1, 4), "an epoch that we never had"
    assert await diverging(0, 0) is None, "an epoch before all that we know ended where they begin"
    assert await diverging(3, 0) == (0, 0)
    assert partition.leadership().followers[2].end_offset == 0, "who diverges is not heard"
    assert (await ask(4, 6)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "an epoch to come"
    # a divergence is news at once, and for consumers too
    parked = serving.begin(fetch(following(6, 5, last=1), version=12, max_wait_ms=LONG_MS), 12)
    assert only(parked).diverging_epoch.end_offset == 4
    await serving.close()


@in_loop
async def test_somebody_who_debugs_sees_everything(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2), leader=2)
    serving.partition("t").append_fetched(0, 0, memoryview(a_batch(3)), 0)
    one = only(await fetched(serving, wanted("t"), version=9, replica_id=-2))
    assert offsets_in(one.records) == [0, 1, 2]
    await serving.close()


@in_loop
async def test_nothing_is_seen_while_too_few_are_in_sync(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2), isr=(1,), min_insync_replicas=2)
    await filled(serving, 1)
    one = only(await fetched(serving, wanted("t")))
    assert (one.high_watermark, offsets_in(one.records)) == (0, [])
    await serving.close()


@in_loop
async def test_partitions_of_a_topic_stand_together_in_the_order_of_the_request(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=2)
    await serving.topic("u")
    response = await fetched(serving, wanted("t", 1), wanted("t", 0), wanted("u"), wanted("t", 1))
    assert [
        (topic.topic_id, [one.partition_index for one in topic.partitions]) for topic in response.responses
    ] == [(topic_id("t"), [1, 0]), (topic_id("u"), [0])]
    await serving.close()
