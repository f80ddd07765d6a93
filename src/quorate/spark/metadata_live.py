"""The metadata log of a live cluster, read as an observer without a name: never past the high watermark.

The controllers are found from the brokers, or given. A range of offsets is read from whoever leads, with the
leader's own epoch in place of that of the record before, so that a task can begin anywhere. Where the log has
been cut off before the range, its newest snapshot stands for what is gone. Whatever may pass, an election or
a lost connection, is tried again: an error that reaches Spark ends its query.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa

from quorate.client.controllers import FETCH_BYTES, Controllers
from quorate.client.errors import Unavailable
from quorate.client.metadata import parse_addresses
from quorate.net.client import ConnectionLost
from quorate.net.tls import TlsSettings, client_context
from quorate.protocol.batch import BatchHeader, batches, validate
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Buffer
from quorate.raft import messages
from quorate.raft.positions import Position
from quorate.spark.metadata_columns import RETENTION, Place, decode_batches, snapshot_time_ms

__all__ = ["LiveChunk", "LiveMetadata", "LiveState", "read_live"]

T = TypeVar("T")

DEADLINE_S: Final = 60.0
_PAUSE_S: Final = 0.2
_CHUNK_OFFSETS: Final = 500_000  # one task's
_PROBE_BYTES: Final = 1
_GUESSES_MAX: Final = 1_000
_KEPT_MAX: Final = 8
_PASSING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class LiveState(NamedTuple):
    cluster_id: str
    leader_epoch: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveChunk:
    """A range of offsets, or a snapshot, to be read by one task."""

    cluster_id: str
    servers: str
    tls: TlsSettings | None = None
    start_offset: int = 0
    end_offset: int = 0
    last_epoch: int | None = None  # of the record before, if it is known
    snapshot: tuple[int, int] | None = None  # its end offset and epoch
    is_confirmed: bool = True


class LiveMetadata:
    """The log of one cluster. Use `close` when done."""

    def __init__(
        self, *, bootstrap: str | None, controllers: str | None, tls: TlsSettings | None = None
    ) -> None:
        self._servers = controllers or bootstrap or ""
        self._tls = tls
        secured = client_context(tls) if tls is not None else None
        self._loop = asyncio.new_event_loop()
        self._controllers = Controllers(parse_addresses(self._servers), tls=secured)
        self._cluster_id: str | None = None
        self._epoch: int | None = None  # of the leader that was asked last

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._controllers.close())
            self._loop.close()

    def state(self) -> LiveState:
        async def ask() -> LiveState:
            quorum = await self._controllers.describe()
            self._epoch = quorum.leader_epoch
            if self._cluster_id is None:
                self._cluster_id = await self._controllers.cluster_id()
            return LiveState(self._cluster_id, quorum.leader_epoch, max(0, quorum.high_watermark))

        return self._persistently(ask)

    def begin_offset(self, offset: int) -> int:
        """Where the log can be read from, if not from an offset: where its newest snapshot ends."""
        snapshot = self._snapshot_for(offset)
        return offset if snapshot is None else snapshot.offset

    def chunks(self, start_offset: int, end_offset: int) -> list[LiveChunk]:
        """The range as pieces, in order."""
        cluster_id = self.state().cluster_id
        found: list[LiveChunk] = []
        snapshot = self._snapshot_for(start_offset) if start_offset < end_offset else None
        if snapshot is not None:
            identity = snapshot.offset, snapshot.epoch
            found.append(
                LiveChunk(cluster_id=cluster_id, servers=self._servers, tls=self._tls, snapshot=identity)
            )
            start_offset = snapshot.offset
        return found + [
            LiveChunk(
                cluster_id=cluster_id,
                servers=self._servers,
                tls=self._tls,
                start_offset=start,
                end_offset=min(start + _CHUNK_OFFSETS, end_offset),
                last_epoch=snapshot.epoch if snapshot is not None and start == start_offset else None,
            )
            for start in range(start_offset, end_offset, _CHUNK_OFFSETS)
        ]

    def log(self, chunk: LiveChunk) -> Iterator[tuple[Buffer, list[BatchHeader]]]:
        """The batches of a range, as they come. Raises if they are no longer there."""
        offset, last_epoch = chunk.start_offset, chunk.last_epoch
        while offset < chunk.end_offset:
            answer = self._fetch(offset, last_epoch)
            if answer.snapshot is not None:
                reason = f"the log was cut off before offset {answer.snapshot.offset} while {offset} was read"
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
            headers = [validate(answer.records, one.position) for one in batches(answer.records)]
            if not headers:
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"nothing at offset {offset}, before the end")
            yield answer.records, headers
            offset, last_epoch = headers[-1].next_offset, headers[-1].partition_leader_epoch

    def snapshot(self, snapshot: Position) -> Iterator[tuple[Buffer, list[BatchHeader]]]:
        """The batches of a snapshot, as they come."""
        position, left = 0, b""
        while True:
            answer = self._fetch_snapshot(snapshot, position)
            position += len(answer.data)
            data = left + bytes(answer.data)
            headers = [validate(data, one.position) for one in batches(data)]
            if headers:
                yield data, headers
                data = data[headers[-1].end :]
            left = data
            if position >= answer.size_bytes or not answer.data:
                break
        if left:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the snapshot {snapshot} ends within a batch")

    def _snapshot_for(self, offset: int) -> Position | None:
        """The snapshot that stands for what is no longer at an offset; None if it is still there."""
        return self._fetch(offset, None, _PROBE_BYTES).snapshot

    def _fetch(
        self, offset: int, last_epoch: int | None, max_bytes: int = FETCH_BYTES
    ) -> messages.FetchAnswer:
        async def ask() -> messages.FetchAnswer:
            epoch = await self._leader_epoch()
            guess = last_epoch if last_epoch is not None else epoch if offset else 0
            answer = await self._controllers.fetch_log(epoch, offset, guess, max_bytes)
            if last_epoch is None and answer.snapshot is not None and answer.log_start_offset == offset:
                # Exactly where the log begins, a leader insists on the epoch of the record before.
                for guess in range(epoch - 1, max(-1, epoch - _GUESSES_MAX), -1):
                    again = await self._controllers.fetch_log(epoch, offset, guess, max_bytes)
                    if again.snapshot is None and again.diverging is None:
                        return again
            return answer

        return self._persistently(ask)

    def _fetch_snapshot(self, snapshot: Position, position: int) -> messages.SnapshotAnswer:
        async def ask() -> messages.SnapshotAnswer:
            return await self._controllers.fetch_snapshot(await self._leader_epoch(), snapshot, position)

        return self._persistently(ask)

    async def _leader_epoch(self) -> int:
        if self._epoch is None:
            self._epoch = (await self._controllers.describe()).leader_epoch
        return self._epoch

    def _persistently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer, as soon as somebody gives one; the last reason if that takes too long."""
        deadline = time.monotonic() + DEADLINE_S

        async def asking() -> T:
            while True:
                try:
                    return await ask()
                except (ConnectionLost, Unavailable, OSError, ApiError) as error:
                    if isinstance(error, ApiError) and error.code not in _PASSING:
                        raise
                    if time.monotonic() > deadline:
                        raise
                    self._epoch = None  # there may be another leader by now
                await asyncio.sleep(_PAUSE_S)

        return self._loop.run_until_complete(asking())


