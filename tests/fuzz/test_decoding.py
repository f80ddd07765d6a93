"""Fuzzing: damaged messages of every kind, for a bounded time.

Every input is decoded twice, by the compiled decoder and by the plain one. Both must come to the same
verdict, and the only exception either may raise is a ProtocolError. `make fuzz` runs longer, from a new
seed; `QUORATE_FUZZ_SEED` repeats a run, `QUORATE_FUZZ_SECONDS` sets its length.
"""

import random
import time

import pytest
from damage import SECONDS, SEED, damaged, report

import vectors
from quorate.protocol import codec, frame
from quorate.protocol.errors import ProtocolError
from quorate.protocol.interpreter import Reader
from quorate.protocol.layout import layout
from samples import MESSAGES, REQUESTS

CLASSES = {cls.__name__: cls for cls in MESSAGES}


def test_damaged_messages(record_property):
    chance = random.Random(SEED)
    kept = vectors.load()
    verdicts = {True: 0, False: 0}
    stop = time.monotonic() + SECONDS
    while time.monotonic() < stop:
        for one in chance.sample(kept, 200):
            cls, raw = CLASSES[one.name], damaged(one.data, chance)
            verdicts[is_accepted(cls, one.version, raw)] += 1
    report(record_property, "messages", verdicts[True], verdicts[False])


def is_accepted(cls, version, raw):
    try:
        message = codec.decode(cls, version, raw)
    except ProtocolError as error:
        assert error.position is not None, error
        return False
    except Exception as error:
        pytest.fail(f"{cls.__name__} v{version} {raw.hex()}: {error!r}")
    reader = Reader(raw, 0, len(raw))
    plain = reader.read(layout(cls, version))
    reader.finish()
    # as bytes, because a NaN is not equal to itself
    assert codec.encode(plain, version) == codec.encode(message, version), f"{cls.__name__} {raw.hex()}"
    return True


def test_damaged_requests(record_property):
    """Whole frames, keys and versions included."""
    chance = random.Random(SEED)
    names = {cls.__name__ for cls in REQUESTS}
    kept = [one for one in vectors.load() if one.name in names]
    verdicts = {True: 0, False: 0}
    stop = time.monotonic() + SECONDS
    while time.monotonic() < stop:
        for one in chance.sample(kept, 200):
            request = codec.decode(CLASSES[one.name], one.version, one.data)
            raw = damaged(bytes(frame.encode_request(request, one.version, 1, "fuzz"))[4:], chance)
            try:
                frame.decode_request(memoryview(raw))
                verdicts[True] += 1
            except ProtocolError:
                verdicts[False] += 1
            except Exception as error:
                pytest.fail(f"{raw.hex()}: {error!r}")
    report(record_property, "requests", verdicts[True], verdicts[False])
