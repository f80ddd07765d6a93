"""Frames out of a stream of bytes, and into one.

`FrameReader` is the receiving half of a `BufferedProtocol`. What makes it fast, and keeps it linear:

- All connections of a server read into one scratch buffer, which is possible because `get_buffer`, the read
  and `buffer_updated` are one step on every loop. A connection owns memory only while a frame is incomplete.
- The frames that one read completed are copied out of it together, once.
- A frame that a read cut off is carried over to the beginning of the next one, so that a stream of small
  frames is read in large pieces. If the next read does not complete it either, or if it is large, it gets
  a buffer of its own, and reads then take exactly its missing bytes. So every byte is copied at most three
  times, even if bytes arrive one by one, and the bytes of a large frame go where they stay: after a large
  one, only a little is read of the next before its size is known.

The memory that a frame lies in belongs to that frame alone and is writable: a record batch may be stamped
where it is.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence, Sized
from mmap import mmap
from sys import getrefcount
from typing import Final, cast

from quorate.net.budget import Budget
from quorate.protocol.errors import ProtocolError
from quorate.protocol.types import Buffer

__all__ = [
    "JOINED_BYTES_MAX",
    "Frame",
    "FrameReader",
    "SpareFrames",
    "joined",
    "scratch_buffer",
    "write_parts",
]

_SIZE: Final = struct.Struct(">i")
_SIZE_BYTES: Final = 4

# Below this, copying a part costs less than handing it to the transport by itself.
JOINED_BYTES_MAX: Final = 16 * 1024


def scratch_buffer(size_bytes: int) -> memoryview:
    """A buffer for reads. The part of it that no read has reached yet takes no memory."""
    return memoryview(mmap(-1, size_bytes))


# What is read at once while memory is short, and where a large frame is likely to begin.
SHORT_READ_BYTES: Final = 4 * 1024

# Buffers of frames that are remembered, and what refers to one when nobody has it: the list, a loop, a call.
SPARES_MAX: Final = 4
_REFERENCES_OF_A_SPARE: Final = 3

# A buffer, a begin and an end: the frame, without its size, is `buffer[begin:end]`.
Frame = tuple[bytearray, int, int]


class SpareFrames:
    """Buffers of large frames that have been served, for those to come.

    Memory that was in use just now is mapped, and in the cache; new memory is neither, and has to be zeroed.
    The last few buffers that were given out are remembered here. One to which nobody else refers any more,
    be it by a view, can be given out again: so nobody has to give one back, and a request that is parked
    keeps its own.
    """

    __slots__ = ("_remembered",)

    def __init__(self) -> None:
        self._remembered: list[bytearray] = []

    def take(self, size_bytes: int) -> bytearray:
        """A buffer of this size, or not much larger, with anything in it."""
        for one in self._remembered:
            if size_bytes <= len(one) <= 2 * size_bytes and getrefcount(one) == _REFERENCES_OF_A_SPARE:
                return one
        made = bytearray(size_bytes)
        self._remembered.append(made)
        if len(self._remembered) > SPARES_MAX:
            del self._remembered[0]
        return made


class FrameReader:
    """Cuts what arrives on one connection into frames.

    `refusal` is set when a size is negative or too large: nothing can be read after that. The frames
    before it are good.

    With a `budget` it gives a large frame only the memory that there is room for. Then it may be `is_full`:
    nothing can be read until somebody calls `grow`.
    """

    __slots__ = (
        "_at_once_bytes",
        "_budget",
        "_carried",
        "_filled",
        "_frame",
        "_frame_bytes",
        "_frame_bytes_max",
        "_scratch",
        "_spares",
        "held_bytes",
        "is_full",
        "is_large",
        "refusal",
        "was_large",
    )

    def __init__(
        self,
        scratch: memoryview,
        frame_bytes_max: int,
        at_once_bytes: int,
        budget: Budget | None = None,
        spares: SpareFrames | None = None,
    ) -> None:
        self._scratch = scratch
        self._frame_bytes_max = frame_bytes_max
        self._at_once_bytes = at_once_bytes
        self._budget = budget
        self._spares = spares
        # The beginning of a frame, its size included, that has been carried over no more than once.
        self._carried = b""
        # The frame under way that has a buffer of its own: that buffer, the bytes in it, and its final size.
        self._frame: bytearray | None = None
        self._filled = 0
        self._frame_bytes = 0
        self.held_bytes = 0  # the memory that an incomplete frame has
        self.is_large = False  # it is one with a buffer of its own
        self.is_full = False
        self.was_large = False  # the last frame did not fit in the scratch buffer
        self.refusal: ProtocolError | None = None

    def buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002
        """Where the next read goes. May be asked for several times before bytes arrive."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled : self._frame_bytes]
        is_short = self.was_large or (self._budget is not None and self._budget.is_short)
        if not self._carried and not is_short:
            return self._scratch
        begin = len(self._carried)
        self._scratch[:begin] = self._carried
        return self._scratch[begin : begin + SHORT_READ_BYTES] if is_short else self._scratch[begin:]

    def received(self, count: int) -> Sequence[Frame]:
        """The frames that are complete now that `count` bytes were put into the buffer."""
        assert self.refusal is None
        if self._frame is not None:
            return self._received_into(self._frame, count)
        self.was_large = False
        scratch, unpack_size = self._scratch, _SIZE.unpack_from
        if not self._carried and _SIZE_BYTES <= count <= self._frame_bytes_max + _SIZE_BYTES:
            (size,) = unpack_size(scratch)
            if size == count - _SIZE_BYTES:  # the usual case: exactly one frame
                return ((bytearray(scratch[:count]), _SIZE_BYTES, count),)
        end = len(self._carried) + count
        spans = []
        begin, size = 0, 0
        while end - begin >= _SIZE_BYTES:
            (size,) = unpack_size(scratch, begin)
            if not 0 <= size <= self._frame_bytes_max:
                self.refusal = _refusal(size, self._frame_bytes_max)
                break
            after = begin + _SIZE_BYTES + size
            if after > end:
                break
            spans.append((begin + _SIZE_BYTES, after))
            begin = after
        if self.refusal is None:
            self._keep(scratch[begin:end], size, is_carried=bool(self._carried) and begin == 0)
        if not spans:
            return ()
        frames = bytearray(scratch[:begin])
        return [(frames, first, last) for first, last in spans]

    def _keep(self, rest: memoryview, size: int, is_carried: bool) -> None:
        """Remembers the beginning of a frame of `size` bytes that is not complete."""
        has_no_size = len(rest) < _SIZE_BYTES
        if has_no_size or (not is_carried and size <= len(self._scratch) // 4):
            self._carried = bytes(rest)
            self.held_bytes = len(rest)
        else:
            self._carried = b""
            self._filled = len(rest) - _SIZE_BYTES
            self._frame_bytes = size
            at_first = min(size, max(self._at_once_bytes, 2 * self._filled))
            if self._budget is not None and not self._budget.fits(at_first):
                at_first, self.is_full = self._filled, True
            if self._spares is None or at_first < size:
                self._frame = bytearray(at_first)
            else:
                self._frame = self._spares.take(size)
            self._frame[: self._filled] = rest[_SIZE_BYTES:]
            self.held_bytes, self.is_large = len(self._frame), True

    def _received_into(self, frame: bytearray, count: int) -> Sequence[Frame]:
        self._filled += count
        if self._filled == self._frame_bytes:
            self._frame = None
            self.was_large = self._frame_bytes > len(self._scratch)
            self.held_bytes, self.is_large = 0, False
            return ((frame, 0, self._frame_bytes),)
        if self._filled == len(frame):
            if self._budget is None or self._budget.fits(self.wanted_bytes()):
                self.grow()
            else:
                self.is_full = True
        return ()

    def wanted_bytes(self) -> int:
        """How much more memory it takes to go on with a frame whose buffer is full."""
        return self._larger_bytes() - self._filled

    def grow(self) -> None:
        """Gives the frame under way, whose buffer is full, a larger one."""
        assert self._frame is not None
        # Not resized in place: the transport may hold a view of it until we return.
        larger = bytearray(self._larger_bytes())
        larger[: self._filled] = self._frame
        self._frame = larger
        self.held_bytes, self.is_full = len(larger), False

    def drop(self) -> None:
        """Nothing will be read any more."""
        self._carried, self._frame = b"", None
        self.held_bytes, self.is_large, self.is_full = 0, False, False

    def _larger_bytes(self) -> int:
        return min(self._frame_bytes, max(self._at_once_bytes, 2 * self._filled))


# How the parts of a response leave that are buffers. For ranges of files see `file_sending`.


def write_parts(transport: asyncio.WriteTransport, parts: list[Sized]) -> None:
    """Hands the parts of one or several responses to a transport, in as few writes as make sense.

    All of them are buffers. Large ones stay what they are; nobody may change them after this.
    """
    writes = cast("list[Buffer]", joined(parts))
    if len(writes) == 1:
        transport.write(writes[0])
    else:
        transport.writelines(writes)


def joined(parts: list[Sized]) -> list[Sized]:
    """The same parts, small neighbours in one. Small ones must be buffers."""
    writes: list[Sized] = []
    small: list[Buffer] = []
    for part in parts:
        if len(part) <= JOINED_BYTES_MAX:
            small.append(cast("Buffer", part))
            continue
        if small:
            writes.append(b"".join(small))
            small = []
        writes.append(part)
    if small:
        writes.append(small[0] if len(small) == 1 else b"".join(small))
    return writes


def _refusal(size: int, frame_bytes_max: int) -> ProtocolError:
    if size < 0:
        reason = f"a frame of {size} bytes"
    else:
        reason = f"a frame of {size} bytes, and {frame_bytes_max} are allowed"
    return ProtocolError("Frame", None, "size", None, reason)
