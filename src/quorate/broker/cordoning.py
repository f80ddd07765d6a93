"""Which log directories get no new replicas: what `cordoned.log.dirs` may say, and what it means.

It names directories of `log.dirs`, or is `*` for all of them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Final

__all__ = ["CORDONED_LOG_DIRS", "cordoned_paths", "objection_to"]

CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"
_ALL: Final = "*"


def objection_to(entries: Sequence[str], directories: Collection[str]) -> str | None:
    """Why a broker with these directories would not take such a value.

    >>> objection_to(["/a", "/b/"], ["/a", "/b"]), objection_to(["*"], ["/a"]), objection_to([], ["/a"])
    (None, None, None)
    >>> objection_to(["/a", "*"], ["/a"])
    'When cordoned.log.dirs is set to *, it must not contain other values'
    """
    if _ALL in entries:
        if len(entries) == 1:
            return None
        return f"When {CORDONED_LOG_DIRS} is set to {_ALL}, it must not contain other values"
    known = set(map(os.path.abspath, directories))
    for one in entries:
        if os.path.abspath(one) not in known:  # noqa: PTH100
            return (
                f"Invalid entry in {CORDONED_LOG_DIRS}: {one}."
                " All cordoned log dirs must be entries of log.dirs or log.dir."
            )
    return None


def cordoned_paths(entries: Collection[str], directories: Collection[str]) -> frozenset[str]:
    """Those of these directories that are meant; their paths are absolute.

    >>> sorted(cordoned_paths(["/b/", "/c"], ["/a", "/b"])), sorted(cordoned_paths(["*"], ["/a", "/b"]))
    (['/b'], ['/a', '/b'])
    """
    if _ALL in entries:
        return frozenset(directories)
    return frozenset(map(os.path.abspath, entries)).intersection(directories)
