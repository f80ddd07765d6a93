"""The log directories of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from failing_files import FailingFiles
from partition_logs import TOPIC_ID, a_produced, opened_partition, produce

from quorate.lab.world import SECOND, World
from quorate.node.host import Host
from quorate.protocol.types import Uuid
from quorate.storage.checkpoints import PartitionName, store_clean_shutdown
from quorate.storage.directory_names import DirectoryKind, can_be_moved, parse_name, renamed
from quorate.storage.errors import StorageError
from quorate.storage.files import Files, RealFiles
from quorate.storage.log_directories import LogDirectories, LogDirectory
from quorate.storage.meta_properties import MetaProperties, store_meta_properties

FILES = RealFiles()
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
ID = Uuid(bytes(range(16)))


async def formatted(directory: Path, *, node_id: int = 1, directory_id: Uuid | None = None) -> str:
    directory.mkdir()
    directory_id = directory_id or Uuid(directory.name.encode().ljust(16))
    await store_meta_properties(FILES, str(directory), MetaProperties(CLUSTER_ID, node_id, directory_id))
    return str(directory)


async def opened(*paths: str, files: Files = FILES, locked: tuple[str, ...] = ()) -> LogDirectories:
    return await LogDirectories.open(files, paths, cluster_id=CLUSTER_ID, node_id=1, locked=locked)


# Names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", ("orders", 0, DirectoryKind.CURRENT)),
        ("a-b.c_d-17", ("a-b.c_d", 17, DirectoryKind.CURRENT)),
        ("x-delete-0", ("x-delete", 0, DirectoryKind.CURRENT)),
        ("orders-0.0fa5-delete", ("orders", 0, DirectoryKind.DELETED)),
        ("a-1.b-2.0fa5-future", ("a-1.b", 2, DirectoryKind.FUTURE)),
        ("orders-3.0fa5-stray", ("orders", 3, DirectoryKind.STRAY)),
        ("__cluster_metadata-0", None),
        ("orders", None),
        ("orders-", None),
        ("orders-x", None),
        ("-3", None),
        ("meta.properties", None),
        (".lock", None),
    ],
)
def test_a_name_says_whose_directory_it_is(
    name: str, expected: tuple[str, int, DirectoryKind] | None
) -> None:
    if expected is None:
        assert parse_name(name) is None
    else:
        topic, partition, kind = expected
        found = parse_name(name)
        assert found is not None
        assert found[:3] == (name, PartitionName(topic, partition), kind)
        assert bool(found.unique) == (kind is not DirectoryKind.CURRENT)


def test_a_name_for_what_is_deleted() -> None:
    name = renamed(PartitionName("orders", 2), ID.hex(), DirectoryKind.DELETED)
    assert name == "orders-2.000102030405060708090a0b0c0d0e0f-delete"
    long = renamed(PartitionName("o" * 249, 2), ID.hex(), DirectoryKind.STRAY)
    assert len(long) == 255
    assert long.endswith("o-2.000102030405060708090a0b0c0d0e0f-stray")


def test_a_copy_needs_all_of_its_name() -> None:
    assert can_be_moved(PartitionName("o" * 213, 2))
    assert not can_be_moved(PartitionName("o" * 214, 2))
    assert not can_be_moved(PartitionName("o" * 213, 10))


# Opening


def test_directories_are_taken_into_use(tmp_path: Path) -> None:
    async def scenario() -> None:
        paths = [await formatted(tmp_path / "a"), await formatted(tmp_path / "b")]
        for name in (
            "a/t-0",
            "a/t-1",
            "b/u-0",
            "b/t-2.0f-delete",
            "b/t-3.0f-future",
            "a/__cluster_metadata-0",
        ):
            (tmp_path / name).mkdir()
        directories = await opened(*paths)
        a, b = directories.online
        assert (a.path, b.path) == tuple(paths)
        assert a.partitions == {PartitionName("t", 0), PartitionName("t", 1)}
        assert [one.name for one in b.listing()] == ["t-2.0f-delete", "t-3.0f-future", "u-0"]
        assert directories.holding(PartitionName("u", 0)) is b
        assert directories.holding(PartitionName("t", 2)) is None
        assert directories.choose() is a, "a copy counts"
        a.partitions.add(PartitionName("w", 0))
        assert directories.choose() is b
        b.partitions |= {PartitionName("v", 0), PartitionName("v", 1)}
        assert directories.choose() is a
        directories.cordoned = frozenset({a.path})
        assert directories.choose() is b
        directories.cordoned = frozenset({a.path, b.path})
        assert directories.choose() is a, "better there than nowhere"
        assert a.path_of(PartitionName("t", 0)) == str(tmp_path / "a" / "t-0")
        assert directories.of_path(f"{paths[1]}/u-0/00000000000000000000.log") is b
        assert directories.of_path(f"{paths[1]}x") is None
        with pytest.raises(StorageError, match="in use"):
            await opened(*paths)
        directories.close()
        (await opened(*paths)).close()

    asyncio.run(scenario())


def test_a_lock_that_this_process_has_is_enough(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = await formatted(tmp_path / "a")
        first = await opened(path)
        second = await opened(path, locked=(path,))
        second.close()
        with pytest.raises(StorageError, match="in use"):
            await opened(path)
        first.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: formatted(path, node_id=2), "node.id is 2, but this node is 1"),
        (lambda path: formatted(path, directory_id=Uuid(b"a".ljust(16))), "directory.id is .*, as that of"),
    ],
)
def test_a_directory_of_another_is_refused(
    tmp_path: Path, make: Callable[[Path], object], reason: str
) -> None:
    async def scenario() -> None:
        good = await formatted(tmp_path / "a")
        await make(tmp_path / "b")  # type: ignore[misc]
        with pytest.raises(StorageError, match=reason):
            await opened(good, str(tmp_path / "b"))
        (await opened(good)).close()

    asyncio.run(scenario())


def test_what_is_not_formatted_or_there_twice_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        a, b = await formatted(tmp_path / "a"), await formatted(tmp_path / "b")
        (tmp_path / "c").mkdir()
        with pytest.raises(StorageError, match="not formatted"):
            await opened(a, str(tmp_path / "c"))
        for name in ("a/t-0", "b/t-0"):
            (tmp_path / name).mkdir()
        with pytest.raises(StorageError, match=f"b/t-0: t-0 is in {a} as well"):
            await opened(a, b)

    asyncio.run(scenario())


def test_a_disk_that_fails_takes_one_directory_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        a, b = await formatted(tmp_path / "a"), await formatted(tmp_path / "b")
        missing = str(tmp_path / "missing")
        directories = await opened(a, missing, b)
        assert [one.path for one in directories.online] == [a, b]
        assert "No such file" in directories.offline[missing]
        directories.take_offline(directories.online[0], "the disk is broken")
        assert [one.path for one in directories.online] == [b]
        assert directories.offline[a] == "the disk is broken"
        assert directories.choose().path == b
        with pytest.raises(StorageError, match="in use"):
            await opened(a)
        directories.take_offline(directories.online[0], "this too")
        with pytest.raises(StorageError, match="no log directory is online"):
            directories.choose()
        files = FailingFiles()
        files.broken = {("read", "meta.properties")}
        with pytest.raises(StorageError, match="no log directory can be used"):
            await opened(str(tmp_path / "missing"), files=files)

    asyncio.run(scenario())


# Checkpoints, and how it ended


def test_an_orderly_end_is_seen_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        a, b = await formatted(tmp_path / "a"), await formatted(tmp_path / "b")
        name = PartitionName("t", 0)
        directories = await opened(a, b)
        assert directories.previous_broker_epoch == -1
        for directory in directories.online:
            await directory.begin()
        log = await opened_partition(directories.online[0].path_of(name), recovery_point=0)
        produce(log, a_produced())
        await log.close()
        first = directories.online[0]
        first.partitions.add(name)
        await first.store_recovery_points({name: 1, PartitionName("deleted", 0): 5})
        await first.store_start_offsets({name: 0})
        await first.store_high_watermarks({name: 1})
        for directory in directories.online:
            await directory.close_in_order(77)

        directories = await opened(a, b)
        first = directories.online[0]
        assert directories.previous_broker_epoch == 77
        assert first.was_closed_in_order
        assert (first.recovery_points, first.start_offsets, first.high_watermarks) == (
            {name: 1},
            {name: 0},
            {name: 1},
        )
        for directory in directories.online:
            await directory.begin()
        assert first.take_recovery_point(name) is None
        assert first.take_recovery_point(name) == 1, "it was opened since"
        assert first.take_recovery_point(PartitionName("new", 0)) == 0
        directories.close()

        directories = await opened(a, b)
        assert directories.previous_broker_epoch == -1, "it was killed"
        assert directories.online[0].take_recovery_point(name) == 1
        directories.close()

    asyncio.run(scenario())


def test_directories_must_agree_on_how_it_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        paths = [await formatted(tmp_path / "a"), await formatted(tmp_path / "b")]
        for epochs, expected in [((5, 5), 5), ((5, 6), -1), ((5, None), -1)]:
            for path, epoch in zip(paths, epochs, strict=True):
                (Path(path) / ".kafka_cleanshutdown").unlink(missing_ok=True)
                if epoch is not None:
                    await store_clean_shutdown(FILES, path, epoch)
            directories = await opened(*paths)
            assert directories.previous_broker_epoch == expected
            assert directories.online[0].was_closed_in_order
            directories.close()
        directories = await opened(paths[0], str(tmp_path / "missing"))
        assert directories.previous_broker_epoch == -1, "one of them cannot say"
        directories.close()

    asyncio.run(scenario())


def test_a_damaged_checkpoint_fails_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = await formatted(tmp_path / "a")
        (tmp_path / "a" / "replication-offset-checkpoint").write_text("0\n1\n")
        with pytest.raises(StorageError, match="1 entries announced"):
            await opened(path)
        (tmp_path / "a" / "replication-offset-checkpoint").unlink()
        (await opened(path)).close()

    asyncio.run(scenario())


# Deleting


def test_a_deletion_is_a_rename_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = await formatted(tmp_path / "a")
        directories = await opened(path)
        directory = directories.online[0]
        for partition in (0, 1):
            await (await opened_partition(directory.path_of(PartitionName("t", partition)))).close()
            directory.partitions.add(PartitionName("t", partition))
        name = await directory.rename(PartitionName("t", 0), ID, DirectoryKind.DELETED)
        assert directory.partitions == {PartitionName("t", 1)}
        assert sorted(one.name for one in directory.listing()) == [name, "t-1"]
        directories.close()

        directories = await opened(path)
        assert directories.online[0].finish_deletions() == [name]
        assert [one.name for one in directories.online[0].listing()] == ["t-1"]
        assert directories.online[0].finish_deletions() == []
        directories.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("count", range(1, 60, 3))
def test_a_deletion_that_is_cut_short_is_finished_by_the_next_process(count: int) -> None:
    name = PartitionName("t", 0)
    finished: list[str] = []

    async def prepare(host: Host) -> None:
        host.files.make_directory("d")
        await store_meta_properties(host.files, "d", MetaProperties(CLUSTER_ID, 1, ID))
        await host.files.fsync_dir("")

    async def delete(host: Host) -> None:
        directory = await LogDirectory.open(host.files, "d", cluster_id=CLUSTER_ID, node_id=1)
        await (await opened_partition("d/t-0", files=host.files)).close()
        directory.delete(await directory.rename(name, TOPIC_ID, DirectoryKind.DELETED))
        finished.append("deleted")

    async def finish(host: Host) -> None:
        directory = await LogDirectory.open(host.files, "d", cluster_id=CLUSTER_ID, node_id=1)
        assert not (directory.partitions and "deleted" in finished)
        for deleted in directory.finish_deletions():
            assert not host.files.exists(f"d/{deleted}") or host.files.names(f"d/{deleted}") == []
        if directory.partitions:
            await (await opened_partition("d/t-0", files=host.files)).close()
        finished.append("finished")

    with World(count) as world:
        world.add_machine("n1")
        world.start("n1", prepare)
        world.run_for(SECOND)
        world.start("n1", delete)
        world.crash_at_operation("n1", count)
        world.run_for(SECOND)
        if world.is_running("n1"):
            world.kill("n1")
        world.start("n1", finish)
        world.run_until_condition(lambda: "finished" in finished, world.now_ns + 10 * SECOND)
        world.check()
        assert finished[-1] == "finished"


# Copies that a process has left behind


def made(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir()


def left(root: Path) -> list[str]:
    return sorted(f"{one.parent.name}/{one.name}" for one in root.glob("*/*") if one.is_dir())


@pytest.mark.parametrize(
    ("found", "expected", "futures"),
    [
        (["a/t-0", "b/t-0.1-future"], ["a/t-0", "b/t-0.1-future"], ["b"]),
        (["a/t-0.1-delete", "b/t-0.1-future"], ["a/t-0.1-delete", "b/t-0"], []),
        (["a/t-0.2-delete", "b/t-0.1-future"], ["a/t-0.2-delete", "b/t-0.1-future"], ["b"]),
        (["a/t-1.1-delete", "b/t-0.1-future"], ["a/t-1.1-delete", "b/t-0.1-future"], ["b"]),
        (["a/t-0", "a/t-0.1-future"], ["a/t-0", "a/t-0.1-delete"], []),
        (
            ["a/t-0", "b/t-0.1-future", "b/t-0.2-future"],
            ["a/t-0", "b/t-0.1-future", "b/t-0.2-delete"],
            ["b"],
        ),
        (
            ["a/t-0.2-delete", "b/t-0.1-future", "b/t-0.2-future"],
            ["a/t-0.2-delete", "b/t-0", "b/t-0.1-delete"],
            [],
        ),
        (["a/t-0", "b/t-0.1-future", "b/t-0.1-delete"], None, ["b"]),
    ],
    ids=["under way", "replaced", "deleted", "another", "beside itself", "twice", "the right one", "both"],
)
def test_a_copy_gets_its_name_once_it_has_replaced_the_replica(
    tmp_path: Path, found: list[str], expected: list[str] | None, futures: list[str]
) -> None:
    async def scenario() -> None:
        paths = [await formatted(tmp_path / "a"), await formatted(tmp_path / "b")]
        made(tmp_path, *found)
        for _ in range(2):  # the second time there is nothing left to do
            directories = await opened(*paths)
            assert left(tmp_path) == sorted(expected or found)
            holding = [Path(one.path).name for one in directories.online if one.futures]
            assert holding == futures
            directories.close()

    asyncio.run(scenario())


def test_a_disk_that_fails_while_a_copy_gets_its_name_is_offline(tmp_path: Path) -> None:
    files = FailingFiles()

    async def scenario() -> None:
        paths = [await formatted(tmp_path / "a"), await formatted(tmp_path / "b")]
        made(tmp_path, "a/t-0.1-delete", "b/t-0.1-future")
        files.broken.add(("rename", "t-0"))
        directories = await opened(*paths, files=files)
        assert list(directories.offline) == paths[1:]
        directories.close()

    asyncio.run(scenario())
