"""A process that ends when whoever started it is gone: nobody else would stop it.

It is told as by SIGTERM, so it ends in order. One that is paused could not hear that: it has a process group
of its own in its parent's session, and the system wakes what is stopped in a group that has lost its parent,
with SIGHUP and SIGCONT. Where the system is not Linux, none of this happens.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

__all__ = ["end_with"]

_PR_SET_PDEATHSIG: Final = 1


def end_with(parent: int) -> None:
    """Called by the child, before it does anything else."""
    os.setpgid(0, 0)  # and Ctrl-C is for whoever is at the terminal
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # that it is woken is enough
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            raise SystemExit(1)
