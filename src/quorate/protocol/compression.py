"""The five codecs of record batches: what Java writes is read here, what is written here Java reads.

Two things decide the shape of this module.

*A compressed batch comes from a stranger.* Four bytes of zstd can stand for 128 KiB. So nothing here asks a
library for "the decompressed data": output goes into buffers of our own, whose size starts from what the
frame declares (or from a guess), grows fourfold, and never passes the caller's limit. The libraries stop
where the buffer ends. Beyond that they hold only a window, at most 128 MiB of address space for zstd, of
which no more is touched than was produced.

*Java's readers are narrower than the formats.* Its LZ4 reader refuses blocks that refer to earlier blocks,
which is what cramjam's frame writer produces; so the frame is built here, around cramjam's block compressor.
Its Snappy writer frames 32 KiB blocks in a way of its own, called xerial after its author.

Errors: INVALID_RECORD for what would pass the limit, CORRUPT_MESSAGE for what is not a stream of its codec.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam

from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Buffer
from quorate.values import plain_members

__all__ = ["DECOMPRESSED_BYTES_MAX", "Codec", "compress", "decompress"]

# What the records of one batch may take up at most, unless the caller says otherwise.
DECOMPRESSED_BYTES_MAX: Final = 128 << 20

# What Java's producer uses when nobody chose a level.
GZIP_LEVEL: Final = 6
ZSTD_LEVEL: Final = 3


@plain_members
class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: Buffer) -> Buffer:
    """`data` as one stream of `codec`; without a codec, `data` itself.

    >>> packed = compress(Codec.LZ4, b"again and again and again and again")
    >>> bytes(decompress(Codec.LZ4, packed))
    b'again and again and again and again'
    """
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return memoryview(cramjam.gzip.compress(data, level=GZIP_LEVEL))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return _compress_lz4(data)
        case Codec.ZSTD:
            return memoryview(cramjam.zstd.compress(data, level=ZSTD_LEVEL))


def decompress(codec: Codec, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """What was compressed, at most `limit_bytes` of it; without a codec, `data` itself.

    Several gzip members or zstd frames in a row are one stream, as they are to Java.
    """
    match codec:
        case Codec.NONE:
            if len(data) > limit_bytes:
                raise _too_large(codec, limit_bytes)
            return data
        case Codec.GZIP:
            return _decompress_growing(
                codec, cramjam.gzip.decompress_into, data, _gzip_size(data), limit_bytes
            )
        case Codec.SNAPPY:
            return _decompress_snappy(data, limit_bytes)
        case Codec.LZ4:
            return _decompress_growing(codec, cramjam.lz4.decompress_into, data, None, limit_bytes)
        case Codec.ZSTD:
            size = _zstd_size(data)
            if size is not None and size > limit_bytes:
                # Said honestly, so nothing needs to be tried. A frame of one segment would have zstd
                # reserve all of it as its window.
                raise _too_large(codec, limit_bytes)
            return _decompress_growing(codec, cramjam.zstd.decompress_into, data, size, limit_bytes)


# Gzip, LZ4, zstd: one buffer, grown until the stream fits

# More than this much output for each byte of input a stream of the codec cannot produce: a declared size
# beyond it is a lie. Deflate: 258 bytes in two bits. LZ4: a length byte adds 255. Zstd: a block of 128 KiB
# in four bytes. Snappy: 64 bytes in three.
_RATIO_MAX: Final = {Codec.GZIP: 1032, Codec.SNAPPY: 22, Codec.LZ4: 256, Codec.ZSTD: 32768}

# The first guess where nothing is declared: a little more than records usually shrink by. A guess too small
# costs a second run, one too large only zeroed memory.
_RATIO_GUESS: Final = 8
_GROWTH: Final = 4

# How cramjam says that the output buffer was too small. Any other text means that the input is bad. There
# is no code or class to tell them apart; the tests of each codec's bombs would notice new words.
_BUFFER_FULL: Final = "failed to write whole buffer"


def _decompress_growing(
    codec: Codec,
    decompress_into: Callable[[Buffer, bytearray], int],
    data: Buffer,
    declared_bytes: int | None,
    limit_bytes: int,
) -> bytearray:
    guess_bytes = len(data) * _RATIO_GUESS if declared_bytes is None else declared_bytes
    size_bytes = min(max(guess_bytes, 64), len(data) * _RATIO_MAX[codec], limit_bytes)
    while True:
        out = bytearray(size_bytes)
        try:
            filled_bytes = decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if _BUFFER_FULL not in str(error):
                raise _corrupt(codec, str(error)) from None
            if size_bytes == limit_bytes:
                raise _too_large(codec, limit_bytes) from None
        else:
            del out[filled_bytes:]
            return out
        del out  # before the next one is allocated, not after
        size_bytes = min(max(size_bytes, 64) * _GROWTH, limit_bytes)


def _gzip_size(data: Buffer) -> int | None:
    """The last four bytes: the size of the last member, modulo 2^32. A hint, no more."""
    return int.from_bytes(data[-4:], "little") if len(data) >= 18 else None


_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


def _zstd_size(data: Buffer) -> int | None:
    """The content size that the first frame declares, if it does. Java declares none, librdkafka does."""
    if len(data) < 5 or data[:4] != _ZSTD_MAGIC:
        return None
    descriptor = data[4]
    is_single_segment = bool(descriptor & 0x20)
    size_flag = descriptor >> 6
    width = (1 if is_single_segment else 0, 2, 4, 8)[size_flag]
    start = 5 + (not is_single_segment) + (0, 1, 2, 4)[descriptor & 3]
    if width == 0 or len(data) < start + width:
        return None
    # Two bytes count from 256, because one byte reaches that far already.
    return int.from_bytes(data[start : start + width], "little") + (256 if width == 2 else 0)


# LZ4 frames

_LZ4_BLOCK_BYTES: Final = 64 << 10
_LZ4_STORED: Final = 1 << 31  # the block did not shrink and stands as it is
_LZ4_END_MARK: Final = bytes(4)

# Magic; version 1 with independent blocks, no checksums, no content size; blocks of 64 KiB; and the
# checksum of these two descriptor bytes, which never changes because they never do.
_LZ4_HEADER: Final = bytes.fromhex("04224d18 60 40 82")


def _compress_lz4(data: Buffer) -> bytearray:
    view = memoryview(data)
    out = bytearray(_LZ4_HEADER)
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        block = view[start : start + _LZ4_BLOCK_BYTES]
        packed = cramjam.lz4.compress_block(block, store_size=False)
        if len(packed) < len(block):
            out += len(packed).to_bytes(4, "little")
            out += memoryview(packed)
        else:
            out += (len(block) | _LZ4_STORED).to_bytes(4, "little")
            out += block
    out += _LZ4_END_MARK
    return out


# Snappy, in xerial's framing or raw

_XERIAL_BLOCK_BYTES: Final = 32 << 10
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + bytes.fromhex("00000001 00000001")  # version, oldest that reads it
_LENGTH: Final = Struct(">i")


def _compress_xerial(data: Buffer) -> bytearray:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        packed = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        out += _LENGTH.pack(len(packed))
        out += memoryview(packed)
    return out


def _decompress_snappy(data: Buffer, limit_bytes: int) -> bytearray:
    """Every raw block says its size first, so one buffer of the right size is enough."""
    view = memoryview(data)
    blocks = _xerial_blocks(view) if data[:8] == _XERIAL_MAGIC else [view]
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        for block, size in zip(blocks, sizes, strict=True):
            if size > len(block) * _RATIO_MAX[Codec.SNAPPY]:
                raise _corrupt(Codec.SNAPPY, f"{len(block)} bytes declare to hold {size}")
        if sum(sizes) > limit_bytes:
            raise _too_large(Codec.SNAPPY, limit_bytes)
        out = bytearray(sum(sizes))
        end = memoryview(out)
        for block, size in zip(blocks, sizes, strict=True):
            cramjam.snappy.decompress_raw_into(block, end[:size])
            end = end[size:]
    except cramjam.DecompressionError as error:
        raise _corrupt(Codec.SNAPPY, str(error)) from None
    return out


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    blocks = []
    position = 0
    while position < len(view):
        if bytes(view[position : position + 8]) == _XERIAL_MAGIC:
            # A header may also stand between blocks: several streams in a row are one.
            position += len(_XERIAL_HEADER)
            if position > len(view):
                raise _corrupt(Codec.SNAPPY, "its header is cut off")
            continue
        if position + 4 > len(view):
            raise _corrupt(Codec.SNAPPY, "a block length is cut off")
        (length,) = _LENGTH.unpack_from(view, position)
        position += 4
        if not 0 < length <= len(view) - position:
            raise _corrupt(Codec.SNAPPY, f"a block of {length} bytes where {len(view) - position} remain")
        blocks.append(view[position : position + length])
        position += length
    return blocks


def _corrupt(codec: Codec, reason: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"not a {codec.name.lower()} stream: {reason}")


def _too_large(codec: Codec, limit_bytes: int) -> ApiError:
    name = codec.name.lower() if codec else "uncompressed"
    return ApiError(
        ErrorCode.INVALID_RECORD, f"{name} data takes up more than the limit of {limit_bytes} bytes"
    )
