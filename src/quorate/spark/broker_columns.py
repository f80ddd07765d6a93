"""Many changes of registrations at once: broker and epoch differ from record to record, the rest seldom.

A BrokerRegistrationChangeRecord is its frame, a broker id, a broker epoch, and tagged fields that say what
changed: fenced, unfenced, shutting down. Of these there are few in any log, however often brokers come and
go. So records are grouped by all but id and epoch, one of each group is decoded, and the others are like it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quorate.metadata.records import BrokerRegistrationChangeRecord
from quorate.spark.metadata_rows import row_of_value
from quorate.spark.schemas import ARROW_IDS

__all__ = ["Alike", "registration_changes"]

_FRAME_BYTES: Final = 3
_FIXED: Final = np.dtype([("frame", f"V{_FRAME_BYTES}"), ("broker_id", ">i4"), ("broker_epoch", ">i8")])
_KIND: Final = BrokerRegistrationChangeRecord.__name__
_GROUPS_MAX: Final = 64  # of one length; what is beyond that is decoded one by one

Int64s = NDArray[np.int64]


class Alike(NamedTuple):
    """Records that differ in nothing but broker and epoch: which they are, and their columns."""

    at: Int64s
    columns: dict[str, pa.Array]


def registration_changes(data: bytes, at: Int64s, starts: Int64s, ends: Int64s) -> Iterator[Alike]:
    """Of records that seem to be changes of registrations, whose values start and end there in the data,
    those that are like one that can be decoded. The others are left out."""
    sizes = ends - starts
    for size in np.unique(sizes).tolist():
        if size < _FIXED.itemsize:
            continue
        some = np.flatnonzero(sizes == size)
        every = np.ndarray((len(data) - size + 1,), f"V{size}", data, 0, (1,))
        rows = every[starts[some]]
        raw = rows.view(np.uint8).reshape(len(some), size)
        rest = np.concatenate([raw[:, :_FRAME_BYTES], raw[:, _FIXED.itemsize :]], axis=1)
        kinds = np.ascontiguousarray(rest).view(f"V{rest.shape[1]}").reshape(-1)
        for _ in range(_GROUPS_MAX):
            if not len(kinds):
                break
            is_like = kinds == kinds[0]
            found = _columns(bytes(rows[0]), raw[is_like, : _FIXED.itemsize])
            if found is not None:
                yield Alike(at[some[is_like]], found)
            some, rows, raw, kinds = some[~is_like], rows[~is_like], raw[~is_like], kinds[~is_like]


def _columns(first: bytes, fixed: NDArray[Any]) -> dict[str, pa.Array] | None:
    """The columns of records like the first; None if that one is not what it seems."""
    one = row_of_value(first)
    if one.type != _KIND or one.fields is None:
        return None
    values = np.ascontiguousarray(fixed).view(_FIXED).reshape(-1)
    ids = pa.array(values["broker_id"].astype(np.int32))
    epochs = pa.array(values["broker_epoch"].astype(np.int64))
    head = f'{{"brokerId":{one.broker_id},"brokerEpoch":{one.broker_epoch}'
    assert one.fields.startswith(head), "fields stand in the order in which they are declared"
    count = len(values)
    text = pc.binary_join_element_wise(
        '{"brokerId":',
        ids.cast(pa.string()),
        ',"brokerEpoch":',
        epochs.cast(pa.string()),
        one.fields.removeprefix(head),
        "",
    )
    return {
        "type": pa.repeat(pa.scalar(_KIND), count),
        "version": pa.repeat(pa.scalar(one.version, pa.int32()), count),
        "broker_id": ids,
        "broker_epoch": epochs,
        "topic_id": pa.nulls(count, pa.string()),
        "topic": pa.nulls(count, pa.string()),
        "partition": pa.nulls(count, pa.int32()),
        "leader": pa.nulls(count, pa.int32()),
        "isr": pa.nulls(count, ARROW_IDS),
        "replicas": pa.nulls(count, ARROW_IDS),
        "fields": text,
    }
