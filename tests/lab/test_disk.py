"""A simulated disk behaves as a real one while there is power, and as badly as allowed when it fails."""

from __future__ import annotations

import asyncio
import errno
import tempfile
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import Unfinished, run_process

from quorate.lab.inode import SECTOR_BYTES
from quorate.lab.world import SECOND, World
from quorate.node.host import Host
from quorate.storage.files import Files, RealFiles, replace_file

SEEDS = range(40)


async def read(files: Files, path: str) -> bytes | None:
    """The content of a file, None if there is none."""
    if not files.exists(path):
        return None
    file = files.open(path)
    return file.read(0, file.size())


def after_power_loss(world: World, path: str) -> bytes | None:
    world.power_loss("n1")
    return run_process(world, "n1", lambda host: read(host.files, path))


# While there is power

NAMES = st.sampled_from(["a", "b", "d", "d/a", "d/e", "d/e/a", "x/y"])
OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(["create", "unlink", "make_directory", "names", "exists", "fsync_dir"]), NAMES),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("append"), NAMES, st.binary(max_size=30)),
    st.tuples(st.just("truncate"), NAMES, st.integers(0, 40)),
    st.tuples(st.just("read"), NAMES, st.integers(0, 40), st.integers(0, 40)),
)


async def perform(files: Files, root: str, operation: tuple[Any, ...]) -> Any:
    """What an operation gives, or the kind of error it raises."""
    kind, name, *rest = operation
    path = root + name
    try:
        match kind:
            case "create":
                files.open(path, create=True).close()
            case "append" | "truncate" | "read":
                file = files.open(path)
                try:
                    if kind == "append":
                        file.append([rest[0][:3], memoryview(rest[0])[3:]])
                        await file.fsync()
                    elif kind == "truncate":
                        file.truncate(rest[0])
                    else:
                        return file.read(*rest), file.size()
                finally:
                    file.close()
            case "rename":
                if root + rest[0] != path and (root + rest[0]).startswith(path + "/"):
                    return None  # into itself: neither allows it, with different words
                files.rename(path, root + rest[0])
            case "fsync_dir":
                await files.fsync_dir(path)
            case _:
                return getattr(files, kind)(path)
    except OSError as error:
        return type(error).__name__
    return None


@settings(max_examples=60)
@given(st.lists(OPERATIONS, max_size=25))
def test_a_simulated_disk_does_what_a_real_one_does(operations: list[tuple[Any, ...]]) -> None:
    async def perform_all(files: Files, root: str) -> list[Any]:
        return [await perform(files, root, operation) for operation in operations]

    with World(1) as world, tempfile.TemporaryDirectory() as directory:
        simulated = run_process(world, "n1", lambda host: perform_all(host.files, ""))
        real = asyncio.run(perform_all(RealFiles(), directory + "/"))
    for operation, here, there in zip(operations, simulated, real, strict=True):
        assert here == there, operation


def test_a_killed_process_leaves_everything_it_wrote() -> None:
    with World(1) as world:

        async def main(host: Host) -> None:
            host.files.make_directory("d")
            host.files.open("d/f", create=True).append([b"never flushed"])
            await asyncio.sleep(100)

        world.add_machine("n1")
        world.start("n1", main)
        world.run_for(SECOND)
        world.kill("n1")
        assert run_process(world, "n1", lambda host: read(host.files, "d/f")) == b"never flushed"


def test_a_closed_file_cannot_be_used() -> None:
    async def main(host: Host) -> None:
        file = host.files.open("f", create=True)
        file.close()
        for use in (lambda: file.append([b"x"]), lambda: file.read(0, 1), lambda: file.truncate(0)):
            with pytest.raises(OSError) as raised:  # noqa: PT011
                use()
            assert raised.value.errno == errno.EBADF

    with World(1) as world:
        run_process(world, "n1", main)


def test_locks_end_with_their_process() -> None:
    async def main(host: Host) -> None:
        first = host.files.lock("lock")
        assert first is not None
        assert host.files.lock("lock") is None
        first.close()
        assert host.files.lock("lock") is not None
        await asyncio.sleep(100)

    with World(1) as world:
        world.add_machine("n1")
        world.start("n1", main)
        for end in (world.kill, world.power_loss, world.kill):
            world.run_for(SECOND)
            assert world.is_running("n1"), world.problems
            end("n1")
            world.restart("n1")
        world.run_for(SECOND)
        world.check()


# When power fails


@settings(max_examples=150)
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(1, 2000), max_size=6),
    st.lists(st.integers(1, 2000), max_size=6),
)
def test_what_was_flushed_survives_and_the_rest_may_tear(
    seed: int, flushed_sizes: list[int], unflushed_sizes: list[int]
) -> None:
    flushed = b"".join(bytes([65 + index]) * size for index, size in enumerate(flushed_sizes))
    unflushed = b"".join(bytes([97 + index]) * size for index, size in enumerate(unflushed_sizes))

    async def main(host: Host) -> None:
        host.files.make_directory("d")
        file = host.files.open("d/f", create=True)
        file.append([flushed])
        await file.fsync()
        await host.files.fsync_dir("d")
        await host.files.fsync_dir("")
        for size in unflushed_sizes:
            start = file.size() - len(flushed)
            file.append([unflushed[start : start + size]])

    with World(seed) as world:
        run_process(world, "n1", main)
        left = after_power_loss(world, "d/f")
    assert left is not None
    assert left.startswith(flushed)
    whole = flushed + unflushed
    assert len(left) <= len(whole)
    for position in range(len(flushed), len(left)):
        assert left[position] in (0, whole[position])


