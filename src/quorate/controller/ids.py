"""New ids."""

from __future__ import annotations

from collections.abc import Container

from quorate.controller.decision import Random
from quorate.protocol.types import Uuid

__all__ = ["new_id"]


def new_id(random: Random, *taken: Container[Uuid]) -> Uuid:
    """A random id (a UUID of version 4, so none of the reserved ones) that is not taken.

    It does not begin with a dash: on a command line that would look like an option.
    """
    while True:
        drawn = bytearray(random.randbytes(16))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        found = Uuid(drawn)
        if not str(found).startswith("-") and not any(found in some for some in taken):
            return found
