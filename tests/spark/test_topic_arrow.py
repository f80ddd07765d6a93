"""Stored bytes to Arrow: every column against the plain decoder, and why offsets are missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.client.fetched import fetched
from quorate.client.metadata import TopicPartition
from quorate.protocol.batch import ControlType, Record, batches, build, build_control, set_append_time
from quorate.protocol.compression import Codec
from quorate.spark import topic_arrow
from quorate.spark.topic_arrow import ARROW_TYPES, record_batches
from quorate.spark.topic_range import Part, RangeReader

AT = TopicPartition("orders", 3)


@dataclass
class Stored:
    """Parts of a log, as a reader of a range gives them out."""

    contents: Sequence[bytes]
    compacted: bool = False
    log_start_offset: int = 0
    hides_aborted: bool = False

    def parts(self) -> Iterator[Part]:
        position = 0
        for content in self.contents:
            part = Part(fetched(AT, position, content), list(batches(content)))
            position = part.stored[-1].next_offset
            yield part

    def is_compacted(self) -> bool:
        return self.compacted


def table(stored: Stored, start: int = 0, end: int = 1 << 40, *names: str) -> pa.Table:
    reader = cast("RangeReader", stored)
    chosen = names or tuple(name for name in ARROW_TYPES if name != "gap")
    found = list(record_batches(reader, start, end, chosen))
    return pa.Table.from_batches(found, pa.schema([(name, ARROW_TYPES[name]) for name in chosen]))


some_bytes = st.none() | st.binary(max_size=300)
records = st.lists(
    st.tuples(
        st.integers(0, 2**40),
        some_bytes,
        some_bytes,
        st.lists(st.tuples(st.text(max_size=100), some_bytes), max_size=5),
    ),
    min_size=1,
    max_size=30,
)


@given(
    st.lists(st.lists(records, min_size=1, max_size=3), min_size=1, max_size=3),
    st.sampled_from(Codec),
    st.data(),
)
def test_columns_are_what_the_records_are(
    parts: list[list[list[tuple]]], codec: Codec, data: st.DataObject
) -> None:
    contents, rows, offset = [], [], 0
    for part in parts:
        content = bytearray()
        for one in part:
            made = [
                Record(offset + n, ts, key, value, headers) for n, (ts, key, value, headers) in enumerate(one)
            ]
            content += build(made, base_offset=offset, codec=codec)
            offset += len(one)
            rows += made
        contents.append(bytes(content))
    start = data.draw(st.integers(0, offset))
    end = data.draw(st.integers(start, offset))
    found = table(Stored(contents), start, end).to_pylist()
    assert [one["offset"] for one in found] == list(range(start, end))
    for one, record in zip(found, rows[start:end], strict=True):
        assert (one["key"], one["value"]) == (record.key, record.value)
        assert one["timestamp"].timestamp() * 1000 == pytest.approx(record.timestamp, abs=1e-3)
        headers = [{"key": key, "value": value} for key, value in record.headers]
        assert one["headers"] == (headers or None)
        assert (one["topic"], one["partition"], one["timestampType"]) == ("orders", 3, 0)


def test_the_time_of_the_append_is_told_apart() -> None:
    by_sender = build([Record(0, 1000, None, b"a")])
    by_broker = build([Record(1, 1000, None, b"b")], base_offset=1)
    set_append_time(by_broker, 0, 5000)
    found = table(Stored([bytes(by_sender + by_broker)]), 0, 9, "timestamp", "timestampType").to_pydict()
    assert found["timestampType"] == [0, 1]
    assert [one.timestamp() for one in found["timestamp"]] == [1, 5]


def test_large_parts_are_handed_over_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_arrow, "_ROWS_MAX", 3)
    monkeypatch.setattr(topic_arrow, "_BYTES_MAX", 250)
    made = [Record(n, 0, None, b"x" * (100 if n < 4 else 1)) for n in range(10)]
    reader = cast("RangeReader", Stored([bytes(build(made))]))
    found = list(record_batches(reader, 0, 10, ["offset"]))
    assert [one.num_rows for one in found] == [2, 3, 3, 2]
    assert pa.Table.from_batches(found)["offset"].to_pylist() == list(range(10))


def thinned(*offsets: int, base: int, last: int, transactional: bool = False) -> bytes:
    made = [Record(one, 0, None, b"v") for one in offsets]
    return bytes(
        build(
            made,
            base_offset=base,
            last_offset=last,
            is_transactional=transactional,
            producer_id=7,
            producer_epoch=0,
        )
    )


def marker(offset: int) -> bytes:
    return bytes(
        build_control(
            [(ControlType.COMMIT, bytes(6))], timestamp=0, base_offset=offset, producer_id=7, producer_epoch=0
        )
    )


@pytest.mark.parametrize(
    ("stored", "labels"),
    [
        (Stored([thinned(0, 1, 2, base=0, last=2)]), {0: None, 1: None, 2: None}),
        (Stored([thinned(1, 4, base=0, last=5)], compacted=True), {1: "compaction", 4: "compaction"}),
        (
            Stored([thinned(0, base=0, last=0) + marker(1) + thinned(2, base=2, last=2)]),
            {0: None, 2: "marker"},
        ),
        (Stored([thinned(0, base=0, last=0), marker(1), thinned(2, base=2, last=2)]), {0: None, 2: "marker"}),
        (Stored([thinned(0, base=0, last=0), thinned(9, base=9, last=9)]), {0: None, 9: "loss"}),
        (
            Stored([thinned(0, base=0, last=0), thinned(9, base=9, last=9)], compacted=True),
            {0: None, 9: "compaction"},
        ),
        (Stored([thinned(5, 6, base=5, last=6)], log_start_offset=5), {5: "retention", 6: None}),
        (
            Stored([thinned(0, base=0, last=3), thinned(4, base=4, last=4)], compacted=True),
            {0: None, 4: "compaction"},
        ),
        (
            Stored([thinned(0, base=0, last=0), thinned(base=1, last=3), thinned(4, base=4, last=4)]),
            {0: None, 4: "compaction"},
        ),
    ],
)
def test_gaps_are_labelled(stored: Stored, labels: dict[int, str | None]) -> None:
    found = table(stored, 0, 100, "offset", "gap")
    assert dict(zip(found["offset"].to_pylist(), found["gap"].to_pylist(), strict=True)) == labels
