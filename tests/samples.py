"""Messages to test with: any message that a version can carry, drawn from a source of choices.

The same drawing serves hypothesis, which shrinks what fails, and a seeded generator, which makes the
committed vectors.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Iterator
from typing import Any, Protocol

from hypothesis import strategies as st

from quorate.protocol.errors import ErrorCode
from quorate.protocol.layout import ArrayOf, FieldLayout, Kind, Layout, StructOf, layout
from quorate.protocol.message import Message, Record, Request, Response
from quorate.protocol.types import BYTES, RECORDS, STRING, UUID, ZERO_UUID, Primitive, Uuid

RANGES = {
    "b": (-(2**7), 2**7 - 1),
    "h": (-(2**15), 2**15 - 1),
    "H": (0, 2**16 - 1),
    "i": (-(2**31), 2**31 - 1),
    "I": (0, 2**32 - 1),
    "q": (-(2**63), 2**63 - 1),
}


class Source(Protocol):
    """Where choices come from."""

    def integer(self, low: int, high: int) -> int: ...
    def boolean(self) -> bool: ...
    def number(self) -> float: ...
    def text(self) -> str: ...
    def data(self, size: int | None = None) -> bytes: ...
    def count(self) -> int: ...


class Drawn:
    """Choices of hypothesis."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def boolean(self) -> bool:
        return self._draw(st.booleans())

    def number(self) -> float:
        return self._draw(st.floats(allow_nan=False))

    def text(self) -> str:
        return self._draw(st.text(max_size=20) | st.just("long" * 50))

    def data(self, size: int | None = None) -> bytes:
        return self._draw(st.binary(min_size=size or 0, max_size=20 if size is None else size))

    def count(self) -> int:
        return self._draw(st.sampled_from([0, 1, 1, 2]))


class Seeded:
    """Choices of a seeded generator: the same message for the same seed, on every machine."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        choices = [low, high, max(low, -1), min(high, 1), self._random.randint(low, high)]
        return self._random.choice(choices)

    def boolean(self) -> bool:
        return self._random.random() < 0.5

    def number(self) -> float:
        return self._random.choice([0.0, -1.5, 1e300, self._random.random()])

    def text(self) -> str:
        return self._random.choice(["", "a", "topic-1", "Größe", "名", "long" * 40])

    def data(self, size: int | None = None) -> bytes:
        return self._random.randbytes(self._random.choice([0, 1, 30, 150]) if size is None else size)

    def count(self) -> int:
        return self._random.choice([0, 1, 2])


class Modest:
    """Another source, kept to what a stricter library can represent: known error codes, times it can hold."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def field_integer(self, name: str, high: int) -> int | None:
        if name.endswith("error_code"):
            codes = sorted(ErrorCode)
            return int(codes[self._source.integer(0, len(codes) - 1)])
        if high > 2**32 and ("time" in name or name.endswith("_ms")):
            return self._source.integer(0, 2**40)
        return None


def message(cls: type[Message], version: int, source: Source) -> Any:
    """A message of this class that this version can carry without loss."""
    return _struct(layout(cls, version), source)


@st.composite
def messages(draw: Any, cls: type[Message], version: int) -> Any:
    return message(cls, version, Drawn(draw))


def _struct(part: Layout, source: Source) -> Any:
    values: dict[str, Any] = {name: [] if default == () else default for name, default, _ in part.absent}
    for each in part.fields + part.tagged:
        values[each.name] = _field(each, source)
    return part.struct(**values)


def _field(each: FieldLayout, source: Source) -> Any:
    optional = each.nullable or (each.tag is not None and isinstance(each.kind, StructOf))
    if optional and source.integer(0, 3) == 0:
        return None
    if each.tag is not None and source.boolean():
        return default_of(each)
    value = _value(each.kind, each.name, source)
    if each.tag is not None and isinstance(each.kind, StructOf) and _is_all_default(each.kind.layout, value):
        return default_of(each)
    return value


def default_of(each: FieldLayout) -> Any:
    if isinstance(each.default, type):
        return each.default()
    return [] if each.default == () else each.default


def _is_all_default(part: Layout, value: Any) -> bool:
    return all(getattr(value, each.name) == default_of(each) for each in part.fields)


def _value(kind: Kind, name: str, source: Source) -> Any:
    if isinstance(kind, ArrayOf):
        return [_value(kind.item, name, source) for _ in range(source.count())]
    if isinstance(kind, StructOf):
        return _struct(kind.layout, source)
    return _primitive(kind, name, source)


def _primitive(kind: Primitive, name: str, source: Source) -> Any:
    if kind is STRING:
        return source.text()
    if kind in (BYTES, RECORDS):
        return source.data()
    if kind is UUID:
        return Uuid(source.data(16)) if source.boolean() else ZERO_UUID
    if kind.code == "?":
        return source.boolean()
    if kind.code == "d":
        return source.number()
    low, high = RANGES[kind.code]
    if isinstance(source, Modest):
        modest = source.field_integer(name, high)
        if modest is not None:
            return modest
    return source.integer(low, high)


def _declared() -> Iterator[type[Message]]:
    for package in ("protocol.api", "metadata", "raft", "coordinator", "storage"):
        root = importlib.import_module(f"quorate.{package}")
        for module in pkgutil.iter_modules(root.__path__):
            namespace = vars(importlib.import_module(f"{root.__name__}.{module.name}"))
            for value in namespace.values():
                if isinstance(value, type) and issubclass(value, Message) and "__versions__" in vars(value):
                    yield value


MESSAGES: list[type[Message]] = sorted(set(_declared()), key=lambda cls: cls.__name__)
REQUESTS = [cls for cls in MESSAGES if issubclass(cls, Request)]
RESPONSES = [cls for cls in MESSAGES if issubclass(cls, Response)]
RECORDS_OF_LOGS = [cls for cls in MESSAGES if issubclass(cls, Record)]
VERSIONS = [(cls, version) for cls in MESSAGES for version in cls.__versions__]
