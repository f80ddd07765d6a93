"""Producer snapshots: `<offset>.snapshot` beside the segments, what was known of producers at that offset.

Without them every batch of a log would have to be read when it is opened. One is taken where a segment
begins, and goes with it; another when a log is closed. Until it is whole it has another name, and it has a
checksum; so one that a crash has torn is noticed, and an older one serves as well, with more of the log to
read after it. Their form is that of `producers.ProducerSnapshot`; there may be very many entries, so they are
packed and unpacked by the row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from fastcrc.crc32 import iscsi as crc32c

from quorate.storage.files import Files
from quorate.storage.producer_room import ProducerRoom
from quorate.storage.producer_state import ProducerEntry, ProducerState
from quorate.storage.producer_states import ProducerStates
from quorate.storage.segment import segment_path

__all__ = [
    "decode_snapshot",
    "encode_entries",
    "encode_snapshot",
    "load_snapshot",
    "remove_snapshot",
    "remove_unfinished",
    "snapshot_offsets",
    "snapshot_path",
    "write_snapshot",
]

_SUFFIX: Final = ".snapshot"
_UNFINISHED: Final = ".snapshot.tmp"
_NAME: Final = re.compile(r"(\d{20})\.snapshot")
_VERSION: Final = 1
_PREFIX: Final = Struct(">hI")  # version, checksum of what follows
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")


def encode_entries(states: Iterable[ProducerState]) -> bytes:
    """The part of a snapshot that is about some producers."""
    pack = _ENTRY.pack
    return b"".join([pack(*state.entry()) for state in states])


def encode_snapshot(parts: Sequence[bytes]) -> bytes:
    """The parts that there are, as a whole."""
    entries = b"".join(parts)
    body = _COUNT.pack(len(entries) // _ENTRY.size) + entries
    return _PREFIX.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, room: ProducerRoom | None = None) -> ProducerStates:
    """Raises ValueError with the reason."""
    if len(data) < _PREFIX.size + _COUNT.size:
        raise ValueError(f"{len(data)} bytes are no producer snapshot")
    version, crc = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"version {version}, not {_VERSION}")
    body = memoryview(data)[_PREFIX.size :]
    if crc32c(body) != crc:
        raise ValueError("its checksum does not match its bytes")
    (count,) = _COUNT.unpack_from(body)
    entries = body[_COUNT.size :]
    if len(entries) != count * _ENTRY.size:
        raise ValueError(f"{len(entries)} bytes are not {count} producers")
    return ProducerStates.of_entries(map(ProducerEntry._make, _ENTRY.iter_unpack(entries)), room)


def snapshot_offsets(files: Files, directory: str) -> list[int]:
    """Of which offsets there are snapshots, in order."""
    matches = [_NAME.fullmatch(name) for name in files.names(directory)]
    return [int(match[1]) for match in matches if match]


def snapshot_path(directory: str, offset: int) -> str:
    return segment_path(directory, offset, _SUFFIX)


def load_snapshot(
    files: Files, directory: str, offset: int, room: ProducerRoom | None = None
) -> ProducerStates:
    """Raises ValueError if it is damaged."""
    file = files.open(snapshot_path(directory, offset))
    try:
        return decode_snapshot(file.read(0, file.size()), room)
    finally:
        file.close()


def write_snapshot(files: Files, directory: str, offset: int, parts: Sequence[bytes]) -> None:
    """Writes a snapshot, not yet durably: its file and the directory are to be synced."""
    unfinished = segment_path(directory, offset, _UNFINISHED)
    file = files.open(unfinished, create=True)
    try:
        if file.size():
            file.truncate(0)
        file.append([encode_snapshot(parts)])
    except OSError:
        files.unlink(unfinished)
        raise
    finally:
        file.close()
    files.rename(unfinished, snapshot_path(directory, offset))


def remove_snapshot(files: Files, directory: str, offset: int) -> None:
    files.unlink(snapshot_path(directory, offset))


def remove_unfinished(files: Files, directory: str) -> None:
    """What a crash has left of snapshots that were being written."""
    for name in files.names(directory):
        if name.endswith(_UNFINISHED):
            files.unlink(f"{directory}/{name}")
