"""Text that others have chosen, as people may be shown it: on one line, and without orders to the terminal.

Names of groups, members and clients may hold any character. Printed as it is, a newline in one would begin a
line of a log that nobody wrote, and an escape sequence would recolour, move or hide what stands beside it.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_one_line", "one_line"]

_UNFIT: Final = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # controls
    "\u2028\u2029"  # line and paragraph separators
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what turns the direction of reading
    "\ud800-\udfff"  # halves of characters, which cannot be written at all
    "]"
)


def one_line(text: str) -> str:
    r"""The same text with escapes, as Python has them, for what does not fit into a line.

    A backslash stays one, so that ordinary names are shown as they are: this is to be read, not to be undone.

    >>> print(one_line("bills\nERROR \x1b[31mall is lost"), one_line("DOMAIN\\müller"))
    bills\nERROR \x1b[31mall is lost DOMAIN\müller
    """
    if text.isascii() and text.isprintable():
        return text
    return _UNFIT.sub(_escaped, text)


def is_one_line(text: str) -> bool:
    r"""Whether it may be shown as it is.

    >>> is_one_line("müller"), is_one_line("bills\nERROR")
    (True, False)
    """
    return (text.isascii() and text.isprintable()) or _UNFIT.search(text) is None


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
