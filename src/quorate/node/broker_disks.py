"""The log directories of a broker that runs: replicas move between them, and they fail.

One that fails takes its replicas out, and the controller is told with the next heartbeat, so that others lead
them. The broker goes on with the rest; but not without any, nor without the one that its metadata log is in.
Then it hands over what it leads elsewhere, if there is anything and anybody to hand it to, and ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from quorate.broker.cordoning import CORDONED_LOG_DIRS, cordoned_paths, objection_to
from quorate.broker.directory_moves import RATE, Cleaning, DirectoryMoves
from quorate.broker.directory_moves_copying import Copying
from quorate.broker.dynamic_config import DynamicConfig
from quorate.broker.partition import Partition, TopicPartition
from quorate.broker.replicas import Replicas
from quorate.broker.throttled_replication import ReplicationThrottle
from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import Partition as PartitionState
from quorate.metadata.versions import DIRECTORIES
from quorate.node.config import NodeConfig
from quorate.node.future_logs import FutureLogs
from quorate.node.host import Host
from quorate.node.log_shelf import DirectoryShelf
from quorate.protocol.types import Uuid
from quorate.storage.errors import StorageError
from quorate.storage.log_directories import LogDirectory

__all__ = ["Assignments", "BrokerDisks", "DiskMembership"]


class Assignments(Protocol):
    """Who is to know in which directory a replica is."""

    def note(self, key: TopicPartition, *, actual: Uuid, known: Uuid) -> None: ...


class DiskMembership(Protocol):
    """Whom the failure of a directory concerns, as far as the cluster is concerned."""

    def directories_failed(self, directories: Sequence[Uuid]) -> None: ...
    async def until_reported(self, directories: Sequence[Uuid]) -> None: ...
    def begin_shutdown(self) -> None: ...


class BrokerDisks:
    """`begin` has to come before anything else. `fatal` is what ended the broker, if anything here did."""

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        shelf: DirectoryShelf,
        assignments: Assignments,
        configs: DynamicConfig,
        image: Callable[[], ClusterImage],
    ) -> None:
        self._host = host
        self._config = config
        self._broker_id = config.node_id
        self._assignments = assignments
        self._configs = configs
        self._image = image
        self.shelf = shelf
        self.futures = FutureLogs(host, shelf, [path for path in config.log_directories if path])
        self.throttle = ReplicationThrottle(config.replication_quota_window)
        self.fatal: StorageError | None = None
        self._failed_ids: list[Uuid] = []
        self._must_end = asyncio.Event()
        self._replicas: Replicas
        self._membership: DiskMembership
        self.moves: DirectoryMoves
        self._logger = logging.getLogger(f"quorate.broker.{host.name}")

    def begin(self, replicas: Replicas, cleaning: Cleaning | None) -> None:
        self._replicas = replicas
        self.moves = DirectoryMoves(
            self._broker_id,
            self.futures,
            self._assignments.note,
            lambda: self._image().metadata_version >= DIRECTORIES,
            lambda one: replicas.of_topic(one.key.topic_id, one.key.partition_id) is one,
            Copying(self._now_ms, self._host.wall_ms, self._host.executor),
            self.throttle,
            cleaning,
        )
        replicas.before_removal.insert(0, self.moves.forget)
        self._configs.when_changed(self._set_rate, RATE)
        self._set_rate()
        self._configs.when_changed(self._cordon, CORDONED_LOG_DIRS)
        self._cordon()

    def serve(self, membership: DiskMembership) -> None:
        """From now on it matters if a disk fails."""
        self._membership = membership
        self.shelf.when_failed = self._directory_failed

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        """What goes on for as long as the broker runs."""
        return [self.moves.run(), self.futures.delete_replaced(), self._watch()]

    def assigned(self, partition: Partition, state: PartitionState) -> None:
        """The metadata say where a replica of ours is."""
        self.moves.assigned(partition, state.directory_of(self._broker_id))

    async def close(self) -> None:
        """Before the logs themselves are closed."""
        await self.moves.close()
        await self.futures.close()

    # Failing

    def _directory_failed(self, directory: LogDirectory, error: StorageError) -> None:
        self._replicas.directory_failed(directory.path, str(error))
        self.moves.directory_failed(self.futures.absolute(directory.path))
        failed = [] if directory.directory_id is None else [directory.directory_id]
        self._failed_ids += failed
        self._membership.directories_failed(failed)
        if not self.shelf.directories.online:
            self.fatal = StorageError(", ".join(self.shelf.offline_paths), "no log directory is left")
        elif directory.path == self._config.metadata_directory and not self._config.is_of_zookeeper:
            self.fatal = StorageError(
                directory.path, "the metadata log is in this log directory, which failed"
            )
        if self.fatal is not None:
            self._must_end.set()

    async def _watch(self) -> None:
        """Ends the broker if it cannot go on, once others may lead what it has led."""
        await self._must_end.wait()
        self._logger.error("the broker cannot go on reason=%s", self.fatal)
        membership = self._membership
        await membership.until_reported(self._failed_ids)
        membership.begin_shutdown()
        await asyncio.sleep(self._config["log.dir.failure.timeout.ms"] / 1000)
        membership.begin_shutdown()  # nobody lets it go

    def _set_rate(self) -> None:
        self.throttle.limit = self._configs[RATE]

    def _cordon(self) -> None:
        """What does not make sense here, the log may have for another broker, or from before."""
        entries, known = self._configs[CORDONED_LOG_DIRS], self.futures.paths
        objection = objection_to(entries, known)
        if objection is not None:
            self._logger.warning("%s", objection)
        self.futures.cordon(cordoned_paths(entries, known))

    def _now_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000
