"""The cleaner of a running broker, put together: what is set, who works, what is remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quorate.broker.cleaner import Cleaner
from quorate.broker.cleaner_parts import CleanerSettings, Compactor
from quorate.broker.dynamic_config import DynamicConfig
from quorate.broker.partition import Partition
from quorate.broker.replicas import Replicas
from quorate.node.cleaner_checkpoints import CleanerCheckpoints
from quorate.node.cleaner_workers import LocalCompactor, ProcessCompactor
from quorate.node.host import Host
from quorate.node.log_shelf import DirectoryShelf
from quorate.storage.errors import StorageError

__all__ = ["make_cleaner"]

_KEYS: Final = (
    "log.cleaner.threads",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.backoff.ms",
)
THREADS_MAX: Final = 16  # processes
MAP_BYTES_MIN: Final = 1 << 20  # for each of them


def make_cleaner(
    broker_id: int,
    host: Host,
    configs: DynamicConfig,
    shelf: DirectoryShelf,
    replicas: Replicas,
    now_ms: Callable[[], float],
    when_disk_fails: Callable[[Partition, StorageError], None],
) -> Cleaner:
    """A cleaner of all replicas, told of those that go away and of settings that change."""

    def compactor() -> Compactor:
        if host.start_process is None:
            return LocalCompactor(host)
        return ProcessCompactor(host.start_process, host.name)

    cleaner = Cleaner(
        broker_id,
        replicas,
        lambda: _settings(configs),
        compactor,
        CleanerCheckpoints(shelf.directories),
        now_ms=now_ms,
        wall_ms=host.wall_ms,
        when_disk_fails=when_disk_fails,
    )
    configs.when_changed(cleaner.settings_changed, *_KEYS)
    replicas.before_removal.append(cleaner.forget)
    return cleaner


def _settings(configs: DynamicConfig) -> CleanerSettings:
    threads, map_bytes, load_factor, io_bytes, rate, backoff_ms = (configs[key] for key in _KEYS)
    threads = min(threads, THREADS_MAX)
    return CleanerSettings(
        threads=threads,
        dedupe_buffer_bytes=max(map_bytes, threads * MAP_BYTES_MIN),
        load_factor=load_factor,
        io_buffer_bytes=io_bytes,
        io_max_bytes_per_second=max(1.0, rate),
        backoff_ms=max(1, backoff_ms),
    )
