"""Events of nodes as rows of the table `events`, without Spark: lines of their journals in, Arrow out."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from quorate.node.event_words import words_of
from quorate.spark.metadata_rows import MALFORMED
from quorate.spark.record_json import dumps
from quorate.spark.schemas import EVENTS, arrow_schema

__all__ = ["ARROW_EVENTS", "JOURNAL", "Line", "event_batch"]

ARROW_EVENTS: Final = arrow_schema(EVENTS)
JOURNAL: Final = -1  # in place of a partition

_US_PER_MS: Final = 1000


class Line(NamedTuple):
    """A line of a journal, or a record of the topic."""

    partition: int
    offset: int | None  # None for a line of a journal: its sequence then
    content: bytes


def event_batch(cluster_id: str, lines: Iterable[Line]) -> pa.RecordBatch:
    """A row for each line; one that is no event is a row too, which keeps its bytes.

    >>> line = b'{"version":1,"node":1,"sequence":7,"time_ms":0,"kind":"EventsDropped","count":3}'
    >>> row = event_batch("c1", [Line(JOURNAL, None, line)]).to_pylist()[0]
    >>> row["node_id"], row["offset"], row["kind"], row["text"]
    (1, 7, 'EventsDropped', None)
    """
    return pa.RecordBatch.from_pylist([_row(cluster_id, line) for line in lines], ARROW_EVENTS)


def _row(cluster_id: str, line: Line) -> dict[str, Any]:
    row: dict[str, Any] = {"cluster_id": cluster_id, "partition": line.partition, "offset": line.offset}
    try:
        event = json.loads(line.content)
        if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
            raise ValueError("it is no object with a kind")
    except ValueError as error:
        raw = base64.b64encode(line.content).decode("ascii")
        content = dumps({"reason": str(error), "base64": raw})
        return row | {
            "offset": -1 if line.offset is None else line.offset,
            "kind": MALFORMED,
            "fields": content,
        }
    sequence, time_ms = _integer(event, "sequence"), _integer(event, "time_ms")
    return row | {
        "offset": line.offset if line.offset is not None else -1 if sequence is None else sequence,
        "ts": None if time_ms is None else time_ms * _US_PER_MS,
        "node_id": _integer(event, "node"),
        "incarnation": _text(event, "incarnation"),
        "sequence": sequence,
        "kind": event["kind"],
        "text": words_of(event),
        "broker_id": _integer(event, "broker_id"),
        "group_id": _text(event, "group_id"),
        "fields": line.content.decode("utf-8", "replace"),
    }


def _integer(event: Mapping[str, Any], name: str) -> int | None:
    value = event.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(event: Mapping[str, Any], name: str) -> str | None:
    value = event.get(name)
    return value if isinstance(value, str) else None
