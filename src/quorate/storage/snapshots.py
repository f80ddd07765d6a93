"""Snapshots of the metadata log: a file of batches that stands for everything before an offset.

    {offset:020d}-{epoch:010d}.checkpoint    everything below `offset`, the last of it written in `epoch`

The first batch is a control batch with a header and, once `kraft.version` is 1, that version and the voters.
Then come batches of records, and a control batch with a footer. Offsets inside count from 0 and mean nothing;
the epoch of every batch is that of the snapshot.

A snapshot is written under another name, synced, and only then gets its own: whoever finds one finds a whole
one. A reader still checks it all, because disks fail; a snapshot without its footer, or with a byte changed,
raises `StorageError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Self

from quorate.metadata.sections import Section
from quorate.protocol.batch import (
    BatchHeader,
    ControlType,
    Record,
    build,
    build_control,
    build_encoded,
    control_type,
    records,
)
from quorate.protocol.codec import decode, encode
from quorate.protocol.errors import ApiError
from quorate.protocol.message import Message
from quorate.protocol.types import Buffer
from quorate.raft.records import KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord, VotersRecord
from quorate.storage.errors import StorageError, storage_errors
from quorate.storage.files import Files
from quorate.storage.limits import SNAPSHOT_BATCH_BYTES_MAX, SNAPSHOT_BATCH_RECORDS_MAX
from quorate.storage.part_files import PartFile
from quorate.storage.scan import DamageError, ScannedBatch, scan
from quorate.values import dataclass

__all__ = [
    "SnapshotDownload",
    "SnapshotHead",
    "SnapshotId",
    "SnapshotReader",
    "SnapshotWriter",
    "delete_snapshot",
    "list_snapshots",
    "remove_leftovers",
    "snapshot_path",
]

_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_LEFTOVER: Final = re.compile(r".*\.checkpoint\.(part|deleted)")
_RECORD_VERSION: Final = 0


class SnapshotId(NamedTuple):
    """What a snapshot covers: everything below `offset`, the last of it written in `epoch`. Ordered by epoch.

    >>> str(SnapshotId(offset=87, epoch=1)), SnapshotId(10, 2) > SnapshotId(99, 1)
    ('00000000000000000087-0000000001', True)
    """

    offset: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.offset:020d}-{self.epoch:010d}"

    def __lt__(self, other: tuple[int, ...]) -> bool:
        return self[::-1] < other[::-1]

    def __le__(self, other: tuple[int, ...]) -> bool:
        return self[::-1] <= other[::-1]

    def __gt__(self, other: tuple[int, ...]) -> bool:
        return self[::-1] > other[::-1]

    def __ge__(self, other: tuple[int, ...]) -> bool:
        return self[::-1] >= other[::-1]


# What is in a directory


def snapshot_path(directory: str, snapshot: SnapshotId) -> str:
    return f"{directory}/{snapshot}.checkpoint"


def list_snapshots(files: Files, directory: str) -> list[SnapshotId]:
    """The snapshots of a directory, the earliest first."""
    with storage_errors(directory):
        matches = [_NAME.fullmatch(name) for name in files.names(directory)]
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in matches if match)


def delete_snapshot(files: Files, directory: str, snapshot: SnapshotId) -> None:
    """Not synced: one that comes back after a power failure is only deleted again."""
    path = snapshot_path(directory, snapshot)
    with storage_errors(path):
        files.unlink(path)


def remove_leftovers(files: Files, directory: str) -> list[str]:
    """Removes snapshots that were never finished, or were being deleted, when the process ended."""
    with storage_errors(directory):
        names = [name for name in files.names(directory) if _LEFTOVER.fullmatch(name)]
        for name in names:
            files.unlink(f"{directory}/{name}")
    return names


# Writing


class SnapshotWriter:
    """Writes a snapshot; leaving the `with` block before `freeze` removes what was written.

    with SnapshotWriter(files, snapshot_path(directory, id), id.epoch, ...) as writer:
        writer.append(values)
        await writer.freeze()
    """

    def __init__(
        self,
        files: Files,
        path: str,
        epoch: int,
        *,
        timestamp_ms: int,
        last_contained_log_timestamp_ms: int,
        kraft_version: int = 0,
        voters: VotersRecord | None = None,
    ) -> None:
        """`timestamp_ms` is now: the time of the batches."""
        assert voters is None or kraft_version > 0, "voters are not written before kraft.version 1"
        self._epoch = epoch
        self._timestamp_ms = timestamp_ms
        self._next_offset = 0
        self._part = PartFile(files, path)
        head: list[tuple[ControlType, Message]] = [
            (
                ControlType.SNAPSHOT_HEADER,
                SnapshotHeaderRecord(
                    version=_RECORD_VERSION, last_contained_log_timestamp=last_contained_log_timestamp_ms
                ),
            )
        ]
        if kraft_version > 0:
            version_record = KRaftVersionRecord(version=_RECORD_VERSION, kraft_version=kraft_version)
            head.append((ControlType.KRAFT_VERSION, version_record))
        if voters is not None:
            head.append((ControlType.KRAFT_VOTERS, voters))
        self._append_control(head)

    @property
    def size_bytes(self) -> int:
        return self._part.size_bytes

    def append(self, values: Iterable[bytes]) -> None:
        """Appends encoded records, in as many batches as the limits ask for."""
        for some in _in_batches(values):
            first = self._next_offset
            self._append(
                build(
                    [
                        Record(first + index, self._timestamp_ms, None, value)
                        for index, value in enumerate(some)
                    ],
                    base_offset=first,
                    leader_epoch=self._epoch,
                ),
                len(some),
            )

    def append_sections(self, sections: Iterable[Section]) -> None:
        """Appends records that stand in sections already: a batch for each."""
        for section in sections:
            assert len(section.data) <= SNAPSHOT_BATCH_BYTES_MAX or section.count == 1
            batch = build_encoded(
                section.data,
                section.count,
                base_offset=self._next_offset,
                leader_epoch=self._epoch,
                timestamp=self._timestamp_ms,
            )
            self._append(batch, section.count)

    async def freeze(self) -> None:
        """Writes the footer and makes the snapshot visible, durably."""
        self._append_control([(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(version=_RECORD_VERSION))])
        await self._part.publish()

    def abort(self) -> None:
        """Removes what was written, if it is not a snapshot yet."""
        self._part.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    def _append_control(self, messages: Sequence[tuple[ControlType, Message]]) -> None:
        controls = [(kind, bytes(encode(message, _RECORD_VERSION))) for kind, message in messages]
        batch = build_control(
            controls, timestamp=self._timestamp_ms, base_offset=self._next_offset, leader_epoch=self._epoch
        )
        self._append(batch, len(controls))

    def _append(self, batch: Buffer, record_count: int) -> None:
        self._part.append(batch)
        self._next_offset += record_count


class SnapshotDownload:
    """Writes a snapshot that comes in pieces from a leader. It is checked before it becomes visible."""

    def __init__(self, files: Files, path: str, epoch: int) -> None:
        self._files = files
        self._epoch = epoch
        self._part = PartFile(files, path)

    @property
    def size_bytes(self) -> int:
        """How much there is already: the position of the next piece."""
        return self._part.size_bytes

    def append(self, position: int, chunk: Buffer) -> None:
        if position != self.size_bytes:
            reason = f"a piece for position {position}, where {self.size_bytes} comes next"
            raise StorageError(self._part.path, reason)
        self._part.append(chunk)

    async def freeze(self) -> None:
        """Makes the snapshot visible, durably; raises and removes it if it is not whole."""
        try:
            with SnapshotReader(self._files, self._part.path, self._epoch) as reader:
                reader.verify()
            await self._part.publish()
        finally:
            self._part.remove()

    def abort(self) -> None:
        """Removes what was written, if it is not a snapshot yet."""
        self._part.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


# Reading


@dataclass(frozen=True, slots=True)
class SnapshotHead:
    """What the first batch says."""

    last_contained_log_timestamp_ms: int
    kraft_version: int
    voters: VotersRecord | None


class SnapshotReader:
    """An open snapshot. Every batch is checked as it is read; `raw` gives the bytes as they are."""

    def __init__(self, files: Files, path: str, epoch: int) -> None:
        self.path = path
        self._epoch = epoch
        with storage_errors(path):
            self._file = files.open(path)

    @property
    def size_bytes(self) -> int:
        return self._file.size()

    def raw(self, position: int, max_bytes: int) -> bytes:
        """Bytes from `position` on, cut anywhere."""
        with storage_errors(self.path):
            return self._file.read(position, max_bytes)

    def batches(self) -> Iterator[tuple[BatchHeader, bytes]]:
        """All batches with the bytes they are in, header and footer among them. Raises `StorageError` where
        one is damaged or missing; only who has seen the end knows that the snapshot is whole."""
        expected_offset = 0
        last: ControlType | None = None
        try:
            for batch in scan(self._file):
                if last is ControlType.SNAPSHOT_FOOTER:
                    raise DamageError(batch.position, "a batch after the footer")
                self._check_place(batch, expected_offset)
                first, last = _first_and_last_control(batch)
                if expected_offset == 0 and first is not ControlType.SNAPSHOT_HEADER:
                    raise DamageError(batch.position, "no snapshot header")
                expected_offset = batch.header.next_offset
                yield batch.header, batch.buffer
        except (DamageError, ApiError) as error:
            raise StorageError(self.path, f"not a whole snapshot: {error}") from None
        except OSError as error:
            raise StorageError.of(self.path, error) from error
        if last is not ControlType.SNAPSHOT_FOOTER:
            raise StorageError(self.path, "not a whole snapshot: it has no footer")

    def verify(self) -> None:
        """Raises `StorageError` unless the snapshot is whole."""
        for _ in self.batches():
            pass

    def head(self) -> SnapshotHead:
        """What the first batch says. Only that one is checked."""
        for header, buffer in self.batches():
            try:
                return _head(records(buffer, header))
            except ApiError as error:
                raise StorageError(self.path, f"not a snapshot header: {error}") from None
        raise AssertionError("an empty file has no footer")

    def values(self) -> Iterator[bytes]:
        """The encoded records, without the control records."""
        for header, buffer in self.batches():
            if not header.is_control:
                try:
                    found = records(buffer, header)
                except ApiError as error:
                    raise StorageError(self.path, f"not a whole snapshot: {error}") from None
                yield from (record.value or b"" for record in found)

    def close(self) -> None:
        self._file.close()

    def _check_place(self, batch: ScannedBatch, expected_offset: int) -> None:
        offset, epoch = batch.header.base_offset, batch.header.partition_leader_epoch
        if (offset, epoch) != (expected_offset, self._epoch):
            reason = f"a batch at {offset} of epoch {epoch}, not at {expected_offset} of epoch {self._epoch}"
            raise DamageError(batch.position, reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _first_and_last_control(batch: ScannedBatch) -> tuple[ControlType | None, ControlType | None]:
    found = records(batch.buffer, batch.header) if batch.header.is_control else []
    return (control_type(found[0]), control_type(found[-1])) if found else (None, None)


def _head(controls: Sequence[Record]) -> SnapshotHead:
    timestamp_ms, kraft_version, voters = -1, 0, None
    for record in controls:
        value = record.value or b""
        match control_type(record):
            case ControlType.SNAPSHOT_HEADER:
                timestamp_ms = decode(
                    SnapshotHeaderRecord, _RECORD_VERSION, value
                ).last_contained_log_timestamp
            case ControlType.KRAFT_VERSION:
                kraft_version = decode(KRaftVersionRecord, _RECORD_VERSION, value).kraft_version
            case ControlType.KRAFT_VOTERS:
                voters = decode(VotersRecord, _RECORD_VERSION, value)
            case _:
                pass
    return SnapshotHead(timestamp_ms, kraft_version, voters)


def _in_batches(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    size_bytes = 0
    for value in values:
        if some and (
            len(some) == SNAPSHOT_BATCH_RECORDS_MAX or size_bytes + len(value) > SNAPSHOT_BATCH_BYTES_MAX
        ):
            yield some
            some, size_bytes = [], 0
        some.append(value)
        size_bytes += len(value)
    if some:
        yield some
