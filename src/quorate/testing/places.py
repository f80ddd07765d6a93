"""What stands where in the directory of a cluster, besides its nodes; and whose directory it is.

Nothing here knows of nodes: whoever starts a launcher need not load what the launcher loads.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final, TextIO

__all__ = [
    "CONTROL_SOCKET",
    "LINE_BYTES_MAX",
    "LOCK_FILE",
    "LOG_FILE",
    "NODE_FILE",
    "STATE_FILE",
    "has_cluster",
    "has_something_else",
    "holder_of",
    "lock",
]

STATE_FILE: Final = "cluster.json"
CONTROL_SOCKET: Final = "control.sock"
LOCK_FILE: Final = "launcher.lock"
LOG_FILE: Final = "launcher.log"
NODE_FILE: Final = "node.properties"
LINE_BYTES_MAX: Final = 64 << 10  # of an order
_OURS: Final = frozenset({STATE_FILE, CONTROL_SOCKET, LOCK_FILE, LOG_FILE})


def has_cluster(directory: Path) -> bool:
    """Whether somebody has planned a cluster here."""
    return any(directory.glob(f"node-*/{NODE_FILE}"))


def has_something_else(directory: Path) -> bool:
    """Whether the directory is in use for something that is not a cluster."""
    if not directory.exists() or has_cluster(directory):
        return False
    return not directory.is_dir() or any(path.name not in _OURS for path in directory.iterdir())


def lock(directory: Path) -> TextIO | None:
    """The lock of a directory, held until the file is closed; None if another process has it."""
    file = (directory / LOCK_FILE).open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def holder_of(directory: Path) -> int | None:
    """The process that has the lock of a directory; None if nobody has it."""
    try:
        file = (directory / LOCK_FILE).open(encoding="utf-8")
    except OSError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            text = file.read().strip()
            return int(text) if text.isdigit() else 0
    return None
