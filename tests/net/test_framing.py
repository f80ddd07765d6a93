"""Frames out of a stream of bytes, and into one."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.net.framing import SHORT_READ_BYTES, FrameReader, SpareFrames, write_parts

FRAME_BYTES_MAX = 5000
AT_ONCE_BYTES = 200


def reader(scratch_bytes: int = 64, frame_bytes_max: int = FRAME_BYTES_MAX) -> FrameReader:
    return FrameReader(memoryview(bytearray(scratch_bytes)), frame_bytes_max, AT_ONCE_BYTES)


def feed(frames: FrameReader, data: bytes, at_most: int | None = None) -> list[bytes]:
    """Puts data into the reader the way a transport does, `at_most` bytes at a time."""
    found = []
    while data and frames.refusal is None:
        buffer = frames.buffer()
        count = min(len(buffer), len(data), at_most or len(data))
        buffer[:count] = data[:count]
        data = data[count:]
        found += [bytes(memory[begin:end]) for memory, begin, end in frames.received(count)]
    return found


def stream(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


bodies = st.lists(st.binary(max_size=40) | st.integers(0, 900).map(lambda size: bytes([size % 251]) * size))


@given(bodies, st.data())
def test_it_does_not_matter_where_reads_cut(frames, data):
    whole = stream(*frames)
    receiving = reader(data.draw(st.sampled_from([64, 100, 512])))
    found = []
    while whole:
        size = data.draw(st.integers(1, len(whole)))
        found += feed(receiving, whole[:size])
        whole = whole[size:]
    assert found == frames


def test_a_buffer_that_was_not_used_is_given_again():
    """A loop may ask for a buffer and then find that there is nothing to read."""
    receiving = reader()
    feed(receiving, stream(b"first frame")[:7])
    receiving.buffer()
    receiving.buffer()
    assert feed(receiving, stream(b"first frame")[7:]) == [b"first frame"]


def test_connections_share_a_buffer():
    scratch = memoryview(bytearray(64))
    one, other = (FrameReader(scratch, FRAME_BYTES_MAX, AT_ONCE_BYTES) for _ in range(2))
    assert feed(one, stream(b"of one")[:6]) == feed(other, stream(b"of the other")[:6]) == []
    assert feed(one, stream(b"of one")[6:]) == [b"of one"]
    assert feed(other, stream(b"of the other")[6:]) == [b"of the other"]


def test_a_cut_frame_is_carried_over_once_and_then_read_exactly():
    receiving = reader(scratch_bytes=400)
    feed(receiving, stream(bytes(50))[:10])
    assert len(receiving.buffer()) == 390
    feed(receiving, bytes(1))
    assert len(receiving.buffer()) == 43  # 50 and its size, without the 11 that are here
    assert feed(receiving, bytes(43) + stream(b"next")) == [bytes(50), b"next"]


def test_bytes_that_come_one_by_one_are_not_moved_again_and_again():
    size = 100  # less than a reader of this size carries over
    receiving = reader(scratch_bytes=1000)
    places = set()
    for byte in stream(bytes(size))[:-1]:
        assert feed(receiving, bytes([byte])) == []
        places.add(len(receiving.buffer()))
    assert places == {999, 998, 997, *range(1, size + 1)}


def test_a_large_frame_is_read_to_where_it_stays():
    receiving = reader(scratch_bytes=64)
    feed(receiving, stream(bytes(150))[:20])
    buffer = receiving.buffer()
    assert len(buffer) == 134
    [(memory, begin, end)] = receiving.received(134)
    assert buffer.obj is memory
    assert (begin, end) == (0, 150)


def test_only_a_little_is_read_where_a_large_frame_is_likely_to_begin():
    receiving = reader(scratch_bytes=4 * SHORT_READ_BYTES, frame_bytes_max=10 * SHORT_READ_BYTES)
    large = bytes(5 * SHORT_READ_BYTES)
    assert feed(receiving, stream(large)) == [large]
    assert len(receiving.buffer()) == SHORT_READ_BYTES
    assert feed(receiving, stream(large)) == [large]
    assert feed(receiving, stream(b"small")) == [b"small"]
    assert len(receiving.buffer()) == 4 * SHORT_READ_BYTES


def test_memory_follows_what_has_arrived_not_what_was_announced():
    receiving = reader()
    body = bytes(range(250)) * 20
    data = stream(body)
    received = 0
    found = []
    while received < len(data):
        feedable = min(37, len(data) - received)
        found += feed(receiving, data[received : received + feedable])
        received += feedable
        held = receiving._frame
        assert held is None or len(held) <= max(AT_ONCE_BYTES, 2 * received)
    assert found == [body]


@pytest.mark.parametrize("size", [-1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
@pytest.mark.parametrize("at_most", [None, 1])
def test_a_size_is_refused_before_memory_is_given(size, at_most):
    receiving = reader()
    data = stream(b"good", b"") + struct.pack(">i", size) + bytes(50)
    assert feed(receiving, data, at_most) == [b"good", b""]
    assert f"a frame of {size} bytes" in str(receiving.refusal)
    assert receiving._frame is None


def test_a_frame_that_fits_into_a_read_and_is_too_large_nevertheless():
    receiving = FrameReader(memoryview(bytearray(1000)), 50, AT_ONCE_BYTES)
    assert feed(receiving, stream(bytes(50))) == [bytes(50)]
    assert feed(receiving, stream(bytes(51))) == []
    assert receiving.refusal is not None


def test_the_largest_frame_is_allowed():
    body = bytes(FRAME_BYTES_MAX)
    assert feed(reader(), stream(body)) == [body]


@given(st.lists(st.binary(max_size=20), min_size=1))
def test_a_frame_may_be_changed_where_it_lies(bodies):
    receiving = reader(scratch_bytes=10_000)
    data = stream(*bodies)
    receiving.buffer()[: len(data)] = data
    frames = receiving.received(len(data))
    for memory, begin, end in frames:
        memory[begin:end] = bytes(end - begin)
    receiving.buffer()[:] = b"\xff" * 10_000  # the next read of any connection
    assert [bytes(memory[begin:end]) for memory, begin, end in frames] == [bytes(len(b)) for b in bodies]


class Transport:
    def __init__(self) -> None:
        self.writes: list[object] = []

    def write(self, data: object) -> None:
        self.writes.append(data)

    def writelines(self, data: list[object]) -> None:
        self.writes += data


def test_small_parts_are_joined_and_large_ones_are_not_copied():
    large, other = bytes(100_000), memoryview(bytes(20_000))
    transport = Transport()
    write_parts(transport, [b"a", bytearray(b"b"), large, b"c", other, b"d", b"e"])
    assert transport.writes == [b"ab", large, b"c", other, b"de"]
    assert transport.writes[1] is large
    assert transport.writes[3] is other


# Buffers that were used


def test_a_buffer_is_given_out_again_when_nobody_has_it() -> None:
    spares = SpareFrames()
    first = spares.take(1000)
    place = id(first)
    second = spares.take(1000)
    assert second is not first
    del first
    assert id(spares.take(900)) == place


def test_a_buffer_stays_with_whoever_has_a_view_of_it() -> None:
    spares = SpareFrames()
    first = spares.take(1000)
    view = memoryview(first)[10:20]
    place = id(first)
    del first
    assert id(spares.take(1000)) != place
    del view
    assert id(spares.take(1000)) == place


def test_a_buffer_is_not_given_out_for_what_is_much_smaller_or_larger() -> None:
    spares = SpareFrames()
    place = id(spares.take(1000))
    assert id(small := spares.take(499)) != place
    assert id(large := spares.take(1001)) != place
    assert len(small) == 499
    assert len(large) == 1001


def test_frames_in_spare_buffers_are_what_was_sent() -> None:
    """The second is smaller than the buffer that it gets."""
    spares = SpareFrames()
    reader = FrameReader(memoryview(bytearray(64)), 10_000, 10_000, None, spares)
    places = []
    for size in (900, 700):
        sent = size.to_bytes(4, "big") + bytes(range(250)) * 2 + bytes(size - 500)
        frames: list[bytes] = []
        while sent:
            into = reader.buffer()
            count = min(len(into), len(sent))
            into[:count] = sent[:count]
            sent = sent[count:]
            del into
            for frame, begin, end in reader.received(count):
                frames.append(bytes(frame[begin:end]))
                places.append(id(frame))
                del frame
        assert frames == [bytes(range(250)) * 2 + bytes(size - 500)]
    assert places[0] == places[1]
