"""How a metadata record stands in the log: a small frame that says which record it is, then its fields."""

from __future__ import annotations

from typing import Final

from quorate.metadata import records
from quorate.protocol.codec import decode, encode_into
from quorate.protocol.errors import ErrorCode, ProtocolError
from quorate.protocol.message import Record
from quorate.protocol.types import Buffer
from quorate.protocol.varint import MalformedError, read_uvarint, uvarint

__all__ = ["decode_record", "encode_record", "record_class"]

FRAME_VERSION: Final = 1


def encode_record(record: Record, version: int) -> bytes:
    """The value of a record in the metadata log.

    >>> encode_record(records.NoOpRecord(), 0).hex()
    '01140000'
    """
    out = bytearray(uvarint(FRAME_VERSION) + uvarint(record.__key__) + uvarint(version))
    encode_into(out, record, version)
    return bytes(out)


def decode_record(value: Buffer) -> tuple[Record, int]:
    """A record of the metadata log and its version; a ProtocolError for a kind that we do not know."""
    try:
        frame_version, position = read_uvarint(value, 0)
        key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except (IndexError, MalformedError) as error:
        raise ProtocolError("metadata record", None, "frame", 0, "ends inside its frame") from error
    if frame_version != FRAME_VERSION:
        reason = f"is {frame_version}, not {FRAME_VERSION}"
        raise ProtocolError(
            "metadata record", None, "frame version", 0, reason, ErrorCode.UNSUPPORTED_VERSION
        )
    return decode(record_class(key), version, value, position), version


def record_class(key: int) -> type[Record]:
    """The kind of record with this key."""
    if key not in _BY_KEY:
        reason = f"there is no record with key {key}"
        raise ProtocolError("metadata record", None, "key", 1, reason, ErrorCode.UNSUPPORTED_VERSION)
    return _BY_KEY[key]


_BY_KEY: Final[dict[int, type[Record]]] = {
    declared.__key__: declared
    for declared in vars(records).values()
    if isinstance(declared, type) and issubclass(declared, Record) and "__key__" in vars(declared)
}
