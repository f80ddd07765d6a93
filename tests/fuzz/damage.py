"""What the fuzzers share: how long, from which seed, and what can happen to bytes."""

import os
import random

SECONDS = float(os.environ.get("QUORATE_FUZZ_SECONDS", "15"))
SEED = int(os.environ.get("QUORATE_FUZZ_SEED", "1"))

_EXTREMES = [b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff"]


def damaged(raw: bytes, chance: random.Random) -> bytes:
    """The bytes after one to four accidents."""
    out = bytearray(raw)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(out))
        match chance.randrange(6):
            case 0:
                out[at : at + 1] = chance.randbytes(1)
            case 1:
                del out[at:]
            case 2:
                del out[at : at + chance.randint(1, 8)]
            case 3:
                out[at:at] = chance.randbytes(chance.randint(1, 8))
            case 4:
                extreme = chance.choice(_EXTREMES)
                out[at : at + len(extreme)] = extreme
            case 5:
                out[at:at] = out[chance.randint(0, len(out)) :][:40]
    return bytes(out)


def report(record_property, what: str, accepted: int, refused: int) -> None:
    figure = f"fuzzed {what}: {accepted + refused:,} inputs, {accepted:,} accepted, {refused:,} refused"
    record_property("figure", f"{figure}, seed {SEED}")
    assert accepted
    assert refused
