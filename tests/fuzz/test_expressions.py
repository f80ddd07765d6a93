"""Fuzzing: expressions of all kinds, for a bounded time, judged by what they cost.

Each is refused with INVALID_REGULAR_EXPRESSION, or compared with the longest names there are. Neither may
take more CPU time than the worst that is known, many times over, and no name more than by the steps that it
is said to cost. `QUORATE_FUZZ_SEED` repeats a run, `QUORATE_FUZZ_SECONDS` sets its length, three times over.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path

from damage import SECONDS, SEED, report

from quorate.coordinator.topic_regex import LENGTH_MAX, TopicRegex, check_expression
from quorate.protocol.errors import ApiError, ErrorCode

COMPILING_S_MAX = 0.5  # the worst that is known takes 12 ms
ANYWAY_S = 0.2
STEP_S_MAX = 100e-9  # the worst that is known takes 5 ns
RESIDENT_BYTES_MAX = 64 << 20
"""By which the process may grow, of all expressions together."""

ATOMS = (
    "a",
    "b",
    ".",
    "[ab]",
    "[^a]",
    "\\w",
    "\\pL",
    "\\PN",
    "\\b",
    "\\B",
    "^",
    "$",
    "(?i)k",
    "()",
    "(?:)",
    "|",
    "é",
)
COUNTS = ("*", "+", "?", "{2}", "{0,2}", "{10}", "{30}", "{100}", "{1000}", "{1,1000}", "{999,}", "{0}", "*?")
NAMES = ("a" * 249, "ab" * 124, ("a" * 20 + "b") * 11)


def test_expressions(record_property: Callable[[str, object], None]) -> None:
    chance = random.Random(SEED)
    verdicts = {True: 0, False: 0}
    before_bytes = resident_bytes()
    stop = time.monotonic() + SECONDS / 3
    while time.monotonic() < stop:
        verdicts[is_accepted(an_expression(chance))] += 1
    report(record_property, "expressions", verdicts[True], verdicts[False])
    assert resident_bytes() - before_bytes <= RESIDENT_BYTES_MAX


def an_expression(chance: random.Random) -> str:
    if chance.random() < 0.1:  # the same again and again, as long as it may be
        part = a_part(chance, 1)
        return (part * (LENGTH_MAX // len(part)))[:LENGTH_MAX]
    return a_part(chance, 6)


def a_part(chance: random.Random, depth: int) -> str:
    if depth == 0 or chance.random() < 0.2:
        return chance.choice(ATOMS)
    inner = "".join(a_part(chance, depth - 1) for _ in range(chance.choice((1, 1, 2, 3))))
    return (
        f"({inner}){chance.choice(COUNTS)}" if chance.random() < 0.7 else f"({inner}|{chance.choice(ATOMS)})"
    )


def is_accepted(expression: str) -> bool:
    began_s = time.process_time()
    try:
        check_expression(expression)
    except ApiError as error:
        assert error.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        return False
    finally:
        took_s = time.process_time() - began_s
        assert took_s <= COMPILING_S_MAX, f"{took_s:.3f} s to compile {expression!r}"
    regex = TopicRegex(expression)
    for name in NAMES:
        began_s = time.process_time()
        regex.matches(name)
        took_s = time.process_time() - began_s
        assert took_s <= ANYWAY_S + STEP_S_MAX * regex.steps(name), f"{took_s:.3f} s for {expression!r}"
    return True


def resident_bytes() -> int:
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
