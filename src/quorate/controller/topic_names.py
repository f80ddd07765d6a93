"""What a topic may be called."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import product
from typing import Final

from quorate.controller.wording import shown
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["METADATA_TOPIC", "NAME_LENGTH_MAX", "Collisions", "check_name"]

METADATA_TOPIC: Final = "__cluster_metadata"
NAME_LENGTH_MAX: Final = 249  # with a partition id and a suffix it must still be the name of a directory
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")
_LIKE_EACH_OTHER: Final = "._"  # names of metrics cannot tell them apart
_VARIANTS_MAX: Final = 64


def check_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION for what cannot be the name of a topic.

    >>> check_name("orders.2024")
    >>> check_name("..")
    Traceback (most recent call last):
    quorate.protocol.errors.ApiError: INVALID_TOPIC_EXCEPTION: a topic cannot be called '..'
    """
    reason = None
    if not name:
        reason = "a topic needs a name; this one is empty"
    elif name in (".", ".."):
        reason = f"a topic cannot be called {shown(name)}"
    elif len(name) > NAME_LENGTH_MAX:
        reason = (
            f"the name of a topic has at most {NAME_LENGTH_MAX} characters, and {shown(name)} has {len(name)}"
        )
    elif not _LEGAL.fullmatch(name):
        reason = f"the name of a topic consists of letters, digits and . _ - only, unlike {shown(name)}"
    if reason is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


class Collisions:
    """Finds among the names of topics those that differ from another only in . and _ at the same places.

    >>> names = Collisions({"a.b": 1, "c": 2})
    >>> names.find("a_b"), names.find("a.c"), names.find("c")
    ('a.b', None, None)
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._by_shape: dict[str, str] | None = None  # made when it is first needed

    def find(self, name: str) -> str | None:
        """A topic whose metrics would be confused with those of a topic of this name."""
        places = sum(name.count(one) for one in _LIKE_EACH_OTHER)
        if places == 0:
            return None
        if 1 << places <= _VARIANTS_MAX:
            return next((one for one in _variants(name) if one in self._names), None)
        if self._by_shape is None:
            self._by_shape = {_shape(one): one for one in self._names}
        return self._by_shape.get(_shape(name))


def _shape(name: str) -> str:
    return name.replace(".", "_")


def _variants(name: str) -> list[str]:
    parts = _shape(name).split("_")
    return [
        "".join(part + separator for part, separator in zip(parts, (*separators, ""), strict=True))
        for separators in product(_LIKE_EACH_OTHER, repeat=len(parts) - 1)
    ]
