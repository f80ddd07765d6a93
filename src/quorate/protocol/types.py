"""The primitive types of the wire, and the annotations that declare a field to be of one.

`Int32` is `int` to a type checker and a four-byte big-endian integer to the codec compiler: an annotation
is an `Annotated` alias whose metadata is a `Primitive`. `Array[X]` is a list of X. `X | None` may be null.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sized
from typing import Annotated, Final, TypeVar, final

from quorate.values import dataclass

__all__ = [
    "ARRAY",
    "BYTES",
    "RECORDS",
    "STRING",
    "UUID",
    "ZERO_UUID",
    "Array",
    "Bool",
    "Buffer",
    "Bytes",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Primitive",
    "Records",
    "String",
    "Uint16",
    "Uint32",
    "Uuid",
]

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without structure: its name in the protocol, and its format character if its size is fixed."""

    name: str
    code: str
    zero: object

    @property
    def is_fixed(self) -> bool:
        return bool(self.code)


@final
class Uuid(bytes):
    """A 16-byte id that prints the way Kafka prints it: URL-safe base64 without padding.

    >>> Uuid.parse("AAAAAAAAAAAAAAAAAAAAAQ")
    Uuid('AAAAAAAAAAAAAAAAAAAAAQ')
    >>> len(ZERO_UUID)
    16
    """

    __slots__ = ()

    def __new__(cls, value: Buffer) -> Uuid:
        if len(value) != 16:
            raise ValueError(f"a uuid has 16 bytes, not {len(value)}")
        return bytes.__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> Uuid:
        """The uuid that prints as `text`."""
        try:
            raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"not a uuid in base64: {text!r}") from error
        return cls(raw)

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self)[:22].decode("ascii")

    def __repr__(self) -> str:
        return f"Uuid('{self}')"


ZERO_UUID: Final = Uuid(bytes(16))

STRING: Final = Primitive("string", "", "")
BYTES: Final = Primitive("bytes", "", b"")
RECORDS: Final = Primitive("records", "", None)
UUID: Final = Primitive("uuid", "16s", ZERO_UUID)
ARRAY: Final = "array"

_T = TypeVar("_T")

Bool = Annotated[bool, Primitive("bool", "?", False)]
Int8 = Annotated[int, Primitive("int8", "b", 0)]
Int16 = Annotated[int, Primitive("int16", "h", 0)]
Uint16 = Annotated[int, Primitive("uint16", "H", 0)]
Int32 = Annotated[int, Primitive("int32", "i", 0)]
Uint32 = Annotated[int, Primitive("uint32", "I", 0)]
Int64 = Annotated[int, Primitive("int64", "q", 0)]
Float64 = Annotated[float, Primitive("float64", "d", 0.0)]
String = Annotated[str, STRING]

# A bytes field is given any buffer, and comes out of the decoder as a view of the buffer it lies in.
Bytes = Annotated[bytes | bytearray | memoryview, BYTES]

# Record batches, untouched. Besides a buffer this may be any sized thing that a transport knows how to
# send, such as a range of a file: see `codec.encode_parts`.
Records = Annotated[Sized, RECORDS]

Array = Annotated[list[_T], ARRAY]
