"""The log of a partition: batches, producers and transactions together."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from failing_files import FailingFiles
from partition_logs import (
    a_marker,
    a_produced,
    as_produced,
    check_producers,
    opened_partition,
    produce,
    replayed,
    stored,
)
from stored_batches import FILES, SMALL, a_batch, split

from quorate.lab.world import SECOND, World
from quorate.node.host import Host
from quorate.protocol.batch import Record, build, read_header, validate
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Buffer
from quorate.storage.errors import AppendError, StorageError
from quorate.storage.indexes import AbortedTransaction
from quorate.storage.limits import LogConfig
from quorate.storage.partition_log import Appended, DamagedBatchError, PartitionLog, Produced
from quorate.storage.producer_states import ProducerStates

FIRST = "00000000000000000000"


def names(directory: Path, suffix: str) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob(f"*{suffix}"))


def produce_until_it_fails(log: PartitionLog) -> None:
    for _ in range(1000):
        produce(log, a_produced(7, log.end_offset, value_bytes=50))


# Appending what clients send


def test_a_batch_gets_its_place_where_it_lies(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path)
        assert produce(log, a_produced(count=3, timestamp=70), leader_epoch=4) == Appended(0, 2, False, 72)
        buffer = bytearray(b"before") + a_produced(count=2) + b"after"
        header = validate(buffer, 6)
        assert log.append_produced(buffer, header, 5, 0) == Appended(3, 4, False, 1001)
        stamped = validate(buffer, 6)
        assert (stamped.base_offset, stamped.partition_leader_epoch) == (3, 5)
        assert bytes(log.read(3, 1000)) == bytes(buffer[6:-5])
        assert (log.start_offset, log.end_offset, log.flushed_offset) == (0, 5, 0)
        assert list(log.epochs) == [(4, 0), (5, 3)]
        assert log.size_bytes == (tmp_path / f"{FIRST}.log").stat().st_size
        assert await log.flush() == log.flushed_offset == 5
        await log.close()

    asyncio.run(scenario())


def test_a_duplicate_is_answered_with_where_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path)
        produce(log, a_produced(count=2))
        first = produce(log, a_produced(7, 0, 3, timestamp=50))
        assert first == Appended(2, 4, False, 52)
        produce(log, a_produced(7, 3, 1))
        again = a_produced(7, 0, 3, timestamp=50)
        assert produce(log, again) == first._replace(is_duplicate=True)
        assert read_header(again).base_offset == 0, "nothing was written into it"
        assert log.end_offset == 6
        with pytest.raises(ApiError) as refusal:
            produce(log, a_produced(7, 5))
        assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert log.end_offset == 6
        await log.close()

    asyncio.run(scenario())


def test_several_batches_are_one_write(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        log = await opened_partition(tmp_path, LogConfig(), files=files)
        produce(log, a_produced(7, 0, 2))
        files.operations.clear()
        frame = a_produced(8, 0) + a_produced(count=2)
        answers = log.append_many(
            [
                as_produced(a_produced(7, 0, 2)),
                as_produced(a_produced(7, 2)),
                as_produced(a_produced(7, 3)),
                as_produced(a_produced(7, 5)),
                Produced(frame, validate(frame)),
                Produced(frame, validate(frame, len(a_produced(8, 0)))),
                as_produced(a_produced(7, 2)),
                as_produced(a_produced(7, 4)),
            ],
            3,
            0,
        )
        assert answers[:3] == [
            Appended(0, 1, True, 1001),
            Appended(2, 2, False, 1000),
            Appended(3, 3, False, 1000),
        ]
        assert isinstance(answers[3], ApiError)
        assert answers[3].code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert answers[4:] == [
            Appended(4, 4, False, 1000),
            Appended(5, 6, False, 1001),
            Appended(2, 2, True, 1000),
            Appended(7, 7, False, 1000),
        ]
        assert files.operations == [("append", f"{FIRST}.log")]
        assert log.end_offset == 8
        check_producers(log)
        await log.close()

    asyncio.run(scenario())


def test_more_than_a_segment_is_more_than_one_write(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path)
        sent = [as_produced(a_produced(7, sequence, value_bytes=300)) for sequence in range(20)]
        answers = log.append_many(sent, 0, 0)
        assert [answer.base_offset for answer in answers] == list(range(20))  # type: ignore[union-attr]
        assert all(segment.size_bytes <= SMALL.segment_bytes for segment in log.segments)
        check_producers(log)
        too_large = a_produced(value_bytes=2000)
        [refusal] = log.append_many([as_produced(too_large)], 0, 0)
        assert isinstance(refusal, ApiError)
        with pytest.raises(ApiError) as raised:
            produce(log, too_large)
        assert refusal.code is raised.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
        assert log.append_many([], 0, 0) == []
        await log.close()

    asyncio.run(scenario())


def test_a_failed_write_leaves_no_trace_of_its_producer(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        log = await opened_partition(tmp_path, files=files)
        produce(log, a_produced(7, 0))
        files.broken = {("append", ".log")}
        with pytest.raises(StorageError, match="broken"):
            produce(log, a_produced(7, 1))
        files.broken = set()
        await log.flush()
        files.broken = {("append", ".log")}
        answers = log.append_many([as_produced(a_produced(7, 1)), as_produced(a_produced(7, 2))], 0, 0)
        assert [str(answer) for answer in answers] == [str(answers[0])] * 2
        assert isinstance(answers[0], StorageError)
        files.broken = set()
        await log.flush()
        check_producers(log)
        assert produce(log, a_produced(7, 1)) == Appended(1, 1, False, 1000)
        await log.close()

    asyncio.run(scenario())


def test_what_was_written_before_a_write_failed_is_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        log = await opened_partition(tmp_path, files=files)
        number = SMALL.segment_bytes // len(a_produced(7, 0, value_bytes=300))
        sent = [as_produced(a_produced(7, sequence, value_bytes=300)) for sequence in range(number + 2)]
        second = f"{number:020d}.log"
        files.broken = {("append", second)}
        answers = log.append_many([*sent[: number + 1], as_produced(a_produced(7, 99)), sent[-1]], 0, 0)
        assert [one.base_offset for one in answers[:number]] == list(range(number))  # type: ignore[union-attr]
        assert all(isinstance(one, StorageError) for one in answers[number:])
        assert len(answers) == number + 3
        assert log.end_offset == number
        files.broken = set()
        await log.flush()
        check_producers(log)
        assert produce(log, a_produced(7, number)).base_offset == number
        await log.close()

    asyncio.run(scenario())


def test_a_leader_does_not_go_back_to_an_older_epoch(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path)
        log.assign_epoch(5)
        for append in (
            lambda: produce(log, a_produced(), 4),
            lambda: log.append_many([as_produced(a_produced())], 4, 0),
            lambda: log.append_control(a_marker(7, is_abort=True), 4, 0),
        ):
            with pytest.raises(AppendError, match="epoch 4 after epoch 5"):
                append()
        assert log.end_offset == 0
        await log.close()

    asyncio.run(scenario())


# Appending what a leader has


def test_a_follower_takes_what_a_leader_has(tmp_path: Path) -> None:
    async def scenario() -> None:
        leader = await opened_partition(tmp_path / "leader")
        for buffer in (a_produced(7, 55, 2), a_produced(8, 0, is_transactional=True), a_produced()):
            produce(leader, buffer, leader_epoch=2)
        leader.append_control(a_marker(8, is_abort=True), 3, 0)
        follower = await opened_partition(tmp_path / "follower")
        data = bytes(leader.read(0, 10_000))
        assert follower.append_replicated(data[:-1], 0) == 4, "a fetch may end within a batch"
        assert follower.append_replicated(leader.read(4, 10_000), 0) == 5
        assert follower.append_replicated(b"", 0) == 5
        assert bytes(follower.read(0, 10_000)) == data
        assert follower.producers == leader.producers
        assert follower.aborted_between(0, 5) == leader.aborted_between(0, 5) != []
        assert list(follower.epochs) == list(leader.epochs)
        check_producers(follower)
        await follower.close()
        await leader.close()

    asyncio.run(scenario())


def test_batches_that_the_leader_cannot_have_written_are_left_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path)
        data = a_batch(0, epoch=1) + a_batch(1, epoch=3) + a_batch(2, epoch=1)
        assert log.append_replicated(data, 0, epoch_max=2) == 1
        assert log.append_replicated(a_batch(1, epoch=2), 0, epoch_max=2) == 2
        await log.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (a_batch(1)[:-1] + b"?", "checksum"),
        (bytes(100), "magic 0"),
        (a_batch(0), "a batch at offset 0, before 1"),
        (a_batch(1) + a_batch(1), "a batch at offset 1, before 2"),
    ],
)
def test_what_is_damaged_or_out_of_order_is_refused_as_a_whole(
    tmp_path: Path, data: bytes, error: str
) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path)
        produce(log, a_produced())
        with pytest.raises((ApiError, AppendError), match=error):
            log.append_replicated(data, 0)
        assert log.end_offset == 1
        await log.close()

    asyncio.run(scenario())


# Transactions


def test_aborted_transactions_are_found_where_a_reader_reads(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path)
        for index in range(8):
            for step in range(4):
                sequence = (index * 4 + step) * 2
                produce(log, a_produced(7, sequence, 2, is_transactional=True, value_bytes=40))
            log.append_control(a_marker(7, is_abort=index % 2 == 0), 0, 0)
        assert len(log.segments) > 2
        aborted = [AbortedTransaction(7, at, at + 8, at + 9) for at in range(0, 72, 18)]
        assert log.aborted_between(0, 72) == aborted
        assert log.aborted_between(20, 37) == aborted[1:3]
        assert log.aborted_between(20, 36) == aborted[1:2], "the end does not count"
        assert log.aborted_between(40, 41) == [aborted[2]]
        assert log.aborted_between(9, 18) == []
        assert log.first_unstable_offset == 0
        log.replicated_to(72)
        assert log.first_unstable_offset is None
        await log.close()
        for recovery_point in (None, 0, 40, 72):
            log = await opened_partition(tmp_path, recovery_point=recovery_point)
            assert log.aborted_between(0, 72) == aborted
            log.abandon()
        for path in tmp_path.glob("*.txnindex"):
            path.write_bytes(path.read_bytes()[:-3])
        log = await opened_partition(tmp_path, recovery_point=None)
        assert log.recovery.rebuilt_indexes
        assert log.aborted_between(0, 72) == aborted
        await log.close()

    asyncio.run(scenario())


def test_an_open_transaction_survives_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path)
        produce(log, a_produced(1, 0))
        produce(log, a_produced(7, 0, is_transactional=True))
        await log.close()
        log = await opened_partition(tmp_path, recovery_point=None)
        assert log.first_unstable_offset == 1
        produce(log, a_produced(1, 1))
        log.append_control(a_marker(7, is_abort=True), 0, 0)
        log.abandon()
        log = await opened_partition(tmp_path, recovery_point=2)
        assert log.aborted_between(0, 4) == [AbortedTransaction(7, 1, 3, 4)]
        await log.delete_until(2, 0)
        assert log.first_unstable_offset == 2, "not before the log begins"
        await log.close()

    asyncio.run(scenario())


def test_a_coordinator_that_was_replaced_cannot_write(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path)
        assert log.append_control(a_marker(7, is_abort=False, coordinator_epoch=3), 0, 0) == (
            Appended(0, 0, False, 1000)
        )
        with pytest.raises(ApiError) as refusal:
            log.append_control(a_marker(7, is_abort=False, coordinator_epoch=2), 0, 0)
        assert refusal.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert log.end_offset == 1
        await log.close()

    asyncio.run(scenario())


def test_a_marker_that_cannot_be_indexed_ends_the_use_of_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        log = await opened_partition(tmp_path, files=files)
        produce(log, a_produced(7, 0, is_transactional=True))
        files.broken = {("create", ".txnindex")}
        with pytest.raises(StorageError, match="broken"):
            log.append_control(a_marker(7, is_abort=True), 0, 0)
        with pytest.raises(StorageError, match="broken"):
            log.read(0, 100)
        log.abandon()
        log = await opened_partition(tmp_path)
        assert log.aborted_between(0, 2) == [AbortedTransaction(7, 0, 1, 2)]
        await log.close()

    asyncio.run(scenario())


# Snapshots of producers


async def with_segments(directory: Path, count: int = 30) -> PartitionLog:
    """A log of several segments, written by three producers."""
    log = await opened_partition(directory)
    for index in range(count):
        produce(log, a_produced(index % 3, index // 3 * 2, 2, value_bytes=50))
    assert len(log.segments) > 2
    return log


def test_a_snapshot_is_taken_where_a_segment_begins_and_at_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await with_segments(tmp_path)
        bases = [segment.base_offset for segment in log.segments]
        assert names(tmp_path, ".snapshot") == bases[1:]
        before = log.producers
        await log.close()
        assert names(tmp_path, ".snapshot") == [*bases[1:], 60]
        log = await opened_partition(tmp_path, recovery_point=None)
        assert {len(state.batches) for state in log.producers} == {1}
        assert sorted(log.producers.entries()) == sorted(before.entries())
        duplicate = produce(log, a_produced(2, 18, 2, value_bytes=50))
        assert duplicate == Appended(58, 59, True, 1001)
        await log.close()
        assert names(tmp_path, ".snapshot") == [*bases[1:], 60], "nothing has changed"
        log = await opened_partition(tmp_path, recovery_point=None)
        produce(log, a_produced(0, 20))
        await log.close()
        await (await opened_partition(tmp_path, recovery_point=None)).close()
        assert names(tmp_path, ".snapshot") == [*bases[1:], 61], "only the newest of those in between stays"

    asyncio.run(scenario())


def test_an_empty_log_needs_no_snapshot(tmp_path: Path) -> None:
    async def scenario() -> None:
        await (await opened_partition(tmp_path)).close()
        assert names(tmp_path, ".snapshot") == []

    asyncio.run(scenario())


@pytest.mark.parametrize("damage", ["torn", "gone", "garbage"])
def test_without_its_newest_snapshots_more_of_the_log_is_read(tmp_path: Path, damage: str) -> None:
    async def scenario() -> None:
        log = await with_segments(tmp_path)
        expected = log.producers
        await log.close()
        for lost in range(len(names(tmp_path, ".snapshot"))):
            path = max(tmp_path.glob("*.snapshot"))
            if damage == "gone":
                path.unlink()
            else:
                path.write_bytes(path.read_bytes()[:-1] if damage == "torn" else b"?" * 100)
            log = await opened_partition(tmp_path, recovery_point=None)
            assert sorted(log.producers.entries()) == sorted(expected.entries()), lost
            check_producers(log)
            log.abandon()
        assert names(tmp_path, ".snapshot") == []

    asyncio.run(scenario())


def test_snapshots_go_with_their_segments_but_what_they_said_stays(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await with_segments(tmp_path)
        produce(log, a_produced(9, 70, 1))
        bases = [segment.base_offset for segment in log.segments]
        await log.delete_until(bases[2] + 1, 0)
        assert names(tmp_path, ".snapshot") == bases[2:]
        await log.delete_until(log.end_offset, 0)
        assert names(tmp_path, ".snapshot") == [61]
        assert names(tmp_path, ".log") == [61]
        log.abandon()
        log = await opened_partition(tmp_path, recovery_point=0, start_offset=61)
        assert produce(log, a_produced(9, 70, 1)) == Appended(60, 60, True, 1000)
        assert produce(log, a_produced(9, 71, 1)) == Appended(61, 61, False, 1000)
        await log.close()

    asyncio.run(scenario())


def test_a_cut_forgets_what_was_known_only_from_what_was_cut(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await with_segments(tmp_path)
        produce(log, a_produced(7, 0, is_transactional=True))
        log.append_control(a_marker(7, is_abort=True), 0, 0)
        bases = [segment.base_offset for segment in log.segments]
        for offset in (61, 60, 47, bases[1], 3, 0):
            await log.truncate_to(offset)
            check_producers(log)
            assert all(found <= log.end_offset for found in names(tmp_path, ".snapshot"))
            assert (log.first_unstable_offset is not None) == (offset == 61)
        assert len(log.producers) == 0
        produce(log, a_produced(7, 12))
        await log.truncate_to(1)
        assert log.producers.of(7).last_sequence == 12, "nothing was cut"
        await log.close()

    asyncio.run(scenario())


def test_a_snapshot_of_what_was_cut_is_not_believed_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path)
        for sequence in range(5):
            produce(log, a_produced(7, sequence))
        await log.close()
        log = await opened_partition(tmp_path, recovery_point=None)
        await log.truncate_to(2)
        for sequence in range(6):
            produce(log, a_produced(8, sequence))
        await log.truncate_to(6)
        check_producers(log)
        assert (log.producers.of(7).last_sequence, log.producers.of(8).last_sequence) == (1, 3)
        await log.close()

    asyncio.run(scenario())


def test_a_rebuilt_transaction_index_is_whole_or_not_there(tmp_path: Path) -> None:
    """A segment that is trusted again must not have lost what was in its index."""

    async def scenario() -> None:
        log = await opened_partition(tmp_path)
        produce(log, a_produced(7, 0, is_transactional=True))
        log.append_control(a_marker(7, is_abort=True), 0, 0)
        while len(log.segments) < 3:
            produce(log, a_produced(value_bytes=200))
        end_offset = log.end_offset
        await log.close()
        path = tmp_path / f"{FIRST}.txnindex"
        whole = path.read_bytes()
        path.write_bytes(whole[:20])
        for operation, name in [
            ("append", ".txnindex.tmp"),
            ("fsync", ".txnindex.tmp"),
            ("rename", ".txnindex"),
        ]:
            files = FailingFiles()
            files.broken = {(operation, name)}
            with pytest.raises(StorageError, match="broken"):
                await opened_partition(tmp_path, files=files, recovery_point=None)
            assert path.read_bytes() == whole[:20]
        log = await opened_partition(tmp_path, recovery_point=end_offset)
        assert path.read_bytes() == whole
        assert log.aborted_between(0, end_offset) == [AbortedTransaction(7, 0, 1, 2)]
        await log.close()

    asyncio.run(scenario())


def test_a_log_that_starts_again_knows_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await with_segments(tmp_path)
        await log.restart_at(1000, 0)
        assert (log.start_offset, log.end_offset, len(log.producers)) == (1000, 1000, 0)
        assert names(tmp_path, ".snapshot") == []
        produce(log, a_produced(7, 4))
        await log.close()
        assert names(tmp_path, ".snapshot") == [1001]
        (tmp_path / f"{2000:020d}.snapshot").write_bytes(b"of another log")
        (tmp_path / f"{500:020d}.snapshot").write_bytes(b"of a deleted segment")
        log = await opened_partition(tmp_path, recovery_point=None)
        assert names(tmp_path, ".snapshot") == [1001]
        await log.truncate_to(5)
        assert (log.start_offset, log.end_offset, len(log.producers)) == (5, 5, 0)
        assert names(tmp_path, ".snapshot") == []
        await log.close()

    asyncio.run(scenario())


def test_a_snapshot_that_cannot_be_written_ends_the_append_not_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        log = await opened_partition(tmp_path, files=files)
        files.broken = {("append", ".snapshot.tmp")}
        with pytest.raises(StorageError, match="broken"):
            produce_until_it_fails(log)
        assert not list(tmp_path.glob("*.snapshot*"))
        files.broken = set()
        await log.flush()
        while log.segment_count == 1:
            produce(log, a_produced(7, log.end_offset))
        assert names(tmp_path, ".snapshot") == [log.active_base_offset]
        await log.close()
        log = await opened_partition(tmp_path)
        check_producers(log)
        await log.close()

    asyncio.run(scenario())


def test_silent_producers_are_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path)
        produce(log, a_produced(7, 0, timestamp=1000))
        assert log.expire_producers(now_ms=1500, expiration_ms=1000) == 0
        assert log.expire_producers(now_ms=2000, expiration_ms=1000) == 1
        assert len(log.producers) == 0
        await log.close()

    asyncio.run(scenario())


# Reading


def test_a_reader_gets_whole_batches_within_its_limits(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path, LogConfig())
        for _ in range(3):
            produce(log, a_produced(count=3))
        made = [bytes(batch) for _, batch in stored(log)]
        size = len(made[0])
        assert split(log.read(0, 10_000)) == made
        assert split(log.read(4, 10_000)) == made[1:]
        assert split(log.read(0, 2 * size + 5)) == made[:2]
        assert split(log.read(0, 1)) == made[:1]
        assert split(log.read(0, size - 1, at_least_one=False)) == []
        assert split(log.read(0, size, at_least_one=False)) == made[:1]
        assert split(log.read(0, 10_000, before_offset=5)) == made[:1], "a batch is not shown in part"
        assert split(log.read(9, 10_000)) == []
        for offset in (-1, 10):
            with pytest.raises(ApiError) as refusal:
                log.range(offset, 100)
            assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        await log.close()

    asyncio.run(scenario())


def test_ranges_are_what_the_plain_reader_reads(tmp_path: Path) -> None:
    """From every offset, with every limit, in old segments and in new ones."""

    async def scenario() -> None:
        log = await opened_partition(tmp_path, LogConfig(segment_bytes=1500, index_interval_bytes=200))
        source = random.Random(3)
        for _ in range(60):
            produce(log, a_produced(count=source.randint(1, 4), value_bytes=source.choice([5, 20, 80])))
        for _ in range(2):
            for offset in range(log.end_offset):
                for max_bytes in (0, 80, 90, 200, 333, 5000):
                    for before in (None, offset, offset + 1, offset + 7, log.end_offset - 2):
                        expected = log._log.read(offset, max_bytes, before_offset=before)
                        found = log.range(offset, max_bytes, before_offset=before)
                        data = found.read() if found is not None else b""
                        assert data == bytes(expected), (offset, max_bytes, before)
                        if found is not None:
                            last = list(split(data))[-1]
                            assert found.next_offset == read_header(last).next_offset
            log.abandon()
            log = await opened_partition(
                tmp_path, log.config
            )  # now nothing is remembered of the last batches
        log.abandon()

    asyncio.run(scenario())


def test_offsets_that_compaction_took_away_are_passed_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = LogConfig(is_compacted=True, segment_bytes=300)
        log = await opened_partition(tmp_path, config)
        bases = (5, 9, 30, 31, 70, 90)
        for base in bases:
            log.append_replicated(a_batch(base), 0)
        for _ in range(2):
            for offset in range(log.end_offset):
                found = log.range(offset, 1)
                assert found is not None
                assert found.read() == a_batch(min(base for base in bases if base >= offset))
            log.abandon()
            log = await opened_partition(tmp_path, config)
        log.abandon()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("position", "damage"),
    [(16, b"\x00"), (8, b"\xff"), (8, b"\x00\x00\xff\xff"), (0, b"\x07")],
    ids=["magic", "negative length", "length", "offset"],
)
@pytest.mark.parametrize("is_in_index", [True, False])
def test_a_batch_that_the_disk_damaged_is_reported(
    tmp_path: Path, position: int, damage: bytes, is_in_index: bool
) -> None:
    async def scenario() -> None:
        config = LogConfig(index_interval_bytes=0 if is_in_index else 4096)
        log = await opened_partition(tmp_path, config)
        for _ in range(5):
            produce(log, a_produced())
        await log.close()
        log = await opened_partition(tmp_path, config, recovery_point=None)
        size = len(a_produced())
        with (tmp_path / f"{FIRST}.log").open("r+b") as file:
            file.seek(2 * size + position)
            file.write(damage)
        with pytest.raises(DamagedBatchError, match=f"position {2 * size}: ") as error:
            log.read(2, 1000)
        assert error.value.path.endswith(f"{FIRST}.log")
        assert split(log.read(0, size))
        assert await log.truncate_to(2) == 2, "what is left can be used"
        produce(log, a_produced())
        await log.close()

    asyncio.run(scenario())


def test_a_disk_that_cannot_be_read_is_no_damage(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        log = await opened_partition(tmp_path, files=files)
        produce(log, a_produced())
        files.broken = {("read", ".log")}
        with pytest.raises(StorageError) as error:
            log.read(0, 100)
        assert not isinstance(error.value, DamagedBatchError)
        with pytest.raises(StorageError):
            log.offset_for_time(0)
        log.abandon()

    asyncio.run(scenario())


def test_where_epochs_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path)
        assert log.end_offset_of(0) == (-1, -1)
        produce(log, a_produced(count=3), leader_epoch=2)
        log.assign_epoch(5)
        assert [log.end_offset_of(epoch) for epoch in (1, 2, 4, 5, 6)] == [
            (1, 0),
            (2, 3),
            (2, 3),
            (5, 3),
            (-1, -1),
        ]
        await log.close()

    asyncio.run(scenario())


# Retention


def test_retention_deletes_what_is_too_much_or_too_old(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await with_segments(tmp_path)
        bases = [segment.base_offset for segment in log.segments]
        assert await log.apply_retention(60, -1, -1, now_ms=10**9) == 0
        assert await log.apply_retention(0, 1, 1, now_ms=10**9) == 0, "nothing is replicated"
        last_two = sum(segment.size_bytes for segment in log.segments[-2:])
        assert await log.apply_retention(60, last_two, -1, now_ms=0) == len(bases) - 2
        assert (log.start_offset, names(tmp_path, ".log")) == (bases[-2], bases[-2:])
        assert await log.apply_retention(bases[-1], -1, 1000, now_ms=2002) == 1
        assert log.start_offset == bases[-1]
        assert await log.apply_retention(60, -1, 1000, now_ms=2002) == 1, "even the last one"
        assert (log.start_offset, log.end_offset, log.size_bytes) == (60, 60, 0)
        assert len(log.producers) == 3
        await log.close()

    asyncio.run(scenario())


# Crashes


CRASHING = LogConfig(segment_bytes=1200, index_interval_bytes=200)


class Clients:
    """Producers that each send the next batch, some of them in transactions, and what was promised."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.promised: list[bytes] = []

    async def live(self, host: Host) -> None:
        """Works on a log until its process is killed."""
        source = self.source
        flushed_offset = read_header(self.promised[-1]).next_offset if self.promised else 0
        recovery_point = source.choice([0, flushed_offset, flushed_offset])
        log = await opened_partition("t-0", CRASHING, files=host.files, recovery_point=recovery_point)
        self.check(log)
        epoch = (log.epochs.latest_epoch or 0) + 1
        while True:
            match source.choice(["one"] * 5 + ["many"] * 3 + ["marker", "flush", "cut", "follow", "close"]):
                case "one":
                    produce(log, self.next_batch(log.producers), epoch)
                case "many":
                    known = log.producers
                    some = {source.randrange(3): None for _ in range(3)}
                    sent = [self.next_batch(known, producer_id) for producer_id in some]
                    log.append_many([as_produced(buffer) for buffer in sent], epoch, 0)
                case "marker" if log.producers.open_transactions:
                    producer_id = source.choice(log.producers.open_transactions)[1]
                    is_abort = source.random() < 0.6
                    log.append_control(a_marker(producer_id, is_abort=is_abort), epoch, 0)
                case "follow":
                    batch = build(
                        [Record(log.end_offset, 5, None, b"")], base_offset=log.end_offset, leader_epoch=epoch
                    )
                    log.append_replicated(batch, 0)
                case "flush":
                    kept = [batch for _, batch in stored(log)]
                    await log.flush()
                    self.promised = kept
                case "cut" if source.random() < 0.5:
                    offset = max(0, log.end_offset - source.randint(0, 12))
                    self.promised = [one for one in self.promised if read_header(one).last_offset < offset]
                    await log.truncate_to(offset)
                    epoch += 1
                case "close" if source.random() < 0.3:
                    kept = [batch for _, batch in stored(log)]
                    await log.close()
                    self.promised = kept
                    log = await opened_partition("t-0", CRASHING, files=host.files, recovery_point=None)
            self.check(log)

    def check(self, log: PartitionLog) -> None:
        check_producers(log)
        found = [batch for _, batch in stored(log)]
        assert found[: len(self.promised)] == self.promised

    def next_batch(self, states: ProducerStates, producer_id: int | None = None) -> bytearray:
        chosen = self.source.randrange(4) if producer_id is None else producer_id
        state = states.of(chosen)
        sequence = 0 if state is None else state.last_sequence + 1
        is_transactional = chosen % 2 == 1
        return a_produced(
            chosen,
            sequence,
            self.source.randint(1, 3),
            is_transactional=is_transactional,
            value_bytes=self.source.choice([5, 100]),
        )


