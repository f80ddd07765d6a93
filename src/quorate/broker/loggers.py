"""The loggers of this process, as Kafka's tools see them: names, and levels that change while it runs.

Levels are called what Kafka calls them. A change lasts until the process ends, and reaches no other broker:
it is not in the metadata log. There is nothing below DEBUG here, so TRACE is the same.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["LEVELS", "ROOT", "check_change", "level_of", "levels", "set_level"]

ROOT: Final = "root"

LEVELS: Final[Mapping[str, int]] = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES: Final = {number: name for name, number in LEVELS.items()}


def levels() -> dict[str, str]:
    """Every logger and its level, its own or the one that it has from above."""
    names = sorted(logging.Logger.manager.loggerDict)
    return {ROOT: level_of(ROOT), **{name: level_of(name) for name in names}}


def level_of(name: str) -> str:
    number = _logger(name).getEffectiveLevel()
    return _NAMES.get(number, logging.getLevelName(number))


def check_change(name: str, level: str | None) -> None:
    """Refuses what `set_level` could not do. None gives up a level of the logger's own."""
    if name != ROOT and name not in logging.Logger.manager.loggerDict:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"there is no logger {name}")
    if level is None and name == ROOT:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{ROOT}: it always has a level, there is none above it")
    if level is not None and level not in LEVELS:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name}={level}: allowed is one of {', '.join(LEVELS)}")


def set_level(name: str, level: str | None) -> None:
    _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)
