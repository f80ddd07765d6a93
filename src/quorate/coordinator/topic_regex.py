"""Regular expressions for topics: those of RE2, as in Kafka, and none that could take long.

RE2 reads a name once, from left to right; so what a name costs is known before: at most one look at each
instruction of the compiled expression for each character. Both the work of compiling and the instructions are
bounded. See docs/decisions/0014-expressions-are-matched-by-re2-in-parts.md.
"""

from __future__ import annotations

import re
from typing import Final

import re2

from quorate.protocol.errors import ApiError, ErrorCode

__all__ = [
    "COSTLY_MAX",
    "INSTRUCTIONS_MAX",
    "LENGTH_MAX",
    "RegexError",
    "TopicRegex",
    "check_expression",
]

LENGTH_MAX: Final = 4096
"""Characters of an expression."""
INSTRUCTIONS_MAX: Final = 10_000
"""Of a compiled expression. A character set that is repeated a thousand times has up to 8,000."""
COSTLY_MAX: Final = 10_000
"""Repetitions that are counted: the two of `{2,5}`, and five for each of the three that may be left out. A
Unicode class, as `\\pL`, is as costly as 200. They take time to compile even if nothing comes of them."""
_MEMORY_BYTES_MAX: Final = 1 << 19
"""What RE2 may take for one expression. With 8 MiB, matching at its worst takes more than twice as long."""
_COMPILING_STEPS: Final = 40  # for each instruction
_COSTLY_STEPS: Final = 50
_ANYWAY_STEPS: Final = 500  # for a name, be the expression ever so simple
_COUNTED: Final = re.compile(r"\{([0-9]{1,4})(?:,([0-9]{0,4}))?\}")
_SHOWN_MAX: Final = 1_000  # characters of an expression, to who brought it

# RE2's words for what is wrong, and those of RE2/J, which Kafka shows.
_WORDS: Final = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "pattern too large - compile failed": "expression is too large",
    "trailing \\": "trailing backslash at end of expression",
}


class RegexError(ValueError):
    """Not an expression; the message says why."""


class TopicRegex:
    """A compiled expression.

    >>> TopicRegex("orders-(eu|us)").matches("orders-eu"), TopicRegex("orders").matches("orders-eu")
    (True, False)
    """

    __slots__ = ("_costly", "_regex", "instructions")

    def __init__(self, expression: str) -> None:
        """Raises `RegexError` if it is not one, or if it would take too long."""
        if len(expression) > LENGTH_MAX:
            raise RegexError(f"expression is longer than {LENGTH_MAX} characters")
        self._costly = _costly(expression)
        if self._costly > COSTLY_MAX:
            raise RegexError("expression has too many counted repetitions and Unicode classes")
        self._regex = _compiled(expression)
        self.instructions = int(self._regex.programsize)
        if self.instructions > INSTRUCTIONS_MAX:
            raise RegexError("expression is too large")

    @property
    def compiling_steps(self) -> int:
        """What compiling it has cost, in steps of matching."""
        return _ANYWAY_STEPS + _COMPILING_STEPS * self.instructions + _COSTLY_STEPS * self._costly

    def steps(self, name: str) -> int:
        """What it may cost at most to match a name: looks at an instruction."""
        return _ANYWAY_STEPS + self.instructions * len(name)

    def matches(self, name: str) -> bool:
        """Whether the whole name is what the expression describes."""
        return self._regex.fullmatch(name.encode()) is not None


def _costly(expression: str) -> int:
    costly = 200 * (expression.count("\\p") + expression.count("\\P"))
    for least, most in _COUNTED.findall(expression):
        costly += int(least) + 5 * max(0, int(most or 0) - int(least))
    return costly


def _compiled(expression: str) -> re2._Regexp:
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(expression.encode(), options)
    except re2.error as error:
        raise RegexError(_described(error)) from error
    finally:
        re2.purge()  # it would keep the last 128 of them, with all their memory


def _described(error: re2.error) -> str:
    """Why it is refused. RE2 says so in bytes, and then repeats the part of the expression."""
    said: bytes = error.args[0]
    reason, _, _ = said.decode(errors="replace").partition(": ")
    return _WORDS.get(reason, reason)


def check_expression(expression: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION if it is not one."""
    try:
        TopicRegex(expression)
    except RegexError as error:
        shown = expression if len(expression) <= _SHOWN_MAX else expression[:_SHOWN_MAX] + "..."
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {error}.",
        ) from error
