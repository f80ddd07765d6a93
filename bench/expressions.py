"""Regular expressions of subscriptions: what it costs to compile and to match them, in CPU time, and what the
longest turn of the loop has of it. Beside Python's own `re` where that comes back."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence

from quorate.broker.expressions import STEPS_IN_A_TURN
from quorate.coordinator.topic_matches import Allowance, TopicMatches
from quorate.coordinator.topics_view import Topic, Topics
from quorate.protocol.types import Uuid

CHANCE = random.Random(1)
ORDINARY = [
    f"team-{one % 97}.orders.{('created', 'deleted', 'paid')[one % 3]}.v{one}" for one in range(100_000)
]
LONG = ["".join(CHANCE.choices("ab", k=200)) for _ in range(300)]
CASES: tuple[tuple[str, str, Sequence[str], bool], ...] = (
    ("an ordinary one, 100,000 topics", "team-(1|2|3)\\.orders\\..*", ORDINARY, True),
    ("a suffix, 100,000 topics", ".*\\.(created|paid)\\.v[0-9]+", ORDINARY, True),
    (
        "4,800 states, 300 topics of 200 characters",
        f"[ab]*([ab][ab]{{249}}{'|[ab][ab]{249}' * 17}|a[ab]{{249}})",
        LONG,
        False,
    ),
    ("the worst that is known, 300 topics of 200", "(?:a|b|\\b|\\B){999}" * 3, LONG, False),
)


def section() -> list[str]:
    return [measured(*case) for case in CASES]


def measured(name: str, expression: str, names: Sequence[str], beside_re: bool) -> str:
    matches = TopicMatches()
    matches.topics_changed(Topics([Topic(Uuid(bytes(16)), one, 1) for one in names]), ())
    found, parts_ms = matches.of(expression), []
    while not found.is_complete:
        began = time.process_time()
        found.go_on(Allowance(STEPS_IN_A_TURN))
        parts_ms.append((time.process_time() - began) * 1000)
    row = f"{name:45} {sum(parts_ms):8.1f} ms, {len(parts_ms)} parts, the longest {max(parts_ms):.1f} ms"
    if not beside_re:
        return row
    pattern, began = re.compile(expression), time.process_time()
    assert sum(pattern.fullmatch(one) is not None for one in names) == found.count
    return f"{row}; re {(time.process_time() - began) * 1000:.1f} ms"
