"""Compaction in the simulated world, what is remembered of it in a log directory, and what metrics say."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "storage"))
from compacted_logs import SMALL_COMPACTED, a_keyed, a_task, all_records, last_values
from partition_logs import opened_partition, produce

from quorate.broker.cleaner import Cleaner
from quorate.broker.cleaner_parts import CleanerSettings
from quorate.lab.world import SECOND, World
from quorate.node.cleaner_checkpoints import CleanerCheckpoints
from quorate.node.cleaner_metrics import CleanerMetrics
from quorate.node.cleaner_workers import LocalCompactor
from quorate.node.host import Host
from quorate.protocol.types import Uuid
from quorate.storage.checkpoints import CLEANED_NAME, PartitionName, load_checkpoint
from quorate.storage.compaction import CleanedGroup
from quorate.storage.directory_names import DirectoryKind
from quorate.storage.files import RealFiles
from quorate.storage.log_directories import LogDirectories, LogDirectory

FILES = RealFiles()
NAME = PartitionName("t", 0)


def test_in_the_simulated_world_it_runs_in_the_node_itself() -> None:
    found: list[tuple[int, int, dict[bytes | None, bytes | None]]] = []

    async def live(host: Host) -> None:
        assert host.start_process is None
        log = await opened_partition("t-0", SMALL_COMPACTED, files=host.files)
        for number in range(100):
            produce(log, a_keyed([(f"k{number % 7}", str(number))]))
        await log.flush()
        before = last_values(all_records(log))

        async def swap(group: CleanedGroup) -> None:
            await log.replace_segments(
                group.old, group.new, cuts=log.cuts, largest_timestamp_ms=group.largest_timestamp_ms
            )

        done = await LocalCompactor(host).run(a_task(log), swap, 100_000.0)
        assert last_values(all_records(log)) == before
        found.append((done.records_kept, done.written_bytes, before))

    for _ in range(2):
        with World(11) as world:
            world.add_machine("n1")
            world.start("n1", live)
            world.run_until_condition(lambda: not world.is_running("n1"), world.now_ns + 100 * SECOND)
            world.check()
    assert len(found) == 2
    assert found[0] == found[1]


def test_how_far_a_log_is_clean_is_remembered_and_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        directory = LogDirectory(FILES, str(tmp_path), None, None)
        directories = LogDirectories([directory], {}, -1)
        checkpoints = CleanerCheckpoints(directories)
        log = await opened_partition(tmp_path / "t-0", SMALL_COMPACTED)
        directory.partitions.add(NAME)
        assert checkpoints.of(log) is None
        await checkpoints.store(log, 40)
        assert checkpoints.of(log) == 40
        assert load_checkpoint(FILES, str(tmp_path), CLEANED_NAME) == {NAME: 40}
        checkpoints.carry_over(log, 41)
        assert checkpoints.of(log) == 41
        await checkpoints.forget(log)
        assert load_checkpoint(FILES, str(tmp_path), CLEANED_NAME) == {}
        await checkpoints.store(log, 42)
        await log.close()
        await directory.rename(NAME, Uuid(bytes(16)), DirectoryKind.DELETED)
        assert directory.cleaned_offsets == {}  # another log of the same name knows nothing of it

    asyncio.run(scenario())


def test_what_metrics_say() -> None:
    cleaner = Cleaner(
        1,
        [],
        CleanerSettings,
        lambda: None,  # type: ignore[arg-type, return-value]
        None,  # type: ignore[arg-type]
        now_ms=lambda: 0.0,
        wall_ms=lambda: 0,
        when_disk_fails=lambda _partition, _error: None,
    )
    stats = cleaner.stats
    stats.runs, stats.records_read, stats.records_kept, stats.dirty_ratio_max = 3, 200, 50, 0.75
    stats.last_look_ms = 1000
    found = {
        sample.name: sample.value
        for family in CleanerMetrics(lambda: cleaner, lambda: 4000).collect()
        for sample in family.samples
    }
    assert found["kafka_log_logcleanermanager_max_dirty_percent"] == 75
    assert found["kafka_log_logcleanermanager_time_since_last_run_ms"] == 3000
    assert found["kafka_log_logcleanermanager_uncleanable_partitions_count"] == 0
    assert found["kafka_log_logcleaner_cleaner_recopy_percent"] == 25
    assert found["quorate_cleaner_runs_total"] == 3
    assert list(CleanerMetrics(lambda: None, lambda: 0).collect()) == []