def read_live(chunk: LiveChunk, types: frozenset[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a piece, as they come from the leader."""
    metadata = _metadata_of(chunk.servers, chunk.tls)
    yield from (
        _rows_of_snapshot(metadata, chunk, types) if chunk.snapshot else _rows(metadata, chunk, types)
    )


# With the process that made it: Spark uses its workers again.
_kept: dict[tuple[str, TlsSettings | None], tuple[int, LiveMetadata]] = {}


def _metadata_of(servers: str, tls: TlsSettings | None) -> LiveMetadata:
    process, metadata = _kept.get((servers, tls), (None, None))
    if metadata is None or process != os.getpid():
        if len(_kept) >= _KEPT_MAX:
            _kept.clear()
        metadata = LiveMetadata(bootstrap=None, controllers=servers, tls=tls)
        _kept[servers, tls] = os.getpid(), metadata
    return metadata


@atexit.register
def _close_all() -> None:
    for process, metadata in _kept.values():
        if process == os.getpid():
            metadata.close()
    _kept.clear()


def _rows(metadata: LiveMetadata, chunk: LiveChunk, types: frozenset[str] | None) -> Iterator[pa.RecordBatch]:
    expected_offset = chunk.start_offset
    for buffer, headers in metadata.log(chunk):
        place = Place(
            cluster_id=chunk.cluster_id,
            expected_offset=expected_offset,
            first_offset=chunk.start_offset,
            end_offset=chunk.end_offset,
            types=types,
        )
        yield decode_batches([buffer] * len(headers), headers, place)
        expected_offset = headers[-1].next_offset


def _rows_of_snapshot(
    metadata: LiveMetadata, chunk: LiveChunk, types: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    assert chunk.snapshot is not None
    offset, epoch = chunk.snapshot
    ts_ms = -1
    for buffer, headers in metadata.snapshot(Position(offset, epoch)):
        if headers[0].base_offset == 0:
            ts_ms = snapshot_time_ms(buffer, headers[0])
        place = Place(
            cluster_id=chunk.cluster_id,
            snapshot_offset=offset - 1,
            snapshot_ts_ms=ts_ms,
            gap=RETENTION,
            types=types,
        )
        yield decode_batches([buffer] * len(headers), headers, place)
