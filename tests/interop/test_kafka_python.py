"""The messages that kafka-python carries, in the versions that it states: the same bytes, the same fields."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import kafka.protocol
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage

import samples
from quorate.protocol import codec
from quorate.protocol.api.connection import ApiVersionsResponse
from quorate.protocol.layout import struct_layout
from quorate.protocol.message import Message, Struct
from quorate.protocol.types import ZERO_UUID, Uuid
from samples import MESSAGES, Drawn

pytestmark = pytest.mark.interop


def pairs() -> dict[str, tuple[type[Message], Any]]:
    """Our class and theirs, by name."""
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and not module.name.endswith("generate_stubs"):
            importlib.import_module(module.name)
    ours = {cls.__name__: cls for cls in MESSAGES}
    found: dict[str, tuple[type[Message], Any]] = {}
    queue = list(ApiMessage.__subclasses__())
    while queue:
        theirs = queue.pop()
        queue.extend(theirs.__subclasses__())
        if theirs.__module__.startswith("kafka.protocol.") and theirs.__name__ in ours:
            found[theirs.__name__] = ours[theirs.__name__], theirs
    return found


PAIRS = pairs()


def stated_versions(ours: type[Message], theirs: Any) -> list[int]:
    low, high = theirs.valid_versions
    return [version for version in ours.__versions__ if low <= version <= high]


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_same_bytes_as_kafka_python(name):
    ours, theirs = PAIRS[name]
    assert stated_versions(ours, theirs)[-1] == theirs.valid_versions[1], "kafka-python knows a newer version"
    for version in stated_versions(ours, theirs):
        compare(ours, version, theirs)


def compare(ours: type[Message], version: int, theirs: Any) -> None:
    @settings(max_examples=12)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        message = samples.message(ours, version, Drawn(data.draw))
        if ours is ApiVersionsResponse:
            message.error_code = 0  # they read any error as version 0
        encoded = bytes(codec.encode(message, version))
        read = theirs.decode(encoded, version=version)
        assert_same_fields(message, read, version, version in ours.__flexible__)
        read._header = None  # decode leaves it unset, encode asks for it
        written = bytes(read.encode(version=version))
        assert written == encoded
        assert codec.decode(ours, version, written) == message

    check()


def test_how_much_was_compared(record_property):
    versions = sum(len(stated_versions(*pair)) for pair in PAIRS.values())
    record_property(
        "figure", f"compared with kafka-python: {len(PAIRS)} messages, {versions} message versions"
    )
    assert versions > 100


def assert_same_fields(ours: Struct, theirs: Any, version: int, flexible: bool) -> None:
    part = struct_layout(type(ours), version, flexible)
    for each in part.fields + part.tagged:
        if each.name.endswith("authorized_operations"):
            continue  # a set of names for them; the bytes are compared all the same
        name = each.name.replace("kraft", "k_raft")
        assert_same_value(getattr(ours, each.name), getattr(theirs, name), version, flexible)


def assert_same_value(ours: Any, theirs: Any, version: int, flexible: bool) -> None:
    if isinstance(ours, list):
        for one, other in zip(ours, theirs, strict=True):
            assert_same_value(one, other, version, flexible)
    elif isinstance(ours, Struct):
        assert_same_fields(ours, theirs, version, flexible)
    elif isinstance(ours, Uuid):
        assert ours == (theirs.bytes if theirs else ZERO_UUID)
    elif ours is None and theirs is not None:
        assert hasattr(theirs, "fields"), "only a tagged struct at its default is None for us alone"
    else:
        assert ours == theirs
