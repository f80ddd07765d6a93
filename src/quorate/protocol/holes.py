"""Where a field stands in an encoded message: found out by encoding it twice."""

from __future__ import annotations

from quorate.protocol.types import Buffer

__all__ = ["hole_between"]


def hole_between(one: Buffer, other: Buffer) -> slice:
    """The bytes in which two encodings differ that are of the same size, from the first to the last; nothing
    from 0 on, if they do not: the field is not in this version.

    >>> hole_between(b"so many: 1", b"so many: 2")
    slice(9, 10, None)
    >>> hole_between(b"none", b"none")
    slice(0, 0, None)
    """
    assert len(one) == len(other), "a field of another size"
    places = [at for at, (mine, theirs) in enumerate(zip(one, other, strict=True)) if mine != theirs]
    return slice(places[0], places[-1] + 1) if places else slice(0, 0)
