"""Fuzzing of record batches: damage that the checksum does not show, in every codec.

The records are damaged before they are compressed, or after, and the batch is sealed again. The plain decoder
and the bulk decoder must come to the same verdict, and may only raise ApiError.
"""

import random
import time

import pytest
from damage import SECONDS, SEED, damaged, report
from fastcrc.crc32 import iscsi

from quorate.protocol import batch
from quorate.protocol.columns import read_columns
from quorate.protocol.compression import Codec, compress
from quorate.protocol.errors import ApiError
from quorate.protocol.record_scan import scan_records

LIMIT_BYTES = 1 << 20


def sample(chance: random.Random) -> bytes:
    records = [
        batch.Record(
            offset,
            1_700_000_000_000 + chance.randint(-1000, 1000),
            chance.choice([None, b"", b"key-%d" % offset]),
            chance.choice([None, chance.randbytes(chance.choice([0, 5, 200]))]),
            chance.choice([(), (("trace", b"1"),), (("a", None), ("b", b""))]),
        )
        for offset in range(chance.choice([1, 3, 50]))
    ]
    return bytes(batch.build(records))


def sealed(raw: bytes) -> bytes:
    """With a length and a checksum that are right."""
    out = bytearray(raw.ljust(batch.HEADER_BYTES, b"\0"))
    out[8:12] = (len(out) - 12).to_bytes(4, "big")
    out[16] = 2
    out[17:21] = iscsi(memoryview(out)[21:]).to_bytes(4, "big")
    return bytes(out)


def test_damaged_batches(record_property):
    chance = random.Random(SEED)
    accepted = refused = 0
    stop = time.monotonic() + SECONDS
    while time.monotonic() < stop:
        raw, codec = sample(chance), chance.choice(list(Codec))
        header, body = raw[: batch.HEADER_BYTES], raw[batch.HEADER_BYTES :]
        header = header[:21] + codec.to_bytes(2, "big") + header[23:]
        if chance.random() < 0.6:
            whole = sealed(header + bytes(compress(codec, damaged(body, chance))))
        else:
            whole = sealed(damaged(header + bytes(compress(codec, body)), chance))
        try:
            plain = verdict(lambda whole=whole: read_plainly(whole))
            bulk = verdict(lambda whole=whole: read_in_bulk(whole))
            verdict(lambda whole=whole: scan_records(whole, batch.validate_produced(whole), LIMIT_BYTES))
        except Exception as error:
            pytest.fail(f"{whole.hex()}: {error!r}")
        assert plain == bulk, whole.hex()
        accepted, refused = accepted + (plain is not None), refused + (plain is None)
    report(record_property, "record batches", accepted, refused)


def verdict(read):
    try:
        return read()
    except ApiError:
        return None


def read_plainly(whole: bytes) -> list[tuple]:
    found = batch.records(whole, batch.validate(whole), LIMIT_BYTES)
    return [(one.offset, one.timestamp, one.key, one.value, list(one.headers)) for one in found]


def read_in_bulk(whole: bytes) -> list[tuple]:
    columns = read_columns(whole, LIMIT_BYTES)
    return [
        (
            int(columns.offset[i]),
            int(columns.timestamp[i]),
            columns.key(i),
            columns.value(i),
            list(columns.headers(i)),
        )
        for i in range(len(columns.offset))
    ]
