"""Makes leaks of nondeterminism fail while a world runs.

Code of a node that looks at the real clock, draws from the shared random numbers, opens a real file or
socket or starts a thread makes a run that cannot be repeated. Inside `guard(world)` that raises `Leak` where
it happens, and again at the end of the block if somebody caught it. Logging may ask for the time, and gets
the virtual one.

What it sees: an audit hook sees files, sockets and processes; functions that raise no audit event are
replaced. It does not see `from time import time` done before, nor `datetime.now()`; the linter does. Garbage
collection by cycles is off meanwhile, so that finalisers do not act at instants that nobody chose.
"""

from __future__ import annotations

import _thread
import gc
import os
import random
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any
from unittest.mock import patch

from quorate.lab.world import World

__all__ = ["Leak", "guard"]


class Leak(AssertionError):  # noqa: N818  # it is an event, not an error of its raiser
    """Something outside of the simulation was about to have an influence on it."""


@contextmanager
def guard(world: World) -> Iterator[None]:
    """Watches the current thread. Guards may be nested; the innermost world's clock is the one logging
    sees."""
    leaks: list[str] = []
    frame = _Guard(world, threading.get_ident(), leaks)
    _install_audit_hook()
    collecting = gc.isenabled()
    with ExitStack() as stack:
        for module, name, replacement in _replacements(frame):
            stack.enter_context(patch.object(module, name, replacement))
        gc.disable()
        _active.append(frame)
        try:
            yield
        finally:
            _active.remove(frame)
            if collecting:
                gc.enable()
    if leaks:
        raise Leak("; ".join(leaks))


class _Guard:
    def __init__(self, world: World, thread: int, leaks: list[str]) -> None:
        self.world = world
        self._thread = thread
        self._leaks = leaks

    def concerns(self) -> bool:
        return threading.get_ident() == self._thread

    def leak(self, what: str) -> None:
        """Records and raises: a node may catch what it is told, the record stays."""
        message = f"{what} at {self.world.now_ns / 1e9:.9f} s, from {_culprit(sys._getframe(2))}"
        self._leaks.append(message)
        raise Leak(message)


_active: list[_Guard] = []
_hook_installed = False

_PYTHON = (sysconfig.get_path("stdlib"), __file__, "<frozen")

_AUDITED = {
    "open", "os.listdir", "os.scandir", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate",
    "os.link", "os.symlink", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn",
    "subprocess.Popen", "socket.__new__", "socket.bind", "socket.connect", "socket.getaddrinfo",
    "fcntl.flock", "tempfile.mkstemp", "tempfile.mkdtemp",
}  # fmt: skip

_RANDOM_FUNCTIONS = (
    "random", "uniform", "randint", "randrange", "choice", "choices", "sample", "shuffle", "getrandbits",
    "randbytes", "expovariate", "gauss", "normalvariate", "triangular", "betavariate",
)  # fmt: skip

_READERS_OF_CODE = ("linecache", "tokenize")
"""Tracebacks show lines of source; which ones is not decided by chance."""


def _install_audit_hook() -> None:
    """An audit hook can never be removed, so there is one, which does nothing outside of a guard."""
    global _hook_installed  # noqa: PLW0603
    if not _hook_installed:
        _hook_installed = True
        sys.addaudithook(_audit)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _active and event in _AUDITED:
        frame = _active[-1]
        if frame.concerns() and not _loads_code(sys._getframe(1)):
            frame.leak(f"{event} {args[0] if args else ''}".rstrip())


def _loads_code(frame: FrameType | None) -> bool:
    """Whether an import or a traceback is what opens the file: imports may happen late, where they are
    needed."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        if frame.f_globals.get("__name__") in _READERS_OF_CODE:
            return True
        frame = frame.f_back
    return False


def _culprit(frame: FrameType | None) -> str:
    """The innermost line that is not in Python's own library: that one is to be changed."""
    while frame is not None and frame.f_code.co_filename.startswith(_PYTHON):
        frame = frame.f_back
    return "unknown" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _replacements(frame: _Guard) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    for name, unit in (("time", 1e9), ("time_ns", 1), ("monotonic", 1e9), ("monotonic_ns", 1)):
        yield time, name, _clock(frame, name, getattr(time, name), unit)
    for module, name in (
        (time, "sleep"),
        (time, "perf_counter"),
        (time, "perf_counter_ns"),
        (os, "urandom"),
        (random, "_urandom"),
        (_thread, "start_new_thread"),
        (threading, "_start_new_thread"),
        *((random, name) for name in _RANDOM_FUNCTIONS),
    ):
        yield module, name, _forbidden(frame, f"{module.__name__}.{name}", getattr(module, name))
    yield threading.Thread, "start", _forbidden(frame, "threading.Thread.start", threading.Thread.start)
    yield random.Random, "seed", _seed(frame, random.Random.seed)


def _forbidden(frame: _Guard, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def forbidden(*args: Any, **options: Any) -> Any:
        if frame.concerns():
            frame.leak(name)
        return original(*args, **options)

    return forbidden


def _clock(frame: _Guard, name: str, original: Callable[[], Any], unit: float) -> Callable[[], Any]:
    def clock() -> Any:
        if not frame.concerns():
            return original()
        if sys._getframe(1).f_globals.get("__name__") != "logging":
            frame.leak(f"time.{name}")
        now_ns = frame.world.now_ns
        return now_ns if unit == 1 else now_ns / unit

    return clock


def _seed(frame: _Guard, original: Callable[..., None]) -> Callable[..., None]:
    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        if a is None and frame.concerns():
            frame.leak("random.Random() without a seed")
        original(self, a, version)

    return seed
