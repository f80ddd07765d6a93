"""`quorate produce`: lines become records."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from enum import Enum
from typing import Annotated, BinaryIO, Final, NamedTuple

import typer

from quorate.cli.asking import BOOTSTRAP_SERVER, BootstrapOption, ask, fail, pairs, size
from quorate.client.cluster import Cluster
from quorate.client.errors import Unavailable
from quorate.client.producer import ACKS_ALL, Delivered, Producer, ProducerSettings
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["app"]

_READ_BYTES: Final = 1 << 16
_PIECES_MAX: Final = 16  # that wait between who reads and who sends
_LINE_BYTES_MAX: Final = 1 << 20  # what brokers take
_PROGRESS_EVERY_S: Final = 0.5
_LINGER_MS: Final = 5


class Acks(Enum):
    """Whose acknowledgement counts."""

    ALL = "all"
    LEADER = "1"
    NOBODY = "0"


_ACKS: Final = {Acks.ALL: ACKS_ALL, Acks.LEADER: 1, Acks.NOBODY: 0}
_CODECS: Final = {one.name.lower(): one for one in Codec}


class Counts(NamedTuple):
    records: int
    size_bytes: int


app = typer.Typer(add_completion=False)


@app.command("produce")
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to.")],
    bootstrap_server: BootstrapOption = BOOTSTRAP_SERVER,
    file: Annotated[str, typer.Option(metavar="PATH", help="Lines of a file, not of standard input.")] = "",
    key_separator: Annotated[
        str, typer.Option(metavar="TEXT", help="What stands between key and value in a line.")
    ] = "",
    partition: Annotated[int | None, typer.Option(metavar="N", min=0, help="Into one partition.")] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A header of every record.")
    ] = None,
    acks: Annotated[
        Acks, typer.Option(help="Whose word counts: all, 1 (the leader), 0 (nobody).")
    ] = Acks.ALL,
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")] = "none",
) -> None:
    """Sends lines to a topic, a record each. An empty value after a key separator deletes the key."""
    if compression not in _CODECS:
        fail(f"--compression {compression!r}: there are {', '.join(_CODECS)}")
    settings = ProducerSettings(acks=_ACKS[acks], codec=_CODECS[compression], linger_ms=_LINGER_MS)
    headers = [(key, value.encode()) for key, value in pairs(header or (), "--header").items()]
    source = _opened(file)
    is_typed = source.isatty()
    if is_typed:
        print("a line is a record; Ctrl-D ends", file=sys.stderr)
    lines = _Lines(source)

    async def send_all(cluster: Cluster) -> Counts:
        async with Producer(cluster, settings) as producer:
            await cluster.topic(topic)
            sending = _Sending(
                producer,
                topic,
                key_separator.encode(),
                partition,
                headers,
                shows_progress=sys.stderr.isatty() and not is_typed,
            )
            async for line in lines:
                await sending.send(line)
            return await sending.finish()

    try:
        sent = ask(bootstrap_server, send_all)
    finally:
        if file:
            source.close()
    print(f"{sent.records} records, {size(sent.size_bytes)}, delivered to {topic}", file=sys.stderr)


def _opened(path: str) -> BinaryIO:
    if not path:
        # Without its buffer, whose lock a thread that waits for input would keep until the very end.
        plain: BinaryIO = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        return plain
    try:
        return open(path, "rb", buffering=0)  # noqa: PTH123
    except OSError as error:
        fail(f"{path}: {error.strerror}")


class _Sending:
    """Records on their way, and what became of them."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        separator: bytes,
        partition: int | None,
        headers: Sequence[tuple[str, bytes]],
        *,
        shows_progress: bool,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._separator = separator
        self._partition = partition
        self._headers = headers
        self._count = self._delivered = self._size_bytes = 0
        self._failure: BaseException | None = None
        self._shown_at = time.monotonic()
        self._shows_progress = shows_progress

    async def send(self, line: bytes) -> None:
        if self._failure is not None:
            raise self._failure
        self._count += 1
        key, value = self._key_and_value(line)
        receipt = await self._producer.send(
            self._topic, value, key=key, partition=self._partition, headers=self._headers
        )
        self._size_bytes += len(line)
        receipt.add_done_callback(self._settled)
        if self._shows_progress and time.monotonic() - self._shown_at > _PROGRESS_EVERY_S:
            self._show()

    async def finish(self) -> Counts:
        await self._producer.flush()
        await asyncio.sleep(0)  # so that those are told that wait for the last ones
        if self._shows_progress:
            self._show()
            print(file=sys.stderr)
        if self._failure is not None:
            raise self._failure
        return Counts(self._delivered, self._size_bytes)

    def _key_and_value(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        if not self._separator:
            return None, line
        key, separator, value = line.partition(self._separator)
        if not separator:
            text = self._separator.decode()
            raise ApiError(
                ErrorCode.INVALID_RECORD, f"line {self._count}: there is no {text!r} between key and value"
            )
        return key, value or None

    def _settled(self, receipt: asyncio.Future[Delivered]) -> None:
        if receipt.cancelled():
            return
        error = receipt.exception()
        if error is None:
            self._delivered += 1
        elif self._failure is None:
            self._failure = error

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        text = f"{self._delivered} of {self._count} records delivered, {size(self._size_bytes)}"
        print(f"\r{text:<60}", end="", file=sys.stderr, flush=True)


class _Lines:
    """The lines of a source that may make one wait, such as a keyboard: a thread of its own reads it, which
    nobody waits for when the command ends."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        room = threading.Semaphore(_PIECES_MAX)
        is_over = threading.Event()

        def read() -> None:
            piece: bytes | OSError = b"-"
            while piece and not isinstance(piece, OSError):
                room.acquire()
                if is_over.is_set():
                    return
                try:
                    piece = self._source.read(_READ_BYTES)
                except OSError as error:
                    piece = error
                except ValueError:
                    return  # it is closed, and so the command has ended
                with contextlib.suppress(RuntimeError):  # that the loop is closed, which is the same
                    loop.call_soon_threadsafe(pieces.put_nowait, piece)

        threading.Thread(target=read, daemon=True).start()
        try:
            rest = b""
            while piece := await pieces.get():
                room.release()
                if isinstance(piece, OSError):
                    raise Unavailable(f"{self._source.name}: {piece.strerror}")
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield line.removesuffix(b"\r")
                if len(rest) > _LINE_BYTES_MAX:
                    reason = f"a line of more than {size(_LINE_BYTES_MAX)}"
                    raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, reason)
            if rest:
                yield rest
        finally:
            is_over.set()
            room.release()
