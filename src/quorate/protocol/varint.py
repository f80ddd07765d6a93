"""Unsigned varints: seven bits a byte, lowest first. Lengths and tags in flexible versions."""

from __future__ import annotations

from typing import Final

from quorate.protocol.types import Buffer

__all__ = ["STRING_BYTES_MAX", "MalformedError", "read_string_length", "read_uvarint", "uvarint"]

STRING_BYTES_MAX: Final = 32767


class MalformedError(Exception):
    """Raised by compiled codecs, which do not know where they are; see `interpreter` for who finds out."""


def uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint.

    >>> uvarint(300).hex()
    'ac02'
    """
    if value < 128:
        return _SHORT[value]
    if value < 16384:
        return bytes((value & 127 | 128, value >> 7))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The value at `position`, and the position after it. Five bytes and 32 bits at most."""
    byte = buffer[position]
    if byte < 128:
        return byte, position + 1
    value = byte & 127
    for shift in (7, 14, 21, 28):
        position += 1
        byte = buffer[position]
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                raise MalformedError("varint of more than 32 bits")
            return value, position + 1
    raise MalformedError("varint of more than five bytes")


def read_string_length(buffer: Buffer, position: int) -> tuple[int, int]:
    """Like `read_uvarint`, for the length plus one of a compact string, which has a limit of its own."""
    value, position = read_uvarint(buffer, position)
    if value > STRING_BYTES_MAX + 1:
        raise MalformedError(f"string of {value - 1} bytes")
    return value, position


_SHORT: Final = tuple(bytes((value,)) for value in range(128))
