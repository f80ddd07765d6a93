"""Records of `__consumer_offsets` as rows of the table `group_records`, without Spark: Arrow in, Arrow out.

Keys come again and again, so each distinct one is decoded once. Committed offsets, which are nearly all of
such a log, have values of one fixed form unless somebody commits a text with them: those are read as columns.
What is left is decoded one by one, each distinct value once.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quorate.coordinator import group_records, share_records, streams_records
from quorate.coordinator.group_records import LegacyOffsetCommitKey, OffsetCommitKey, OffsetCommitValue
from quorate.protocol import codec
from quorate.protocol.errors import ApiError
from quorate.protocol.message import Record
from quorate.protocol.varint import MalformedError
from quorate.spark.metadata_rows import MALFORMED, UNKNOWN
from quorate.spark.record_json import dumps, fields_of
from quorate.spark.schemas import GROUP_RECORDS, arrow_schema

__all__ = ["ARROW_GROUP_RECORDS", "GroupPlace", "group_record_batch"]

ARROW_GROUP_RECORDS: Final = arrow_schema(GROUP_RECORDS)
OFFSET_COMMIT: Final = "OffsetCommit"

_INT16: Final = Struct(">h")
_WHY_NOT: Final = (ApiError, MalformedError, IndexError, ValueError, struct.error)
_KEY_COLUMNS: Final = ("type", "group_id", "member_id", "topic", "topic_partition", "key_fields")
# A committed offset without a text: version 3, offset, leader epoch, no metadata, time.
_PLAIN: Final = np.dtype(
    {
        "names": ["version", "offset", "leader_epoch", "metadata_bytes", "commit_timestamp"],
        "formats": [">i2", ">i8", ">i4", ">i2", ">i8"],
        "offsets": [0, 2, 10, 14, 16],
        "itemsize": 24,
    }
)
_PLAIN_VERSION: Final = 3


def _pairs() -> Mapping[int, tuple[type[Record], type[Record]]]:
    """The class of the key and of the value of each type in this log."""
    keys: dict[int, type[Record]] = {}
    values: dict[int, type[Record]] = {}
    for module in (group_records, share_records, streams_records):
        for name, declared in vars(module).items():
            is_record = isinstance(declared, type) and issubclass(declared, Record) and declared is not Record
            if is_record and not name.startswith(("ShareSnapshot", "ShareUpdate")):  # of another log
                (keys if name.endswith("Key") else values)[declared.__key__] = declared
    return {kind: (keys[kind], values[kind]) for kind in keys}


_PAIRS: Final = _pairs()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """What is to be said of all rows."""

    cluster_id: str
    partition: int
    is_confirmed: bool = True
    types: frozenset[str] | None = None  # that are wanted; None for all


class _Key(NamedTuple):
    """The columns that a key fills, and the class of its values."""

    kind: str
    group_id: str | None = None
    member_id: str | None = None
    topic: str | None = None
    topic_partition: int | None = None
    key_fields: str | None = None
    value_class: type[Record] | None = None


class _Value(NamedTuple):
    version: int | None
    committed_offset: int | None
    fields: str | None
    other_type: str | None = None  # than its key says


def group_record_batch(
    keys: pa.Array,
    values: pa.Array,
    offsets: NDArray[np.int64],
    times: pa.Array,
    epochs: pa.Array,
    gaps: pa.Array,
    place: GroupPlace,
) -> pa.RecordBatch:
    """The rows of these records, of which keys and values are binary and the times are timestamps."""
    encoded = keys.dictionary_encode(null_encoding="encode")
    decoded = [_key_of(None if one is None else bytes(one)) for one in encoded.dictionary.to_pylist()]
    numbers = encoded.indices.to_numpy(zero_copy_only=False)
    about = {
        name: pa.array(column, ARROW_GROUP_RECORDS.field(name).type).take(encoded.indices)
        for name, column in zip(_KEY_COLUMNS, _columns(decoded), strict=True)
    }
    said = _values(values, numbers, decoded)
    types = pc.coalesce(said["other_type"], about["type"])
    columns = {
        **about,
        "cluster_id": pa.repeat(pa.scalar(place.cluster_id), len(keys)),
        "partition": pa.repeat(pa.scalar(place.partition, pa.int32()), len(keys)),
        "offset": pa.array(offsets),
        "epoch": epochs.cast(pa.int32()),
        "ts": times.cast(ARROW_GROUP_RECORDS.field("ts").type),
        "type": types,
        "version": said["version"],
        "committed_offset": said["committed_offset"],
        "is_tombstone": values.is_null(),
        "fields": said["fields"],
        "is_confirmed": pa.repeat(pa.scalar(place.is_confirmed), len(keys)),
        "gap": gaps,
    }
    found = pa.RecordBatch.from_arrays(
        [columns[one.name] for one in ARROW_GROUP_RECORDS], schema=ARROW_GROUP_RECORDS
    )
    if place.types is None:
        return found
    return found.filter(pc.is_in(found.column("type"), pa.array(sorted(place.types), pa.string())))


# Keys


def _key_of(key: bytes | None) -> _Key:
    if key is None:
        return _Key(MALFORMED, key_fields=dumps({"reason": "it has no key"}))
    try:
        (kind,) = _INT16.unpack_from(key)
        if kind not in _PAIRS:
            return _Key(UNKNOWN, key_fields=dumps({"type": kind, "base64": _base64(key)}))
        declared, value_class = _PAIRS[kind]
        read = codec.decode(declared, 0, memoryview(key)[2:])
    except _WHY_NOT as error:
        return _Key(MALFORMED, key_fields=dumps({"reason": str(error), "base64": _base64(key)}))
    is_offset = isinstance(read, (LegacyOffsetCommitKey, OffsetCommitKey))
    return _Key(
        OFFSET_COMMIT if is_offset else declared.__name__.removesuffix("Key"),
        getattr(read, "group_id", None) or getattr(read, "group", None),
        getattr(read, "member_id", None),
        getattr(read, "topic", None),
        getattr(read, "partition", None),
        dumps(fields_of(read, 0)),
        OffsetCommitValue if is_offset else value_class,
    )


def _columns(keys: list[_Key]) -> list[tuple[Any, ...]]:
    return list(zip(*(key[: len(_KEY_COLUMNS)] for key in keys), strict=True)) or [()] * len(_KEY_COLUMNS)


# Values


def _values(values: pa.Array, numbers: NDArray[Any], keys: list[_Key]) -> dict[str, pa.Array]:
    """What the values say, of which `numbers` are the numbers of their keys."""
    count = len(values)
    is_offset = np.array([key.value_class is OffsetCommitValue for key in keys], np.bool_)[numbers]
    plain, rows = _plain_rows(values, is_offset)
    fixed = {
        "version": pa.array(rows["version"].astype(np.int32)),
        "committed_offset": pa.array(rows["offset"].astype(np.int64)),
        "fields": _plain_json(rows),
        "other_type": pa.nulls(len(plain), pa.string()),
    }
    if len(plain) == count:
        return fixed
    others = np.setdiff1d(np.arange(count), plain, assume_unique=True)
    found: dict[tuple[int, bytes | None], int] = {}
    taken = values.take(pa.array(others)).to_pylist()
    places = [
        found.setdefault((number if value is not None else -1, value), len(found))
        for number, value in zip(numbers[others].tolist(), taken, strict=True)
    ]
    decoded = [_value_of(keys[number] if value is not None else None, value) for number, value in found]
    slow = {
        "version": pa.array([one.version for one in decoded], pa.int32()),
        "committed_offset": pa.array([one.committed_offset for one in decoded], pa.int64()),
        "fields": pa.array([one.fields for one in decoded], pa.string()),
        "other_type": pa.array([one.other_type for one in decoded], pa.string()),
    }
    order = np.empty(count, np.int64)
    order[plain] = np.arange(len(plain))
    order[others] = len(plain) + np.arange(len(others))
    return {
        name: pa.concat_arrays([fixed[name], column.take(pa.array(places, pa.int64()))]).take(pa.array(order))
        for name, column in slow.items()
    }


def _plain_rows(values: pa.Array, is_offset: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Which values are committed offsets of the fixed form, and those."""
    empty = np.zeros(0, np.int64), np.zeros(0, _PLAIN)
    if not len(values):
        return empty
    sizes = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
    at = np.flatnonzero(is_offset & (sizes == _PLAIN.itemsize))
    if not len(at):
        return empty
    some = values.take(pa.array(at))
    _, bounds, data = some.buffers()
    first = np.frombuffer(bounds, np.int32)[some.offset]
    rows = np.frombuffer(data, _PLAIN, len(at), int(first))
    is_plain = (rows["version"] == _PLAIN_VERSION) & (rows["metadata_bytes"] == 0)
    return at[is_plain], rows[is_plain]


