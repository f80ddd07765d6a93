"""A client that costs next to nothing: requests made beforehand, on a blocking socket."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from typing import Self

from quorate.net.client import ConnectionLost
from quorate.protocol import batch as batches
from quorate.protocol import frame
from quorate.protocol.api.produce_fetch import FetchRequest, ProduceRequest
from quorate.protocol.message import Request, Response
from quorate.protocol.record import Record

HOST = "127.0.0.1"
CLIENT_ID = "bench"
PRODUCE_VERSION = 9
FETCH_VERSION = 12
TIMEOUT_S = 30
_SIZE = struct.Struct(">i")
_READ_BYTES = 4 << 20


class Wire:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(_READ_BYTES))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Request, version: int) -> Response:
        self.send(frame.encode_request(request, version, 1, CLIENT_ID))
        size = self.receive()
        _, answer = frame.decode_response(request.__key__, version, bytes(self._buffer[4:size]))
        return answer

    def send(self, data: bytes | bytearray) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise ConnectionLost(str(error)) from error

    def receive(self) -> int:
        """Receives one answer. Its bytes, with the size before it."""
        buffer, received, wanted = self._buffer, 0, 4
        while received < wanted:
            try:
                count = self._socket.recv_into(buffer[received:wanted])
            except OSError as error:
                raise ConnectionLost(str(error)) from error
            if not count:
                raise ConnectionLost("closed by the peer")
            received += count
            if received == 4:
                wanted += _SIZE.unpack_from(buffer)[0]
        return received

    def stream(self, request: bytes, times: int, in_flight: int) -> int:
        """Sends a request so many times, with so many of them under way. The bytes of all answers."""
        sent = min(times, in_flight)
        for _ in range(sent):
            self.send(request)
        received = 0
        for _ in range(times):
            received += self.receive()
            if sent < times:
                self.send(request)
                sent += 1
        return received

    def latencies(self, request: bytes, times: int) -> list[float]:
        """Seconds until each is answered, one after the other; sorted."""
        found = []
        clock = time.perf_counter
        for _ in range(times):
            started = clock()
            self.send(request)
            self.receive()
            found.append(clock() - started)
        return sorted(found)


def produce_request(
    topic: str, values: Sequence[bytes], acks: int = 1, partition_id: int = 0
) -> ProduceRequest:
    now_ms = int(time.time() * 1000)
    records = [Record(offset, now_ms, None, value) for offset, value in enumerate(values)]
    part = ProduceRequest.TopicProduceData
    partition = part.PartitionProduceData(index=partition_id, records=bytes(batches.build(records)))
    return ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[part(name=topic, partition_data=[partition])]
    )


def produce_frame(topic: str, records: int, record_bytes: int, acks: int = 1, partition_id: int = 0) -> bytes:
    """A produce request of one batch, as it travels."""
    request = produce_request(topic, [bytes(record_bytes)] * records, acks, partition_id)
    return bytes(frame.encode_request(request, PRODUCE_VERSION, 1, CLIENT_ID))


def fetch_frame(topic: str, offset: int, size_bytes: int) -> bytes:
    """A fetch request for one partition, as it travels."""
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=size_bytes)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=size_bytes,
        topics=[FetchRequest.Topic(topic=topic, partitions=[partition])],
    )
    return bytes(frame.encode_request(request, FETCH_VERSION, 1, CLIENT_ID))
