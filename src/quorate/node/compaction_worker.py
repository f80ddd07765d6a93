"""The process that compacts logs for a broker: reads a task, does it, and says how it went, line by line.

    python -m quorate.node.compaction_worker

A line is a JSON object. The broker sends `{"task": ..., "bytes_per_second": ...}`; then, for each group that
it was told of (`{"group": ...}`) and has put in place, `{"go": true}`; or, at any time, `{"stop": true}`. The
answer to a task is `{"done": ...}`, `{"failed": reason, "is_damaged": ...}` or `{"stopped": true}`.

It lives and dies with its broker: when the pipe is closed, however the broker ended, it ends within a step.
It is polite: the broker comes first, so it runs at a lower priority.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from quorate.protocol.errors import ApiError
from quorate.storage.compaction import CleanedGroup, CompactionTask, Moved, Run, compact
from quorate.storage.compaction_keys import SECRET_BYTES
from quorate.storage.compaction_pace import Pace
from quorate.storage.errors import StorageError
from quorate.storage.files import RealFiles

__all__ = ["Line", "main"]

Line = Mapping[str, Any]

_NICENESS: Final = 10
_READ_BYTES: Final = 1 << 16


class _StoppedError(Exception):
    """The broker does not want it any more."""


class _Pipe:
    """Lines in, lines out. The end of the other side is the end of this one."""

    def __init__(self, descriptor_in: int, descriptor_out: int) -> None:
        self._in = descriptor_in
        self._out = descriptor_out
        self._rest = bytearray()

    def read(self) -> Line:
        """The next line, however long that takes."""
        while b"\n" not in self._rest:
            data = os.read(self._in, _READ_BYTES)
            if not data:
                raise EOFError
            self._rest += data
        line, _, rest = bytes(self._rest).partition(b"\n")
        self._rest = bytearray(rest)
        found: Line = json.loads(line)
        return found

    def has_something(self, timeout_s: float) -> bool:
        return b"\n" in self._rest or bool(select.select([self._in], [], [], timeout_s)[0])

    def write(self, line: Line) -> None:
        left = memoryview(json.dumps(line).encode() + b"\n")
        while left:
            left = left[os.write(self._out, left) :]


def main() -> None:
    """Works until the broker has gone."""
    os.nice(_NICENESS)
    descriptor_out = os.dup(1)
    os.dup2(2, 1)  # whatever prints something does not break a line
    pipe = _Pipe(0, descriptor_out)
    try:
        while True:
            line = pipe.read()
            if "task" in line:
                pipe.write(_answer(pipe, line))
    except (EOFError, BrokenPipeError):
        sys.exit(0)


def _answer(pipe: _Pipe, line: Line) -> Line:
    task = CompactionTask.from_json(line["task"])
    run = compact(RealFiles(), task, os.urandom(SECRET_BYTES))
    try:
        return {"done": _follow(pipe, run, Pace(line["bytes_per_second"]))}
    except _StoppedError:
        return {"stopped": True}
    except (StorageError, ApiError) as error:
        return {"failed": str(error), "is_damaged": True}
    except (OSError, MemoryError) as error:
        return {"failed": str(error) or "no memory", "is_damaged": False}
    except (EOFError, BrokenPipeError):
        raise
    except Exception as error:
        return {"failed": repr(error), "is_damaged": True}
    finally:
        run.close()


def _follow(pipe: _Pipe, run: Run, pace: Pace) -> dict[str, Any]:
    """Takes step after step, not faster than it may."""
    while True:
        try:
            step = next(run)
        except StopIteration as end:
            return asdict(end.value)
        if isinstance(step, CleanedGroup):
            pipe.write({"group": asdict(step)})
            _check(pipe.read())
        elif isinstance(step, Moved):
            delay_s = pace.delay_s(step.read_bytes + step.written_bytes, time.monotonic())
            if pipe.has_something(max(0.0, delay_s)):
                _check(pipe.read())


def _check(line: Line) -> None:
    if "stop" in line:
        raise _StoppedError


if __name__ == "__main__":
    main()
