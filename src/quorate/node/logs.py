"""The log of a process: how its lines look, and how much each logger says.

Lines are plain, or JSON with one object per line (`quorate.log.format=json`):

    {"time":"2024-05-01T12:00:00.250Z","level":"INFO","logger":"quorate.node.1","message":"listening ..."}

`quorate.log.level` is what counts at the start. Levels can be changed while the process runs (see `admin`);
they are then those of the process, until it ends.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from quorate.one_line import is_one_line, one_line

__all__ = [
    "FORMATS",
    "LEVELS",
    "JsonFormatter",
    "PlainFormatter",
    "UnknownLoggerError",
    "levels",
    "set_level",
    "set_up",
]

FORMATS: Final = ("plain", "json")
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "NOTSET")
INHERITED: Final = "NOTSET"  # whatever the logger above it has
ROOT: Final = "root"
OURS: Final = "quorate"

_PLAIN: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"


class UnknownLoggerError(LookupError):
    """There is no such logger. One that nobody has would cost memory, and say nothing."""

    def __str__(self) -> str:
        return f"there is no logger {self.args[0]}"


class PlainFormatter(logging.Formatter):
    """A record as one line, whatever a client said that is in it.

    The trace of an error follows, indented: names may stand in it as well, and must not look like a record.
    """

    def __init__(self) -> None:
        super().__init__(_PLAIN)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802, logging's name
        return one_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802, logging's name
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802, logging's name
        return _indented(super().formatStack(stack_info))


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        content: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        line = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
        return line if is_one_line(line) else json.dumps(content, separators=(",", ":"))


def set_up(stream: TextIO, form: str = "plain", level: str = "INFO") -> None:
    """Makes a stream the log of this process. What is not ours says no more than INFO."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else PlainFormatter())
    root = logging.getLogger()
    for previous in list(root.handlers):
        root.removeHandler(previous)
    root.addHandler(handler)
    root.setLevel(max(logging.INFO, _number(level)))
    logging.getLogger(OURS).setLevel(_number(level))


def levels() -> dict[str, dict[str, Any]]:
    """All loggers: the level that counts, and whether it is the logger's own."""
    names = sorted(logging.Logger.manager.loggerDict)
    found = {ROOT: logging.getLogger(), **{name: logging.getLogger(name) for name in names}}
    return {
        name: {
            "level": logging.getLevelName(logger.getEffectiveLevel()),
            "is_own": logger.level != logging.NOTSET,
        }
        for name, logger in found.items()
    }


def set_level(name: str, level: str) -> None:
    """Changes what a logger says. `UnknownLoggerError` if there is none, `ValueError` if it is no level."""
    number = _number(level)
    if name == ROOT:
        if number == logging.NOTSET:
            raise ValueError(level)
        logging.getLogger().setLevel(number)
    elif name in logging.Logger.manager.loggerDict:
        logging.getLogger(name).setLevel(number)
    else:
        raise UnknownLoggerError(name)


def _indented(trace: str) -> str:
    r"""
    >>> _indented("Traceback:\nOSError: no \x1b[2J")
    '  Traceback:\n  OSError: no \\x1b[2J'
    """
    return "\n".join(f"  {one_line(line)}" for line in trace.split("\n"))


def _number(level: str) -> int:
    """
    >>> _number("debug"), _number("WARN")
    (10, 30)
    """
    name = {"WARN": "WARNING", "FATAL": "CRITICAL"}.get(level.upper(), level.upper())
    if name not in LEVELS:
        raise ValueError(level)
    return logging.getLevelNamesMapping()[name]