@pytest.mark.parametrize("seed", range(40))
def test_after_any_crash_producers_are_what_the_batches_say(seed: int) -> None:
    source = random.Random(seed)
    clients = Clients(source)
    with World(seed) as world:
        world.add_machine("n1")
        for _ in range(8):
            world.start("n1", clients.live)
            world.crash_at_operation("n1", source.randint(1, 100), with_power=source.random() < 0.6)
            world.run_until_condition(lambda: not world.is_running("n1"), world.now_ns + 1000 * SECOND)
            world.check()
            assert not world.is_running("n1")


def test_a_full_disk_stops_appends_and_loses_nothing() -> None:
    async def live(host: Host) -> None:
        log = await opened_partition("t-0", CRASHING, files=host.files)
        for sequence in range(20):
            produce(log, a_produced(7, sequence, value_bytes=50))
        await log.flush()
        disk = world.machines["n1"].disk
        for room_bytes in (0, 1, 40, 115, 130, 200):
            disk.room_bytes = room_bytes
            end_offset = log.end_offset
            with pytest.raises(StorageError, match="No space"):
                produce_until_it_fails(log)
            assert log.end_offset >= end_offset
            check_producers(log)
            disk.room_bytes = None
            await log.flush()
            produce(log, a_produced(7, log.end_offset, value_bytes=50))
        await log.close()
        done.append(True)

    done: list[bool] = []
    with World(1) as world:
        world.add_machine("n1")
        world.start("n1", live)
        world.run_until_condition(lambda: bool(done), world.now_ns + 1000 * SECOND)
        world.check()
    assert done


def test_a_caller_that_gives_up_leaves_the_cut_running(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FailingFiles()
        log = await opened_partition(tmp_path, files=files)
        for sequence in range(10):
            produce(log, a_produced(7, sequence))
        files.held.clear()
        cut = asyncio.ensure_future(log.truncate_to(4))
        for _ in range(5):
            await asyncio.sleep(0)
        cut.cancel()
        with pytest.raises(StorageError, match="cut off"):
            produce(log, a_produced())
        files.held.set()
        await log.flush()
        check_producers(log)
        produce(log, a_produced(7, 4))
        await log.close()

    asyncio.run(scenario())


def buffers(log: PartitionLog) -> list[Buffer]:
    return [batch for _, batch in stored(log)]


def test_nothing_is_known_of_an_empty_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path, files=FILES)
        assert replayed(log) == (ProducerStates(), [])
        assert buffers(log) == []
        assert (log.first_unstable_offset, log.max_timestamp(), log.offset_for_time(0)) == (None, None, None)
        assert log.directory == str(tmp_path)
        await log.close()

    asyncio.run(scenario())
