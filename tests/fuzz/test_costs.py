"""Fuzzing: what requests cost, the costliest of every kind and damaged ones, for a bounded time.

Judged are the memory that decoding takes, against what a request of its size may take, and its CPU time for
each byte, against that of an ordinary request on the same machine: refusing one has a price, too.
"""

import random
import time
import tracemalloc

import pytest
from damage import SECONDS, SEED, damaged

from costliest import costliest, ways, with_tags
from quorate.protocol.api.groups import DescribeGroupsRequest
from quorate.protocol.bounds import FREE_BYTES, TIMES, TIMES_OF_NODES, allowed_bytes
from quorate.protocol.errors import ProtocolError
from quorate.protocol.frame import encode_request, read_request
from samples import REQUESTS

SIZES_BYTES = (1_000, 30_000, 300_000, 3_000_000)
SIZE_WEIGHTS = (8, 4, 2, 1)
# An item of one byte may become an object with twenty fields, and an ordinary one is a name.
TIMES_ORDINARY = 300
ANYWAY_S = 0.5  # finding out what is wrong with a request, and what the machine does beside it
MEASURED_BYTES = 30_000  # of each on average, at most: measuring takes its time


def cpu_s(raw: bytes) -> tuple[float, bool]:
    """How long a request takes to be decoded or refused, and whether it was decoded."""
    began = time.process_time()
    try:
        read_request(int.from_bytes(raw[:4], "big"), raw, 0, len(raw))
    except ProtocolError:
        return time.process_time() - began, False
    return time.process_time() - began, True


def peak_bytes(raw: bytes) -> int:
    tracemalloc.start()
    try:
        cpu_s(raw)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def ordinary_s_per_byte() -> float:
    names = [f"group-{number:05}" for number in range(20_000)]
    raw = bytes(encode_request(DescribeGroupsRequest(groups=names), 5, 1, "fuzz"))[4:]
    return min(cpu_s(raw)[0] for _ in range(5)) / len(raw)


def test_what_requests_cost(record_property):
    chance = random.Random(SEED)
    ordinary = ordinary_s_per_byte()
    verdicts = {True: 0, False: 0}
    worst_time = worst_memory = (0.0, "")
    stop = time.monotonic() + SECONDS
    while time.monotonic() < stop:
        cls = chance.choice(REQUESTS)
        version = chance.choice(cls.__versions__)
        (size_bytes,) = chance.choices(SIZES_BYTES, SIZE_WEIGHTS)
        way = chance.choice([*ways(cls, version), None])
        if way is not None:
            raw = costliest(cls, version, way, size_bytes)
        elif version in cls.__flexible__:
            raw = with_tags(cls, version, min(size_bytes // 3, 200_000))
        else:
            continue
        if chance.random() < 0.3:
            raw = raw[:8] + damaged(raw[8:], chance)
        where = f"{cls.__name__} v{version}, {way or 'tags'}, {len(raw)} bytes"
        try:
            cpu_s(raw[:8] + bytes(8))  # compiles the decoder
            taken_s, is_accepted = cpu_s(raw)
        except Exception as error:
            pytest.fail(f"{where}: {error!r}")
        verdicts[is_accepted] += 1
        assert taken_s <= TIMES_ORDINARY * ordinary * len(raw) + ANYWAY_S, where
        worst_time = max(worst_time, (taken_s / len(raw) / ordinary, where))
        if chance.random() < MEASURED_BYTES / len(raw):
            allowed = allowed_bytes(len(raw), TIMES_OF_NODES if cls.__of_nodes__ else TIMES)
            peak = peak_bytes(raw)
            assert peak <= allowed + FREE_BYTES, where
            worst_memory = max(worst_memory, (peak / len(raw), where))
    record_property(
        "figure",
        f"cost of requests: {verdicts[True]:,} accepted, {verdicts[False]:,} refused, seed {SEED}; at most"
        f" {worst_time[0]:.0f} times the CPU per byte of an ordinary one ({worst_time[1]}), and"
        f" {worst_memory[0]:.0f} bytes of memory per byte ({worst_memory[1]})",
    )
    assert verdicts[True]
    assert verdicts[False]
