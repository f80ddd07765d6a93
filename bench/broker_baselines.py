"""What the machine can do at best: servers without a broker in them, each a process of its own.

    with Baseline("file", directory) as base:
        Wire(base.port).stream(...)

- `file` receives frames and writes them to a file.
- `producer` does the same and says what a producer wants to hear: it is a broker that looks at nothing.
- `echo` says what it hears.
- `sendfile` answers every frame with the next megabyte of a file, on blocking sockets.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Self

from bench.broker_nodes import cpu_seconds
from bench.broker_wire import FETCH_VERSION, PRODUCE_VERSION
from quorate.protocol import frame
from quorate.protocol.api.connection import ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.api.produce_fetch import FetchRequest, ProduceRequest, ProduceResponse
from quorate.protocol.api.topics import MetadataRequest, MetadataResponse

HOST = "127.0.0.1"
ANSWER = struct.pack(">i", 46) + bytes(46)  # as long as that to a produce request
FRAME_BYTES_MAX = 2 << 20
PRODUCED_TO = "produced"
METADATA_VERSION = 9
_SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")


class Baseline:
    """A server, and what it has used."""

    def __init__(self, kind: str, directory: Path, *arguments: int) -> None:
        command = [sys.executable, "-m", "bench.broker_baselines", kind, str(directory)]
        self._process = subprocess.Popen(
            [*command, *map(str, arguments)], cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_seconds(self) -> float:
        return cpu_seconds(self._process.pid)


class _ToFile(asyncio.BufferedProtocol):
    """Every connection has a file of its own, whose space is given back when it ends."""

    buffer = memoryview(bytearray(FRAME_BYTES_MAX))
    directory = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        path = Path(self.directory) / "received"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        path.unlink()
        self._filled, self._wanted = 0, 4

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        os.close(self._file)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self.buffer[self._filled : self._wanted]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._filled < self._wanted:
            return
        if self._filled == 4:
            self._wanted += _SIZE.unpack_from(self.buffer)[0]
            return
        self._transport.write(self.answer(self.buffer[4 : self._wanted]))  # type: ignore[attr-defined]
        self._filled, self._wanted = 0, 4

    def answer(self, request: memoryview) -> bytes | bytearray:
        os.write(self._file, request)
        return ANSWER


class _ToFileForProducers(_ToFile):
    """All topics have one partition, which is here."""

    produced = frame.encode_response(
        ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(
                    name=PRODUCED_TO,
                    partition_responses=[
                        ProduceResponse.TopicProduceResponse.PartitionProduceResponse(
                            index=0, error_code=0, base_offset=0
                        )
                    ],
                )
            ]
        ),
        PRODUCE_VERSION,
        0,
    )

    def answer(self, request: memoryview) -> bytes | bytearray:
        key, version, correlation_id = _REQUEST.unpack_from(request)
        if key == ProduceRequest.__key__:
            os.write(self._file, request)
            struct.pack_into(">i", self.produced, _SIZE.size, correlation_id)
            return bytes(self.produced)
        response = self._versions() if key == ApiVersionsRequest.__key__ else self._metadata()
        return frame.encode_response(response, version, correlation_id)

    def _versions(self) -> ApiVersionsResponse:
        served = {
            ApiVersionsRequest: 3,
            FetchRequest: FETCH_VERSION,  # never sent, but who cannot be asked for it gets old batches
            MetadataRequest: METADATA_VERSION,
            ProduceRequest: PRODUCE_VERSION,
        }
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=one.__key__, min_version=0, max_version=version)
            for one, version in served.items()
        ]
        return ApiVersionsResponse(error_code=0, api_keys=keys)

    def _metadata(self) -> MetadataResponse:
        topic = MetadataResponse.Topic
        partition = topic.Partition(
            error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1]
        )
        host, port = self._transport.get_extra_info("sockname")
        return MetadataResponse(
            brokers=[MetadataResponse.Broker(node_id=1, host=host, port=port)],
            controller_id=1,
            topics=[topic(error_code=0, name=PRODUCED_TO, partitions=[partition])],
        )


class _Echo(asyncio.BufferedProtocol):
    buffer = memoryview(bytearray(256 * 1024))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._transport.write(bytes(self.buffer[:nbytes]))  # type: ignore[attr-defined]


async def _serve(protocol: type[asyncio.BufferedProtocol]) -> None:
    server = await asyncio.get_running_loop().create_server(protocol, HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _serve_file(path: Path, file_bytes: int, answer_bytes: int) -> None:
    """Answers with pieces of a file that has just been written, one connection at a time."""
    with path.open("wb") as file:
        for _ in range(file_bytes // answer_bytes):
            file.write(bytes(answer_bytes))
    descriptor = os.open(path, os.O_RDONLY)
    path.unlink()
    listener = socket.create_server((HOST, 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        position = 0
        while size := connection.recv(4, socket.MSG_WAITALL):
            connection.recv(_SIZE.unpack(size)[0], socket.MSG_WAITALL)
            connection.send(_SIZE.pack(answer_bytes), socket.MSG_MORE)
            left = answer_bytes
            while left:
                left -= os.sendfile(connection.fileno(), descriptor, position + answer_bytes - left, left)
            position += answer_bytes
            if position + answer_bytes > file_bytes:
                position = 0
        connection.close()


def _main(kind: str, directory: str, *arguments: str) -> None:
    import uvloop

    _ToFile.directory = directory
    if kind == "file":
        uvloop.run(_serve(_ToFile))
    elif kind == "producer":
        uvloop.run(_serve(_ToFileForProducers))
    elif kind == "echo":
        uvloop.run(_serve(_Echo))
    else:
        _serve_file(Path(directory) / "sent", *map(int, arguments))


if __name__ == "__main__":
    _main(*sys.argv[1:])