def _plain_json(rows: NDArray[Any]) -> pa.Array:
    if not len(rows):
        return pa.array([], pa.string())

    def text(name: str) -> pa.Array:
        return pa.array(rows[name].astype(np.int64)).cast(pa.string())

    return pc.binary_join_element_wise(
        '{"offset":',
        text("offset"),
        ',"leaderEpoch":',
        text("leader_epoch"),
        ',"metadata":"","commitTimestamp":',
        text("commit_timestamp"),
        "}",
        "",
    )


def _value_of(key: _Key | None, value: bytes | None) -> _Value:
    if value is None or key is None:
        return _Value(None, None, None)
    raw = _base64(value)
    if key.value_class is None:
        return _Value(None, None, dumps({"base64": raw}))
    try:
        (version,) = _INT16.unpack_from(value)
        if version not in key.value_class.__versions__:
            content = {"type": key.kind, "reason": f"version {version} is not known", "base64": raw}
            return _Value(version, None, dumps(content), UNKNOWN)
        read = codec.decode(key.value_class, version, memoryview(value)[2:])
    except _WHY_NOT as error:
        return _Value(None, None, dumps({"reason": str(error), "base64": raw}), MALFORMED)
    committed = read.offset if isinstance(read, OffsetCommitValue) else None
    return _Value(version, committed, dumps(fields_of(read, version)))


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