def test_unflushed_data_survives_sometimes_wholly_sometimes_not_and_sometimes_in_sectors() -> None:
    fates: Counter[str] = Counter()
    data = b"x" * 10 * SECTOR_BYTES

    async def main(host: Host) -> None:
        file = host.files.open("f", create=True)
        await host.files.fsync_dir("")
        file.append([data])

    for seed in SEEDS:
        with World(seed) as world:
            run_process(world, "n1", main)
            left = after_power_loss(world, "f")
        assert left is not None
        for start in range(0, len(left), SECTOR_BYTES):
            assert len(set(left[start : start + SECTOR_BYTES])) == 1, "a sector is old or new"
        holes = b"\0" in left
        fates["all" if left == data else "nothing" if not left else "holes" if holes else "shorter"] += 1
    assert set(fates) == {"all", "nothing", "holes", "shorter"} or set(fates) == {"all", "nothing", "holes"}


def test_what_is_written_during_a_flush_is_not_covered_by_it() -> None:
    lengths = set()

    async def main(host: Host) -> None:
        file = host.files.open("f", create=True)
        await host.files.fsync_dir("")
        file.append([b"before"])
        flush = asyncio.ensure_future(file.fsync())
        await asyncio.sleep(0)
        file.append([b"after"])
        await flush

    for seed in SEEDS:
        with World(seed) as world:
            run_process(world, "n1", main)
            left = after_power_loss(world, "f")
        assert left is not None
        assert left.startswith(b"before")
        lengths.add(len(left))
    assert {6, 11} <= lengths


def test_a_flush_that_has_not_returned_promises_nothing() -> None:
    left = set()

    async def main(host: Host) -> None:
        file = host.files.open("f", create=True)
        await host.files.fsync_dir("")
        file.append([b"x"])
        await file.fsync()

    for seed in SEEDS:
        with World(seed) as world:
            world.add_machine("n1").disk.slowness = 1.0
            world.start("n1", main)
            world.run_until_condition(lambda w=world: w.machines["n1"].disk.operations == 4, SECOND)
            left.add(after_power_loss(world, "f"))
    assert {b"", b"x"} <= left


def test_a_truncation_that_was_not_flushed_may_be_undone() -> None:
    left = set()

    async def main(host: Host) -> None:
        file = host.files.open("f", create=True)
        file.append([b"old" * 1000])
        await file.fsync()
        await host.files.fsync_dir("")
        file.truncate(10)

    for seed in SEEDS:
        with World(seed) as world:
            run_process(world, "n1", main)
            content = after_power_loss(world, "f")
            assert content is not None
            assert content[:10] == (b"old" * 1000)[:10]
            left.add(len(content))
    assert {10, 3000} <= left


def test_of_names_that_were_not_flushed_the_first_ones_survive() -> None:
    left = set()

    async def main(host: Host) -> None:
        for name in "abc":
            file = host.files.open(name, create=True)
            file.append([b"x"])
            await file.fsync()

    async def names(host: Host) -> str:
        return "".join(host.files.names(""))

    for seed in SEEDS:
        with World(seed) as world:
            run_process(world, "n1", main)
            world.power_loss("n1")
            left.add(run_process(world, "n1", names))
    assert left == {"", "a", "ab", "abc"}


@pytest.mark.parametrize("target", ["new", "d/new"])
def test_a_rename_survives_as_a_whole_or_not_at_all(target: str) -> None:
    left = set()

    async def main(host: Host) -> None:
        host.files.make_directory("d")
        for name in ("old", target):
            file = host.files.open(name, create=True)
            file.append([name.encode()])
            await file.fsync()
        await host.files.fsync_dir("d")
        await host.files.fsync_dir("")
        host.files.rename("old", target)

    async def look(host: Host) -> tuple[bytes | None, bytes | None]:
        return await read(host.files, "old"), await read(host.files, target)

    for seed in SEEDS:
        with World(seed) as world:
            run_process(world, "n1", main)
            world.power_loss("n1")
            left.add(run_process(world, "n1", look))
    assert left == {(b"old", target.encode()), (None, b"old")}


def test_flushing_one_directory_makes_a_move_durable_in_both() -> None:
    async def main(host: Host) -> None:
        host.files.make_directory("d")
        host.files.make_directory("e")
        await host.files.fsync_dir("")
        host.files.open("e/other", create=True)
        host.files.open("d/f", create=True)
        host.files.rename("d/f", "e/f")
        await host.files.fsync_dir("d")

    async def look(host: Host) -> tuple[list[str], list[str]]:
        return host.files.names("d"), host.files.names("e")

    for seed in SEEDS:
        with World(seed) as world:
            run_process(world, "n1", main)
            world.power_loss("n1")
            assert run_process(world, "n1", look) == ([], ["f", "other"])


