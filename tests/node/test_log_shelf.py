"""The log directories of a broker: what is found in them, kept, set aside, and left behind in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.partition import Partition, Surroundings, TopicPartition
from quorate.broker.settings import BrokerSettings
from quorate.broker.topic_config import TopicConfig, topic_config
from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import MIGRATING, UNASSIGNED
from quorate.node.config import NodeConfig, parse_config
from quorate.node.format import format_storage
from quorate.node.host import real_host
from quorate.node.log_shelf import DirectoryShelf
from quorate.protocol.batch import Record, build, read_header, stamp
from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError
from quorate.storage.partition_log import PartitionLog

CLUSTER_ID = "q8K3yH5ASs2mFvAaEvJ0QA"
NOW_MS = 1_700_000_000_000
HOST = real_host("101")
SETTINGS = BrokerSettings(broker_id=101, cluster_id=CLUSTER_ID)
CLEAN = ".kafka_cleanshutdown"


def key(name: str = "t", partition_id: int = 0, version: int = 0) -> TopicPartition:
    return TopicPartition(name, Uuid(f"{name}{version}".encode().ljust(16, b".")), partition_id)


def config_of(root: Path, directories: int) -> NodeConfig:
    paths = ",".join(str(root / f"disk-{number}") for number in range(directories))
    properties = {
        "process.roles": "broker",
        "node.id": "101",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "metadata.log.dir": str(root / "metadata"),
        "log.dirs": paths,
    }
    return parse_config("broker.properties", properties)


class Disks:
    """The disks of a broker that runs, ends and runs again."""

    def __init__(self, root: Path, directories: int = 1) -> None:
        self.root = root
        self.config = config_of(root, directories)
        asyncio.run(format_storage(HOST, self.config, CLUSTER_ID))

    def disk(self, number: int = 0) -> Path:
        return self.root / f"disk-{number}"

    def names(self, number: int = 0) -> list[str]:
        """The directories of partitions, without what makes names unique."""
        found = [one.name for one in self.disk(number).iterdir() if one.is_dir()]
        return sorted(f"{one.split('.')[0]}{one[-6:] if '.' in one else ''}" for one in found)

    async def open(self) -> DirectoryShelf:
        return await DirectoryShelf.open(HOST, self.config, SETTINGS)


def topic() -> TopicConfig:
    return topic_config(ClusterImage(), "t", 101, {})


async def replica(
    shelf: DirectoryShelf, of: TopicPartition, records: int = 0, directory: Uuid = UNASSIGNED
) -> Partition:
    """A replica, opened, with some more records in it."""
    log = await shelf.open_log(of, topic(), directory)
    for _ in range(records):
        append(log)
    around = Surroundings(
        broker_id=101,
        lag_ms_max=1,
        now_ms=lambda: 0.0,
        wall_ms=lambda: NOW_MS,
        is_eligible=lambda *_: True,
    )
    return Partition(of, around, log, topic(), shelf.high_watermark_of(of))


def append(log: PartitionLog) -> None:
    data = build([Record(0, NOW_MS, None, b"value")])
    stamp(data, 0, log.end_offset, 0)
    log.append_produced(data, read_header(data), 0, NOW_MS)


async def end(shelf: DirectoryShelf, *partitions: Partition, epoch: int = 5) -> None:
    """Ends in order."""
    await shelf.save(partitions)
    for one in partitions:
        await one.log.close()
    await shelf.mark_clean(epoch)
    await shelf.close_directories()


async def die(shelf: DirectoryShelf, *partitions: Partition) -> None:
    for one in partitions:
        one.log.abandon()
    await shelf.close_directories()


def test_a_log_is_where_it_was_as_it_was(tmp_path: Path):
    disks = Disks(tmp_path)

    async def scenario() -> None:
        shelf = await disks.open()
        one = await replica(shelf, key(), 3)
        one._high_watermark = 2
        await end(shelf, one)
        shelf = await disks.open()
        assert shelf.previous_epoch == 5
        again = await replica(shelf, key())
        assert (again.log.end_offset, again.high_watermark) == (3, 2)
        assert again.log.recovery.scanned_segments == 0
        await die(shelf, again)
        shelf = await disks.open()
        assert shelf.previous_epoch == -1
        last = await replica(shelf, key())
        assert (last.log.end_offset, last.log.recovery.scanned_segments) == (3, 1)
        await end(shelf, last)

    asyncio.run(scenario())


def test_what_was_not_recovered_is_not_left_in_order(tmp_path: Path):
    """Told to stop before it has opened its logs, a broker must not say that all is well."""
    disks = Disks(tmp_path)

    async def scenario() -> None:
        shelf = await disks.open()
        partitions = [await replica(shelf, key("t"), 3), await replica(shelf, key("u"), 3)]
        for one in partitions:
            one._high_watermark = 2
        await shelf.save(partitions)
        await die(shelf, *partitions)
        with next((disks.disk() / "t-0").glob("*.log")).open("ab") as file:
            file.write(b"torn")

        shelf = await disks.open()
        await end(shelf, epoch=9)  # at once
        assert not (disks.disk() / CLEAN).exists()
        shelf = await disks.open()
        await end(shelf, await replica(shelf, key("u")), epoch=9)  # half way
        assert not (disks.disk() / CLEAN).exists()

        shelf = await disks.open()
        partitions = [await replica(shelf, key(name)) for name in ("t", "u")]
        assert [one.high_watermark for one in partitions] == [2, 2], "what was known of it is still known"
        assert partitions[0].log.recovery.cut_bytes == 4
        await end(shelf, *partitions, epoch=9)
        assert (disks.disk() / CLEAN).exists()

    asyncio.run(scenario())


def test_who_never_became_a_broker_leaves_things_as_they_were(tmp_path: Path):
    disks = Disks(tmp_path)

    async def scenario() -> None:
        shelf = await disks.open()
        await end(shelf, await replica(shelf, key(), 3), epoch=5)
        shelf = await disks.open()
        await end(shelf, epoch=-1)
        shelf = await disks.open()
        assert shelf.previous_epoch == 5
        one = await replica(shelf, key())
        assert one.log.recovery.scanned_segments == 0
        await end(shelf, one)

    asyncio.run(scenario())


def test_opening_that_was_cut_short_is_not_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    disks = Disks(tmp_path)

    async def scenario() -> None:
        shelf = await disks.open()
        await end(shelf, await replica(shelf, key(), 3))
        shelf = await disks.open()
        with monkeypatch.context() as patch:
            patch.setattr(PartitionLog, "open", lambda *_, **__: asyncio.sleep(60))
            opening = asyncio.create_task(shelf.open_log(key(), topic(), UNASSIGNED))
            await asyncio.sleep(0)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        await end(shelf)
        assert not (disks.disk() / CLEAN).exists()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_restarted", [False, True])
def test_another_topic_of_the_same_name_begins_at_the_beginning(tmp_path: Path, is_restarted: bool):
    """Whatever the checkpoints have of the old one: where it began, and how far it was committed."""
    disks = Disks(tmp_path)

    async def scenario() -> None:
        shelf = await disks.open()
        old = await replica(shelf, key(), 5)
        old._high_watermark = 5
        await old.log.delete_until(4, NOW_MS)
        await shelf.save([old])
        if is_restarted:
            await end(shelf, old)
            shelf = await disks.open()
        else:
            await shelf.delete_log(old.key, old.log)
        new = await replica(shelf, key(version=1), 2)
        assert (new.log.start_offset, new.log.end_offset, new.high_watermark) == (0, 2, 0)
        await die(shelf, new)
        assert disks.names() == (["t-0", "t-0-stray"] if is_restarted else ["t-0"])
        shelf = await disks.open()
        again = await replica(shelf, key(version=1))
        assert (again.log.start_offset, again.log.end_offset, again.high_watermark) == (0, 2, 0)
        await end(shelf, again)

    asyncio.run(scenario())


def test_a_checkpoint_that_is_under_way_does_not_bring_back_what_was_deleted(tmp_path: Path):
    disks = Disks(tmp_path)

    async def scenario() -> None:
        shelf = await disks.open()
        old = await replica(shelf, key(), 5)
        await old.log.delete_until(4, NOW_MS)
        saving = asyncio.create_task(shelf.save([old]))
        await asyncio.sleep(0)
        await shelf.delete_log(old.key, old.log)
        new = await replica(shelf, key(version=1), 2)
        await saving
        await shelf.save([old, new])
        await die(shelf, new)
        shelf = await disks.open()
        again = await replica(shelf, key(version=1))
        assert (again.log.start_offset, again.log.end_offset) == (0, 2)
        await end(shelf, again)

    asyncio.run(scenario())


def test_what_is_not_ours_any_more_is_set_aside(tmp_path: Path):
    disks = Disks(tmp_path)

    async def scenario() -> None:
        shelf = await disks.open()
        partitions = [await replica(shelf, key(name), 1) for name in ("kept", "moved", "made-again")]
        await end(shelf, *partitions)
        shelf = await disks.open()
        await shelf.set_aside_others([key("kept"), key("made-again", version=1)])
        assert disks.names() == ["kept-0", "made-again-0-stray", "moved-0-stray"]
        await end(shelf, epoch=7)
        assert (disks.disk() / CLEAN).exists()

    asyncio.run(scenario())


@pytest.mark.parametrize(("directory", "is_refused"), [(UNASSIGNED, False), (MIGRATING, True), (None, True)])
def test_a_log_on_a_failed_disk_does_not_begin_anew_elsewhere(
    tmp_path: Path, directory: Uuid | None, is_refused: bool
):
    """An empty replica would count as one that has everything. A new one may begin."""
    disks = Disks(tmp_path, directories=2)

    async def scenario() -> None:
        shelf = await disks.open()
        failed_id, other_id = shelf.directory_ids
        told = []
        shelf.when_failed = lambda *failed: told.append(failed[0].directory_id)
        lost, kept = (
            await replica(shelf, key("lost"), 3, failed_id),
            await replica(shelf, key("kept"), 3, other_id),
        )
        shelf.fail(lost.log, StorageError("disk-0", "it is gone"))
        assert told == [failed_id]
        assert shelf.directory_ids == [other_id]
        lost.log.abandon()
        try:
            again = await replica(shelf, key("lost"), 0, failed_id if directory is None else directory)
        except StorageError as error:
            assert is_refused
            assert "may be there" in str(error)
        else:
            assert not is_refused
            assert again.log.directory.startswith(str(disks.disk(1)))
            await again.log.close()
        await kept.log.close()
        await shelf.mark_clean(5)
        await shelf.close_directories()
        assert [(disks.disk(one) / CLEAN).exists() for one in (0, 1)] == [False, True]

    asyncio.run(scenario())


def test_the_last_directory_that_fails(tmp_path: Path):
    disks = Disks(tmp_path, directories=2)

    async def scenario() -> None:
        shelf = await disks.open()
        partitions = [await replica(shelf, key(name)) for name in ("t", "u")]
        assert [disks.names(number) for number in (0, 1)] == [["t-0"], ["u-0"]], (
            "the one with fewer is chosen"
        )
        shelf.fail(partitions[0].log, StorageError("disk-0", "it is gone"))
        assert not shelf.all_failed.is_set()
        shelf.fail(partitions[1].log, StorageError("disk-1", "it is gone"))
        assert shelf.all_failed.is_set()
        assert shelf.offline_paths == [str(disks.disk(number)) for number in (0, 1)]
        with pytest.raises(StorageError, match="no log directory is online"):
            await shelf.open_log(key("v"), topic(), UNASSIGNED)
        await die(shelf, *partitions)

    asyncio.run(scenario())


@pytest.mark.parametrize("damaged", [["t"], ["t", "u"]])
def test_a_log_that_cannot_be_opened_takes_its_directory_out(tmp_path: Path, damaged: Sequence[str]):
    disks = Disks(tmp_path, directories=2)

    async def scenario() -> None:
        shelf = await disks.open()
        partitions = [await replica(shelf, key(name), 1) for name in ("t", "u")]
        await end(shelf, *partitions)
        for number, name in enumerate(damaged):
            (disks.disk(number) / f"{name}-0" / "leader-epoch-checkpoint").write_text("nonsense")
        shelf = await disks.open()
        for name in damaged:
            with pytest.raises(StorageError, match="leader-epoch-checkpoint"):
                await shelf.open_log(key(name), topic(), UNASSIGNED)
        assert len(shelf.offline_paths) == len(damaged)
        await shelf.close_directories()

    asyncio.run(scenario())


def test_logs_that_are_opened_together_are_spread_over_the_directories(tmp_path: Path):
    disks = Disks(tmp_path, directories=2)

    async def scenario() -> None:
        shelf = await disks.open()
        partitions = await asyncio.gather(*(replica(shelf, key("t", number)) for number in range(6)))
        assert [len(disks.names(number)) for number in (0, 1)] == [3, 3]
        await end(shelf, *partitions)

    asyncio.run(scenario())


def test_a_log_whose_directory_fails_while_it_is_opened_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    disks = Disks(tmp_path, directories=2)

    async def scenario() -> None:
        shelf = await disks.open()
        partitions = [await replica(shelf, key(name), 1) for name in ("t", "u")]
        await end(shelf, *partitions)
        shelf = await disks.open()
        opening = PartitionLog.open

        async def slow_open(*given: Any, **options: Any) -> PartitionLog:
            log = await opening(*given, **options)
            shelf.fail(log, StorageError("disk-0", "it is gone"))  # says another log of this directory
            return log

        with monkeypatch.context() as patch:
            patch.setattr(PartitionLog, "open", slow_open)
            with pytest.raises(StorageError, match="it is gone"):
                await shelf.open_log(key("t"), topic(), UNASSIGNED)
        await shelf.close_directories()

    asyncio.run(scenario())
