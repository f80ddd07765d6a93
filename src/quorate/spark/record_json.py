"""Messages as JSON, with the names that Kafka's own tools give the fields.

A tagged field stands there only if it says something, as in Kafka's JSON. Tagged fields of a newer version,
which nobody here knows, are kept raw under `unknownTaggedFields`. What lets somebody in who has it is left
out: tables are copied to more places than logs are.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any, Final

from quorate.protocol.message import Field, Message, Struct
from quorate.protocol.types import Uuid

__all__ = ["UNKNOWN_TAGS", "dumps", "fields_of", "json_name"]

UNKNOWN_TAGS: Final = "unknownTaggedFields"
_SECRETS: Final = frozenset({"salt", "stored_key", "server_key"})
_SECRET: Final = "(secret)"


def json_name(name: str) -> str:
    """
    >>> json_name("leader_recovery_state"), json_name("isr")
    ('leaderRecoveryState', 'isr')
    """
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def fields_of(message: Message, version: int) -> dict[str, Any]:
    """What a version of a message says."""
    return _struct(message, version)


def dumps(content: object) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def _struct(struct: Struct, version: int) -> dict[str, Any]:
    content = {
        json_name(one.name): _SECRET if one.name in _SECRETS else _plain(getattr(struct, one.name), version)
        for one in struct.__fields__
        if version in one.versions and (one.tag is None or not _is_default(struct, one))
    }
    if struct.__unknown_tags__:
        content[UNKNOWN_TAGS] = {str(tag): _base64(raw) for tag, raw in struct.__unknown_tags__.items()}
    return content


def _plain(value: object, version: int) -> Any:
    if isinstance(value, Struct):
        return _struct(value, version)
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _base64(value)
    if isinstance(value, (list, tuple)):
        return [_plain(one, version) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _base64(raw: bytes | bytearray | memoryview) -> str:
    return base64.b64encode(raw).decode("ascii")


def _is_default(struct: Struct, declared: Field) -> bool:
    value, default = getattr(struct, declared.name), declared.default
    return bool(value == default or (default == () and not value))
