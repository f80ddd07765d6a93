"""Many items of an array, encoded one by one as they come: they take no more memory than on the wire."""

from __future__ import annotations

from functools import cache

from quorate.protocol.encoder import Encoder, PreEncoded, compile_encoder
from quorate.protocol.layout import struct_layout
from quorate.protocol.message import Message, Struct

__all__ = ["EncodedItems"]


class EncodedItems:
    """Items of an array of `struct` in `message`; `taken` are all of them.

    >>> from quorate.protocol.api.groups import DeleteGroupsResponse
    >>> items = EncodedItems(DeleteGroupsResponse.DeletableGroupResult, DeleteGroupsResponse, 0)
    >>> encoded = items.add(DeleteGroupsResponse.DeletableGroupResult(group_id="a", error_code=0))
    >>> items.add_encoded(encoded)
    >>> encoded.hex(), items.taken().count
    ('0001610000', 2)
    """

    __slots__ = ("_count", "_encode", "_out")

    def __init__(self, struct: type[Struct], message: type[Message], version: int) -> None:
        self._encode = _encoder(struct, version, version in message.__flexible__)
        self._out = bytearray()
        self._count = 0

    @property
    def size_bytes(self) -> int:
        return len(self._out)

    def add(self, item: Struct) -> bytes:
        """How it is encoded."""
        begin = len(self._out)
        self._encode(item, self._out)
        self._count += 1
        return bytes(self._out[begin:])

    def add_encoded(self, item: bytes) -> None:
        self._out += item
        self._count += 1

    def taken(self) -> PreEncoded:
        return PreEncoded(self._count, self._out)


@cache
def _encoder(struct: type[Struct], version: int, flexible: bool) -> Encoder:
    return compile_encoder([struct_layout(struct, version, flexible)], parts=False)
