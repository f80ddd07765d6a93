"""What checkpoints remember of a log never reaches beyond its end, whatever is cut off and whenever power
fails: what is believed to be synced is not looked at again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from quorate.broker.partition import TopicPartition
from quorate.broker.settings import BrokerSettings
from quorate.broker.topic_config import topic_config
from quorate.lab.world import SECOND, World
from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import UNASSIGNED
from quorate.node.config import parse_config
from quorate.node.format import format_storage
from quorate.node.host import Host
from quorate.node.log_shelf import DirectoryShelf
from quorate.protocol.batch import Record, batches, build
from quorate.protocol.types import Uuid
from quorate.storage.checkpoints import (
    RECOVERY_POINTS_NAME,
    PartitionName,
    load_checkpoint,
)
from quorate.storage.limits import LogConfig
from quorate.storage.partition_log import PartitionLog

CLUSTER_ID = "q8K3yH5ASs2mFvAaEvJ0QA"
SETTINGS = BrokerSettings(broker_id=101, cluster_id=CLUSTER_ID)
CONFIG = parse_config(
    "broker.properties",
    {
        "process.roles": "broker",
        "node.id": "101",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "metadata.log.dir": "metadata",
        "log.dirs": "data",
    },
)
TOPIC = replace(
    topic_config(ClusterImage(), "t", 101, {}), log=LogConfig(segment_bytes=1600, index_interval_bytes=600)
)
KEY = TopicPartition("t", Uuid(b"t".ljust(16, b".")), 0)
NAME = PartitionName("t", 0)
SECTOR_BATCH_VALUE_BYTES = 442  # batches of exactly a sector: a torn file can be made of whole ones


def append(log: PartitionLog, epoch: int, count: int) -> None:
    for _ in range(count):
        value = b"%d in epoch %d" % (log.end_offset, epoch)
        records = [Record(log.end_offset, 1000, None, value.ljust(SECTOR_BATCH_VALUE_BYTES, b"."))]
        log.append_replicated(build(records, base_offset=log.end_offset, leader_epoch=epoch), 0)


def epochs_of(log: PartitionLog) -> list[int]:
    """Of every batch, read as a consumer would."""
    found: list[int] = []
    while log.start_offset + len(found) < log.end_offset:
        data = log.read(log.start_offset + len(found), 1 << 20)
        some = list(batches(data))
        assert some, f"nothing at {log.start_offset + len(found)}, before the end at {log.end_offset}"
        assert [header.base_offset for header in some] == [
            log.start_offset + len(found) + index for index in range(len(some))
        ]
        for one in some:
            assert b"in epoch %d." % one.partition_leader_epoch in bytes(data[one.position : one.end])
        found += [header.partition_leader_epoch for header in some]
    return found


async def first_run(host: Host) -> DirectoryShelf:
    await format_storage(host, CONFIG, CLUSTER_ID)
    await host.files.fsync_dir("")
    return await DirectoryShelf.open(host, CONFIG, SETTINGS)


async def saved(shelf: DirectoryShelf, host: Host, log: PartitionLog, epoch: int, count: int) -> None:
    """Appends, syncs, and lets the checkpoints say so."""
    append(log, epoch, count)
    await log.flush()
    directory = shelf._directories.online[0]
    await directory.store_recovery_points({NAME: log.flushed_offset})
    await directory.store_start_offsets({NAME: log.start_offset})
    assert load_checkpoint(host.files, "data", RECOVERY_POINTS_NAME)[NAME] == log.end_offset


@pytest.mark.parametrize("cut_to", [5, 0])
@pytest.mark.parametrize("seed", range(30))
def test_what_replaces_a_cut_end_is_recovered_when_power_fails(seed: int, cut_to: int):
    """Twelve batches are synced, and remembered as such. Then the log is cut, and grows again beyond where it
    ended; nothing of that is synced when power fails. It must not be taken for what was."""
    has_written: list[bool] = []

    async def cut_and_grow(host: Host) -> None:
        shelf = await first_run(host)
        log = await shelf.open_log(KEY, TOPIC, UNASSIGNED)
        await saved(shelf, host, log, 1, 12)
        await log.truncate_to(cut_to)
        append(log, 2, 12)
        has_written.append(True)

    async def look(host: Host) -> None:
        shelf = await DirectoryShelf.open(host, CONFIG, SETTINGS)
        log = await shelf.open_log(KEY, TOPIC, UNASSIGNED)
        found = epochs_of(log)
        assert found == ([1] * cut_to + [2] * 12)[: len(found)]
        assert len(found) >= cut_to

    with World(seed) as world:
        world.add_machine("n1")
        world.start("n1", cut_and_grow)
        assert world.run_until_condition(lambda: bool(has_written), world.now_ns + 1000 * SECOND)
        world.power_loss("n1")
        world.start("n1", look)
        world.run_until_condition(lambda: not world.is_running("n1"), world.now_ns + 1000 * SECOND)
        world.check()


def test_a_log_that_begins_anew_below_its_beginning_stays_there():
    """The checkpoint of beginnings would make it begin, once more, where it was."""

    async def begin_anew(host: Host) -> None:
        shelf = await first_run(host)
        log = await shelf.open_log(KEY, TOPIC, UNASSIGNED)
        append(log, 1, 12)
        await log.delete_until(10, 0)
        await saved(shelf, host, log, 1, 1)
        await log.restart_at(3, 0)
        append(log, 2, 3)
        await log.flush()

    async def look(host: Host) -> None:
        shelf = await DirectoryShelf.open(host, CONFIG, SETTINGS)
        log = await shelf.open_log(KEY, TOPIC, UNASSIGNED)
        assert (log.start_offset, log.end_offset) == (3, 6)

    with World(1) as world:
        world.add_machine("n1")
        for run in (begin_anew, look):
            world.start("n1", run)
            world.run_until_condition(lambda: not world.is_running("n1"), world.now_ns + 1000 * SECOND)
        world.check()


def test_logs_that_are_cut_together_share_a_store_of_the_checkpoint():
    stores = 0

    async def cut(host: Host) -> None:
        nonlocal stores
        host.files.log_files.open_max = None  # all of them are synced at once, and held open for that
        shelf = await first_run(host)
        keys = [KEY._replace(partition_id=number) for number in range(50)]
        logs = [await shelf.open_log(key, TOPIC, UNASSIGNED) for key in keys]
        for log in logs:
            append(log, 1, 4)
            await log.flush()
        directory = shelf._directories.online[0]
        names = [PartitionName(key.topic, key.partition_id) for key in keys]
        await directory.store_recovery_points(dict.fromkeys(names, 4))
        store = directory.store_recovery_points

        async def counted(offsets: Mapping[PartitionName, int]) -> None:
            nonlocal stores
            stores += 1
            await store(offsets)

        directory.store_recovery_points = counted  # type: ignore[method-assign]
        await asyncio.gather(*(log.truncate_to(number % 5) for number, log in enumerate(logs)))
        found = load_checkpoint(host.files, "data", RECOVERY_POINTS_NAME)
        assert [found[name] for name in names] == [number % 5 for number in range(50)]

    with World(1) as world:
        world.add_machine("n1")
        world.start("n1", cut)
        world.run_until_condition(lambda: not world.is_running("n1"), world.now_ns + 1000 * SECOND)
        world.check()
    assert 0 < stores < 10
