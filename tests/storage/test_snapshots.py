"""Snapshots: whole, or refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from failing_files import FailingFiles
from hypothesis import given
from hypothesis import strategies as st
from stored_batches import FILES

from quorate.protocol.batch import ControlType, batches, build, build_control, control_type, records
from quorate.protocol.record import Record
from quorate.raft.records import VotersRecord
from quorate.storage.errors import StorageError
from quorate.storage.files import Files
from quorate.storage.limits import SNAPSHOT_BATCH_BYTES_MAX
from quorate.storage.snapshots import (
    SnapshotDownload,
    SnapshotId,
    SnapshotReader,
    SnapshotWriter,
    delete_snapshot,
    list_snapshots,
    remove_leftovers,
    snapshot_path,
)

ID = SnapshotId(offset=87, epoch=5)
NAME = "00000000000000000087-0000000005.checkpoint"
VOTERS = VotersRecord(version=0, voters=[])


def writer_in(directory: Path, files: Files = FILES, *, kraft_version: int = 0) -> SnapshotWriter:
    return SnapshotWriter(
        files,
        snapshot_path(str(directory), ID),
        ID.epoch,
        timestamp_ms=2000,
        last_contained_log_timestamp_ms=1500,
        kraft_version=kraft_version,
        voters=VOTERS if kraft_version else None,
    )


def written(directory: Path, *values: bytes, kraft_version: int = 0) -> bytes:
    async def scenario() -> None:
        with writer_in(directory, kraft_version=kraft_version) as writer:
            for value in values:
                writer.append([value])
            await writer.freeze()

    asyncio.run(scenario())
    return (directory / NAME).read_bytes()


def refusal(directory: Path, content: bytes) -> str:
    """Why a snapshot of these bytes is refused."""
    (directory / NAME).write_bytes(content)
    with SnapshotReader(FILES, snapshot_path(str(directory), ID), ID.epoch) as reader:
        with pytest.raises(StorageError) as raised:
            reader.verify()
        with pytest.raises(StorageError):
            list(reader.values())
    assert raised.value.path.endswith(NAME)
    return raised.value.reason


# Names


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)), max_size=8))
def test_ids_are_ordered_by_epoch_first(pairs: list[tuple[int, int]]) -> None:
    ids = [SnapshotId(*pair) for pair in pairs]
    assert sorted(ids) == sorted(ids, key=lambda one: (one.epoch, one.offset))
    for left in ids:
        for right in ids:
            order = ((left.epoch, left.offset) > (right.epoch, right.offset)) - (
                (left.epoch, left.offset) < (right.epoch, right.offset)
            )
            assert (left < right, left <= right, left > right, left >= right, left == right) == (
                order < 0,
                order <= 0,
                order > 0,
                order >= 0,
                order == 0,
            )


def test_the_snapshots_of_a_directory_are_listed_and_deleted(tmp_path: Path) -> None:
    directory = str(tmp_path)
    ids = [SnapshotId(5, 1), SnapshotId(100, 1), SnapshotId(70, 2)]
    for one in ids:
        Path(snapshot_path(directory, one)).touch()
    for name in ("00000000000000000000.log", "quorum-state", NAME + ".part", "1-1.checkpoint"):
        (tmp_path / name).touch()
    assert list_snapshots(FILES, directory) == ids
    delete_snapshot(FILES, directory, ids[0])
    assert list_snapshots(FILES, directory) == ids[1:]


def test_leftovers_are_removed(tmp_path: Path) -> None:
    leftovers = [NAME + ".deleted", NAME + ".part", "00000000000000000087-0000000005-123.checkpoint.part"]
    for name in [*leftovers, NAME, "quorum-state"]:
        (tmp_path / name).touch()
    assert sorted(remove_leftovers(FILES, str(tmp_path))) == sorted(leftovers)
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, "quorum-state"]


# Writing


def test_the_bytes_of_a_snapshot(tmp_path: Path) -> None:
    data = written(tmp_path, b"one", b"two", kraft_version=1)
    found = [
        (header.base_offset, header.partition_leader_epoch, header.is_control, records(data, header))
        for header in batches(data)
    ]
    assert [batch[:3] for batch in found] == [(0, 5, True), (3, 5, False), (4, 5, False), (5, 5, True)]
    assert [control_type(record) for record in found[0][3]] == [
        ControlType.SNAPSHOT_HEADER,
        ControlType.KRAFT_VERSION,
        ControlType.KRAFT_VOTERS,
    ]
    assert [record.value.hex() for record in found[0][3] if record.value] == [
        "0000" + "00000000000005dc" + "00",
        "0000" + "0001" + "00",
        "0000" + "01" + "00",
    ]
    assert found[1][3] == [Record(3, 2000, None, b"one")]
    assert [(control_type(record), record.value) for record in found[3][3]] == [
        (ControlType.SNAPSHOT_FOOTER, bytes(3))
    ]


def test_a_snapshot_is_read_as_it_was_written(tmp_path: Path) -> None:
    data = written(tmp_path, b"one", b"two", kraft_version=1)
    with SnapshotReader(FILES, snapshot_path(str(tmp_path), ID), ID.epoch) as reader:
        reader.verify()
        head = reader.head()
        assert (head.last_contained_log_timestamp_ms, head.kraft_version, head.voters) == (1500, 1, VOTERS)
        assert list(reader.values()) == [b"one", b"two"]
        assert reader.size_bytes == len(data)
        assert reader.raw(10, 20) == data[10:30]
        assert reader.raw(len(data) - 3, 20) == data[-3:]


def test_without_a_kraft_version_there_are_no_voters(tmp_path: Path) -> None:
    written(tmp_path)
    with SnapshotReader(FILES, snapshot_path(str(tmp_path), ID), ID.epoch) as reader:
        assert (reader.head().kraft_version, reader.head().voters) == (0, None)


def test_many_records_are_split_into_batches(tmp_path: Path) -> None:
    async def scenario() -> None:
        with writer_in(tmp_path) as writer:
            writer.append(str(number).encode() for number in range(2500))
            writer.append(
                [bytes(SNAPSHOT_BATCH_BYTES_MAX - 1), b"12", bytes(SNAPSHOT_BATCH_BYTES_MAX + 1), b"3"]
            )
            await writer.freeze()

    asyncio.run(scenario())
    with SnapshotReader(FILES, snapshot_path(str(tmp_path), ID), ID.epoch) as reader:
        assert [header.record_count for header, _ in reader.batches()] == [1, 1024, 1024, 452, 1, 1, 1, 1, 1]
        assert [len(value) for value in reader.values()][2500:] == [
            SNAPSHOT_BATCH_BYTES_MAX - 1,
            2,
            SNAPSHOT_BATCH_BYTES_MAX + 1,
            1,
        ]


def test_nobody_sees_a_snapshot_that_is_not_finished(tmp_path: Path) -> None:
    with writer_in(tmp_path) as writer:
        writer.append([b"one"])
        assert list_snapshots(FILES, str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StorageError, match="finished or given up"):
        writer.append([b"two"])


def test_a_snapshot_is_synced_before_it_gets_its_name(tmp_path: Path) -> None:
    files = FailingFiles()

    async def scenario() -> None:
        with writer_in(tmp_path, files) as writer:
            await writer.freeze()

    asyncio.run(scenario())
    assert files.operations[-3:] == [
        ("fsync", NAME + ".part"),
        ("rename", NAME),
        ("fsync_dir", tmp_path.name),
    ]


@pytest.mark.parametrize("broken", [("append", ".part"), ("fsync", ".part"), ("rename", ".checkpoint")])
def test_a_broken_disk_leaves_no_snapshot(tmp_path: Path, broken: tuple[str, str]) -> None:
    files = FailingFiles()

    async def scenario() -> None:
        with writer_in(tmp_path, files) as writer:
            files.broken = {broken}
            writer.append([b"one"])
            await writer.freeze()

    with pytest.raises(StorageError, match="the disk is broken"):
        asyncio.run(scenario())
    assert list(tmp_path.iterdir()) == []


# Reading what is not whole


def test_a_snapshot_cut_anywhere_is_refused(tmp_path: Path) -> None:
    data = written(tmp_path, b"one", b"two", kraft_version=1)
    for cut in range(len(data)):
        assert refusal(tmp_path, data[:cut]).startswith("not a whole snapshot"), cut


def test_a_snapshot_with_any_byte_changed_is_refused(tmp_path: Path) -> None:
    data = written(tmp_path, b"one", kraft_version=1)
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]
        assert refusal(tmp_path, damaged).startswith("not a whole snapshot"), at


def test_a_snapshot_of_the_wrong_shape_is_refused(tmp_path: Path) -> None:
    def control(offset: int, *kinds: ControlType, epoch: int = 5) -> bytes:
        return bytes(
            build_control(
                [(kind, bytes(3)) for kind in kinds], timestamp=0, base_offset=offset, leader_epoch=epoch
            )
        )

    def data(offset: int) -> bytes:
        return bytes(build([Record(offset, 0, None, b"x")], base_offset=offset, leader_epoch=5))

    header, footer = ControlType.SNAPSHOT_HEADER, ControlType.SNAPSHOT_FOOTER
    for content, reason in [
        (data(0) + control(1, footer), "position 0: no snapshot header"),
        (control(0, footer), "position 0: no snapshot header"),
        (control(0, header) + data(1), "it has no footer"),
        (control(0, header) + control(1, footer) + data(2), "a batch after the footer"),
        (control(0, header) + data(2) + control(3, footer), "a batch at 2 of epoch 5, not at 1 of epoch 5"),
        (control(0, header, epoch=4), "a batch at 0 of epoch 4, not at 0 of epoch 5"),
    ]:
        assert reason in refusal(tmp_path, content)


def test_a_missing_snapshot_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=f"{NAME}: No such file"):
        SnapshotReader(FILES, snapshot_path(str(tmp_path), ID), ID.epoch)


# Receiving


def download(directory: Path, chunks: list[bytes]) -> None:
    async def scenario() -> None:
        with SnapshotDownload(FILES, snapshot_path(str(directory), ID), ID.epoch) as incoming:
            for chunk in chunks:
                incoming.append(incoming.size_bytes, chunk)
            await incoming.freeze()

    asyncio.run(scenario())


@given(st.integers(1, 400))
def test_a_snapshot_that_came_in_pieces_is_the_same(chunk_bytes: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        data = written(directory, b"one", b"two", kraft_version=1)
        (directory / NAME).unlink()
        download(directory, [data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)])
        assert (directory / NAME).read_bytes() == data
        assert [path.name for path in directory.iterdir()] == [NAME]


def test_a_bad_snapshot_from_a_leader_never_becomes_visible(tmp_path: Path) -> None:
    data = written(tmp_path, b"one")
    (tmp_path / NAME).unlink()
    for bad in (data[:-1], data + b"\0", data[:30] + b"!" + data[31:], b""):
        with pytest.raises(StorageError, match="not a whole snapshot"):
            download(tmp_path, [bad])
        assert list(tmp_path.iterdir()) == []


def test_a_piece_for_another_place_is_refused(tmp_path: Path) -> None:
    with SnapshotDownload(FILES, snapshot_path(str(tmp_path), ID), ID.epoch) as incoming:
        incoming.append(0, b"12345")
        with pytest.raises(StorageError, match="a piece for position 4, where 5 comes next"):
            incoming.append(4, b"x")


def test_a_download_begins_again_after_a_crash(tmp_path: Path) -> None:
    (tmp_path / (NAME + ".part")).write_bytes(b"left over")
    with SnapshotDownload(FILES, snapshot_path(str(tmp_path), ID), ID.epoch) as incoming:
        assert incoming.size_bytes == 0
