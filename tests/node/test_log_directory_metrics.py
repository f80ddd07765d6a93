"""What a scraper reads of log directories and of replicas that move between them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from node.moving_replicas import Life, Metadata, format_disks
from quorate.broker.directory_moves_stages import Stage
from quorate.node.host import real_host
from quorate.node.log_directory_metrics import LogDirectoryMetrics
from quorate.node.metrics import NodeMetrics
from quorate.storage.errors import StorageError

COUNT = "kafka_log_logmanager_offlinelogdirectorycount"
FAILED = "kafka_server_replicaalterlogdirsmanager_failedpartitionscount"
LAG = "kafka_server_replicaalterlogdirsmanager_maxlag"


def scraped(disks: Any) -> dict[str, float]:
    metrics = NodeMetrics()
    metrics.sources.append(LogDirectoryMetrics(lambda: disks))
    families = text_string_to_metric_families(metrics.scrape(None)[0].decode())
    return {
        "".join([one.name, *one.labels.values()]): one.value for family in families for one in family.samples
    }


def test_directories_that_fail_and_replicas_that_move_are_counted(tmp_path: Path):
    paths = [str(tmp_path / f"d{number}") for number in range(2)]
    metadata = Metadata()
    metadata.delay_s = 3600

    async def scenario() -> None:
        host = real_host("101")
        await format_disks(host, paths)
        life = Life(host, paths, metadata)
        await life.begin()
        for _ in range(5):
            life.append(1)
        found = scraped(life)
        assert (found[COUNT], found["quorate_future_replicas"], found[LAG]) == (0, 0, 0)
        await life.moves.move(life.partition, life.target(1))
        assert scraped(life)["quorate_future_replicas"] == 1
        assert scraped(life)[LAG] == 5
        await life.until(lambda: life.move is not None and life.move.stage is Stage.ASSIGNING)
        found = scraped(life)
        assert found[LAG] == 0
        assert found["quorate_moved_bytes_total"] == life.log.size_bytes
        life.shelf.fail_directory(life.shelf.directories.online[1], StorageError(paths[1], "it is gone"))
        found = scraped(life)
        assert (found[COUNT], found[FAILED], found["quorate_future_replicas"]) == (1, 1, 0)
        offline = [found[f"kafka_log_logmanager_logdirectoryoffline{path}"] for path in paths]
        assert offline == [0, 1]
        await life.end()

    asyncio.run(scenario())


def test_before_the_directories_are_open_there_is_nothing_to_say():
    assert not any(name.startswith("kafka_log") for name in scraped(None))
