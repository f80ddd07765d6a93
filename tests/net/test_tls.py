"""Connections that are encrypted: who is let in, what is wrong with keys, and answers out of files."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from certificates import Authority
from nodes import HOST

from quorate.net.client import Connection, ConnectionLost
from quorate.net.paced_sending import PIECE_BYTES, PacedSender
from quorate.net.routes import Route, RouteTable
from quorate.net.server import Server
from quorate.net.tls import ClientAuth, Pem, TlsError, TlsSettings, client_context, server_context
from quorate.protocol.api.produce_fetch import FetchRequest, FetchResponse
from quorate.storage.file_ranges import FileRange, SharedFile
from quorate.storage.files import RealFiles

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl program")

LONG_MS = 20_000
PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker_key(authority: Authority) -> Path:
    return authority.signed("broker")


class FileOfRecords:
    """Answers every fetch with all of a file."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        file = RealFiles().open(str(path), create=True)
        self.content = bytes(range(256)) * (size_bytes // 256)
        file.append([self.content])
        self.shared = SharedFile(file)

    def __call__(self, *_: object) -> FetchResponse:
        part = PartitionData(
            partition_index=0,
            error_code=0,
            high_watermark=0,
            aborted_transactions=None,
            records=FileRange(self.shared, 0, len(self.content), 0),
        )
        topic = FetchResponse.FetchableTopicResponse(partitions=[part])
        return FetchResponse(session_id=0, responses=[topic])


def a_fetch() -> FetchRequest:
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], forgotten_topics_data=[])


@asynccontextmanager
async def serving(handler: FileOfRecords, tls: ssl.SSLContext):  # type: ignore[no-untyped-def]
    server = Server("SSL", RouteTable([Route(FetchRequest, handler)]))
    await server.start(HOST, 0, tls)
    try:
        yield server
    finally:
        await server.close(timeout_ms=0)


async def connected(server: Server, tls: ssl.SSLContext | None) -> Connection:
    return await Connection.connect(HOST, server.port, timeout_ms=LONG_MS, tls=tls)


async def fetched(connection: Connection) -> bytes:
    answer = await connection.request(a_fetch(), 16, timeout_ms=LONG_MS)
    assert isinstance(answer, FetchResponse)
    return bytes(answer.responses[0].partitions[0].records)  # type: ignore[arg-type]


def run(scenario) -> None:  # type: ignore[no-untyped-def]
    async def timed() -> None:
        async with asyncio.timeout(60):
            await scenario

    asyncio.run(timed())


def test_answers_out_of_files_arrive_whole_and_in_order(
    authority: Authority, broker_key: Path, tmp_path: Path
):
    async def scenario() -> None:
        records = FileOfRecords(tmp_path / "file", 20 << 20)
        server_tls = server_context(TlsSettings(key=Pem.file(str(broker_key))))
        client_tls = client_context(TlsSettings(trusted=Pem.file(str(authority.certificate))))
        async with serving(records, server_tls) as server:
            connection = await connected(server, client_tls)
            answers = await asyncio.gather(*(fetched(connection) for _ in range(3)))
            assert all(answer == records.content for answer in answers)
            assert records.shared.readers == 0
            await connection.close()

    run(scenario())


@pytest.mark.parametrize(
    ("auth", "has_key", "is_served"),
    [
        (ClientAuth.NONE, False, True),
        (ClientAuth.REQUESTED, False, True),
        (ClientAuth.REQUESTED, True, True),
        (ClientAuth.REQUIRED, False, False),
        (ClientAuth.REQUIRED, True, True),
    ],
)
def test_who_must_show_a_certificate(
    authority: Authority, broker_key: Path, tmp_path: Path, auth: str, has_key: bool, is_served: bool
):
    async def scenario() -> None:
        trusted = Pem.file(str(authority.certificate))
        key = Pem.file(str(broker_key))
        server_tls = server_context(TlsSettings(key=key, trusted=trusted, client_auth=auth))
        client_tls = client_context(TlsSettings(key=key if has_key else None, trusted=trusted))
        async with serving(FileOfRecords(tmp_path / "file", 256), server_tls) as server:
            if is_served:
                connection = await connected(server, client_tls)
                assert await fetched(connection)
                await connection.close()
            else:
                with pytest.raises(ConnectionLost):
                    await connected(server, client_tls)

    run(scenario())


def test_who_is_not_trusted_is_not_talked_to(broker_key: Path, tmp_path: Path):
    async def scenario() -> None:
        other = Authority(tmp_path, "other")
        server_tls = server_context(TlsSettings(key=Pem.file(str(broker_key))))
        client_tls = client_context(TlsSettings(trusted=Pem.file(str(other.certificate))))
        async with serving(FileOfRecords(tmp_path / "file", 256), server_tls) as server:
            with pytest.raises(ConnectionLost, match="certificate verify failed"):
                await connected(server, client_tls)

    run(scenario())


def test_keys_may_be_given_as_texts(authority: Authority, broker_key: Path, tmp_path: Path):
    async def scenario() -> None:
        server_tls = server_context(TlsSettings(key=Pem(text=broker_key.read_text())))
        client_tls = client_context(TlsSettings(trusted=Pem(text=authority.certificate.read_text())))
        async with serving(FileOfRecords(tmp_path / "file", 256), server_tls) as server:
            await (await connected(server, client_tls)).close()

    run(scenario())


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (TlsSettings(), "needs a key"),
        (TlsSettings(key=Pem.file("/nowhere.pem")), "the key and its certificate of /nowhere.pem"),
        (TlsSettings(key=Pem(text="nonsense")), "the key and its certificate cannot be used"),
    ],
)
def test_keys_that_cannot_be_used(settings: TlsSettings, reason: str):
    with pytest.raises(TlsError, match=reason):
        server_context(settings)


def test_little_is_read_ahead_of_a_slow_peer(tmp_path: Path):
    """A transport that takes nothing holds a piece or two, however large the range is."""

    class Transport:
        unsent = 0

        def write(self, data: bytes) -> None:
            self.unsent += len(data)

        def get_write_buffer_size(self) -> int:
            return self.unsent

    async def scenario() -> None:
        records = FileOfRecords(tmp_path / "file", 20 << 20)
        transport = Transport()
        told: list[str] = []
        sender = PacedSender(
            transport,  # type: ignore[arg-type]
            asyncio.get_running_loop(),
            lambda: told.append("finished"),
            lambda error: told.append(str(error)),
            PIECE_BYTES,
        )
        sender.send([b"head", FileRange(records.shared, 0, len(records.content), 0), b"tail"])
        taken = 0
        while sender.is_busy:
            assert transport.unsent <= 2 * PIECE_BYTES + 4
            taken += transport.unsent
            transport.unsent = 0
            sender.drained()
            await asyncio.sleep(0)
        assert taken + transport.unsent == len(records.content) + 8
        assert (told, records.shared.readers) == (["finished"], 0)

    run(scenario())
