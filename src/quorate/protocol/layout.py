"""What one version of a declaration looks like on the wire.

A `Layout` is the declaration with all questions about versions answered: which fields are there, in which
order, which may be null, which lengths are compact, which are tagged. The compilers (`decoder`, `encoder`)
and the plain reader and writer (`interpreter`) all work from it, so a rule about versions stands here only.
"""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from quorate.protocol.errors import ErrorCode, ProtocolError
from quorate.protocol.message import MISSING, Field, Message, Struct
from quorate.protocol.types import ARRAY, UUID, Primitive, Uuid
from quorate.values import dataclass

__all__ = [
    "ArrayOf",
    "FieldLayout",
    "Kind",
    "Layout",
    "StructOf",
    "layout",
    "resolve_annotation",
    "struct_layout",
]


@dataclass(frozen=True, slots=True)
class StructOf:
    layout: Layout


@dataclass(frozen=True, slots=True)
class ArrayOf:
    item: Primitive | StructOf


Kind = Primitive | StructOf | ArrayOf


@dataclass(frozen=True, slots=True)
class FieldLayout:
    name: str
    kind: Kind
    nullable: bool
    compact: bool
    default: object  # () stands for a new empty list, a class for a new instance
    tag: int | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    struct: type[Struct]
    version: int
    flexible: bool
    fields: tuple[FieldLayout, ...]  # in the order of the wire, without the tagged ones
    tagged: tuple[FieldLayout, ...]  # by ascending tag
    absent: tuple[tuple[str, object, bool], ...]  # not in this version: name, default, whether ignorable
    foreign_tags: frozenset[int]  # tags that belong to fields of other versions, and are refused in this one

    @property
    def fixed_size_bytes(self) -> int | None:
        """The size of a row without tagged fields, if it is the same for all rows."""
        sizes = [_fixed_size_bytes(part.kind) for part in self.fields]
        if not all(sizes):
            return None
        return sum(sizes) + self.flexible


def layout(cls: type[Message], version: int) -> Layout:
    """The layout of a message in one version; a `ProtocolError` if there is no such version."""
    if version not in cls.__versions__:
        known = f"{cls.__versions__[0]} to {cls.__versions__[-1]}"
        reason = f"there is no such version; known are {known}"
        raise ProtocolError(cls.__name__, version, "", None, reason, ErrorCode.UNSUPPORTED_VERSION)
    return struct_layout(cls, version, version in cls.__flexible__)


@cache
def struct_layout(cls: type[Struct], version: int, flexible: bool) -> Layout:
    fields: list[FieldLayout] = []
    tagged: list[FieldLayout] = []
    absent: list[tuple[str, object, bool]] = []
    foreign_tags: set[int] = set()
    for declared in cls.__fields__:
        kind, may_be_null = resolve_annotation(declared.annotation, version, flexible)
        if version not in declared.versions:
            absent.append((declared.name, _default(declared, kind), declared.ignorable))
            if declared.tag is not None:
                foreign_tags.add(declared.tag)
            continue
        resolved = FieldLayout(
            declared.name,
            kind,
            _is_nullable(declared, kind, version, may_be_null),
            flexible and declared.flexible,
            _default(declared, kind),
            declared.tag if flexible else None,
        )
        (fields if resolved.tag is None else tagged).append(resolved)
    return Layout(
        cls,
        version,
        flexible,
        tuple(fields),
        tuple(sorted(tagged, key=lambda part: part.tag or 0)),
        tuple(absent),
        frozenset(foreign_tags) if flexible else frozenset(),
    )


def _is_nullable(declared: Field, kind: Kind, version: int, may_be_null: bool) -> bool:
    if declared.nullable is not None:
        return version in declared.nullable
    # A tagged struct is None when it is absent; only `nullable=` makes it null on the wire.
    return may_be_null and not (declared.tag is not None and isinstance(kind, StructOf))


def resolve_annotation(annotation: Any, version: int, flexible: bool) -> tuple[Kind, bool]:
    """The kind that an annotation names, and whether it ends in `| None`."""
    if get_origin(annotation) in (Union, UnionType):
        inner = [argument for argument in get_args(annotation) if argument is not type(None)]
        assert len(inner) == 1, f"a field has one type, or one type and None: {annotation}"
        return resolve_annotation(inner[0], version, flexible)[0], True
    if annotation is Uuid:
        return UUID, False
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return StructOf(struct_layout(annotation, version, flexible)), False
    metadata = getattr(annotation, "__metadata__", ())
    if ARRAY in metadata:
        (item_annotation,) = get_args(annotation.__origin__)
        item, _ = resolve_annotation(item_annotation, version, flexible)
        assert not isinstance(item, ArrayOf), "the protocol has no arrays of arrays"
        return ArrayOf(item), False
    (primitive,) = [part for part in metadata if isinstance(part, Primitive)]
    return primitive, False


def _default(declared: Field, kind: Kind) -> object:
    if declared.default is not MISSING:
        return declared.default
    if isinstance(kind, ArrayOf):
        return ()
    return kind.zero if isinstance(kind, Primitive) else None


def _fixed_size_bytes(kind: Kind) -> int:
    sizes = {"?": 1, "b": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}
    return sizes.get(kind.code, 0) if isinstance(kind, Primitive) else 0
