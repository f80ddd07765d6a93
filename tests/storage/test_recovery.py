"""What a crash or a bad disk leaves behind, and what becomes of it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from stored_batches import FILES, SMALL, a_batch, filled, opened, read_all

from quorate.protocol.batch import read_header
from quorate.storage.errors import StorageError
from quorate.storage.indexes import AbortedTransaction
from quorate.storage.limits import SCAN_WINDOW_BYTES, LogConfig
from quorate.storage.log import Log
from quorate.storage.scan import ScannedBatch

FIRST = "00000000000000000000"


def recovered(directory: Path, config: LogConfig = SMALL, recovery_point: int | None = 0) -> Log:
    """The log as it is after being opened; its files are closed again."""

    async def scenario() -> Log:
        log = await opened(directory, config, recovery_point=recovery_point)
        log.batches = read_all(log)  # type: ignore[attr-defined]
        log.abandon()
        return log

    return asyncio.run(scenario())


def batches_of(log: Log) -> list[bytes]:
    return log.batches  # type: ignore[attr-defined, no-any-return]


def write_log(directory: Path, batch_count: int, config: LogConfig = SMALL) -> list[bytes]:
    """Leaves a log that was not closed, and returns its batches."""

    async def scenario() -> list[bytes]:
        log = await filled(directory, batch_count, config, epoch=1)
        made = read_all(log)
        await log.flush()
        log.abandon()
        return made

    return asyncio.run(scenario())


# The end


@pytest.mark.parametrize("filler", ["nothing", "zeros", "garbage"])
def test_a_torn_tail_is_cut_at_every_position(tmp_path: Path, filler: str) -> None:
    made = write_log(tmp_path, 4)
    path = tmp_path / f"{FIRST}.log"
    whole = path.read_bytes()
    last_at = len(whole) - len(made[-1])
    for cut in range(last_at, len(whole)):
        left = len(whole) - cut
        rest = {"nothing": b"", "zeros": bytes(left), "garbage": bytes(range(7, 7 + left))}[filler]
        path.write_bytes(whole[:cut] + rest)
        log = recovered(tmp_path)
        if whole[:cut] + rest == whole:
            continue  # the last byte of a batch is a zero
        assert batches_of(log) == made[:-1], cut
        assert (log.end_offset, log.flushed_offset, path.stat().st_size) == (9, 9, last_at)
        assert log.recovery.cut_bytes == cut + len(rest) - last_at
        assert bool(log.recovery.damage) == (cut > last_at or bool(rest))


def test_what_was_cut_off_stays_off(tmp_path: Path) -> None:
    async def scenario() -> None:
        made = write_log_and_tear(tmp_path)
        log = await opened(tmp_path)
        log.append([a_batch(9, 1, epoch=2)], 0)
        await log.close()
        assert read_all(await opened(tmp_path)) == [*made[:-1], a_batch(9, 1, epoch=2)]

    def write_log_and_tear(directory: Path) -> list[bytes]:
        path = directory / f"{FIRST}.log"
        path.write_bytes(path.read_bytes()[:-1])
        return made

    made = write_log(tmp_path, 4)
    asyncio.run(scenario())


# The middle


def test_a_bad_checksum_in_the_middle_cuts_there(tmp_path: Path) -> None:
    made = write_log(tmp_path, 60)
    files = sorted(tmp_path.glob("*.log"))
    assert len(files) > 3
    damaged = bytearray(files[1].read_bytes())
    damaged[len(made[0]) + 70] ^= 1
    files[1].write_bytes(damaged)
    log = recovered(tmp_path)
    kept = int(files[1].stem) // 3 + 1
    assert batches_of(log) == made[:kept]
    assert sorted(tmp_path.glob("*.log")) == files[:2], "later segments are dropped"
    assert log.recovery.dropped_segments == [str(path) for path in files[2:]]
    assert "checksum" in log.recovery.damage
    assert log.recovery.cut_bytes == sum(map(len, made[kept:]))
    assert list(log.epochs) == [(1, 0)]


def test_a_batch_in_the_wrong_place_cuts_there(tmp_path: Path) -> None:
    for misplaced in (a_batch(7), a_batch(5)):
        (tmp_path / f"{FIRST}.log").write_bytes(a_batch(0, 6) + misplaced)
        log = recovered(tmp_path)
        assert (log.end_offset, log.recovery.cut_bytes) == (6, len(misplaced))
        assert (
            f"a batch at offset {read_header(misplaced).base_offset} where 6 comes next"
            in log.recovery.damage
        )


def test_segments_behind_a_hole_are_dropped(tmp_path: Path) -> None:
    made = write_log(tmp_path, 40)
    files = sorted(tmp_path.glob("*.log"))
    files[1].unlink()
    log = recovered(tmp_path)
    assert batches_of(log) == made[: int(files[1].stem) // 3]
    assert log.recovery.damage == f"no batches from offset {int(files[1].stem)} to {int(files[2].stem)}"
    assert len(log.recovery.dropped_segments) == len(files) - 2


def test_segments_that_overlap_are_dropped(tmp_path: Path) -> None:
    (tmp_path / f"{FIRST}.log").write_bytes(a_batch(0, 6))
    (tmp_path / f"{4:020d}.log").write_bytes(a_batch(4, 6))
    log = recovered(tmp_path)
    assert (log.end_offset, log.recovery.damage) == (
        6,
        "a segment at offset 4, where the one before it ends at 6",
    )


def test_compaction_leaves_holes_that_are_none(tmp_path: Path) -> None:
    made = [a_batch(2), a_batch(9), a_batch(25)]
    (tmp_path / f"{FIRST}.log").write_bytes(made[0] + made[1])
    (tmp_path / f"{20:020d}.log").write_bytes(made[2])
    log = recovered(tmp_path, LogConfig(is_compacted=True))
    assert (batches_of(log), log.end_offset, log.recovery.damage) == (made, 26, "")


def test_damage_before_the_recovery_point_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path, 40)
    first = tmp_path / f"{FIRST}.log"
    damaged = bytearray(first.read_bytes())
    damaged[70] ^= 1
    first.write_bytes(damaged)
    first.with_suffix(".index").unlink()
    with pytest.raises(StorageError, match="though it was synced: the disk damaged it"):
        recovered(tmp_path, recovery_point=120)
    assert first.read_bytes() == damaged, "nothing is cut"


# What is before the recovery point is not read


def test_only_what_may_be_torn_is_scanned(tmp_path: Path) -> None:
    made = write_log(tmp_path, 40)
    bases = [int(path.stem) for path in sorted(tmp_path.glob("*.log"))]
    for point, scanned in [
        (0, len(bases)),
        (bases[1], len(bases) - 1),
        (bases[-1], 1),
        (10**6, 1),
        (None, 0),
    ]:
        log = recovered(tmp_path, recovery_point=point)
        assert (batches_of(log), log.recovery.scanned_segments) == (made, scanned), point


# Indexes

INDEX_DAMAGES: list[tuple[str, Callable[[bytes], bytes | None]]] = [
    ("missing", lambda _: None),
    ("empty", lambda _: b""),
    ("cut within an entry", lambda data: data[:-1]),
    ("zeros at its end, as Kafka leaves them", lambda data: data + bytes(240)),
    ("garbage", lambda data: b"\xff" * len(data)),
    ("an entry twice", lambda data: data[:12] + data),
]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", INDEX_DAMAGES, ids=lambda one: one[0])
@pytest.mark.parametrize("recovery_point", [0, None])
def test_bad_indexes_are_built_again(
    tmp_path: Path,
    suffix: str,
    damage: tuple[str, Callable[[bytes], bytes | None]],
    recovery_point: int | None,
) -> None:
    async def scenario() -> list[bytes]:
        log = await opened(tmp_path, LogConfig(index_interval_bytes=200))
        for index in range(40):
            log.append([a_batch(index * 3, 3, timestamp=1000 + 10 * index)], 0)
        made = read_all(log)
        await log.close()
        return made

    made = asyncio.run(scenario())
    path = tmp_path / f"{FIRST}{suffix}"
    before = path.read_bytes()
    damaged = damage[1](before)
    path.unlink()
    if damaged is not None:
        path.write_bytes(damaged)

    async def reopen() -> None:
        log = await opened(tmp_path, LogConfig(index_interval_bytes=200), recovery_point=recovery_point)
        assert read_all(log, max_bytes=1) == made
        assert len(log.recovery.rebuilt_indexes) == (recovery_point is None)
        assert log.segments[0].largest_timestamp_ms == 1000 + 390 + 2
        await log.close()

    asyncio.run(reopen())
    assert path.read_bytes() == before


def test_an_offset_index_that_lost_its_end_is_built_again(tmp_path: Path) -> None:
    made = write_log(tmp_path, 40)
    path = tmp_path / f"{FIRST}.index"
    before = path.read_bytes()
    path.write_bytes(before[:-8])
    log = recovered(tmp_path, recovery_point=10**6)
    assert batches_of(log) == made
    assert log.recovery.rebuilt_indexes == [f"{tmp_path}/{FIRST}.log: the offset index ends too early"]
    assert path.read_bytes() == before


def test_the_transaction_index_follows_the_log(tmp_path: Path) -> None:
    """Without an observer it is cut with the log; with one it is built again."""
    made = [a_batch(0, 3), a_batch(3, 3), a_batch(6, 3)]
    (tmp_path / f"{FIRST}.log").write_bytes(b"".join(made)[:-1])
    kept, lost = AbortedTransaction(1, 0, 3, 4), AbortedTransaction(1, 5, 7, 8)
    raw = b"".join(b"\0\0" + b"".join(n.to_bytes(8, "big") for n in one) for one in (kept, lost))
    path = tmp_path / f"{FIRST}.txnindex"
    path.write_bytes(raw + b"torn")
    recovered(tmp_path)
    assert path.read_bytes() == raw[:34]

    def observe(batch: ScannedBatch) -> AbortedTransaction | None:
        return kept._replace(producer_id=9) if batch.header.base_offset == 3 else None

    async def scenario() -> None:
        log = await Log.open(FILES, str(tmp_path), SMALL, now_ms=0, observe=observe)
        await log.close()

    asyncio.run(scenario())
    assert path.read_bytes() == raw[:9] + b"\x09" + raw[10:34]


# Other files


def test_leftovers_are_removed_and_strangers_are_left_alone(tmp_path: Path) -> None:
    write_log(tmp_path, 2)
    leftovers = [f"{5:020d}.log.deleted", f"{5:020d}.index.cleaned", f"{7:020d}.index", f"{7:020d}.timeindex"]
    strangers = ["quorum-state", f"{5:020d}-{1:010d}.checkpoint", "notes.log", f"{6:020d}.snapshot"]
    for name in leftovers + strangers:
        (tmp_path / name).write_bytes(b"x")
    assert recovered(tmp_path).end_offset == 6
    assert [name for name in leftovers if (tmp_path / name).exists()] == []
    assert [name for name in strangers if not (tmp_path / name).exists()] == []


def test_messages_of_old_formats_are_refused_not_cut(tmp_path: Path) -> None:
    message = b"\x01\x00" + bytes(8) + b"\xff\xff\xff\xff" + (3).to_bytes(4, "big") + b"old"
    entry = (
        bytes(8) + (len(message) + 4).to_bytes(4, "big") + zlib.crc32(message).to_bytes(4, "big") + message
    )
    path = tmp_path / f"{FIRST}.log"
    path.write_bytes(entry)
    with pytest.raises(StorageError, match="message format 1 is no longer taken"):
        recovered(tmp_path)
    assert path.read_bytes() == entry
    path.write_bytes(entry[:-1] + b"X")
    assert recovered(tmp_path).recovery.cut_bytes == len(entry), "its own checksum tells it from garbage"


def test_a_segment_larger_than_what_is_read_at_once_is_recovered(tmp_path: Path) -> None:
    config = LogConfig()
    sizes = [SCAN_WINDOW_BYTES // 3 - 70] * 5 + [3 * SCAN_WINDOW_BYTES, 10, SCAN_WINDOW_BYTES - 71, 10]
    made = [a_batch(offset, 1, value_bytes=size) for offset, size in enumerate(sizes)]
    (tmp_path / f"{FIRST}.log").write_bytes(b"".join(made))
    log = recovered(tmp_path, config)
    assert (batches_of(log) == made, log.recovery.damage) == (True, "")
    (tmp_path / f"{FIRST}.log").write_bytes(b"".join(made)[:-1])
    assert batches_of(recovered(tmp_path, config)) == made[:-1]


# Epochs


def test_the_epochs_come_from_the_batches_where_the_file_is_behind(tmp_path: Path) -> None:
    made = [a_batch(0, 2, epoch=1), a_batch(2, 2, epoch=3), a_batch(4, 2, epoch=3), a_batch(6, 1, epoch=8)]
    (tmp_path / f"{FIRST}.log").write_bytes(b"".join(made))
    for text in ("0\n0\n", "0\n1\n1 0\n", "0\n3\n1 0\n2 1\n9 5\n", "0\n2\n1 0\n9 7\n"):
        (tmp_path / "leader-epoch-checkpoint").write_text(text)
        assert list(recovered(tmp_path).epochs) == [(1, 0), (3, 2), (8, 6)]
        assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n3\n1 0\n3 2\n8 6\n"


def test_what_the_epochs_file_says_beyond_the_log_is_dropped(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened(tmp_path)
        log.append([a_batch(0, 2, epoch=1)], 0)
        await log.close()

    asyncio.run(scenario())
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n3\n1 0\n2 2\n9 5\n")
    assert list(recovered(tmp_path, recovery_point=None).epochs) == [(1, 0)]


def test_a_bad_epochs_file_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path, 2)
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n7\n")
    with pytest.raises(StorageError, match="leader-epoch-checkpoint"):
        recovered(tmp_path)
