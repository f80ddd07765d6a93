"""Replicas that move between log directories: what is asked for, what the controller knows, what fails."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from node.moving_replicas import (
    KEY,
    SETTINGS,
    Life,
    Metadata,
    config_of,
    content,
    format_disks,
    small_segments,
)
from quorate.broker.directory_moves import NoCleaning
from quorate.broker.directory_moves_stages import TRANSITIONS, Event, Stage, after, common_end
from quorate.broker.partition import Partition
from quorate.node import future_logs
from quorate.node.host import Host, real_host
from quorate.node.log_shelf import DirectoryShelf
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.storage.checkpoints import PartitionName
from quorate.storage.epochs import LeaderEpochs
from quorate.storage.files import RealFiles

SECONDS_MAX = 30


class BreakableFiles(RealFiles):
    """Everything under a path that is broken fails, unless it is only looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = "-"

    def _check(self, path: str) -> None:
        if path.startswith(self.broken):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def open(self, path: str, *, create: bool = False) -> Any:
        self._check(path)
        return super().open(path, create=create)

    def make_directory(self, path: str) -> None:
        self._check(path)
        super().make_directory(path)

    def rename(self, path: str, new_path: str) -> None:
        self._check(path)
        super().rename(path, new_path)

    async def fsync_dir(self, path: str) -> None:
        self._check(path)
        await super().fsync_dir(path)


