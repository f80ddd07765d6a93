"""What a run did, as a hash that two runs can be compared by, and as text for people.

The hash covers each step (when, which node, which callback), each message and each write to a disk. Only
numbers and names go in, never an address or a `hash()`, so it is the same in every process. Because no
single check finds every leak of nondeterminism, a seed is run twice in one process and once in another one;
when the hashes differ, `first_difference` says between which steps, and a run with text shows the rest.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

__all__ = ["STEPS_PER_CHECKPOINT", "Trace", "callback_name", "first_difference"]

STEPS_PER_CHECKPOINT = 4096

_STEP = struct.Struct("<QII").pack
_NOTE = struct.Struct("<II").pack


class Trace:
    """The record of one run. With `lines_per_node_max` it also keeps the last lines of each node as text."""

    def __init__(self, lines_per_node_max: int = 0) -> None:
        self.steps = 0
        self.checkpoints: list[bytes] = []
        self.with_text = lines_per_node_max > 0
        self._lines_max = lines_per_node_max
        self._lines: dict[str, deque[tuple[int, int, str]]] = {}
        self._pending = bytearray()
        self._codes: dict[str, int] = {}

    def step(self, time_ns: int, node_index: int, code: int) -> None:
        self._pending += _STEP(time_ns, node_index, code)
        self.steps += 1
        if not self.steps % STEPS_PER_CHECKPOINT:
            self.checkpoints.append(self._fold())
            self._pending.clear()

    def note(self, code: int, crc: int) -> None:
        """What a step did: sent a message, wrote to a disk."""
        self._pending += _NOTE(code, crc)

    def digest(self) -> str:
        """128 bits over everything so far."""
        return self._fold().hex()

    def code(self, name: str) -> int:
        """The number that stands for a name."""
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = zlib.crc32(name.encode())
        return code

    def code_of_callback(self, callback: Callable[..., Any]) -> int:
        # A task's step is the most frequent callback by far; the task carries the code of its coroutine.
        code: int | None = getattr(getattr(callback, "__self__", None), "trace_code", None)
        if code is None:
            code = self._codes.get(getattr(callback, "__qualname__", ""))
        return self.code(callback_name(callback)) if code is None else code

    def line(self, time_ns: int, node: str, text: str) -> None:
        """One line about a node, if text is kept."""
        if self.with_text:
            lines = self._lines.get(node)
            if lines is None:
                lines = self._lines[node] = deque(maxlen=self._lines_max)
            lines.append((time_ns, self.steps, f"{node}: {text}"))

    def lines(self, node: str) -> list[str]:
        """The last lines of a node."""
        return [_line(*line) for line in self._lines.get(node, ())]

    def all_lines(self) -> list[str]:
        """The last lines of all nodes, in the order of time."""
        return [_line(*line) for line in sorted(line for lines in self._lines.values() for line in lines)]

    def _fold(self) -> bytes:
        before = self.checkpoints[-1] if self.checkpoints else b""
        return blake2b(before + self._pending, digest_size=16).digest()


def _line(time_ns: int, step: int, text: str) -> str:
    return f"{time_ns / 1e9:14.9f} #{step} {text}"


def callback_name(callback: Callable[..., Any]) -> str:
    """What a callback is called, the same in every process."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {getattr(owner.get_coro(), '__qualname__', 'unnamed')}"
    inner = getattr(callback, "func", callback)  # functools.partial
    return str(getattr(inner, "__qualname__", type(inner).__name__))


def first_difference(one: Sequence[bytes], other: Sequence[bytes]) -> range | None:
    """The steps among which two runs, given by their checkpoints, first went different ways."""
    for index, (here, there) in enumerate(zip(one, other, strict=False)):
        if here != there:
            return range(index * STEPS_PER_CHECKPOINT, (index + 1) * STEPS_PER_CHECKPOINT)
    return None
