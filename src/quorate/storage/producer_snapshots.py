"""Producer snapshots: `<offset>.snapshot` beside the segments, what was known of producers at that offset.

Without them every batch of a log would have to be read when it is opened. One is taken where a segment
begins, and goes with it; another when a log is closed. A snapshot has a checksum, so one that a crash has
torn is noticed, and an older one serves as well, with more of the log to read after it.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Final

from fastcrc.crc32 import iscsi as crc32c

from quorate.protocol.codec import decode, encode
from quorate.protocol.errors import ProtocolError
from quorate.storage.files import File, Files
from quorate.storage.producer_states import ProducerStates
from quorate.storage.producers import ProducerSnapshot
from quorate.storage.segment import segment_path

__all__ = [
    "decode_snapshot",
    "encode_snapshot",
    "load_snapshot",
    "remove_snapshot",
    "snapshot_offsets",
    "write_snapshot",
]

_SUFFIX: Final = ".snapshot"
_NAME: Final = re.compile(r"(\d{20})\.snapshot")
_VERSION: Final = 1
_PREFIX: Final = Struct(">hI")  # version, checksum of what follows


def encode_snapshot(states: ProducerStates) -> bytes:
    body = encode(ProducerSnapshot(crc=0, producer_entries=states.entries()), _VERSION)
    return _PREFIX.pack(_VERSION, crc32c(memoryview(body)[4:])) + body[4:]


def decode_snapshot(data: bytes) -> ProducerStates:
    """Raises ValueError with the reason."""
    if len(data) < _PREFIX.size:
        raise ValueError(f"{len(data)} bytes are no producer snapshot")
    version, crc = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"version {version}, not {_VERSION}")
    if crc32c(memoryview(data)[_PREFIX.size :]) != crc:
        raise ValueError("its checksum does not match its bytes")
    try:
        snapshot = decode(ProducerSnapshot, _VERSION, data, 2)
    except ProtocolError as error:
        raise ValueError(error.message) from None
    return ProducerStates.of_entries(snapshot.producer_entries)


def snapshot_offsets(files: Files, directory: str) -> list[int]:
    """Of which offsets there are snapshots, in order."""
    matches = [_NAME.fullmatch(name) for name in files.names(directory)]
    return [int(match[1]) for match in matches if match]


def load_snapshot(files: Files, directory: str, offset: int) -> ProducerStates:
    """Raises ValueError if it is damaged."""
    file = files.open(segment_path(directory, offset, _SUFFIX))
    try:
        return decode_snapshot(file.read(0, file.size()))
    finally:
        file.close()


def write_snapshot(files: Files, directory: str, offset: int, states: ProducerStates) -> File:
    """Writes a snapshot, not yet durably: the open file is to be synced and closed."""
    file = files.open(segment_path(directory, offset, _SUFFIX), create=True)
    try:
        if file.size():
            file.truncate(0)
        file.append([encode_snapshot(states)])
    except OSError:
        file.close()
        raise
    return file


def remove_snapshot(files: Files, directory: str, offset: int) -> None:
    files.unlink(segment_path(directory, offset, _SUFFIX))
