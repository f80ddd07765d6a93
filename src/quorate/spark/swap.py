"""A value on disk that changes as a whole: readers see the one before or the one after, never half of one.

Each version is a file of its own, written beside the others and given its name when it is complete. The
newest name is the value. Who reads holds a lock on the file of his version for as long as he uses what it
names, so that whoever tidies up can tell which versions are still in use; a lock goes with its process.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

__all__ = ["KEPT", "HeldVersion", "Versions", "write_whole"]

KEPT: Final = 3
"""So many versions stay even if nobody holds them: a reader may be about to."""

_NAME: Final = re.compile(r"(\d{12})\.json")
_ATTEMPTS_MAX: Final = 100

Value = dict[str, Any]


@dataclass(slots=True)
class HeldVersion:
    """A version that stays, with what it names, until it is released."""

    number: int
    value: Value
    _file: IO[bytes] | None

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Versions:
    """The versions of one value, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def current(self) -> Value | None:
        """The newest value; None before there is any."""
        held = self.hold()
        if held is None:
            return None
        held.release()
        return held.value

    def hold(self) -> HeldVersion | None:
        """The newest version, which nobody tidies away while it is held."""
        for _ in range(_ATTEMPTS_MAX):
            numbers = self._numbers()
            if not numbers:
                return None
            path = self._path(numbers[-1])
            try:
                file = path.open("rb")
            except FileNotFoundError:
                continue  # tidied away meanwhile: there are newer ones
            fcntl.flock(file, fcntl.LOCK_SH)
            if path.exists():
                return HeldVersion(numbers[-1], json.loads(file.read()), file)
            file.close()
        raise RuntimeError(f"{self.directory}: versions go faster than they can be read")

    def change(self, how: Callable[[Value | None], Value | None]) -> Value | None:
        """Publishes what `how` makes of the newest value; nothing if it makes nothing of it.

        Changes happen one after the other, whoever makes them.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with _alone(self.directory / "changing"):
            value = how(self.current())
            if value is not None:
                number = (self._numbers() or [0])[-1] + 1
                write_whole(self._path(number), json.dumps(value, indent=1).encode())
            return value

    def tidy(self) -> list[Value]:
        """Forgets versions that are neither new nor held; the values of those that remain."""
        numbers = self._numbers()
        for number in numbers[:-KEPT]:
            path = self._path(number)
            with suppress(BlockingIOError, FileNotFoundError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
        return [json.loads(self._path(number).read_bytes()) for number in self._numbers()]

    def _numbers(self) -> list[int]:
        if not self.directory.is_dir():
            return []
        names = (_NAME.fullmatch(one.name) for one in self.directory.iterdir())
        return sorted(int(name[1]) for name in names if name)

    def _path(self, number: int) -> Path:
        return self.directory / f"{number:012}.json"


def write_whole(path: Path, data: bytes) -> None:
    """A file that is there with all of its content, on the disk too, or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
