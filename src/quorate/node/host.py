"""What a node takes from the machine it runs on, as one value.

Besides this there is the running event loop, for time and connections. A node that asks for nothing else runs
unchanged in the simulator (`lab.world`), and a run of it can be repeated: nothing in it asks whether it is
simulated.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import field
from socket import gethostname, socket
from typing import Final

from quorate.node.config_values import INT_MAX
from quorate.storage.files import Files, RealFiles
from quorate.values import dataclass

__all__ = ["Host", "real_host"]

_LINE_BYTES_MAX: Final = 16 << 20  # that a process may answer


@dataclass(frozen=True, slots=True)
class Host:
    """The surroundings of one node. Monotonic time is not here: it is the time of the running loop."""

    name: str
    files: Files
    random: random.Random
    wall_ms: Callable[[], int]
    """Milliseconds since 1970, as this machine believes; it may jump in both directions."""
    executor: Executor | None
    """Where blocking work goes: `loop.run_in_executor(host.executor, f)`. None is the loop's default one."""
    machine_name: str = ""
    """What the machine is called by itself; empty if it has no name."""
    start_process: Callable[[str], Awaitable[Process]] | None = None
    """Runs a module of ours as a process of its own, with pipes to it. None where there are no others."""
    opened: dict[str, socket] = field(default_factory=dict)
    """Sockets that listen already, by the name of the listener; whoever begins to serve one takes it."""
    connections_max: int = INT_MAX
    """How many connections the node may have, for want of files that may be open: see `file_limit`."""


def real_host(
    name: str,
    executor: Executor | None = None,
    files_max: int | None = None,
    opened: dict[str, socket] | None = None,
    connections_max: int = INT_MAX,
) -> Host:
    """This machine: its disks, its clock, and random numbers that nobody can foresee. `files_max` is how many
    files may be open when another segment is opened; `opened` is what listens already; `connections_max` is
    how many connections there may be."""
    return Host(
        name=name,
        files=RealFiles(executor, files_max),
        random=random.SystemRandom(),
        wall_ms=_wall_ms,
        executor=executor,
        machine_name=gethostname(),
        start_process=_start_process,
        opened=opened or {},
        connections_max=connections_max,
    )


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def _start_process(module: str) -> Process:
    """Out of reach of what is typed at a terminal: it ends when its pipe does."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        stdin=PIPE,
        stdout=PIPE,
        start_new_session=True,
        limit=_LINE_BYTES_MAX,
    )
