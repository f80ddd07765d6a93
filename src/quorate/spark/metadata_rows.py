"""One record of the metadata log as what the table `records` says of it.

A record of a kind or a version that came after this was written is `Unknown`, and one that is not what it
says is `Malformed`; both keep their bytes, in base64.
"""

from __future__ import annotations

import base64
from typing import Any, Final, NamedTuple

from quorate.metadata import records as r
from quorate.metadata.log_format import decode_record, record_class
from quorate.protocol.batch import ControlType, control_type
from quorate.protocol.batch import Record as Stored
from quorate.protocol.codec import decode
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Message, Record
from quorate.protocol.types import Buffer
from quorate.protocol.varint import MalformedError, read_uvarint
from quorate.raft.records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from quorate.spark.record_json import dumps, fields_of

__all__ = ["MALFORMED", "UNKNOWN", "Row", "malformed", "row_of_control", "row_of_value", "type_name"]

UNKNOWN: Final = "Unknown"
MALFORMED: Final = "Malformed"

_TOPIC_RESOURCE: Final = 2
_LEADER_UNCHANGED: Final = -2
_CONTROLS: Final[dict[ControlType, tuple[str, type[Message]]]] = {
    ControlType.LEADER_CHANGE: ("LeaderChange", LeaderChangeMessage),
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", SnapshotHeaderRecord),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", SnapshotFooterRecord),
    ControlType.KRAFT_VERSION: ("KRaftVersion", KRaftVersionRecord),
    ControlType.KRAFT_VOTERS: ("KRaftVoters", VotersRecord),
}


class Row(NamedTuple):
    """The columns that a record fills itself."""

    type: str
    version: int | None = None
    broker_id: int | None = None
    broker_epoch: int | None = None
    topic_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    leader: int | None = None
    isr: list[int] | None = None
    replicas: list[int] | None = None
    fields: str | None = None


def row_of_value(value: bytes) -> Row:
    """A record of the cluster, from its value in the log."""
    try:
        record, version = decode_record(value)
    except ApiError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return _unknown(value, error)
        return malformed(error.message, value)
    except (MalformedError, IndexError, ValueError) as error:
        return malformed(str(error), value)
    fields = dumps(fields_of(record, version))
    return Row(type(record).__name__, version, fields=fields)._replace(**_about(record))


def row_of_control(record: Stored) -> Row:
    """A record of the quorum itself."""
    value = record.value or b""
    try:
        kind = control_type(record)
        version = int.from_bytes(value[:2], "big")  # every one of them begins with it
        if kind is None or kind not in _CONTROLS:
            content: dict[str, Any] = {"controlKey": _base64(record.key or b""), "base64": _base64(value)}
            return Row(UNKNOWN, version, fields=dumps(content))
        name, declared = _CONTROLS[kind]
        message = decode(declared, min(version, declared.__versions__[-1]), value)
    except (ApiError, MalformedError, IndexError) as error:
        return malformed(str(error), value)
    return Row(name, version, fields=dumps(fields_of(message, version)))


def malformed(reason: str, raw: Buffer) -> Row:
    return Row(MALFORMED, fields=dumps({"reason": reason, "base64": _base64(raw)}))


def type_name(key: int) -> str | None:
    """What the table calls a kind of record; None if it is not known."""
    try:
        return record_class(key).__name__
    except ApiError:
        return None


def _unknown(value: bytes, error: ApiError) -> Row:
    _, position = read_uvarint(value, 0)
    key, position = read_uvarint(value, position)
    version, _ = read_uvarint(value, position)
    content = {"key": key, "type": type_name(key), "reason": error.message, "base64": _base64(value)}
    return Row(UNKNOWN, version, fields=dumps(content))


def _about(record: Record) -> dict[str, Any]:
    """What a record is about, as far as there are columns for it."""
    match record:
        case r.PartitionRecord():
            return {
                "topic_id": str(record.topic_id),
                "partition": record.partition_id,
                "leader": record.leader,
                "isr": record.isr,
                "replicas": record.replicas,
            }
        case r.PartitionChangeRecord():
            return {
                "topic_id": str(record.topic_id),
                "partition": record.partition_id,
                "leader": None if record.leader == _LEADER_UNCHANGED else record.leader,
                "isr": record.isr,
                "replicas": record.replicas,
            }
        case (
            r.RegisterBrokerRecord()
            | r.UnregisterBrokerRecord()
            | r.BrokerRegistrationChangeRecord()
            | r.ProducerIdsRecord()
        ):
            return {"broker_id": record.broker_id, "broker_epoch": record.broker_epoch}
        case r.FenceBrokerRecord() | r.UnfenceBrokerRecord():
            return {"broker_id": record.id, "broker_epoch": record.epoch}
        case r.TopicRecord():
            return {"topic_id": str(record.topic_id), "topic": record.name}
        case r.RemoveTopicRecord():
            return {"topic_id": str(record.topic_id)}
        case r.ConfigRecord() if record.resource_type == _TOPIC_RESOURCE:
            return {"topic": record.resource_name}
        case r.ClearElrRecord() if record.topic_name:
            return {"topic": record.topic_name}
    return {}


def _base64(raw: Buffer) -> str:
    return base64.b64encode(raw).decode("ascii")
