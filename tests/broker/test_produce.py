"""Producing: every error once, mixed partitions, duplicates, and what acks=all waits for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
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

from quorate.broker.serving import Operation
from quorate.net.routes import NO_RESPONSE
from quorate.protocol.api.produce_fetch import ProduceRequest
from quorate.protocol.batch import ControlType, build_control
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.storage.errors import StorageError

NEWEST = 13
VERSIONS = list(range(3, 14))
ALL = -1


def outcome(response: Any, index: int = 0) -> Any:
    """Of the only topic."""
    (topic,) = response.responses
    return topic.partition_responses[index]


def code(response: Any, index: int = 0) -> ErrorCode:
    return ErrorCode(outcome(response, index).error_code)


async def code_of(serving: Serving, *batches: Any, version: int = NEWEST, **about: Any) -> ErrorCode:
    return code(await serving.ask(produce(*batches, **about), version))


# What goes well


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_every_version_appends(tmp_path: Path, version: int):
    serving = Serving(tmp_path)
    await serving.topic("t", leader_epoch=3)
    for base_offset in (0, 3):
        response = await serving.ask(produce(("t", 0, a_batch(3))), version)
        (topic,) = response.responses
        assert (topic.name, topic.topic_id) == (("t", bytes(16)) if version < 13 else ("", topic_id("t")))
        found = outcome(response)
        assert (found.index, found.error_code, found.base_offset) == (0, 0, base_offset)
        assert found.log_append_time_ms == -1
        assert found.log_start_offset == (0 if version >= 5 else -1)
        assert (found.record_errors, found.error_message, found.current_leader) == ([], None, None)
        assert response.node_endpoints == []
    assert list(serving.partition("t").log.epochs) == [(3, 0)]
    await serving.close()


@in_loop
async def test_the_time_of_the_append_is_told(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", message_timestamp_type="LogAppendTime")
    serving.wall_ms = START_MS + 77
    assert outcome(await serving.ask(produce(("t", 0, a_batch())), 8)).log_append_time_ms == START_MS + 77
    await serving.close()


@pytest.mark.parametrize("codec", list(Codec))
@in_loop
async def test_what_was_produced_can_be_fetched(tmp_path: Path, codec: Codec):
    serving = Serving(tmp_path)
    await serving.topic("t")
    assert await code_of(serving, ("t", 0, a_batch(40, codec=codec))) is ErrorCode.NONE
    response = await serving.ask(fetch(wanted("t"), version=12), 12)
    assert offsets_in(response.responses[0].partitions[0].records) == list(range(40))
    await serving.close()


@in_loop
async def test_partitions_succeed_and_fail_by_themselves(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=3)
    await serving.topic("elsewhere", replicas=(2, 3), leader=2, leader_epoch=5)
    damaged = a_batch()
    damaged[-1] ^= 1
    response = await serving.ask(
        produce(
            ("t", 2, a_batch(2)),
            ("t", 0, damaged),
            ("elsewhere", 0, a_batch()),
            ("t", 9, a_batch()),
            ("t", 1, a_batch(4)),
        ),
        12,
    )
    found = {
        (topic.name, one.index): (ErrorCode(one.error_code), one.base_offset)
        for topic in response.responses
        for one in topic.partition_responses
    }
    assert found == {
        ("t", 2): (ErrorCode.NONE, 0),
        ("t", 0): (ErrorCode.CORRUPT_MESSAGE, -1),
        ("t", 9): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("t", 1): (ErrorCode.NONE, 0),
        ("elsewhere", 0): (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
    }
    assert [serving.partition("t", index).log.end_offset for index in range(3)] == [0, 4, 2]
    await serving.close()


# Errors


def edited(position: int, value: int) -> bytearray:
    data = a_batch()
    data[position] = value
    return data


@pytest.mark.parametrize(
    ("data", "version", "expected"),
    [
        (None, 9, ErrorCode.INVALID_RECORD),
        (b"", 9, ErrorCode.INVALID_RECORD),
        (a_batch() + a_batch(), 9, ErrorCode.INVALID_RECORD),
        (edited(16, 1), 9, ErrorCode.INVALID_RECORD),
        (edited(7, 1), 9, ErrorCode.INVALID_RECORD),
        (a_batch(codec=Codec.ZSTD), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (a_batch(codec=Codec.ZSTD), 7, ErrorCode.NONE),
        (edited(65, 99), 9, ErrorCode.CORRUPT_MESSAGE),
        (a_batch(value_bytes=2000), 9, ErrorCode.MESSAGE_TOO_LARGE),
        (a_batch(5, value_bytes=200), 9, ErrorCode.RECORD_LIST_TOO_LARGE),
        (build_control([(ControlType.COMMIT, bytes(6))], timestamp=0), 9, ErrorCode.INVALID_RECORD),
        (a_batch(timestamp=START_MS + 7_200_000), 9, ErrorCode.INVALID_TIMESTAMP),
        (a_batch(producer_id=1, producer_epoch=0), 9, ErrorCode.INVALID_RECORD),
    ],
)
@in_loop
async def test_batches_that_are_refused(tmp_path: Path, data: Any, version: int, expected: ErrorCode):
    serving = Serving(tmp_path)
    await serving.topic("t", max_message_bytes=1500, segment_bytes=1024 * 1024)
    # smaller than a controller would allow
    serving.partition("t").log._log.config = type(serving.partition("t").log.config)(segment_bytes=1000)
    response = await serving.ask(produce(("t", 0, data)), version)
    assert code(response) is expected
    if expected is not ErrorCode.NONE:
        found = outcome(response)
        assert (found.base_offset, found.log_append_time_ms) == (-1, -1)
        assert found.error_message if version >= 8 else found.error_message is None
        assert serving.partition("t").log.end_offset == 0
    await serving.close()


@pytest.mark.parametrize("version", [7, 8])
@in_loop
async def test_bad_records_are_listed_to_those_who_can_read_it(tmp_path: Path, version: int):
    serving = Serving(tmp_path)
    await serving.topic("t", cleanup_policy="compact")
    response = await serving.ask(produce(("t", 0, a_batch(3, key=None))), version)
    assert code(response) is ErrorCode.INVALID_RECORD
    listed = [one.batch_index for one in outcome(response).record_errors]
    assert listed == ([] if version < 8 else [0, 1, 2])
    await serving.close()


@in_loop
async def test_topics_that_are_not_there(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await code_of(serving, ("x", 0, a_batch()), version=12) is unknown
    assert await code_of(serving, ("x", 0, a_batch()), version=13) is ErrorCode.UNKNOWN_TOPIC_ID
    for version in (12, 13):
        assert await code_of(serving, ("t", 5, a_batch()), version=version) is unknown
        assert await code_of(serving, ("t", -1, a_batch()), version=version) is unknown
    await serving.close()


@pytest.mark.parametrize("version", [9, 10, 13])
@in_loop
async def test_who_does_not_lead_says_who_does(tmp_path: Path, version: int):
    serving = Serving(tmp_path)
    await serving.topic("followed", replicas=(1, 2), leader=2, leader_epoch=6)
    await serving.topic("elsewhere", replicas=(3,), leader=3, leader_epoch=8)
    for name, leader, epoch in (("followed", 2, 6), ("elsewhere", 3, 8)):
        response = await serving.ask(produce((name, 0, a_batch())), version)
        assert code(response) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version < 10:
            assert outcome(response).current_leader is None
            assert response.node_endpoints == []
            continue
        found = outcome(response).current_leader
        assert (found.leader_id, found.leader_epoch) == (leader, epoch)
        (endpoint,) = response.node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.port) == (leader, f"host-{leader}", 9000 + leader)
    await serving.close()


@pytest.mark.parametrize("acks", [2, -2, 100])
@in_loop
async def test_acks_that_mean_nothing(tmp_path: Path, acks: int):
    serving = Serving(tmp_path)
    await serving.topic("t")
    assert await code_of(serving, ("t", 0, a_batch()), acks=acks) is ErrorCode.INVALID_REQUIRED_ACKS
    assert serving.partition("t").log.end_offset == 0
    await serving.close()


@in_loop
async def test_internal_topics_are_not_for_clients(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("__consumer_offsets")
    request = produce(("__consumer_offsets", 0, a_batch()))
    assert code(await serving.ask(request, 12)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code(await serving.ask(request, 12, client_id="__admin_client")) is ErrorCode.NONE
    await serving.close()


@in_loop
async def test_who_may_not_write(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    about: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    transactional = a_batch(**about, is_transactional=True)
    failed = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    both = ("t", 0, a_batch()), ("t", 0, transactional)
    response = await serving.ask(produce(*both), 12)
    assert [code(response, index) for index in (0, 1)] == [failed, failed]
    assert await code_of(serving, *both, transactional_id="mine") is failed, "there are no transactions"
    serving.denied.add((Operation.WRITE, "t"))
    assert await code_of(serving, ("t", 0, a_batch())) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert await code_of(serving, ("x", 0, a_batch())) is ErrorCode.UNKNOWN_TOPIC_ID
    await serving.close()


@in_loop
async def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    serving = Serving(tmp_path)
    partition = await serving.topic("t")
    assert partition is not None

    def fail(*_: Any) -> None:
        raise StorageError("disk", "no space left")

    monkeypatch.setattr(partition.log, "append_produced", fail)
    for _ in range(2):
        assert await code_of(serving, ("t", 0, a_batch())) is ErrorCode.KAFKA_STORAGE_ERROR
    assert serving.shelf.failed == [partition.log]
    assert partition.failure == "disk: no space left"
    await serving.close()


# Nobody is answered


@in_loop
async def test_with_acks_0_nothing_is_said_unless_something_is_wrong(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=2)
    assert serving.begin(produce(("t", 0, a_batch(2)), acks=0), 9) is NO_RESPONSE
    with pytest.raises(ApiError) as caught:
        serving.begin(produce(("t", 7, a_batch()), ("t", 1, a_batch(3)), acks=0), 9)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # what could be appended was
    assert [serving.partition("t", index).log.end_offset for index in (0, 1)] == [2, 3]
    await serving.close()


# Idempotence


def sequenced(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 9) -> bytearray:
    return a_batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


@in_loop
async def test_a_producer_that_sends_again(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", message_timestamp_type="LogAppendTime")
    for sequence in range(6):
        serving.wall_ms = START_MS + sequence
        found = outcome(await serving.ask(produce(("t", 0, sequenced(sequence * 2, 2))), 9))
        assert (found.error_code, found.base_offset) == (0, sequence * 2)
    serving.wall_ms = START_MS + 1000
    for sequence in range(1, 6):  # of the last five, each is answered as it was
        found = outcome(await serving.ask(produce(("t", 0, sequenced(sequence * 2, 2))), 9))
        assert (found.error_code, found.base_offset) == (0, sequence * 2)
        assert found.log_append_time_ms == START_MS + sequence
    assert serving.partition("t").log.end_offset == 12
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await code_of(serving, ("t", 0, sequenced(0, 2))) is out_of_order, "too long ago"
    assert await code_of(serving, ("t", 0, sequenced(10, 3))) is out_of_order, "another batch"
    assert await code_of(serving, ("t", 0, sequenced(14))) is out_of_order, "a gap"
    assert await code_of(serving, ("t", 0, sequenced(1, epoch=1))) is out_of_order, "a new epoch begins at 0"
    assert await code_of(serving, ("t", 0, sequenced(0, epoch=1))) is ErrorCode.NONE
    assert await code_of(serving, ("t", 0, sequenced(12))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await code_of(serving, ("t", 0, sequenced(77, producer=10))) is ErrorCode.NONE, "an unknown one"
    await serving.close()


# acks=all


async def replicated(serving: Serving, **configs: Any) -> None:
    await serving.topic("t", replicas=(1, 2), **configs)


def follow(serving: Serving, offset: int, *, follower: int = 2, topic: str = "t", partition: int = 0) -> None:
    serving.begin(fetch(wanted(topic, partition, offset), version=17, replica_id=follower), 17)


@in_loop
async def test_alone_a_leader_answers_at_once(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    response = serving.begin(produce(("t", 0, a_batch()), acks=ALL), 9)
    assert code(response) is ErrorCode.NONE
    await serving.close()


@in_loop
async def test_it_waits_for_the_followers(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2), partitions=2)
    request = produce(("t", 0, a_batch(2)), ("t", 1, a_batch()), ("t", 5, a_batch()), acks=ALL)
    parked = serving.park(request, 12)
    await turns()
    follow(serving, 2)
    await turns()
    assert not parked.done()
    follow(serving, 1, partition=1)
    response = await parked
    assert [code(response, index) for index in range(3)] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert outcome(response).base_offset == 0
    await serving.close()


@in_loop
async def test_what_is_sent_again_is_waited_for_again(tmp_path: Path):
    serving = Serving(tmp_path)
    await replicated(serving)
    first = serving.park(produce(("t", 0, sequenced(0)), acks=ALL), 9)
    again = serving.park(produce(("t", 0, sequenced(0)), acks=ALL), 9)
    await turns()
    follow(serving, 1)
    assert outcome(await first).base_offset == outcome(await again).base_offset == 0
    await serving.close()


@in_loop
async def test_too_few_in_sync_before_the_append(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2), isr=(1,), min_insync_replicas=2)
    assert await code_of(serving, ("t", 0, a_batch()), acks=ALL) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert serving.partition("t").log.end_offset == 0
    # who does not care is served, but nobody sees it
    assert await code_of(serving, ("t", 0, a_batch()), acks=1) is ErrorCode.NONE
    assert serving.partition("t").high_watermark == 0
    await serving.close()


@in_loop
async def test_no_more_are_asked_for_than_there_are(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", min_insync_replicas=3)
    assert await code_of(serving, ("t", 0, a_batch()), acks=ALL) is ErrorCode.NONE
    await serving.close()


@in_loop
async def test_too_few_in_sync_after_the_append(tmp_path: Path):
    serving = Serving(tmp_path)
    await replicated(serving, min_insync_replicas=2)
    parked = serving.park(produce(("t", 0, a_batch()), acks=ALL), 12)
    await turns()
    partition = serving.partition("t")
    await serving.assign("t", replicas=(1, 2), isr=(1,), partition_epoch=1)
    await turns()
    assert not parked.done(), "what too few have is not committed"
    assert partition.high_watermark == 0
    await serving.assign("t", replicas=(1, 2), partition_epoch=2)
    follow(serving, 1)
    assert code(await parked) is ErrorCode.NONE
    # it is committed, but more are asked for by now than are in sync
    await serving.assign("t", replicas=(1, 2, 3), isr=(1, 2), partition_epoch=3)
    partition.configure(replace(partition.config, min_isr=3))
    assert partition.committed(0) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert partition.committed(1) is None
    await serving.close()


@in_loop
async def test_who_waits_too_long_is_told_so(tmp_path: Path):
    serving = Serving(tmp_path)
    await replicated(serving)
    request = produce(("t", 0, a_batch()), acks=ALL, timeout_ms=5)
    assert code(await serving.ask(request, 12)) is ErrorCode.REQUEST_TIMED_OUT
    assert serving.partition("t").log.end_offset == 1, "but it is there"
    assert len(serving.partition("t")._commits) == 0
    await serving.close()


@in_loop
async def test_who_loses_the_leadership_says_who_has_it(tmp_path: Path):
    serving = Serving(tmp_path)
    await replicated(serving)
    parked = serving.park(produce(("t", 0, a_batch()), acks=ALL), 12)
    await turns()
    await serving.assign("t", replicas=(1, 2), leader=2, leader_epoch=1)
    response = await parked
    assert code(response) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert outcome(response).current_leader.leader_id == 2
    await serving.close()


@in_loop
async def test_who_leads_again_still_commits(tmp_path: Path):
    """A new epoch of the same leader takes nothing away, so nobody has to send again."""
    serving = Serving(tmp_path)
    await replicated(serving)
    parked = serving.park(produce(("t", 0, a_batch()), acks=ALL), 12)
    await turns()
    await serving.assign("t", replicas=(1, 2), leader_epoch=1)
    await turns()
    assert not parked.done()
    follow(serving, 1)
    assert code(await parked) is ErrorCode.NONE
    await serving.close()


@in_loop
async def test_a_lost_connection_leaves_nothing_behind(tmp_path: Path):
    serving = Serving(tmp_path)
    await replicated(serving)
    for steps in (0, 5):  # before and after it has begun to wait
        parked = serving.park(produce(("t", 0, a_batch()), acks=ALL), 12)
        await turns(steps)
        parked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await parked
        assert len(serving.partition("t")._commits) == 0
    await serving.close()


@in_loop
async def test_a_request_for_nothing(tmp_path: Path):
    serving = Serving(tmp_path)
    for acks in (1, ALL):
        response = await serving.ask(ProduceRequest(acks=acks, timeout_ms=1, topic_data=[]), 9)
        assert response.responses == []
    await serving.close()


@in_loop
async def test_headers_alone_may_be_looked_at(tmp_path: Path):
    serving = Serving(tmp_path, scans_records=False)
    await serving.topic("t")
    assert await code_of(serving, ("t", 0, a_batch(3))) is ErrorCode.NONE
    damaged = a_batch()
    damaged[-1] ^= 1
    assert await code_of(serving, ("t", 0, damaged)) is ErrorCode.CORRUPT_MESSAGE
    await serving.close()
