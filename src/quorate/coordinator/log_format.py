"""Coordinator records as bytes: what the keys and values in `__consumer_offsets` look like.

A key begins with its type, a value with its version; both are followed by the fields. A key of a type that is
not known here was written by a newer coordinator: it is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from struct import Struct
from typing import Any, Final

from quorate.coordinator import group_records
from quorate.coordinator.effects import LogRecord
from quorate.coordinator.group_records import (
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from quorate.protocol import codec
from quorate.protocol.encoder import FAILURES
from quorate.protocol.message import Record
from quorate.protocol.types import Buffer

__all__ = ["NO_EXPIRY", "decode", "encode", "value_version"]

_INT16: Final = Struct(">h")
NO_EXPIRY: Final = -1
_KEYS_MAX: Final = 20_000  # that are remembered, of offsets and of members


def _pairs() -> Mapping[int, tuple[type[Record], type[Record]]]:
    """The class of the key and of the value of each type."""
    keys: dict[int, type[Record]] = {}
    values: dict[int, type[Record]] = {}
    for name, declared in vars(group_records).items():
        if isinstance(declared, type) and issubclass(declared, Record) and declared is not Record:
            (keys if name.endswith("Key") else values)[declared.__key__] = declared
    assert keys.keys() == values.keys(), "every key has its value"
    return {kind: (keys[kind], values[kind]) for kind in keys}


_PAIRS: Final = _pairs()
_MEMBER_KEYS: Final = frozenset(
    {
        group_records.ConsumerGroupMemberMetadataKey,
        group_records.ConsumerGroupTargetAssignmentMemberKey,
        group_records.ConsumerGroupCurrentMemberAssignmentKey,
    }
)
_EXPIRING: Final = 1  # the one version of an offset that says when it expires
_VERSIONS: Final[Mapping[type[Record], int]] = {OffsetCommitValue: 3, group_records.GroupMetadataValue: 3}


def value_version(value: Record) -> int:
    """The version that Apache writes: not always the newest one that can be read."""
    if value.__class__ is OffsetCommitValue and value.expire_timestamp != NO_EXPIRY:
        return _EXPIRING
    return _VERSIONS.get(value.__class__, 0)


def encode(record: LogRecord) -> tuple[bytes, bytes | None]:
    """The key and the value of a record; a tombstone has none."""
    key: Any = record.key
    value, kind = record.value, key.__class__
    if kind is OffsetCommitKey:
        head = _offset_key(key.group, key.topic, key.partition)
    elif kind in _MEMBER_KEYS:
        head = _member_key(kind, key.group_id, key.member_id)
    else:
        head = _encoded(key, key.__key__, 0)
    if value is None:
        return head, None
    version = value_version(value)
    return head, _encoded(value, version, version)


@lru_cache(maxsize=_KEYS_MAX)
def _offset_key(group: str, topic: str, partition: int) -> bytes:
    """Groups commit the same partitions again and again."""
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    return _encoded(key, key.__key__, 0)


@lru_cache(maxsize=_KEYS_MAX)
def _member_key(kind: type[Any], group_id: str, member_id: str) -> bytes:
    """While others come and go, a member is given another target each time."""
    return _encoded(kind(group_id=group_id, member_id=member_id), kind.__key__, 0)


@cache
def _writer(kind: type[Record], begin: int, version: int) -> tuple[bytes, Callable[..., Any]]:
    return _INT16.pack(begin), codec.encoder_of(((kind, version),))


def _encoded(message: Record, begin: int, version: int) -> bytes:
    """What a key or a value looks like behind the number that it begins with."""
    number, encode_message = _writer(message.__class__, begin, version)
    out = bytearray(number)
    try:
        encode_message(message, out)
    except FAILURES as error:
        raise codec.explain_encoding(((message.__class__, version),), (message,)) from error
    return bytes(out)


def decode(key: Buffer, value: Buffer | None) -> LogRecord | None:
    """The record, or None if it is of a type that came after this was written. `MalformedError` or `ApiError`
    if it is not what it says."""
    (kind,) = _INT16.unpack_from(key)
    pair = _PAIRS.get(kind)
    if pair is None:
        return None
    declared_key, declared_value = pair
    read_key = codec.decode(declared_key, 0, memoryview(key)[2:])
    if isinstance(read_key, LegacyOffsetCommitKey):
        read_key = OffsetCommitKey(group=read_key.group, topic=read_key.topic, partition=read_key.partition)
        declared_value = OffsetCommitValue
    if value is None:
        return LogRecord(read_key, None)
    (version,) = _INT16.unpack_from(value)
    return LogRecord(read_key, codec.decode(declared_value, version, memoryview(value)[2:]))
