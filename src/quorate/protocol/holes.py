"""Where fields stand in an encoded message: found out by encoding it twice."""

from __future__ import annotations

from quorate.protocol.types import Buffer

__all__ = ["hole_between", "holes_between"]


def holes_between(one: Buffer, other: Buffer) -> list[slice]:
    """The runs of bytes in which two encodings differ that are of the same size.

    >>> holes_between(b"1 of 1, 1 of 10", b"2 of 2, 2 of 20")
    [slice(0, 1, None), slice(5, 6, None), slice(8, 9, None), slice(13, 14, None)]
    """
    assert len(one) == len(other), "a field of another size"
    found: list[slice] = []
    for at, (mine, theirs) in enumerate(zip(one, other, strict=True)):
        if mine == theirs:
            continue
        if found and found[-1].stop == at:
            found[-1] = slice(found[-1].start, at + 1)
        else:
            found.append(slice(at, at + 1))
    return found


def hole_between(one: Buffer, other: Buffer) -> slice | None:
    """The one run in which they differ; None if they do not, because the field is not in this version.

    >>> hole_between(b"so many: 1", b"so many: 2")
    slice(9, 10, None)
    """
    found = holes_between(one, other)
    assert len(found) <= 1, "several fields"
    return found[0] if found else None
