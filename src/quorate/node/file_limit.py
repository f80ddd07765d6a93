"""How many files this process may have open, and how many of them are for segments of logs.

A connection needs one; a segment up to three while it is written or read, and none otherwise. When so many
are open, others are closed until they are needed again (`storage.open_files`). Whoever runs out of them in
the middle of a sync does not know what is on the disk any more; so some are never given to segments.
"""

from __future__ import annotations

import resource
from collections.abc import Collection
from typing import Final

from quorate.node.config_values import INT_MAX

__all__ = ["connections_allowed", "connections_of", "files_for_segments", "raised_limit"]

_ALWAYS_FREE: Final = 64  # for checkpoints, directories, and what the process itself needs
_ARRIVING: Final = 128  # connections that a listener accepts before it looks at how many there are


def raised_limit() -> int:
    """Raises the limit of open files as far as this process may, as a JVM does. What it then is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft  # some systems have a lower limit that they do not tell
    return hard


def files_for_segments(limit: int, connections_max: int) -> int:
    """What connections may need is kept for them, but at most half of all.

    >>> files_for_segments(1024, 10_000)
    320
    >>> files_for_segments(1_000_000, 10_000)
    989808
    """
    if limit == resource.RLIM_INFINITY:
        return 1 << 62
    return max(_ALWAYS_FREE, limit - min(connections_max, limit // 2) - _ALWAYS_FREE - _ARRIVING)


def connections_allowed(limit: int) -> int:
    """How many connections a process may have, whatever its configuration says: half of all files.

    >>> connections_allowed(1024)
    512
    """
    return INT_MAX if limit == resource.RLIM_INFINITY else max(2, limit // 2)


def connections_of(role: str, roles: Collection[str], allowed: int) -> int:
    """How many of them a role may have. Who asks a controller are brokers, mostly.

    >>> [connections_of(role, ("broker", "controller"), 512) for role in ("broker", "controller")]
    [448, 64]
    """
    if len(roles) == 1:
        return allowed
    of_controller = max(1, allowed // 8)
    return of_controller if role == "controller" else allowed - of_controller
