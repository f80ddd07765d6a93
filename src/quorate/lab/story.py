"""A run as people would tell it: what was done to the cluster, and what followed.

Faults come from their list; elections, fencings and moves of leaders from the metadata that was committed.
Each is also a row of data, in the form of the journals of events, so that the pipeline can read them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from quorate.lab.faults import Fault
from quorate.metadata.image import ClusterImage
from quorate.metadata.log_format import decode_record
from quorate.metadata.records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from quorate.protocol import batch as batches
from quorate.protocol.message import Message

__all__ = ["Story"]

_VERSION: Final = 1
_UNCHANGED: Final = -2


class Story:
    """Keeps the last lines of a run; all of them if `keep` is None, none if it is 0."""

    def __init__(self, keep: int | None = None) -> None:
        self._is_kept = keep != 0
        self._rows: deque[dict[str, Any]] = deque(maxlen=keep)
        self._epoch = 0

    def __iter__(self) -> Iterator[str]:
        for row in self._rows:
            yield f"{row['time_ms'] / 1000:10.3f}  {row['text']}"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What happened, as a journal of events has it."""
        return [{"sequence": number, **row} for number, row in enumerate(self._rows)]

    def tell(self, now_ns: int, text: str, kind: str = "Remark", **fields: object) -> None:
        if self._is_kept:
            row = {"version": _VERSION, "time_ms": now_ns // 1_000_000, "kind": kind, "text": text, **fields}
            self._rows.append(row)

    def fault(self, fault: Fault) -> None:
        if self._is_kept:
            target = " ".join(map(str, fault.args))
            what = f"FAULT {fault.kind} {target}".rstrip()
            self.tell(fault.time_ns, what, "Fault", fault=fault.kind, target=target)

    def committed(self, now_ns: int, batch: bytes, image: ClusterImage) -> None:
        """What a batch of the metadata log says that an operator would want to know."""
        if not self._is_kept:
            return
        header = batches.read_header(batch)
        if header.partition_leader_epoch > self._epoch:
            self._epoch = header.partition_leader_epoch
            self.tell(
                now_ns, f"controllers: epoch {self._epoch} begins", "ControllerEpoch", epoch=self._epoch
            )
        if header.is_control:
            return
        for record in batches.records(batch, header):
            message, _ = decode_record(record.value or b"")
            text = _sentence(message, image)
            if text is not None:
                self.tell(now_ns, text, type(message).__name__, offset=record.offset)


def _sentence(record: Message, image: ClusterImage) -> str | None:
    match record:
        case RegisterBrokerRecord():
            return f"broker {record.broker_id} registered, epoch {record.broker_epoch}"
        case UnregisterBrokerRecord():
            return f"broker {record.broker_id} was unregistered"
        case FenceBrokerRecord():
            return f"broker {record.id} was fenced"
        case UnfenceBrokerRecord():
            return f"broker {record.id} was unfenced"
        case BrokerRegistrationChangeRecord():
            states = {
                (True, False): "was fenced",
                (False, False): "was unfenced",
                (False, True): "is leaving",
            }
            state = states.get((record.fenced > 0, record.in_controlled_shutdown > 0), "has changed")
            return f"broker {record.broker_id} {state}"
        case TopicRecord():
            return f"topic {record.name} was created"
        case RemoveTopicRecord():
            return "a topic was deleted"
        case PartitionChangeRecord():
            return _partition(record, image)
    return None


def _partition(record: PartitionChangeRecord, image: ClusterImage) -> str:
    topic = image.topics.by_id.get(record.topic_id)
    name = f"{'a deleted topic' if topic is None else topic.name}-{record.partition_id}"
    parts = []
    if record.leader != _UNCHANGED:
        parts.append("has no leader" if record.leader < 0 else f"is led by {record.leader}")
    if record.isr is not None:
        parts.append(f"in sync are {', '.join(map(str, record.isr))}")
    return f"{name} {'; '.join(parts) or 'has changed'}"
