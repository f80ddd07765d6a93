"""Snapshots of the metadata log: when they are written, and what they make superfluous."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Final

from quorate.node.cluster_state import ClusterState
from quorate.node.config import NodeConfig
from quorate.node.host import Host
from quorate.node.replica import Replica
from quorate.storage.errors import StorageError

__all__ = ["SnapshotKeeper"]

_RETENTION_CHECK_MS: Final = 60_000
_CHECK_S: Final = 0.5
_RETRY_S: Final = 10


class SnapshotKeeper:
    """Writes a snapshot after so many bytes of records, or so much time, and cleans up behind it."""

    def __init__(self, host: Host, config: NodeConfig, replica: Replica, state: ClusterState) -> None:
        self._host = host
        self._config = config
        self._replica = replica
        self._state = state
        self._logger = logging.getLogger(f"quorate.node.{host.name}")

    async def run(self) -> None:
        interval_ms = self._config["metadata.log.max.snapshot.interval.ms"]
        bytes_max = self._config["metadata.log.max.record.bytes.between.snapshots"]
        state, loop = self._state, asyncio.get_running_loop()
        last, last_cleaned, not_before = loop.time(), loop.time(), 0.0
        while True:
            await asyncio.sleep(_CHECK_S)
            elapsed_ms = (loop.time() - last) * 1000
            is_due = state.bytes_since_snapshot >= bytes_max
            is_due = is_due or (0 < interval_ms <= elapsed_ms and state.bytes_since_snapshot > 0)
            is_due = is_due and loop.time() >= not_before
            if is_due and not state.image.is_in_transaction:
                last = loop.time()
                try:
                    await self.write()
                except StorageError as error:
                    if not _is_full(error):
                        raise
                    # The log has everything; a snapshot only saves space and time.
                    not_before = loop.time() + _RETRY_S
                    self._logger.error("snapshot not written, retried in %d s: %s", _RETRY_S, error)
            if is_due or (loop.time() - last_cleaned) * 1000 >= _RETENTION_CHECK_MS:
                last_cleaned = loop.time()
                await self.clean()

    async def write(self) -> None:
        """A snapshot of what has been applied. Its columns are copied here; another thread encodes them."""
        state, quorum = self._state, self._replica.quorum
        position = state.position
        if position.offset <= quorum.log.start_offset or position in quorum.log.snapshots:
            return
        voters, kraft_version = quorum.voters.at(position.offset)
        written_bytes, state.bytes_since_snapshot = state.bytes_since_snapshot, 0
        frozen, timestamp_ms = state.image.freeze(), state.last_timestamp_ms
        now_ms = self._host.wall_ms()
        sections = await asyncio.get_running_loop().run_in_executor(self._host.executor, frozen.sections)
        try:
            await self._replica.log.write_snapshot(
                position, sections, timestamp_ms, voters, kraft_version, now_ms
            )
        except StorageError:
            state.bytes_since_snapshot += written_bytes
            raise
        if position.offset < quorum.log.start_offset:
            return  # meanwhile a leader's snapshot took the place of the log; this one goes with the next
        quorum.log.add_snapshot(position)
        await self.clean()
        count = sum(section.count for section in sections)
        self._logger.info("snapshot written snapshot=%s records=%d", position, count)

    async def clean(self) -> None:
        """Removes snapshots and segments beyond the limits; the newest snapshot always stays."""
        config, replica, now_ms = self._config, self._replica, self._host.wall_ms()
        start = replica.log.start_to_keep(
            bytes_max=config["metadata.max.retention.bytes"],
            age_ms_max=config["metadata.max.retention.ms"],
            now_ms=now_ms,
        )
        if start is not None:
            # The quorum first: it must not send anyone to what is being deleted.
            replica.quorum.log.delete_before(start)
            replica.quorum.voters.trim(start.offset)
            await replica.log.delete_before(start, now_ms)
            self._logger.info("log starts at=%s", start)


def _is_full(error: StorageError) -> bool:
    """Whether there is only no room; any other trouble with its disk ends a node."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
