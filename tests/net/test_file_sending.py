"""Answers with ranges of files in them: how they leave, and what may happen to them on the way."""

import asyncio
import errno
import logging
import os
from pathlib import Path

import pytest
from nodes import connected, encoded, raw, serving, wait_until

from quorate.net import file_sending
from quorate.net.file_sending import UnreadableRangeError, without_ranges
from quorate.net.routes import Route
from quorate.protocol.api.produce_fetch import FetchRequest, FetchResponse
from quorate.storage.file_ranges import FileRange, SharedFile
from quorate.storage.files import RealFiles

VERSION = 12
LARGE = 64 * 1024
HUGE = 24 << 20  # more than sockets hold


class Source:
    """A file whose bytes differ everywhere, and a handler that answers with ranges of it."""

    def __init__(self, path: Path, size_bytes: int = HUGE) -> None:
        self.data = os.urandom(1 << 20) * (size_bytes // (1 << 20))
        path.write_bytes(self.data)
        self.shared = SharedFile(RealFiles().open(str(path)))
        self.path = path

    def range(self, position: int, size_bytes: int) -> FileRange:
        return FileRange(self.shared, position, size_bytes, 0)

    def handle(self, _context, _header, request: FetchRequest) -> FetchResponse:
        """Each partition that is fetched is a range: its offset and its size."""
        partitions = [
            FetchResponse.FetchableTopicResponse.PartitionData(
                partition_index=one.partition,
                error_code=0,
                high_watermark=0,
                records=self.range(one.fetch_offset, one.partition_max_bytes),
            )
            for one in request.topics[0].partitions
        ]
        topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=partitions)
        return FetchResponse(responses=[topic])

    def route(self) -> Route:
        return Route(FetchRequest, self.handle)

    def agrees(self, response: FetchResponse, ranges: list[tuple[int, int]]) -> bool:
        found = [bytes(one.records) for one in response.responses[0].partitions]
        return found == [self.data[position : position + size] for position, size in ranges]

    def close(self) -> None:
        self.shared.close()


@pytest.fixture
def source(tmp_path):
    made = Source(tmp_path / "file")
    yield made
    assert made.shared.readers == 0
    made.close()


def a_fetch(*ranges: tuple[int, int]) -> FetchRequest:
    partitions = [
        FetchRequest.Topic.Partition(partition=index, fetch_offset=position, partition_max_bytes=size)
        for index, (position, size) in enumerate(ranges)
    ]
    return FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchRequest.Topic(topic="t", partitions=partitions)]
    )


MIXED = [(7, 100), (LARGE, LARGE), (3, 16 * 1024), (5, 16 * 1024 + 1), (0, 1), (1 << 20, 3 << 20), (9, 9)]


async def test_ranges_arrive_among_other_parts(source):
    async with serving(source.route()) as server, connected(server) as connection:
        for ranges in ([(0, LARGE)], [(0, 5)], MIXED, MIXED[:-2], [(0, HUGE), (1, LARGE)]):
            response = await connection.request(a_fetch(*ranges), VERSION, timeout_ms=10_000)
            assert source.agrees(response, ranges)


async def test_answers_keep_their_order(source):
    async with serving(source.route()) as server, connected(server) as connection:
        asked = [[(index, LARGE + index), (index, 10)] for index in range(40)]
        asked[7] = [(0, HUGE)]
        requests = [connection.request(a_fetch(*ranges), VERSION, timeout_ms=10_000) for ranges in asked]
        for response, ranges in zip(await asyncio.gather(*requests), asked, strict=True):
            assert source.agrees(response, ranges)


async def test_a_slow_reader_gets_everything_in_the_end(source):
    async with serving(source.route()) as server, raw(server) as peer:
        peer.reader._limit = 1000
        ranges = [[(0, HUGE)], [(5, LARGE)], [(9, 40)]]
        for correlation_id, one in enumerate(ranges):
            peer.ask(a_fetch(*one), VERSION, correlation_id)
        await wait_until(lambda: server.counters.requests)
        (conversation,) = server._conversations
        await wait_until(lambda: conversation._out.is_sending)
        assert server.counters.requests < 3, "nothing is served to those who do not read"
        assert source.shared.readers == 1
        for correlation_id, one in enumerate(ranges):
            found, response = await peer.response(FetchRequest.__key__, VERSION)
            assert found == correlation_id
            assert source.agrees(response, one)


