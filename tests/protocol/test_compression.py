"""Compression: round trips, what others write, and streams that mean harm."""

import random
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest
from drawn_batches import damages, outcome
from hypothesis import given
from hypothesis import strategies as st

from quorate.protocol.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress
from quorate.protocol.errors import ApiError, ErrorCode

MIB = 1 << 20
REAL_CODECS = [codec for codec in Codec if codec is not Codec.NONE]
RANDOM = random.Random(1).randbytes(200_000)
TEXT = b"the quick brown fox jumps over the lazy dog " * 5000

ANY_DATA = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda word, times: word * times, st.binary(min_size=1, max_size=40), st.integers(0, 5000)),
    st.builds(
        lambda start, size: RANDOM[start : start + size], st.integers(0, 1000), st.integers(0, 150_000)
    ),
)


@given(st.sampled_from(Codec), ANY_DATA)
def test_what_was_compressed_comes_out_again(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed) == data
    assert decompress(codec, memoryview(bytearray(packed)), len(data)) == data


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_text_shrinks(codec: Codec) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) / 10


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 131072])
@pytest.mark.parametrize("source", [TEXT, RANDOM])
def test_lz4_is_a_frame_of_independent_blocks(source: bytes, size: int) -> None:
    frame = bytes(compress(Codec.LZ4, source[:size]))
    assert frame[:7].hex() == "04224d18604082"
    position = 7
    plain = b""
    while length := int.from_bytes(frame[position : position + 4], "little"):
        block = frame[position + 4 : position + 4 + (length & 0x7FFFFFFF)]
        assert len(block) <= 65536
        room = bytearray(65536)
        plain += block if length >> 31 else room[: cramjam.lz4.decompress_block_into(block, room)]
        position += 4 + len(block)
    assert position + 4 == len(frame)
    assert plain == source[:size]


@pytest.mark.parametrize("is_linked", [True, False])
@pytest.mark.parametrize("has_checksum", [True, False])
def test_lz4_frames_of_others_are_read(is_linked: bool, has_checksum: bool) -> None:
    writer = cramjam.lz4.Compressor(block_linked=is_linked, content_checksum=has_checksum)
    writer.compress(TEXT)
    assert decompress(Codec.LZ4, bytes(writer.finish())) == TEXT


def test_snappy_is_framed_in_blocks_of_32_kib() -> None:
    packed = bytes(compress(Codec.SNAPPY, TEXT))
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    first = int.from_bytes(packed[16:20], "big")
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first]) == 32768


def test_raw_snappy_is_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_streams_in_a_row_are_one_as_they_are_to_java(codec: Codec) -> None:
    packed = bytes(compress(codec, TEXT)) + bytes(compress(codec, RANDOM)) + bytes(compress(codec, b"end"))
    assert decompress(codec, packed) == TEXT + RANDOM + b"end"


def test_zstd_that_declares_no_size_is_read() -> None:
    writer = cramjam.zstd.Compressor()
    for start in range(0, len(TEXT), 1000):
        writer.compress(TEXT[start : start + 1000])
    assert decompress(Codec.ZSTD, bytes(writer.finish())) == TEXT


@given(st.data(), st.sampled_from(REAL_CODECS), ANY_DATA)
def test_damage_is_told_as_an_api_error(data: st.DataObject, codec: Codec, plain: bytes) -> None:
    damaged = data.draw(damages(bytes(compress(codec, plain))))
    found = outcome(lambda: decompress(codec, damaged, 4 * MIB))
    if isinstance(found, ApiError):
        assert found.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
        assert codec.name.lower() in found.message
    else:
        assert len(found) <= 4 * MIB


