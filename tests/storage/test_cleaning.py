"""Compacted segments are put in place of others; a crash at any moment leaves a log with all that counts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from compacted_logs import (
    SMALL_COMPACTED,
    a_keyed,
    a_task,
    all_batches,
    all_records,
    compacted,
    last_values,
    written,
)
from partition_logs import a_marker, opened_partition, produce
from stored_batches import FILES

from quorate.lab.world import SECOND, World
from quorate.node.host import Host
from quorate.protocol.batch import Record
from quorate.storage.cleaning import ReplacementRefusedError, finish_swaps
from quorate.storage.compaction import CleanedGroup, compact
from quorate.storage.limits import LogConfig
from quorate.storage.partition_log import PartitionLog

DIRECTORY = "t-0"
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, is_compacted=True)


def fill(log: PartitionLog) -> None:
    """Keys again and again, some deleted, by idempotent and transactional producers."""
    source = random.Random(5)
    sequences = {7: 0, 8: 0}
    for number in range(26):
        pairs = [(source.choice("abcdefgh"), source.choice([str(number), None])) for _ in range(2)]
        producer = source.choice([-1, -1, 7, 8])
        if producer < 0:
            produce(log, a_keyed(pairs, timestamp=1000 + number))
            continue
        batch = a_keyed(
            pairs,
            timestamp=1000 + number,
            producer_id=producer,
            sequence=sequences[producer],
            is_transactional=producer == 8,
        )
        produce(log, batch)
        sequences[producer] += 2
        if producer == 8:
            log.append_control(a_marker(8, is_abort=source.random() < 0.5), 0, 0)
    log.replicated_to(log.end_offset)


def stable_records(log: PartitionLog) -> list[Record]:
    """What a reader of committed data sees: without aborted transactions, as their list says."""
    aborted = log.aborted_between(0, log.end_offset)
    gone = {
        header.base_offset
        for header, _ in all_batches(log)
        for one in aborted
        if header.producer_id == one.producer_id and one.first_offset <= header.base_offset <= one.last_offset
    }
    spans = [(header.base_offset, header.last_offset) for header, _ in all_batches(log)]
    dropped = [span for span in spans if span[0] in gone]
    return [
        one for one in all_records(log) if not any(first <= one.offset <= last for first, last in dropped)
    ]


class Story:
    """What the log was before, and whether it came to its end."""

    def __init__(self) -> None:
        self.before: list[Record] = []
        self.is_done = False

    async def begin(self, host: Host) -> None:
        log = await opened_partition(DIRECTORY, CONFIG, files=host.files)
        fill(log)
        self.before = stable_records(log)
        await log.close()

    async def go_on(self, host: Host) -> None:
        """Opens the log, whatever happened, and compacts it."""
        log = await opened_partition(DIRECTORY, CONFIG, files=host.files)
        names = host.files.names(DIRECTORY)
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))], names
        self.check(log)
        known = {one.producer_id: one.last_sequence for one in log.producers}
        await compacted(host.files, log, a_task(log))
        self.check(log)
        assert {one.producer_id: one.last_sequence for one in log.producers} == known
        await log.close()
        self.is_done = True

    def check(self, log: PartitionLog) -> None:
        found = stable_records(log)
        assert last_values(found) == last_values(self.before)
        assert {one.offset for one in found} <= {one.offset for one in self.before}
        assert log.end_offset > self.before[-1].offset


@pytest.mark.parametrize("keeps_power", [False, True])
def test_a_crash_at_any_operation(keeps_power: bool) -> None:
    operations = 0
    while True:
        story = Story()
        with World(operations) as world:
            world.add_machine("n1")
            _run(world, story.begin)
            world.crash_at_operation("n1", operations, with_power=keeps_power)
            _run(world, story.go_on)
            if story.is_done:
                break
            _run(world, story.go_on)
            assert story.is_done
        operations += 1
    assert operations > 100


def _run(world: World, main: Callable[[Host], Awaitable[None]]) -> None:
    world.start("n1", main)
    world.run_until_condition(lambda: not world.is_running("n1"), world.now_ns + 1000 * SECOND)
    world.check()


def test_a_crash_after_the_log_was_cut_is_as_before(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await written(tmp_path, [a_keyed([("a", str(n))]) for n in range(40)])
        run = compact(FILES, a_task(log), bytes(2112))
        group = next(step for step in run if isinstance(step, CleanedGroup))
        cuts = log.cuts
        await log.truncate_to(30)
        with pytest.raises(ReplacementRefusedError, match="have changed"):
            await log.replace_segments(group.old, group.new, cuts=cuts, largest_timestamp_ms=0)
        assert [one.offset for one in all_records(log)] == list(range(30))
        assert not list(tmp_path.glob("*.cleaned"))
        run.close()

    asyncio.run(scenario())


def test_what_is_written_to_is_not_replaced(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await written(tmp_path, [a_keyed([("a", "1")])])
        with pytest.raises(ReplacementRefusedError, match="is written to"):
            await log.replace_segments([0], [0], cuts=log.cuts, largest_timestamp_ms=0)

    asyncio.run(scenario())


def test_segments_that_retention_took_are_not_replaced(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await written(tmp_path, [a_keyed([("a", str(n))]) for n in range(40)])
        run = compact(FILES, a_task(log), bytes(2112))
        group = next(step for step in run if isinstance(step, CleanedGroup))
        await log.delete_until(log.segments[1].base_offset, 0)
        with pytest.raises(ReplacementRefusedError, match="have changed"):
            await log.replace_segments(group.old, group.new, cuts=log.cuts, largest_timestamp_ms=0)
        run.close()

    asyncio.run(scenario())


def test_nothing_that_is_missing_or_damaged_is_put_in_place(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await written(tmp_path, [a_keyed([("a", str(n))]) for n in range(40)])
        before = all_records(log)
        base_offset = log.segments[0].base_offset
        with pytest.raises(ReplacementRefusedError):
            await log.replace_segments([base_offset], [base_offset], cuts=log.cuts, largest_timestamp_ms=0)
        (tmp_path / f"{base_offset:020d}.log.cleaned").write_bytes(b"x" * 100)
        with pytest.raises(ReplacementRefusedError):
            await log.replace_segments([base_offset], [base_offset], cuts=log.cuts, largest_timestamp_ms=0)
        assert all_records(log) == before
        assert not list(tmp_path.glob("*.cleaned"))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("there", "left"),
    [
        (["0.log", "0.log.cleaned"], {"0.log"}),
        (["0.log", "0.log.swap", "0.index.cleaned"], {"0.log"}),
        (["0.log", "5.log.swap", "0.log.cleaned"], {"0.log"}),
        (["0.log", "0.log.swap", "0.index.swap", "0.txnindex"], {"0.log", "0.index"}),
        (["0.log", "0.index.swap"], {"0.log", "0.index"}),
        (["0.log.swap", "9.log.cleaned", "9.log"], {"0.log", "9.log"}),
        (["0.log.swap", "0.log.deleted"], {"0.log"}),
    ],
)
def test_what_a_crash_left(tmp_path: Path, there: list[str], left: set[str]) -> None:
    def full(name: str) -> str:
        number, _, rest = name.partition(".")
        return f"{int(number):020d}.{rest}"

    for name in there:
        (tmp_path / full(name)).write_bytes(b"")
    assert finish_swaps(FILES, str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {full(name) for name in left}
    assert not finish_swaps(FILES, str(tmp_path))


# Producers


def test_a_producer_goes_on_after_its_batches_were_compacted(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path, SMALL_COMPACTED)
        for sequence in range(3):
            produce(log, a_keyed([("a", str(sequence))], producer_id=7, sequence=sequence))
        for number in range(30):
            produce(log, a_keyed([("a", str(number))]))
        await compacted(FILES, log, a_task(log))
        empty = [header for header, _ in all_batches(log) if header.producer_id == 7]
        assert [(one.base_offset, one.record_count, one.base_sequence) for one in empty] == [(2, 0, 2)]
        assert empty[0].base_timestamp == -1
        assert empty[0].max_timestamp == 1000
        await log.close()
        for path in tmp_path.glob("*.snapshot"):
            path.unlink()  # all that is left is the log
        again = await opened_partition(tmp_path, SMALL_COMPACTED, recovery_point=0)
        repeated = a_keyed([("a", "2")], producer_id=7, sequence=2)
        assert produce(again, repeated).is_duplicate
        produce(again, a_keyed([("a", "3")], producer_id=7, sequence=3))
        again.abandon()

    asyncio.run(scenario())


def test_aborted_records_go_and_their_markers_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path, SMALL_COMPACTED)
        produce(log, a_keyed([("a", "good")], producer_id=8, sequence=0, is_transactional=True))
        log.append_control(a_marker(8, is_abort=False), 0, 0)
        produce(log, a_keyed([("a", "bad")], producer_id=9, sequence=0, is_transactional=True))
        log.append_control(a_marker(9, is_abort=True), 0, 0)
        for number in range(30):
            produce(log, a_keyed([("x", str(number))]))
        log.replicated_to(log.end_offset)
        producers = {8: log.producers.of(8), 9: log.producers.of(9)}
        upper = log.segments[-1].base_offset

        def transactional() -> list[tuple[int, int, bool, bool]]:
            return [
                (one.base_offset, one.record_count, one.is_control, one.delete_horizon_ms is not None)
                for one, _ in all_batches(log)
                if one.is_transactional
            ]

        await compacted(FILES, log, a_task(log, now_ms=10, delete_retention_ms=5))
        # the aborted record is gone, what is left of its producer is its sequence number
        assert transactional() == [
            (0, 1, False, False),
            (1, 1, True, False),
            (2, 0, False, False),
            (3, 1, True, False),
        ]
        assert [one.producer_id for one in log.aborted_between(0, upper)] == [9]
        # nothing was seen of the aborted transaction but an empty batch; without that, its marker may go
        none = a_task(log, dirty_offset=upper, now_ms=20, delete_retention_ms=5, producers={})
        await compacted(FILES, log, none)
        assert transactional() == [(0, 1, False, False), (1, 1, True, False), (3, 1, True, False)]
        for now_ms, horizons in ((30, [True]), (34, [True]), (35, [])):
            task = a_task(log, dirty_offset=upper, now_ms=now_ms, delete_retention_ms=5, producers={})
            await compacted(FILES, log, task)
            assert [one[3] for one in transactional() if one[0] == 3] == horizons
        assert [one.value for one in all_records(log) if one.key == b"a"] == [b"good"]
        assert log.aborted_between(0, upper) == []
        assert {8: log.producers.of(8), 9: log.producers.of(9)} == producers

    asyncio.run(scenario())


def test_an_aborted_transaction_that_ends_in_the_active_segment(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path, SMALL_COMPACTED)
        produce(log, a_keyed([("a", "good")]))
        produce(log, a_keyed([("a", "bad")], producer_id=9, sequence=0, is_transactional=True))
        for number in range(30):
            produce(log, a_keyed([("x", str(number))]))
        log.append_control(a_marker(9, is_abort=True), 0, 0)
        log.replicated_to(log.end_offset)
        await compacted(FILES, log, a_task(log, producers={}))
        assert [one.value for one in all_records(log) if one.key == b"a"] == [b"good"]
        assert [one.producer_id for one in log.aborted_between(0, log.end_offset)] == [9]

    asyncio.run(scenario())