async def test_what_the_transport_still_has_leaves_first(source):
    """A sender that starts while the transport has bytes to send waits for them."""
    async with serving(source.route()) as server, raw(server) as peer:
        await wait_until(lambda: server.connections)
        (conversation,) = server._conversations
        ahead = bytes(8 << 20)
        conversation._transport.write(ahead)
        assert conversation._transport.get_write_buffer_size()
        for correlation_id in (1, 2):
            peer.ask(a_fetch((0, LARGE)), VERSION, correlation_id)
        conversation._is_writable = True  # or else it would not come to this
        await wait_until(lambda: conversation._out.is_sending)
        assert await peer.reader.readexactly(len(ahead)) == ahead
        for correlation_id in (1, 2):
            found, response = await peer.response(FetchRequest.__key__, VERSION)
            assert found == correlation_id
            assert source.agrees(response, [(0, LARGE)])
        limits = server.limits
        assert conversation._transport.get_write_buffer_limits() == (
            limits.write_buffer_low_bytes,
            limits.write_buffer_high_bytes,
        )


async def test_a_lost_connection_lets_go_of_the_file(source):
    async with serving(source.route()) as server:
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        async with raw(server) as peer:
            peer.reader._limit = 1000
            peer.ask(a_fetch((0, HUGE), (0, LARGE)), VERSION, 1)
            await wait_until(lambda: source.shared.readers)
            peer.reset()
        await wait_until(lambda: not server.connections)
        assert source.shared.readers == 0
        assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


async def test_half_a_connection_is_enough_to_be_answered(source):
    async with serving(source.route()) as server, raw(server) as peer:
        peer.say(encoded(a_fetch((0, HUGE)), VERSION, 1))
        peer.writer.write_eof()
        _, response = await peer.response(FetchRequest.__key__, VERSION)
        assert source.agrees(response, [(0, HUGE)])
        assert await peer.is_closed()
        await wait_until(lambda: not server.connections)


async def test_a_server_that_closes_sends_what_is_on_its_way(source):
    async with serving(source.route()) as server, raw(server) as peer:
        peer.reader._limit = 1000
        peer.ask(a_fetch((0, HUGE)), VERSION, 1)
        await wait_until(lambda: source.shared.readers)
        closing = asyncio.ensure_future(server.close(timeout_ms=20_000))
        _, response = await peer.response(FetchRequest.__key__, VERSION)
        assert source.agrees(response, [(0, HUGE)])
        assert await peer.is_closed()
        await closing


async def test_a_server_that_must_close_now_does(source):
    async with serving(source.route()) as server, raw(server) as peer:
        peer.reader._limit = 1000
        peer.ask(a_fetch((0, HUGE)), VERSION, 1)
        await wait_until(lambda: source.shared.readers)
        await server.close(timeout_ms=0)
        assert source.shared.readers == 0


@pytest.mark.parametrize("size_bytes", [100, LARGE, HUGE])
async def test_a_file_that_was_cut_ends_the_connection(source, size_bytes, caplog):
    caplog.set_level(logging.INFO, "quorate.net")
    with source.path.open("r+b") as file:
        file.truncate(50)
    async with serving(source.route()) as server, raw(server) as peer:
        peer.ask(a_fetch((0, size_bytes)), VERSION, 1)
        await wait_until(lambda: server.counters.failed)
        await wait_until(lambda: not server.connections)
    (line,) = [one.getMessage() for one in caplog.records if one.name == "quorate.net"]
    assert "an answer cannot be sent" in line


async def test_where_there_is_no_sendfile_ranges_are_read(source, monkeypatch):
    def sendfile(*_):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(file_sending.os, "sendfile", sendfile)
    async with serving(source.route()) as server, connected(server) as connection:
        for ranges in (MIXED, [(0, HUGE)]):
            response = await connection.request(a_fetch(*ranges), VERSION, timeout_ms=10_000)
            assert source.agrees(response, ranges)


async def test_where_there_is_no_plain_socket_ranges_are_read(source, monkeypatch):
    monkeypatch.setattr(file_sending.FileSender, "of", lambda *_: None)
    async with serving(source.route()) as server, connected(server) as connection:
        for ranges in (MIXED, [(0, HUGE)]):
            response = await connection.request(a_fetch(*ranges), VERSION, timeout_ms=10_000)
            assert source.agrees(response, ranges)


def test_reading_lets_go_of_the_file(source):
    parts = without_ranges([b"a", source.range(0, 10), source.range(10, 100)])
    assert parts == [b"a", source.data[:10], source.data[10:110]]
    assert source.shared.readers == 0
    with source.path.open("r+b") as file:
        file.truncate(5)
    with pytest.raises(UnreadableRangeError, match="5 bytes are left"):
        without_ranges([source.range(0, 10)])


def test_a_range_whose_disk_fails_is_said_to_be_unreadable(tmp_path, monkeypatch):
    source = Source(tmp_path / "file", 1 << 20)
    part = source.range(0, 10)

    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(FileRange, "read", fail)
    with pytest.raises(UnreadableRangeError, match="Input/output error"):
        without_ranges([part])
