"""Batches to test with: any that can be built, and any way to damage them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fastcrc.crc32 import iscsi
from hypothesis import strategies as st

from quorate.protocol.batch import Record, build
from quorate.protocol.compression import Codec, compress
from quorate.protocol.errors import ApiError

T = TypeVar("T")

TIMESTAMPS = st.one_of(st.integers(0, 10), st.integers(-1, 2**45), st.integers(-(2**62), 2**62 - 1))
FIELDS = st.one_of(
    st.none(), st.binary(max_size=200), st.sampled_from([b"", b"x" * 63, b"x" * 64, b"y" * 9000])
)
HEADERS = st.lists(st.tuples(st.text(max_size=5), FIELDS), max_size=3)
CODECS = st.sampled_from(Codec)


@st.composite
def record_lists(draw: st.DrawFn, *, size_max: int = 60) -> list[Record]:
    """Records at increasing offsets, with gaps as compaction leaves them. Enough for both decoders."""
    gaps = draw(st.lists(st.sampled_from([1, 1, 1, 1, 2, 200, 10**6]), max_size=size_max))
    offset = draw(st.integers(0, 2**40))
    made = []
    for gap in gaps:
        offset += gap
        made.append(Record(offset, draw(TIMESTAMPS), draw(FIELDS), draw(FIELDS), tuple(draw(HEADERS))))
    return made


@st.composite
def built_batches(draw: st.DrawFn, *, size_max: int = 60) -> bytearray:
    """A batch of any records and codec."""
    made = draw(record_lists(size_max=size_max))
    return build(made, base_offset=made[0].offset if made else 0, codec=draw(CODECS))


@st.composite
def damages(draw: st.DrawFn, data: bytes | bytearray) -> bytearray:
    """The bytes with some of them altered, removed or added."""
    damaged = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(damaged) - 1)))
        match draw(st.sampled_from(["flip", "set", "cut", "insert", "remove"])):
            case "flip" if damaged:
                damaged[at] ^= 1 << draw(st.integers(0, 7))
            case "set" if damaged:
                damaged[at] = draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF]))
            case "cut":
                del damaged[at:]
            case "insert":
                damaged[at:at] = draw(st.binary(min_size=1, max_size=11))
            case "remove":
                del damaged[at : at + draw(st.integers(1, 5))]
    return damaged


@st.composite
def damaged_inside(draw: st.DrawFn) -> bytearray:
    """A batch that only someone who looks at its records can tell to be bad: its checksum is right, and so
    is its compressed stream."""
    made = draw(record_lists())
    batch = build(made, base_offset=made[0].offset if made else 0)
    codec = draw(CODECS)
    body = compress(codec, draw(damages(batch[61:])))
    return sealed(batch[:21] + codec.to_bytes(2, "big") + batch[23:61] + body)


def sealed(batch: bytes | bytearray) -> bytearray:
    """The batch with its length and its checksum put right."""
    out = bytearray(batch)
    out[8:12] = (len(out) - 12).to_bytes(4, "big")
    out[17:21] = iscsi(bytes(out[21:])).to_bytes(4, "big")
    return out


def outcome(action: Callable[[], T]) -> T | ApiError:
    """What an action returns or, if it refuses, the refusal. Any other exception goes on."""
    try:
        return action()
    except ApiError as refusal:
        return refusal


def batch_of_bytes(*record: int, base_timestamp: int = 0) -> bytearray:
    """A batch of one record, byte by byte."""
    return sealed(build([Record(0, base_timestamp, None, None)])[:61] + bytes(record))


BAD_RECORDS = [
    ("length past the end", batch_of_bytes(14, 0, 0, 0, 1, 1, 0)),
    ("negative length", batch_of_bytes(13, 0, 0, 0, 1, 1, 0)),
    ("length shorter than its fields", batch_of_bytes(10, 0, 0, 0, 1, 1, 0)),
    ("bytes after the records", batch_of_bytes(12, 0, 0, 0, 1, 1, 0, 0)),
    ("bytes after the headers", batch_of_bytes(14, 0, 0, 0, 1, 1, 0, 0)),
    ("length that never ends", batch_of_bytes(0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0)),
    ("length of 33 bits", batch_of_bytes(0x8C, 0x80, 0x80, 0x80, 0x10, 0, 0, 0, 1, 1, 0)),
    ("timestamp delta of 65 bits", batch_of_bytes(30, 0, *[0x80] * 9, 0x02, 0, 1, 1, 0)),
    (
        "timestamp delta of 65 bits that would not overflow",
        batch_of_bytes(30, 0, *[0x80] * 9, 0x02, 0, 1, 1, 0, base_timestamp=-(2**62)),
    ),
    ("timestamp that overflows", batch_of_bytes(12, 0, 2, 0, 1, 1, 0, base_timestamp=2**63 - 1)),
    ("negative offset delta", batch_of_bytes(12, 0, 0, 1, 1, 1, 0)),
    ("offset delta past the last", batch_of_bytes(12, 0, 0, 2, 1, 1, 0)),
    ("key of -2 bytes", batch_of_bytes(12, 0, 0, 0, 3, 1, 0)),
    ("value of -2 bytes", batch_of_bytes(12, 0, 0, 0, 1, 3, 0)),
    ("key of -2 bytes, with a byte", batch_of_bytes(14, 0, 0, 0, 3, 0x41, 1, 0)),
    ("value of -2 bytes, with a byte", batch_of_bytes(14, 0, 0, 0, 1, 3, 0x41, 0)),
    ("key past the record", batch_of_bytes(12, 0, 0, 0, 100, 1, 0)),
    ("value past the record", batch_of_bytes(12, 0, 0, 0, 1, 100, 0)),
    ("negative header count", batch_of_bytes(12, 0, 0, 0, 1, 1, 1)),
    ("headers that are not there", batch_of_bytes(12, 0, 0, 0, 1, 1, 2)),
    ("header without a key", batch_of_bytes(16, 0, 0, 0, 1, 1, 2, 1, 1)),
    ("header key past the record", batch_of_bytes(16, 0, 0, 0, 1, 1, 2, 8, 1)),
    ("header value past the record", batch_of_bytes(16, 0, 0, 0, 1, 1, 2, 0, 2)),
    ("a million headers", batch_of_bytes(18, 0, 0, 0, 1, 1, 0x80, 0x89, 0x7A)),
]
