"""Fuzzing of compressed batches by what they cost: one that is small, or damaged, must not take more time and
memory than is right for what it may inflate to.

Batches are drawn to be costly: long runs, many small records, many headers, several streams in a row, and
compressed streams that say more than they hold. What they cost is judged by what was counted of them.
"""

import random
import time
import tracemalloc

import pytest
from damage import SECONDS, SEED, damaged, report
from test_record_batches import sealed

from quorate.protocol import batch
from quorate.protocol.compression import Codec, compress
from quorate.protocol.errors import ApiError
from quorate.protocol.inflated import Inflated
from quorate.protocol.record import encode_record
from quorate.protocol.record_scan import scan_records

LIMIT_BYTES = 1 << 20
COUNTED_MAX = 4 << 20
MEMORY_MAX = 3 * LIMIT_BYTES + (12 << 20)  # the inflated bytes, as they grow, and the columns of a part
NS_FOR_A_BYTE_MAX = 100  # of CPU time, counted as `Inflated` counts: a quiet machine takes less than ten
NS_ANYWAY = 20_000_000
CODECS = [codec for codec in Codec if codec is not Codec.NONE]


def costly(chance: random.Random) -> tuple[bytes, int]:
    """Encoded records, and how many."""
    count = chance.choice([1, 2, 60, 1000, 20_000])
    headers = [("", None)] * chance.choice([0, 0, 1, 63, 64, 5000])
    sizes = [chance.choice([0, 1, 100, 70_000, LIMIT_BYTES, 4 * LIMIT_BYTES]) for _ in range(2)]
    record_bytes = sum(sizes) // 2 + 2 * len(headers) + 8
    count = max(1, min(count, 2 * LIMIT_BYTES // record_bytes))
    time_ms = chance.choice([0, 1 << 40])
    records = [
        encode_record(batch.Record(at, time_ms * (at % 2), None, bytes(sizes[at % 2]), headers), 0, 0)
        for at in range(count)
    ]
    return b"".join(records), count


def drawn(chance: random.Random) -> bytes:
    section, count = costly(chance)
    if chance.random() < 0.3:
        section = damaged(section, chance)
    codec = chance.choice(CODECS)
    packed = bytes(compress(codec, section))
    if chance.random() < 0.3:
        packed = damaged(packed, chance)
    if chance.random() < 0.2:
        packed += packed
    if chance.random() < 0.2:
        count = chance.choice([0, 1, count + 1, 1 << 16, 1 << 20, (1 << 31) - 1])
    place = {"base_offset": 0, "leader_epoch": -1, "timestamp": 0}
    header = bytes(batch.build_encoded(b"", max(count, 1), **place))
    return sealed(header[:21] + codec.to_bytes(2, "big") + header[23:] + packed)


def test_what_compressed_batches_cost(record_property):
    chance = random.Random(SEED)
    accepted = refused = 0
    stop = time.monotonic() + SECONDS
    while time.monotonic() < stop:
        whole = drawn(chance)
        inflated = Inflated(COUNTED_MAX)
        began_ns = time.process_time_ns()
        verdict = scanned(whole, inflated)
        took_ns = time.process_time_ns() - began_ns
        allowed_ns = NS_ANYWAY + NS_FOR_A_BYTE_MAX * (len(whole) + min(inflated.bytes, 2 * COUNTED_MAX))
        if took_ns > allowed_ns:  # something else may have taken it: once more
            began_ns = time.process_time_ns()
            scanned(whole, Inflated(COUNTED_MAX))
            took_ns = min(took_ns, time.process_time_ns() - began_ns)
        assert took_ns <= allowed_ns, f"{took_ns:,} ns for {inflated.bytes:,} bytes: {whole.hex()[:2000]}"
        tracemalloc.start()
        scanned(whole, Inflated(COUNTED_MAX))
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak_bytes <= MEMORY_MAX + 8 * len(whole), f"{peak_bytes:,} bytes: {whole.hex()[:2000]}"
        accepted, refused = accepted + verdict, refused + (not verdict)
    report(record_property, "costly batches", accepted, refused)


def scanned(whole: bytes, inflated: Inflated) -> bool:
    try:
        header = batch.validate_produced(whole)
        scan_records(whole, header, LIMIT_BYTES, record_bytes_max=LIMIT_BYTES, inflated=inflated)
    except ApiError:
        return False
    except Exception as error:
        pytest.fail(f"{whole.hex()}: {error!r}")
    return True