@pytest.mark.parametrize("codec", REAL_CODECS)
@pytest.mark.parametrize("data", [b"", b"\x01", b"no stream of anything", bytes(100)])
def test_what_is_no_stream_is_corrupt(codec: Codec, data: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        decompress(codec, data)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_is_inclusive_and_named(codec: Codec) -> None:
    packed = bytes(compress(codec, TEXT))
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(ApiError, match=rf"limit of {len(TEXT) - 1} bytes") as caught:
        decompress(codec, packed, len(TEXT) - 1)
    assert caught.value.code is ErrorCode.INVALID_RECORD


# Bombs


def gzip_bomb() -> bytes:
    """128 MiB in 128 KiB."""
    writer = zlib.compressobj(9, wbits=31)
    return b"".join(writer.compress(bytes(MIB)) for _ in range(128)) + writer.flush()


def zstd_bomb() -> bytes:
    """1 GiB in 32 KiB: a frame that declares nothing but a window, and blocks of 128 KiB of one byte."""
    return (
        bytes.fromhex("28b52ffd 00 58")
        + ((128 << 10) << 3 | 0b010).to_bytes(3, "little").ljust(4, b"z") * 8192
    )


def honest_zstd_bomb() -> bytes:
    """The same, but it declares its size, which zstd would take as the size of its window."""
    return bytes.fromhex("28b52ffd a0") + (MIB << 10).to_bytes(4, "little") + zstd_bomb()[6:]


def lz4_bomb() -> bytes:
    """128 MiB in 600 KiB."""
    frame = bytes(compress(Codec.LZ4, bytes(64 << 10)))
    return frame[:7] + frame[7:-4] * 2048 + frame[-4:]


def snappy_bomb() -> bytes:
    """128 MiB in 6 MiB."""
    packed = bytes(compress(Codec.SNAPPY, bytes(32 << 10)))
    return packed[:16] + packed[16:] * 4096


def lying_snappy() -> bytes:
    """A few bytes that say they are 100 MiB."""
    return bytes.fromhex("80808032") + b"\x00a"


BOMBS: list[tuple[Codec, Callable[[], bytes], ErrorCode]] = [
    (Codec.GZIP, gzip_bomb, ErrorCode.INVALID_RECORD),
    (Codec.ZSTD, zstd_bomb, ErrorCode.INVALID_RECORD),
    (Codec.ZSTD, honest_zstd_bomb, ErrorCode.INVALID_RECORD),
    (Codec.LZ4, lz4_bomb, ErrorCode.INVALID_RECORD),
    (Codec.SNAPPY, snappy_bomb, ErrorCode.INVALID_RECORD),
    (Codec.SNAPPY, lying_snappy, ErrorCode.CORRUPT_MESSAGE),
]


@pytest.mark.parametrize(("codec", "bomb", "code"), BOMBS, ids=[bomb.__name__ for _, bomb, _ in BOMBS])
def test_a_bomb_takes_no_more_memory_than_the_limit(
    codec: Codec, bomb: Callable[[], bytes], code: ErrorCode
) -> None:
    data = bomb()
    limit = 4 * MIB

    def refuse() -> None:
        with pytest.raises(ApiError) as caught:
            decompress(codec, data, limit)
        assert caught.value.code is code

    refuse()  # once outside the measurement, for what is allocated once and kept
    assert peak_growth_bytes(refuse) <= limit + 2 * MIB


def test_a_zstd_window_is_reserved_but_not_touched() -> None:
    """The largest window that zstd agrees to is 128 MiB; what is not produced costs no memory."""
    frame = bytes.fromhex("28b52ffd 00 88") + (1000 << 3 | 0b011).to_bytes(3, "little") + b"z"
    assert decompress(Codec.ZSTD, frame, 1000) == b"z" * 1000
    assert peak_growth_bytes(lambda: decompress(Codec.ZSTD, frame, 1000)) <= MIB


def test_a_lie_about_the_size_costs_no_more_than_the_input_could_produce() -> None:
    lying = bytes(compress(Codec.GZIP, b"small"))[:-4] + b"\xff\xff\xff\xff"

    def refuse() -> None:
        with pytest.raises(ApiError):
            decompress(Codec.GZIP, lying, DECOMPRESSED_BYTES_MAX)

    refuse()
    assert peak_growth_bytes(refuse) <= MIB


def peak_growth_bytes(action: Callable[[], object]) -> int:
    """How much more memory was resident at the worst moment of an action than before it, native code too."""
    if sys.platform != "linux":
        pytest.skip("the peak can be reset on Linux alone")
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak_bytes()
    action()
    return _peak_bytes() - before


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")
