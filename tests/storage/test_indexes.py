"""Indexes: their bytes, look-ups against a plain list, and damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_batches import FILES

from quorate.storage.files import File
from quorate.storage.indexes import (
    AbortedTransaction,
    OffsetEntry,
    OffsetIndex,
    TimeEntry,
    TimeIndex,
    TransactionIndex,
)

BASE = 1000


class MemoryFile:
    """A file for tests of what is in it."""

    path = "memory"

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)

    def size(self) -> int:
        return len(self.content)

    def read(self, position: int, size: int) -> bytes:
        return bytes(self.content[position : position + size])

    def append(self, parts: list[bytes]) -> int:
        self.content += b"".join(parts)
        return len(self.content)

    def truncate(self, size: int) -> None:
        del self.content[size:]

    async def fsync(self) -> None:
        pass

    def close(self) -> None:
        pass


def a_file(path: Path) -> File:
    return FILES.open(str(path / "file"), create=True)


# Bytes, as Apache Kafka 4.3.1 wrote them for the same batches


def test_an_offset_entry_is_a_relative_offset_and_a_position(tmp_path: Path) -> None:
    index = OffsetIndex(a_file(tmp_path), BASE)
    index.append(BASE + 5, 0x12F7)
    index.append(BASE + 10, 0x25EE)
    assert index.file.read(0, 100).hex(" ", 4) == "00000005 000012f7 0000000a 000025ee"


def test_a_time_entry_is_a_timestamp_and_a_relative_offset(tmp_path: Path) -> None:
    index = TimeIndex(a_file(tmp_path), BASE)
    index.append_if_newer(0x01A1DE6AD888, BASE + 5)
    index.append_if_newer(0x01A1DE6AD894, BASE + 10)
    assert index.file.read(0, 100).hex(" ", 4) == "000001a1 de6ad888 00000005 000001a1 de6ad894 0000000a"


def test_an_aborted_transaction_has_a_version_and_four_numbers(tmp_path: Path) -> None:
    index = TransactionIndex(FILES, str(tmp_path / "x.txnindex"))
    assert not (tmp_path / "x.txnindex").exists(), "most segments need none"
    index.append(AbortedTransaction(producer_id=0, first_offset=31, last_offset=61, last_stable_offset=62))
    assert (tmp_path / "x.txnindex").read_bytes().hex() == (
        "00000000000000000000000000000000001f000000000000003d000000000000003e"
    )


# Look-ups

GAPS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 1000)), max_size=20)


@given(GAPS, st.integers(BASE - 3, BASE + 110), st.integers(BASE - 3, BASE + 110))
def test_an_offset_is_found_as_in_a_list(gaps: list[tuple[int, int]], target: int, cut: int) -> None:
    index = OffsetIndex(MemoryFile(), BASE)  # type: ignore[arg-type]
    entries = []
    offset, position = BASE, 0
    for more_offset, more_position in gaps:
        offset, position = offset + more_offset, position + more_position
        entries.append(OffsetEntry(offset, position))
        index.append(offset, position)

    def expected(offset: int) -> OffsetEntry:
        return max((entry for entry in entries if entry.offset <= offset), default=OffsetEntry(BASE, 0))

    assert index.look_up(target) == expected(target)
    assert index.problem(position + 1) is None
    index.truncate(cut)
    entries = [entry for entry in entries if entry.offset < cut]
    assert index.look_up(target) == expected(target)
    assert index.entry_count == len(entries)
    again = OffsetIndex(index.file, BASE)
    assert (again.last_entry, again.look_up(target)) == (index.last_entry, expected(target))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(-3, 5)), max_size=20), st.integers(-2, 60))
def test_a_time_is_found_as_in_a_list(gaps: list[tuple[int, int]], target: int) -> None:
    index = TimeIndex(MemoryFile(), BASE)  # type: ignore[arg-type]
    entries: list[TimeEntry] = []
    offset, timestamp = BASE, 5
    for more_offset, more_time in gaps:
        offset, timestamp = offset + more_offset, timestamp + more_time
        if timestamp > (entries[-1].timestamp if entries else -1):
            entries.append(TimeEntry(timestamp, offset))
        index.append_if_newer(timestamp, offset)
    found = [entry for entry in entries if entry.timestamp <= target]
    assert index.look_up(target) == (found[-1] if found else TimeEntry(-1, BASE))
    assert index.problem(offset + 1) is None
    cut = BASE + 20
    index.truncate(cut)
    assert index.entry_count == sum(entry.offset < cut for entry in entries)


def test_aborted_transactions_are_collected_until_everything_was_stable(tmp_path: Path) -> None:
    index = TransactionIndex(FILES, str(tmp_path / "x.txnindex"))
    assert index.collect(0, 100) == ([], False)
    one, two, three = (
        AbortedTransaction(1, 0, 10, 5),
        AbortedTransaction(2, 5, 20, 21),
        AbortedTransaction(3, 25, 30, 31),
    )
    for aborted in (one, two, three):
        index.append(aborted)
    assert index.collect(0, 100) == ([one, two, three], False)
    assert index.collect(11, 21) == ([two], True)
    assert index.collect(0, 4) == ([one], True)
    index.truncate(20)
    assert index.all() == [one]
    assert TransactionIndex(FILES, index.path).all() == [one]


def test_an_index_is_full_before_it_passes_its_limit() -> None:
    offsets = OffsetIndex(MemoryFile(bytes(8 * 3)), BASE)  # type: ignore[arg-type]
    assert [offsets.is_full(limit) for limit in (24, 31, 32)] == [True, True, False]
    times = TimeIndex(MemoryFile(bytes(12 * 3)), BASE)  # type: ignore[arg-type]
    assert [times.is_full(limit) for limit in (36, 48, 59, 60)] == [True, True, True, False]


# Damage


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("00000005 00000010 00", "9 bytes are no whole entries of 8"),
        ("00000005 00000010 00000005 00000020", "its entries do not increase"),
        ("00000005 00000010 00000006 00000010", "its entries do not increase"),
        ("00000005 00000010 00000000 00000000", "its entries do not increase"),
        ("ffffffff 00000010", "its entries do not increase"),
        ("00000005 00000064", "it points to position 100 of a log file of 100 bytes"),
        ("00000005 00000063", None),
        ("", None),
    ],
)
def test_a_bad_offset_index_is_known(content: str, problem: str | None) -> None:
    assert OffsetIndex(MemoryFile(bytes.fromhex(content)), BASE).problem(100) == problem  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("0000000000000001 00000005 00", "13 bytes are no whole entries of 12"),
        ("0000000000000001 00000005 0000000000000001 00000006", "its entries do not increase"),
        ("0000000000000001 00000005 0000000000000002 00000004", "its entries do not increase"),
        ("0000000000000001 00000005 0000000000000000 00000000", "its entries do not increase"),
        ("0000000000000001 00000064", "it points to offset 1100 of a segment that ends before 1100"),
        ("0000000000000001 00000063", None),
        ("", None),
    ],
)
def test_a_bad_time_index_is_known(content: str, problem: str | None) -> None:
    assert TimeIndex(MemoryFile(bytes.fromhex(content)), BASE).problem(BASE + 100) == problem  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("numbers", "cut_bytes", "problem"),
    [
        ([(0, 7, 1000, 1010, 1011)], 1, "33 bytes are no whole entries of 34"),
        ([(1, 7, 1000, 1010, 1011)], 0, "an entry has an unknown version"),
        ([(0, 7, 900, 999, 1000)], 0, "its entries do not increase"),
        ([(0, 7, 1000, 1010, 1011), (0, 8, 1000, 1010, 1011)], 0, "its entries do not increase"),
        ([(0, 7, 1011, 1010, 1011)], 0, "a transaction ends before it begins"),
        ([(0, 7, 900, 1010, 1011)], 0, None),
    ],
)
def test_a_bad_transaction_index_is_known(
    tmp_path: Path, numbers: list[tuple[int, ...]], cut_bytes: int, problem: str | None
) -> None:
    data = b"".join(
        version.to_bytes(2, "big") + b"".join(number.to_bytes(8, "big") for number in rest)
        for version, *rest in numbers
    )
    (tmp_path / "x.txnindex").write_bytes(data[: len(data) - cut_bytes])
    assert TransactionIndex(FILES, str(tmp_path / "x.txnindex")).problem(BASE) == problem


# Entries that are not written yet


@given(st.integers(0, 900), st.integers(0, 900), st.integers(0, 2000))
def test_entries_are_there_before_they_are_written(written: int, more: int, cut_at: int) -> None:
    file = MemoryFile()
    index = OffsetIndex(file, BASE)
    for number in range(written):
        index.append(BASE + number, 10 * number)
    assert index.file is file  # which writes them
    assert file.size() == 8 * written
    for number in range(written, written + more):
        index.append(BASE + number, 10 * number)
    assert file.size() <= 8 * index.entry_count == 8 * (written + more)
    index.truncate(BASE + cut_at)
    left = min(cut_at, written + more)
    assert index.entry_count == left
    for number in {0, left // 2, left - 1} - {-1}:
        if left:
            assert index.look_up(BASE + number) == OffsetEntry(BASE + number, 10 * number)
    assert OffsetIndex(index.file, BASE).entry_count == left


def test_many_entries_are_written_now_and_then() -> None:
    file = MemoryFile()
    index = OffsetIndex(file, BASE)
    sizes = set()
    for number in range(1000):
        index.append(BASE + number, 10 * number)
        sizes.add(file.size())
    assert 2 < len(sizes) < 10
