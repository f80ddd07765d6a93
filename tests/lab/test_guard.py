"""What must not influence a run raises while it runs."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import run_process

from quorate.lab.guard import Leak, guard
from quorate.lab.world import SECOND, World
from quorate.node.host import Host

LEAKS: dict[str, Callable[[], Any]] = {  # lambdas, because the functions are replaced later
    "time.time": lambda: time.time(),  # noqa: PLW0108
    "time.monotonic": lambda: time.monotonic(),  # noqa: PLW0108
    "time.perf_counter": lambda: time.perf_counter(),  # noqa: PLW0108
    "time.sleep": lambda: time.sleep(0),
    "random.random": lambda: random.random(),  # noqa: PLW0108
    "random.shuffle": lambda: random.shuffle([]),
    "random.Random": random.Random,
    "os.urandom": lambda: os.urandom(1),
    "uuid4": uuid.uuid4,
    "secrets": lambda: secrets.token_bytes(1),
    "thread": lambda: threading.Thread(target=print).start(),
    "open": lambda: open(os.devnull),  # noqa: PTH123, SIM115
    "os.open": lambda: os.open(os.devnull, os.O_RDONLY),
    "listdir": lambda: os.listdir("."),  # noqa: PTH208
    "rename": lambda: Path("a").rename("b"),
    "socket": socket.socket,
    "subprocess": lambda: subprocess.run(["true"], check=False),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_raises_where_it_happens_and_at_the_end(name: str) -> None:
    raised = []

    async def main(_: Host) -> None:
        try:
            LEAKS[name]()
        except Exception as error:  # as a careless node would
            raised.append(error)

    with World(1) as world, pytest.raises(Leak, match=r"test_guard\.py"), guard(world):
        run_process(world, "n1", main)
    assert isinstance(raised[0], Leak)


def test_harmless_things_are_allowed() -> None:
    async def main(host: Host) -> None:
        random.Random(5).random()
        host.random.shuffle([1, 2])
        host.files.open("f", create=True)
        sys.modules.pop("this", None)
        with contextlib.redirect_stdout(None):
            import this  # noqa: F401  # a late import opens files

    with World(1) as world, guard(world):
        run_process(world, "n1", main)


def test_logging_sees_virtual_time(caplog: pytest.LogCaptureFixture) -> None:
    async def main(_: Host) -> None:
        logging.getLogger("toy").warning("hello")

    with World(1) as world, guard(world):
        world.run_until(123 * SECOND)
        run_process(world, "n1", main)
    assert 123 <= caplog.records[0].created < 124


def test_guards_can_be_nested_and_leave_nothing_behind() -> None:
    before = time.time, random.random, os.urandom, random.Random.seed, threading.Thread.start
    assert gc.isenabled()
    with World(1) as outer, World(2) as inner:
        with guard(outer):
            with guard(inner):
                assert not gc.isenabled()
            with pytest.raises(Leak), guard(inner):
                random.random()
            assert not gc.isenabled()
        with pytest.raises(Leak, match=r"os\.urandom"), guard(outer), contextlib.suppress(Leak):
            os.urandom(1)
    assert before == (time.time, random.random, os.urandom, random.Random.seed, threading.Thread.start)
    assert gc.isenabled()
    assert Path(__file__).read_text(encoding="utf-8")


def test_other_threads_are_left_alone() -> None:
    seen: list[float] = []
    go, done = threading.Event(), threading.Event()

    def work() -> None:
        go.wait(10)
        seen.extend([time.time(), random.random()])
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    with World(1) as world, guard(world):
        go.set()
        while not done.is_set():
            pass
    thread.join()
    assert len(seen) == 2
