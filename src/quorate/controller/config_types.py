"""How a configuration's value is read from text, and what it may be."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final

from quorate.values import dataclass

__all__ = [
    "Allowed",
    "ConfigType",
    "Definition",
    "at_least",
    "between",
    "duration_or",
    "hosts_and_numbers",
    "items_of",
    "not_empty",
    "numbers_of_hosts",
    "one_of",
    "patterns_of",
    "replicas",
    "split_list",
]


class ConfigType(IntEnum):
    """What a value is; the numbers stand in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class Allowed:
    """A condition on a value that was read, and how one says it."""

    text: str
    accepts: Callable[[Any], bool]
    bounds: tuple[int, int] | None = None  # of a number that has both


@dataclass(frozen=True, slots=True)
class Definition:
    type: ConfigType
    default: str | None = None
    allowed: Allowed | None = None
    synonyms: tuple[str, ...] = ()

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    @property
    def wanted(self) -> str:
        """What a value must be, for the message about one that is not."""
        return self.allowed.text if self.allowed else _KINDS[self.type]

    def read(self, text: str) -> Any:
        """The value that a text stands for; a ValueError if it stands for none, or for one not allowed."""
        value = _read(self.type, text.strip())
        if self.allowed and not self.allowed.accepts(value):
            raise ValueError
        return value


_KINDS: Final[Mapping[ConfigType, str]] = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "a text",
    ConfigType.INT: "a whole number of 32 bits",
    ConfigType.SHORT: "a whole number of 16 bits",
    ConfigType.LONG: "a whole number of 64 bits",
    ConfigType.DOUBLE: "a number",
    ConfigType.LIST: "items separated by commas",
    ConfigType.CLASS: "the name of a class",
    ConfigType.PASSWORD: "a text",
}
_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _read(kind: ConfigType, text: str) -> Any:
    if kind in _BITS:
        return _whole(text, _BITS[kind])
    match kind:
        case ConfigType.BOOLEAN if text.lower() in ("true", "false"):
            return text.lower() == "true"
        case ConfigType.BOOLEAN:
            raise ValueError
        case ConfigType.DOUBLE if not _NUMBER.fullmatch(text):
            raise ValueError
        case ConfigType.DOUBLE:
            return float(text)
        case ConfigType.LIST:
            return _items(text)
        case _:
            return text


def _whole(text: str, bits: int) -> int:
    if not _WHOLE.fullmatch(text) or len(text) > 20:
        raise ValueError
    value = int(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError
    return value


def _items(text: str) -> list[str]:
    items = split_list(text)
    if not all(items):
        raise ValueError
    return items


def split_list(text: str) -> list[str]:
    """The items of a list.

    >>> split_list("compact , delete"), split_list("")
    (['compact', 'delete'], [])
    """
    return re.split(r"\s*,\s*", text.strip()) if text.strip() else []


# What is allowed


def at_least(lowest: int) -> Allowed:
    return Allowed(f"a number from {lowest} on", lambda value: value >= lowest)


def between(lowest: int, highest: int, *, also: int | None = None) -> Allowed:
    text = f"a number from {lowest} to {highest}" + (f", or {also}" if also is not None else "")
    return Allowed(text, lambda value: lowest <= value <= highest or value == also, (lowest, highest))


def one_of(*values: str) -> Allowed:
    return Allowed(f"one of {', '.join(values)}", lambda value: value in values)


def items_of(*values: str) -> Allowed:
    return Allowed(
        f"any of {', '.join(values)}, separated by commas", lambda items: set(items) <= set(values)
    )


def not_empty() -> Allowed:
    return Allowed("one or more items, separated by commas", bool)


def replicas() -> Allowed:
    """Which replicas a throttle is for."""
    text = "partition:broker, separated by commas, or * for all replicas"
    return Allowed(text, lambda items: items == ["*"] or all(map(_REPLICA.fullmatch, items)))


def hosts_and_numbers() -> Allowed:
    def accepts(text: str) -> bool:
        numbers_of_hosts(text)
        return True

    return Allowed("host:number, separated by commas, a number from 0 to 2147483647", accepts)


def numbers_of_hosts(text: str) -> dict[str, int]:
    """What stands behind the last colon of each item. ValueError if that is no number, or no host before it.

    >>> numbers_of_hosts("127.0.0.1:10, host:0"), numbers_of_hosts("::1:5")
    ({'127.0.0.1': 10, 'host': 0}, {'::1': 5})
    """
    found = {}
    for item in split_list(text):
        host, _, number = item.rpartition(":")
        if not _HOST.fullmatch(host) or (limit := _whole(number.strip(), _BITS[ConfigType.INT])) < 0:
            raise ValueError
        found[host] = limit
    return found


def duration_or(*values: str) -> Allowed:
    def accepts(value: str) -> bool:
        kind, _, duration = value.partition(":")
        return value in values or (kind == "by_duration" and bool(_DURATION.fullmatch(duration)))

    return Allowed(f"{', '.join(values)}, or by_duration:PnDTnHnMn.nS", accepts)


def patterns_of(*names: str) -> Allowed:
    """Regular expressions for what has these names."""

    def accepts(items: list[str]) -> bool:
        parts = [item.split("=") for item in items]
        return all(len(pair) == 2 and pair[0].strip() in names and _is_pattern(pair[1]) for pair in parts)

    return Allowed(f"name=pattern, separated by commas, with names among {', '.join(names)}", accepts)


def _is_pattern(text: str) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):  # about what may mean something else one day
            re.compile(text.strip())
    except (re.error, RecursionError, OverflowError):
        return False
    return bool(text)


_HOST: Final = re.compile(r"[0-9a-zA-Z\-%._:]+")
_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")
_DURATION: Final = re.compile(
    r"P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{0,9})?S)?)?", re.IGNORECASE
)
