"""Several produce requests at once: one write for a partition, and the same answers as one by one."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from serving import LISTENER, Serving, a_batch, in_loop, produce

from quorate.broker.handlers.produce import ProduceHandler
from quorate.broker.partition import Partition
from quorate.broker.quotas import Quotas
from quorate.broker.serving import Operation
from quorate.net.routes import RequestContext
from quorate.protocol.api.produce_fetch import ProduceRequest
from quorate.protocol.batch import batches
from quorate.protocol.errors import ErrorCode
from quorate.protocol.frame import decode_request, encode_request
from quorate.storage.errors import StorageError
from quorate.storage.partition_log import PartitionLog

NEWEST = 13
ALL = -1
CONTEXT = RequestContext(LISTENER, "127.0.0.1", 4711, "test")


def sent(request: ProduceRequest, version: int = NEWEST) -> Any:
    """Header and request, as they come off a wire."""
    return decode_request(encode_request(request, version, 1, "test"), 4)


def handler(serving: Serving) -> ProduceHandler:
    found = serving.handlers[ProduceRequest]
    assert isinstance(found, ProduceHandler)
    return found


def answers(serving: Serving, *requests: ProduceRequest, version: int = NEWEST) -> list[Any]:
    return list(handler(serving).series.answer(CONTEXT, [sent(one, version) for one in requests]))


def outcomes(response: Any) -> list[tuple[int, int, int]]:
    """Partition, error and base offset of each."""
    return [
        (one.index, one.error_code, one.base_offset)
        for topic in response.responses
        for one in topic.partition_responses
    ]


class Writes:
    """Counts the writes of a partition, and lets them fail."""

    def __init__(self, partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.failure: StorageError | None = None
        log = partition.log._log
        append = log.append_stamped

        def counted(buffers: Any, headers: Any, now_ms: int) -> None:
            if self.failure is not None:
                raise self.failure
            self.sizes.append(len(headers))
            append(buffers, headers, now_ms)

        monkeypatch.setattr(log, "append_stamped", counted)


def numbered(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0) -> bytearray:
    return a_batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("acks", [1, ALL])
@in_loop
async def test_what_comes_for_a_partition_is_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: int, version: int
):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=2)
    writes = [Writes(serving.partition("t", one), monkeypatch) for one in (0, 1)]
    found = answers(
        serving,
        produce(("t", 0, a_batch(2)), acks=acks),
        produce(("t", 1, a_batch(3)), ("t", 0, a_batch()), acks=acks),
        produce(("t", 0, a_batch(4)), acks=acks),
        version=version,
    )
    assert [outcomes(one) for one in found] == [[(0, 0, 0)], [(1, 0, 0), (0, 0, 2)], [(0, 0, 3)]]
    assert [one.sizes for one in writes] == [[3], [1]]
    assert serving.partition("t").high_watermark == 7
    await serving.close()


@in_loop
async def test_sequences_go_on_within_a_write(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    found = answers(
        serving,
        *(
            produce(("t", 0, one))
            for one in (numbered(0, 2), numbered(2), numbered(0, 2), numbered(5), numbered(3))
        ),
    )
    wrong = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [outcomes(one) for one in found] == [
        [(0, 0, 0)],
        [(0, 0, 2)],
        [(0, 0, 0)],  # it has come before, in the same write
        [(0, wrong, -1)],
        [(0, 0, 3)],
    ]
    assert serving.partition("t").log.end_offset == 4
    await serving.close()


@in_loop
async def test_a_write_that_fails_fails_all_that_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    serving = Serving(tmp_path)
    partition = await serving.topic("t", partitions=2)
    assert partition is not None
    writes = Writes(partition, monkeypatch)
    answers(serving, produce(("t", 0, numbered(0))), produce(("t", 0, numbered(1))))
    writes.failure = StorageError("disk", "no space left")
    damaged = a_batch()
    damaged[-1] ^= 1
    some = (numbered(2), numbered(0), damaged, numbered(3))
    found = answers(serving, *(produce(("t", 0, one)) for one in some), produce(("t", 1, a_batch())))
    failed = ErrorCode.KAFKA_STORAGE_ERROR
    codes = [one[1] for response in found for one in outcomes(response)]
    # Whatever was found out of the second: the write that it came with has failed. And so has the directory.
    assert codes == [failed, failed, ErrorCode.CORRUPT_MESSAGE, failed, failed]
    assert partition.log.end_offset == 2
    assert partition.log.producers.of(7).last_sequence == 1  # type: ignore[union-attr]
    assert serving.shelf.failed == [partition.log]
    await serving.close()


@in_loop
async def test_only_what_is_answered_at_once_is_taken(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    await serving.topic("copied", replicas=(1, 2))
    await serving.topic("followed", replicas=(2, 1), leader=2)
    takes = handler(serving).series.takes

    def is_taken(*topics: str, acks: int) -> bool:
        return all(
            takes(*sent(produce(*((one, 0, a_batch()) for one in topics), acks=acks), version))
            for version in (9, NEWEST)
        )

    assert is_taken("t", acks=1)
    assert is_taken("copied", acks=1)
    assert is_taken("t", acks=ALL)
    assert not is_taken("t", acks=0)
    assert not is_taken("copied", acks=ALL)
    assert not is_taken("t", "copied", acks=ALL)
    assert not is_taken("followed", acks=ALL)
    assert not is_taken("unknown", acks=ALL)
    serving.broker.quotas = Quotas()
    serving.broker.quotas.request.is_set = True
    assert not is_taken("t", acks=1)
    serving.broker.quotas.request.is_set = False
    serving.broker.quotas.produce.is_set = True
    assert not is_taken("t", acks=1)
    await serving.close()


def some_requests(random: Random) -> list[ProduceRequest]:
    """What a client with several producers may send, some of it wrong."""
    sequences = {7: 0, 8: 0}

    def batch() -> bytearray:
        kind = random.randrange(10)
        if kind < 4:
            return a_batch(random.randint(1, 3))
        producer_id = random.choice([7, 8])
        count = random.randint(1, 3)
        sequence = sequences[producer_id]
        if kind == 4:
            return numbered(max(0, sequence - random.randint(0, 4)), count, producer_id=producer_id)
        if kind == 5:
            return numbered(sequence + 5, count, producer_id=producer_id)
        if kind == 6:
            found = a_batch()
            found[random.randrange(len(found))] ^= 1
            return found
        if kind == 7:
            return a_batch(value_bytes=600)  # max.message.bytes is less
        sequences[producer_id] += count
        return numbered(sequence, count, producer_id=producer_id)

    def places() -> list[tuple[str, int]]:
        some = [("t", 0), ("t", 1), ("u", 0), ("forbidden", 0), ("followed", 0), ("unknown", 0), ("t", 9)]
        return random.choices(some, [8, 4, 4, 1, 1, 1, 1], k=random.choice([1, 1, 1, 2, 3]))

    return [
        produce(*((topic, one, batch()) for topic, one in places()), acks=random.choice([1, 1, ALL]))
        for _ in range(random.randint(2, 12))
    ]


def stored(log: PartitionLog) -> bytes:
    """All bytes of a log, whatever its segments are."""
    found, offset = b"", 0
    while offset < log.end_offset:
        some = bytes(log.read(offset, 1 << 20))
        offset = list(batches(some))[-1].next_offset
        found += some
    return found


@pytest.mark.parametrize("seed", range(20))
@in_loop
async def test_the_answers_are_those_of_one_by_one(tmp_path: Path, seed: int):
    brokers = [Serving(tmp_path / name) for name in ("together", "apart")]
    for serving in brokers:
        await serving.topic("t", partitions=2, max_message_bytes=500, segment_bytes=2000)
        await serving.topic("u", message_timestamp_type="LogAppendTime", max_message_bytes=500)
        await serving.topic("forbidden")
        await serving.topic("followed", replicas=(2, 1), leader=2)
        serving.denied.add((Operation.WRITE, "forbidden"))
    together, apart = brokers
    random = Random(seed)
    for _ in range(4):
        version = random.choice([3, 9, NEWEST])
        requests = some_requests(random)
        wires = [encode_request(one, version, 1, "test") for one in requests]
        expected = [handler(apart)(CONTEXT, *decode_request(bytearray(one), 4)) for one in wires]
        found = handler(together).series.answer(CONTEXT, [decode_request(bytearray(one), 4) for one in wires])
        for one, other in zip(found, expected, strict=True):
            assert repr(one) == repr(other)
    for topic, partition_id in (("t", 0), ("t", 1), ("u", 0)):
        logs = [serving.partition(topic, partition_id).log for serving in brokers]
        assert stored(logs[0]) == stored(logs[1])
        assert logs[0].end_offset == logs[1].end_offset
        assert logs[0].producers == logs[1].producers
    for serving in brokers:
        await serving.close()
