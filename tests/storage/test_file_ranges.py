"""Ranges of files, which stay readable whatever becomes of the file."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest
from partition_logs import a_produced, opened_partition, produce

from quorate.lab.world import SECOND, World
from quorate.node.host import Host
from quorate.storage.file_ranges import FileRange, SharedFile
from quorate.storage.files import RealFiles, descriptor_of

FILES = RealFiles()


def a_shared_file(directory: Path) -> SharedFile:
    file = FILES.open(str(directory / "file"), create=True)
    file.append([b"0123456789"])
    return SharedFile(file)


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_a_range_can_be_sent_without_being_read(tmp_path: Path) -> None:
    shared = a_shared_file(tmp_path)
    some = FileRange(shared, 2, 5, next_offset=9)
    assert (len(some), some.size_bytes, some.position, some.next_offset) == (5, 5, 2, 9)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert some.descriptor is not None
        assert os.sendfile(ours.fileno(), some.descriptor, some.position, len(some)) == 5
        assert theirs.recv(100) == b"23456"
    assert (some.read(), some.read(3), some.read(1, 2), some.read(4, 100)) == (b"23456", b"56", b"34", b"6")
    some.release()
    shared.close()


def test_a_small_range_that_was_looked_at_is_read_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = a_shared_file(tmp_path)
    some = FileRange(shared, 2, 5, next_offset=9)
    assert some.is_cached()
    monkeypatch.setattr(os, "pread", None)
    assert (some.read(), some.read(3), some.read(1, 2), some.read(4, 100)) == (b"23456", b"56", b"34", b"6")
    assert some.read(0, 100) == some.read(0, 5) == b"23456"
    assert some.read(0, 2) == b"23"
    some.release()
    shared.close()


def test_a_range_that_is_not_there_whole_is_not_taken_for_read(tmp_path: Path) -> None:
    shared = a_shared_file(tmp_path)
    os.truncate(tmp_path / "file", 4)
    some = FileRange(shared, 2, 5, next_offset=9)
    assert some.is_cached(), "there is nothing to wait for"
    assert some.read() == b"23"
    some.release()
    shared.close()


def test_the_last_reader_closes_the_file(tmp_path: Path) -> None:
    shared = a_shared_file(tmp_path)
    descriptor = descriptor_of(shared.file)
    assert descriptor is not None
    first, second = FileRange(shared, 0, 1, 1), FileRange(shared, 1, 1, 1)
    assert shared.readers == 2
    shared.close()
    shared.close()
    (tmp_path / "file").unlink()
    first.release()
    first.release()
    assert is_open(descriptor)
    assert second.read() == b"1"
    assert "FileRange" in repr(second)
    del second
    assert not is_open(descriptor)
    with pytest.raises(AssertionError, match="was released"):
        first.read()
    with pytest.raises(AssertionError, match="is closed"):
        FileRange(shared, 0, 1, 1).release()


def test_without_readers_the_owner_closes_the_file(tmp_path: Path) -> None:
    shared = a_shared_file(tmp_path)
    descriptor = descriptor_of(shared.file)
    assert descriptor is not None
    FileRange(shared, 0, 1, 1).release()
    assert is_open(descriptor)
    shared.close()
    assert not is_open(descriptor)


def test_a_response_holds_on_to_a_segment_that_is_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await opened_partition(tmp_path)
        for _ in range(40):
            produce(log, a_produced(value_bytes=100))
        expected = bytes(log.read(0, 1000))
        held = log.range(0, 1000)
        assert held is not None
        await log.delete_until(log.end_offset, 0)
        assert not (tmp_path / f"{0:020d}.log").exists()
        assert held.read() == expected
        await log.close()
        assert held.read() == expected
        held.release()

    asyncio.run(scenario())


def test_in_the_simulator_ranges_are_read() -> None:
    async def live(host: Host) -> None:
        log = await opened_partition("t-0", files=host.files)
        produce(log, a_produced(count=3))
        expected = bytes(log.read(0, 1000))
        held = log.range(0, 1000)
        assert held is not None
        kept.append(held)
        await log.delete_until(3, 0)
        assert held.descriptor is None
        assert held.read() == expected

    kept: list[FileRange] = []
    with World(1) as world:
        world.add_machine("n1")
        world.start("n1", live)
        world.run_until_condition(lambda: bool(kept), world.now_ns + 100 * SECOND)
        world.run_for(SECOND)
        world.kill("n1")
        world.check()
        kept.pop().release()  # of a dead process: nothing happens