@pytest.mark.parametrize("with_power", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_a_replaced_file_is_old_or_new_wherever_it_is_interrupted(seed: int, with_power: bool) -> None:
    old, new = b"old" * 400, b"new" * 500

    async def replace_by_new(host: Host) -> None:
        await replace_file(host.files, "d/f", new)

    async def prepare(host: Host) -> None:
        host.files.make_directory("d")
        await host.files.fsync_dir("")
        await replace_file(host.files, "d/f", old)

    seen = set()
    for count in range(100):
        with World(seed) as world:
            run_process(world, "n1", prepare)
            world.crash_at_operation("n1", count, with_power=with_power)
            try:
                run_process(world, "n1", replace_by_new)
                finished = True
            except Unfinished:
                finished = False
            world.machines["n1"].disk.no_crash()
            content = run_process(world, "n1", lambda host: read(host.files, "d/f"))
            assert content in (old, new)
            seen.add(content)
            run_process(world, "n1", replace_by_new)
            assert after_power_loss(world, "d/f") == new, "and it can be replaced afterwards"
            if finished:
                assert content == new
                break
    assert count == 5, "create, append, fsync, rename, fsync_dir"
    assert seen == {old, new}


def test_a_process_can_die_within_a_write() -> None:
    lengths = set()

    async def main(host: Host) -> None:
        host.files.open("f", create=True).append([b"0123456789"])

    for seed in SEEDS:
        with World(seed) as world:
            world.add_machine("n1")
            world.crash_at_operation("n1", 1)
            with pytest.raises(Unfinished):
                run_process(world, "n1", main)
            left = run_process(world, "n1", lambda host: read(host.files, "f"))
            assert left is not None
            assert b"0123456789".startswith(left)
            lengths.add(len(left))
    assert {0, 10} < lengths


def test_a_flush_that_is_overtaken_by_a_reboot_covers_nothing_new() -> None:
    left = set()

    async def first(host: Host) -> None:
        file = host.files.open("f", create=True)
        file.append([b"old"])
        await file.fsync()
        await host.files.fsync_dir("")
        file.append([b"lost?"])
        world.machines["n1"].disk.slowness = 100.0
        world.call_at(world.now_ns + 1, world.power_loss, "n1")
        await file.fsync()

    async def second(host: Host) -> None:
        file = host.files.open("f")
        file.truncate(3)
        file.append([b"new"])
        await asyncio.sleep(1)

    for seed in SEEDS:
        with World(seed) as world:
            with pytest.raises(Unfinished):
                run_process(world, "n1", first)
            run_process(world, "n1", second)
            left.add(after_power_loss(world, "f"))
    assert {b"old", b"oldnew"} <= left


# Broken disks


def test_after_a_failed_flush_the_data_is_gone_although_it_can_be_read() -> None:
    async def main(host: Host) -> None:
        file = host.files.open("f", create=True)
        await host.files.fsync_dir("")
        file.append([b"lost"])
        world.machines["n1"].disk.failing_syncs = 1
        with pytest.raises(OSError) as raised:  # noqa: PT011
            await file.fsync()
        assert raised.value.errno == errno.EIO
        assert file.read(0, 10) == b"lost"
        file.append([b"kept"])
        await file.fsync()

    for seed in SEEDS:
        with World(seed) as world:
            run_process(world, "n1", main)
            assert run_process(world, "n1", lambda host: read(host.files, "f")) == b"\0\0\0\0kept"
            assert after_power_loss(world, "f") == b"\0\0\0\0kept"


def test_a_full_disk_takes_what_fits_and_then_refuses() -> None:
    async def main(host: Host) -> None:
        file = host.files.open("f", create=True)
        for _ in range(2):
            with pytest.raises(OSError) as raised:  # noqa: PT011
                file.append([b"0123456789"])
            assert raised.value.errno == errno.ENOSPC
            assert file.size() == 4, "first a short write, then nothing"
        file.truncate(0)
        file.append([b"0123"])

    with World(1) as world:
        world.add_machine("n1").disk.room_bytes = 4
        run_process(world, "n1", main)


def test_reads_can_fail() -> None:
    async def main(host: Host) -> None:
        file = host.files.open("f", create=True)
        with pytest.raises(OSError) as raised:  # noqa: PT011
            file.read(0, 1)
        assert raised.value.errno == errno.EIO
        assert file.read(0, 1) == b""

    with World(1) as world:
        world.add_machine("n1").disk.failing_reads = 1
        run_process(world, "n1", main)


def test_a_slow_disk_takes_longer() -> None:
    async def main(host: Host) -> float:
        loop = asyncio.get_running_loop()
        file = host.files.open("f", create=True)
        before_s = loop.time()
        await file.fsync()
        return loop.time() - before_s

    with World(1) as world:
        world.add_machine("n1")
        assert run_process(world, "n1", main) < 0.01
        world.machines["n1"].disk.slowness = 1000.0
        assert run_process(world, "n1", main) > 0.09
