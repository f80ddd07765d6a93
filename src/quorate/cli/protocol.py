"""Looking at the protocol: lists of messages, their history, and what bytes mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pkgutil import iter_modules

from quorate.protocol import codec, frame
from quorate.protocol.api import APIS, request_class
from quorate.protocol.errors import ErrorCode, ProtocolError
from quorate.protocol.layout import ArrayOf, Kind, StructOf, resolve_annotation
from quorate.protocol.message import Field, Message, Struct

_PACKAGES = ("protocol.api", "metadata", "raft", "coordinator", "storage")


def list_apis() -> None:
    rows = [("key", "name", "versions", "flexible", "Apache serves", "listeners")]
    for key, (name, _) in sorted(APIS.items()):
        cls = request_class(key)
        flexible = f"{cls.__flexible__[0]}+" if cls.__flexible__ else "never"
        listeners = " ".join(cls.__listeners__)
        rows.append((str(key), name, _shown(cls.__versions__), flexible, _shown(cls.__served__), listeners))
    _print_aligned(rows)


def show(name: str) -> None:
    cls = _find(name)
    summary = cls.__doc__.splitlines()[0] if cls.__doc__ and "__doc__" in vars(cls) else ""
    print(f"{name}, versions {_shown(cls.__versions__)}. {summary}\n")
    rows = [("field", "type", "versions", "tag", "default")]
    for depth, declared in _fields(cls, 0):
        carried = range(
            max(declared.versions[0], cls.__versions__[0]),
            min(declared.versions[-1], cls.__versions__[-1]) + 1,
        )
        rows.append(
            (
                "  " * depth + declared.name,
                _type_name(declared),
                "all" if carried == cls.__versions__ else _shown(carried),
                "" if declared.tag is None else str(declared.tag),
                _default(declared.default),
            )
        )
    _print_aligned(rows)


def decode(raw: bytes, message: str, version: int) -> None:
    if message:
        print(str(codec.decode(_find(message), version, raw)))
        return
    # With or without its size: a size is the number of bytes that follow it, and no key is that of a size.
    start = 4 if len(raw) > 4 and int.from_bytes(raw[:4], "big") == len(raw) - 4 else 0
    for part in frame.decode_request(raw, start):
        print(str(part))


def _find(name: str) -> type[Message]:
    for package in _PACKAGES:
        root = import_module(f"quorate.{package}")
        for module in iter_modules(root.__path__):
            found = getattr(import_module(f"{root.__name__}.{module.name}"), name, None)
            if isinstance(found, type) and issubclass(found, Message) and hasattr(found, "__versions__"):
                return found
    raise ProtocolError(name, None, "", None, "there is no such message", ErrorCode.INVALID_REQUEST)


def _fields(cls: type[Struct], depth: int) -> Iterator[tuple[int, Field]]:
    for declared in cls.__fields__:
        yield depth, declared
        kind, _ = resolve_annotation(declared.annotation, 0, True)
        item = kind.item if isinstance(kind, ArrayOf) else kind
        if isinstance(item, StructOf):
            yield from _fields(item.layout.struct, depth + 1)


def _type_name(declared: Field) -> str:
    kind, may_be_null = resolve_annotation(declared.annotation, 0, True)
    return _kind_name(kind) + (" | None" if may_be_null else "")


def _kind_name(kind: Kind) -> str:
    if isinstance(kind, ArrayOf):
        return f"array of {_kind_name(kind.item)}"
    return kind.layout.struct.__name__ if isinstance(kind, StructOf) else kind.name


def _shown(versions: range) -> str:
    if not versions:
        return "none"
    return str(versions[0]) if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"


def _default(default: object) -> str:
    if default == ():
        return "[]"
    return default.__name__ + "()" if isinstance(default, type) else repr(default)


def _print_aligned(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