class Machine:
    """Disks that stay, and processes that use them one after the other."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = [str(root / f"d{number}") for number in range(3)]
        self.metadata = Metadata()
        self.files = BreakableFiles()
        whole = real_host("101")
        self.host = Host(whole.name, self.files, whole.random, whole.wall_ms, whole.executor)

    async def start(self) -> Life:
        life = Life(self.host, self.paths, self.metadata)
        await life.begin()
        return life


def scenario(work: Callable[[Machine], Awaitable[None]]) -> Callable[[Path], None]:
    def test(tmp_path: Path) -> None:
        async def run() -> None:
            machine = Machine(tmp_path)
            await format_disks(machine.host, machine.paths)
            async with asyncio.timeout(SECONDS_MAX):
                await work(machine)

        asyncio.run(run())

    test.__name__ = work.__name__
    test.__doc__ = work.__doc__
    return test


def write(life: Life, count: int, epoch: int = 1) -> None:
    for _ in range(count):
        life.append(epoch, 200)


# The usual


@scenario
async def test_a_replica_moves_and_the_controller_knows_first(machine: Machine) -> None:
    life = await machine.start()
    write(life, 30)
    before = content(life.log)
    machine.metadata.delay_s = 0.05
    await life.moves.move(life.partition, life.target(1))
    move = life.move
    assert move is not None
    await life.until(lambda: move.stage is Stage.ASSIGNING)
    assert life.names() == ["0/t-0", "1/t-0-future"]
    write(life, 5)
    await life.until_moved(1)
    assert machine.metadata.directory_id == life.futures.id_of(life.target(1))
    assert life.names() == ["0/t-0-delete", "1/t-0"]
    assert list(content(life.log).items())[:30] == list(before.items())
    assert life.log.end_offset == 35
    await life.end()
    again = await machine.start()
    assert again.names() == ["1/t-0"], "what is deleted is gone with the next start"
    assert again.log.recovery.scanned_segments == 0, "it was left in order"
    assert again.log.end_offset == 35
    await again.end()


@scenario
async def test_a_copy_goes_on_where_it_was(machine: Machine) -> None:
    life = await machine.start()
    write(life, 30)
    machine.metadata.delay_s = 3600  # the controller does not answer
    await life.moves.move(life.partition, life.target(2))
    await life.until(lambda: life.move is not None and life.move.stage is Stage.ASSIGNING)
    await life.end()
    machine.metadata.delay_s = 0.001
    again = await machine.start()
    assert again.names() == ["0/t-0", "2/t-0-future"]
    move = again.move
    assert move is not None
    await again.until_moved(2)
    assert move.copied_bytes == 0, "everything was there"
    assert len(content(again.log)) == 30
    await again.end()


@scenario
async def test_a_move_to_where_it_is_already_ends_one_that_is_under_way(machine: Machine) -> None:
    life = await machine.start()
    write(life, 10)
    machine.metadata.delay_s = 0.2
    await life.moves.move(life.partition, life.target(1))
    await life.until(lambda: life.move is not None and life.move.stage is Stage.ASSIGNING)
    await life.moves.move(life.partition, life.target(0))
    assert (len(life.moves), life.names()) == (0, ["0/t-0"])
    home = life.futures.id_of(life.target(0))
    await life.until(lambda: machine.metadata.told[-1:] == [home])
    assert machine.metadata.directory_id == home, "the controller knows that it stays"
    await life.end()


@scenario
async def test_whoever_changes_his_mind_gets_what_he_wanted_last(machine: Machine) -> None:
    life = await machine.start()
    write(life, 10)
    for number in (1, 2, 1, 1, 2):
        await life.moves.move(life.partition, life.target(number))
    assert life.names() == ["0/t-0", "2/t-0-future"]
    await life.until_moved(2)
    await life.end()


@scenario
async def test_a_replica_that_goes_away_takes_its_copy_along(machine: Machine) -> None:
    life = await machine.start()
    write(life, 10)
    machine.metadata.delay_s = 3600
    await life.moves.move(life.partition, life.target(1))
    life.is_ours = False
    await life.moves.forget(life.partition)
    await life.shelf.delete_log(KEY, life.log)
    assert life.names() == []
    with pytest.raises(ApiError) as refused:
        await life.moves.move(life.partition, life.target(2))
    assert refused.value.code is ErrorCode.REPLICA_NOT_AVAILABLE
    life.stop()
    await life.shelf.close_directories()


@scenario
async def test_a_cluster_that_keeps_no_directories_is_not_told(machine: Machine) -> None:
    machine.metadata.is_kept = False
    life = await machine.start()
    write(life, 10)
    await life.moves.move(life.partition, life.target(1))
    await life.until_moved(1)
    assert machine.metadata.told == []
    await life.end()


@scenario
async def test_the_old_log_is_deleted_later(machine: Machine) -> None:
    future_logs.DELETE_DELAY_S, before = 0.2, future_logs.DELETE_DELAY_S  # type: ignore[misc]
    try:
        life = await machine.start()
        write(life, 10)
        old = life.log
        await life.moves.move(life.partition, life.target(1))
        await life.until_moved(1)
        assert len(content(old)) == 10, "whoever was reading it goes on"
        await life.until(lambda: life.names() == ["1/t-0"])
        await life.end()
    finally:
        future_logs.DELETE_DELAY_S = before  # type: ignore[misc]


@scenario
async def test_what_is_beside_the_records_comes_along(machine: Machine) -> None:
    """Where the log begins although its segment does not, and an epoch without a record."""
    life = await machine.start()
    write(life, 10, epoch=1)
    await life.log.delete_until(4, 0)
    life.log.assign_epoch(7)
    epochs = list(life.log.epochs)
    await life.moves.move(life.partition, life.target(1))
    await life.until_moved(1)
    assert (life.log.start_offset, list(life.log.epochs)) == (4, epochs)
    life.stop()
    life.log.abandon()
    await life.shelf.close_directories()
    again = await machine.start()
    assert (again.log.start_offset, again.log.end_offset) == (4, 10)
    await again.end()


@scenario
async def test_settings_reach_the_copy(machine: Machine) -> None:
    life = await machine.start()
    machine.metadata.delay_s = 0.05
    write(life, 10)
    await life.moves.move(life.partition, life.target(1))
    life.partition.configure(small_segments(segment_bytes="4000"))
    await life.until_moved(1)
    assert life.log.config.segment_bytes == 4000
    await life.end()


# Limits


@scenario
async def test_the_throttle_holds_moves_up(machine: Machine) -> None:
    life = await machine.start()
    write(life, 50)
    life.throttle.limit = 0.0
    life.throttle.record(1, life.now_ms())
    await life.moves.move(life.partition, life.target(1))
    move = life.move
    assert move is not None
    await life.until(lambda: life.throttle.held_up > 0)
    assert move.copied_bytes == 0
    life.throttle.limit = 1e12
    await life.until_moved(1)
    assert life.throttle.total_bytes >= move.copied_bytes > 50 * 200
    await life.end()


# Compaction


class Watched(NoCleaning):
    def __init__(self) -> None:
        self.seen: list[str] = []

    async def pause(self, _partition: Partition) -> None:
        self.seen.append("pause")

    def resume(self, _partition: Partition) -> None:
        self.seen.append("resume")

    def moved(self, _partition: Partition, path: str, new_path: str) -> None:
        self.seen.append(f"moved {Path(path).name} {Path(new_path).name}")


@scenario
async def test_a_log_that_moves_is_not_compacted(machine: Machine) -> None:
    life = await machine.start()
    watched = life.moves._cleaning = Watched()
    write(life, 5)
    await life.moves.move(life.partition, life.target(1))
    await life.until_moved(1)
    assert watched.seen == ["pause", "moved d0 d1", "resume"]
    await life.moves.move(life.partition, life.target(2))
    await life.moves.move(life.partition, life.target(1))
    assert watched.seen[3:] == ["pause", "resume"]
    await life.end()


# Disks


@scenario
async def test_the_disk_that_it_moves_to_fails(machine: Machine) -> None:
    life = await machine.start()
    write(life, 30)
    life.throttle.limit = 0.0
    life.throttle.record(1, life.now_ms())
    await life.moves.move(life.partition, life.target(1))
    machine.files.broken = machine.paths[1]
    life.throttle.limit = 1e12
    await life.until(lambda: not len(life.moves))
    assert life.failed == [machine.paths[1]]
    assert (life.home, life.partition.failure) == (life.target(0), None)
    assert life.moves.failed == 1
    write(life, 1)
    with pytest.raises(ApiError) as refused:
        await life.moves.move(life.partition, life.target(2))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR, "while one is offline"
    await life.end()


@scenario
async def test_the_disk_that_it_comes_from_fails(machine: Machine) -> None:
    """The controller, which may believe that the replica is elsewhere, hears where it is."""
    life = await machine.start()
    write(life, 10)
    machine.metadata.delay_s = 0.1
    await life.moves.move(life.partition, life.target(1))
    await life.until(lambda: life.move is not None and life.move.stage is Stage.ASSIGNED)
    machine.files.broken = machine.paths[0]
    await life.until(lambda: bool(life.failed))
    assert life.failed == [machine.paths[0]]
    assert life.partition.failure is not None
    home = life.futures.id_of(life.target(0))
    await life.until(lambda: machine.metadata.told[-1:] == [home])
    life.stop()
    life.log.abandon()
    await life.shelf.close_directories()
    # Without that disk nobody knows whether the copy has everything; with it, it is found out.
    machine.files.broken = machine.paths[0]
    with pytest.raises(Exception, match="may be there"):
        await machine.start()
    machine.files.broken = "-"


@scenario
async def test_a_copy_whose_original_is_gone_for_good_is_used_if_it_had_caught_up(machine: Machine) -> None:
    life = await machine.start()
    write(life, 10)
    machine.metadata.delay_s = 3600
    await life.moves.move(life.partition, life.target(1))
    await life.until(lambda: life.move is not None and life.move.stage is Stage.ASSIGNING)
    await life.end()
    for file in (machine.root / "d0" / "t-0").iterdir():
        file.unlink()
    (machine.root / "d0" / "t-0").rmdir()
    machine.metadata.directory_id = life.futures.id_of(life.target(1))
    again = await machine.start()
    assert (again.names(), again.log.end_offset) == (["1/t-0"], 10)
    await again.end()


@scenario
async def test_and_dropped_if_it_had_not(machine: Machine) -> None:
    life = await machine.start()
    write(life, 10)
    machine.metadata.delay_s = 3600
    await life.moves.move(life.partition, life.target(1))
    await life.end()
    for file in (machine.root / "d0" / "t-0").iterdir():
        file.unlink()
    (machine.root / "d0" / "t-0").rmdir()
    machine.metadata.directory_id = life.futures.id_of(life.target(0))
    again = await machine.start()
    assert (again.names(), again.log.end_offset) == (["0/t-0"], 0)
    await again.end()


@scenario
async def test_a_replica_begins_where_it_was_asked_to(machine: Machine) -> None:
    shelf = await DirectoryShelf.open(machine.host, config_of(machine.paths), SETTINGS)
    shelf.prefer(PartitionName("t", 0), machine.paths[2])
    log = await shelf.open_log(KEY, small_segments(), machine.metadata.directory_id)
    assert log.directory.startswith(machine.paths[2])
    log.abandon()
    await shelf.close_directories()


# Rules


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("event", Event)
def test_what_is_not_in_the_table_cannot_happen(stage: Stage, event: Event) -> None:
    if (stage, event) in TRANSITIONS:
        assert after(stage, event) is TRANSITIONS[stage, event]
    else:
        with pytest.raises(AssertionError, match=f"{stage.value} cannot be {event.value}"):
            after(stage, event)


@pytest.mark.parametrize(
    ("log", "end", "copy", "copy_end", "expected"),
    [
        ([], 0, [], 0, 0),
        ([(1, 0)], 10, [], 0, 0),
        ([(1, 0)], 10, [(1, 0)], 7, 7),
        ([(1, 0)], 5, [(1, 0)], 7, 5),
        ([(1, 0), (2, 5)], 10, [(1, 0)], 7, 5),
        ([(1, 0), (2, 5)], 10, [(1, 0), (2, 5)], 7, 7),
        ([(1, 0), (3, 5)], 10, [(1, 0), (2, 4)], 7, 4),
        ([(1, 0), (3, 5)], 10, [(1, 0), (2, 6)], 7, 5),
        ([(4, 8)], 10, [(1, 0), (2, 6)], 9, 8),
        ([(1, 0)], 10, [(2, 0)], 7, 0),
        ([(1, 0), (2, 10)], 10, [(1, 0)], 10, 10),
    ],
)
def test_where_two_logs_part(
    log: list[tuple[int, int]], end: int, copy: list[tuple[int, int]], copy_end: int, expected: int
) -> None:
    assert common_end(LeaderEpochs(log), end, LeaderEpochs(copy), copy_end) == expected
