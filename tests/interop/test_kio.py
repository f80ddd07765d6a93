"""Every message that kio knows, in every version that both know: the same bytes, the same fields."""

from __future__ import annotations

import io
from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

import samples
from quorate.protocol import codec
from quorate.protocol.layout import struct_layout
from quorate.protocol.message import Message, Struct
from quorate.protocol.types import ZERO_UUID
from samples import MESSAGES, Drawn, Modest

pytestmark = pytest.mark.interop


def pairs() -> list[tuple[type[Message], int, type]]:
    """Our class, a version, and kio's class for it."""
    ours = {cls.__name__: cls for cls in MESSAGES}
    found = []
    for name, versions in schema_name_map.items():
        for version, types in versions.items():
            for entity_type in types:
                theirs = load_entity_schema(name, version, entity_type)
                if theirs.__name__ in ours:
                    found.append((ours[theirs.__name__], version, theirs))
                else:
                    assert entity_type is EntityType.data, f"kio knows a message that we do not: {theirs}"
    return found


PAIRS = pairs()


@pytest.mark.parametrize("cls", sorted({cls.__name__ for cls, _, _ in PAIRS}))
def test_same_bytes_as_kio(cls):
    versions = [(ours, version, theirs) for ours, version, theirs in PAIRS if ours.__name__ == cls]
    for ours, version, theirs in versions:
        assert version in ours.__versions__, f"kio knows {cls} v{version}, we do not"
        compare(ours, version, theirs)


def compare(ours: type[Message], version: int, theirs: type) -> None:
    read, write = entity_reader(theirs), entity_writer(theirs)

    @settings(max_examples=12)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        message = samples.message(ours, version, Modest(Drawn(data.draw)))
        encoded = bytes(codec.encode(message, version))
        entity, size = read(encoded, 0)
        assert size == len(encoded)
        assert_same_fields(message, entity, version)
        written = io.BytesIO()
        write(written, entity)
        assert written.getvalue() == encoded
        assert codec.decode(ours, version, written.getvalue()) == message

    check()


def test_how_much_was_compared(record_property):
    names = {ours.__name__ for ours, _, _ in PAIRS}
    record_property("figure", f"compared with kio: {len(names)} messages, {len(PAIRS)} message versions")
    assert len(PAIRS) > 400


def assert_same_fields(ours: Struct, theirs: Any, version: int) -> None:
    flexible = getattr(type(theirs), "__flexible__", False)
    part = struct_layout(type(ours), version, flexible)
    names = set(type(theirs).__slots__)
    for each in part.fields + part.tagged:
        spellings = [
            each.name,
            each.name.removesuffix("_ms"),
            each.name + "_",
            each.name.replace("kraft", "k_raft"),
        ]
        name = next((spelling for spelling in spellings if spelling in names), None)
        assert name, f"kio's {type(theirs).__name__} has no {each.name}"
        names.discard(name)
        assert_same_value(getattr(ours, each.name), getattr(theirs, name), version)
    assert not names, f"fields of kio that we do not have: {names}"


def assert_same_value(ours: Any, theirs: Any, version: int) -> None:
    if isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same_value(one, other, version)
    elif isinstance(ours, Struct):
        assert_same_fields(ours, theirs, version)
    else:
        assert ours == plain(ours, theirs)


def plain(ours: Any, theirs: Any) -> Any:
    """What kio dresses up, as the protocol has it."""
    if isinstance(theirs, UUID):
        return theirs.bytes
    if isinstance(theirs, timedelta):
        return theirs // timedelta(milliseconds=1)
    if isinstance(theirs, datetime):
        return (theirs - datetime.fromtimestamp(0, tz=theirs.tzinfo)) // timedelta(milliseconds=1)
    if isinstance(theirs, Enum):
        return theirs.value
    if theirs is None and ours == ZERO_UUID:
        return ZERO_UUID
    if ours is None and hasattr(theirs, "__slots__"):
        return None  # a tagged struct at its default
    return theirs
