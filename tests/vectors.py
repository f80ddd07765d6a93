"""The vectors that Apache's own classes have confirmed: bytes, and the fields that Apache sees in them.

`apache-vectors.txt` has a line for each: name, version, bytes in hex, fields as JSON. It lets the comparison
run where there is no Java. `make vectors` writes it anew, after every line has been confirmed again.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import samples
from quorate.protocol import codec
from quorate.protocol.layout import ArrayOf, FieldLayout, StructOf, struct_layout
from quorate.protocol.message import Message, Struct
from quorate.protocol.types import RECORDS, Uuid

PATH = Path(__file__).parent / "apache-vectors.txt"
SAMPLES_PER_VERSION = 2


class Vector(NamedTuple):
    name: str
    version: int
    data: bytes
    fields: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} {self.data.hex() or '-'} {self.fields}"


def load() -> list[Vector]:
    vectors = []
    for line in PATH.read_text().splitlines():
        name, version, data, fields = line.split(" ", 3)
        vectors.append(Vector(name, int(version), bytes.fromhex(data.removeprefix("-")), fields))
    return vectors


def candidates(salt: str = "") -> Iterator[tuple[type[Message], int, Any, bytes]]:
    """Messages of every class in every version, always the same ones: class, version, message, bytes."""
    for cls, version in samples.VERSIONS:
        for number in range(SAMPLES_PER_VERSION):
            source = samples.Seeded(f"{cls.__name__} {version} {number} {salt}")
            message = samples.message(cls, version, source)
            yield cls, version, message, bytes(codec.encode(message, version))


def assert_same_fields(message: Message, version: int, fields: str) -> None:
    """That Apache saw in the bytes what we put there, under the names that we use."""
    _assert_same_struct(message, json.loads(fields), version, version in type(message).__flexible__)


def _assert_same_struct(ours: Struct, theirs: dict[str, Any], version: int, flexible: bool) -> None:
    part = struct_layout(type(ours), version, flexible)
    by_name = {_snake_case(name): value for name, value in theirs.items()}
    for each in part.fields + part.tagged:
        if each.kind is RECORDS:
            by_name.pop(each.name, None)
            continue  # Apache shows their size at most
        value = getattr(ours, each.name)
        if each.tag is not None and each.name not in by_name:
            assert value == samples.default_of(each), each.name
            continue
        _assert_same_value(value, by_name.pop(each.name), each, version, flexible)
    assert not by_name, f"fields that only Apache has: {by_name}"


def _assert_same_value(ours: Any, theirs: Any, each: FieldLayout, version: int, flexible: bool) -> None:
    if isinstance(ours, list):
        assert isinstance(each.kind, ArrayOf)
        item = FieldLayout(each.name, each.kind.item, False, each.compact, None)
        for one, other in zip(ours, theirs, strict=True):
            _assert_same_value(one, other, item, version, flexible)
    elif isinstance(ours, Struct):
        assert isinstance(each.kind, StructOf)
        _assert_same_struct(ours, theirs, version, flexible)
    elif isinstance(ours, Uuid):
        assert str(ours) == theirs
    elif isinstance(ours, (bytes, memoryview)):
        assert bytes(ours) == base64.b64decode(theirs)
    else:
        assert ours == theirs, each.name


def _snake_case(name: str) -> str:
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name.replace("KRaft", "Kraft").replace("kRaft", "kraft"))
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name).lower()
