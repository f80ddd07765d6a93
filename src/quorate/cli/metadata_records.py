"""Records of the metadata log as JSON, whatever they are: the cluster's, the quorum's own, unknown ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from quorate.metadata.log_format import decode_record
from quorate.protocol.batch import BatchHeader, ControlType, Record, control_type, records
from quorate.protocol.codec import decode
from quorate.protocol.errors import ApiError
from quorate.protocol.message import Message, Struct
from quorate.protocol.types import Buffer, Uuid
from quorate.raft.records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

__all__ = ["as_json", "record_lines"]

_CONTROLS: Final[dict[ControlType, type[Message]]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
# What lets somebody in who has it, and tells nobody else anything.
_SECRETS: Final = frozenset({"salt", "stored_key", "server_key"})
_SECRET: Final = "(secret)"


def record_lines(batch: Buffer, header: BatchHeader) -> Iterator[dict[str, Any]]:
    """The records of a batch, each as what becomes a line of JSON."""
    for record in records(batch, header):
        about = {
            "offset": record.offset,
            "epoch": header.partition_leader_epoch,
            "timestamp_ms": record.timestamp,
        }
        yield about | (_control(record) if header.is_control else _metadata(record))


def as_json(value: object) -> Any:
    """A message, or anything in one, as JSON has it."""
    if isinstance(value, Struct):
        return {one.name: as_json(getattr(value, one.name)) for one in value.__fields__}
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, (list, tuple)):
        return [as_json(one) for one in value]
    return value


def _metadata(record: Record) -> dict[str, Any]:
    value = record.value or b""
    try:
        decoded, version = decode_record(value)
    except ApiError as error:
        return {"type": "unknown", "reason": error.message, "hex": value.hex()}
    return {"type": type(decoded).__name__, "version": version, "data": _fields(decoded, version)}


def _control(record: Record) -> dict[str, Any]:
    kind = control_type(record)
    if kind is None or kind not in _CONTROLS:
        return {"type": "control", "hex": (record.value or b"").hex()}
    value = record.value or b""
    version = int.from_bytes(value[:2], "big")  # every one of them begins with it
    declared = _CONTROLS[kind]
    decoded = decode(declared, min(version, declared.__versions__[-1]), value)
    return {"type": declared.__name__, "version": version, "data": _fields(decoded, version)}


def _fields(message: Message, version: int) -> dict[str, Any]:
    """What a version has; of tagged fields those that were said."""
    return {
        one.name: _SECRET if one.name in _SECRETS else as_json(getattr(message, one.name))
        for one in message.__fields__
        if version in one.versions and (one.tag is None or not _is_default(message, one.name, one.default))
    }


def _is_default(message: Message, name: str, default: object) -> bool:
    value = getattr(message, name)
    return bool(value == default or (default == () and not value))
