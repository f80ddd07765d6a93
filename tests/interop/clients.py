"""Other people's clients behind one face: each writes records to a partition, and reads them from there.

What a client cannot write is not asked of it: `records` gives what it can.
"""

import asyncio
import json
import subprocess
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import confluent_kafka
import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from apache_tools import ApacheTools

from quorate.client.cluster import Cluster
from quorate.client.fetcher import Fetcher
from quorate.client.producer import Producer, ProducerSettings
from quorate.protocol.compression import Codec

DEADLINE_S = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ALL = -1

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """What is written. A timestamp of None is left to the client."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None


class Seen(NamedTuple):
    """What is read."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    has_append_time: bool = False


class Way(NamedTuple):
    """How something is written."""

    codec: str
    acks: int
    is_idempotent: bool

    def __str__(self) -> str:
        return f"{self.codec}/{self.acks}{'/idempotent' if self.is_idempotent else ''}"


PLAINLY = Way("none", ALL, False)
WAYS = [
    Way(codec, acks, is_idempotent)
    for codec in CODECS
    for acks, is_idempotent in ((0, False), (1, False), (ALL, False), (ALL, True))
]


class Client(Protocol):
    def records(self, tag: str) -> list[Record]:
        """Records of every kind that the client can write, with the tag in each, in key or value."""

    def write(self, servers: str, topic: str, records: Sequence[Record], way: Way = PLAINLY) -> None:
        """Writes records to partition 0 and waits for the acknowledgements that it asked for."""

    def read(self, servers: str, topic: str, count: int, offset: int = 0) -> list[Seen]:
        """That many records of partition 0."""


def all_kinds(tag: str) -> list[Record]:
    """Keys and values that are there, empty, and null; headers; long values; timestamps not in order."""
    name = tag.encode()
    headers = (("a", b"1"), ("empty", b""), ("a", b"2"), ("null", None), ("\N{SNOWMAN}", b"\xe2\x98\x83"))
    return [
        Record(b"key", name, (), 1_700_000_000_000),
        Record(None, name, headers, 1_700_000_000_500),
        Record(name, None, (), 1_700_000_000_400),
        Record(name, b"", (), 1),
        Record(b"", name + b" again" * 500, (("only", b"one"),), 1_700_000_000_600),
    ]


def without_null_headers(tag: str) -> list[Record]:
    return [
        one._replace(headers=tuple(header for header in one.headers if header[1] is not None))
        for one in all_kinds(tag)
    ]


class Librdkafka:
    """confluent-kafka."""

    records = staticmethod(all_kinds)

    def write(self, servers: str, topic: str, records: Sequence[Record], way: Way = PLAINLY) -> None:
        settings = {
            "bootstrap.servers": servers,
            "compression.type": way.codec,
            "acks": way.acks,
            "enable.idempotence": way.is_idempotent,
            "linger.ms": 5,
            "max.in.flight": 5 if way.is_idempotent else 1,
        }
        producer = confluent_kafka.Producer(settings)
        failures = []
        for one in records:
            timestamp = {} if one.timestamp_ms is None else {"timestamp": one.timestamp_ms}
            producer.produce(
                topic,
                one.value,
                one.key,
                0,
                on_delivery=lambda error, _: error and failures.append(error),
                headers=list(one.headers),
                **timestamp,
            )
        assert producer.flush(DEADLINE_S) == 0
        assert not failures, failures

    def read(self, servers: str, topic: str, count: int, offset: int = 0) -> list[Seen]:
        settings = {"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer(settings)
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, offset)])
        found = []
        while len(found) < count:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"{len(found)} of {count}"
            assert message.error() is None, message.error()
            kind, timestamp_ms = message.timestamp()
            found.append(
                Seen(
                    message.offset(),
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                    timestamp_ms,
                    kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME,
                )
            )
        consumer.close()
        return found


class KafkaPython:
    """kafka-python. It does not write null in a header."""

    records = staticmethod(without_null_headers)

    def write(self, servers: str, topic: str, records: Sequence[Record], way: Way = PLAINLY) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if way.codec == "none" else way.codec,
            acks="all" if way.acks == ALL else way.acks,
            enable_idempotence=way.is_idempotent,
            linger_ms=5,
            max_in_flight_requests_per_connection=5 if way.is_idempotent else 1,
        )
        sent = [
            producer.send(topic, one.value, one.key, list(one.headers), 0, one.timestamp_ms)
            for one in records
        ]
        producer.flush(DEADLINE_S)
        for one in sent:
            one.get(DEADLINE_S)
        producer.close()

    def read(self, servers: str, topic: str, count: int, offset: int = 0) -> list[Seen]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=servers, group_id=None)
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        found: list[Seen] = []
        while len(found) < count:
            polled = consumer.poll(timeout_ms=DEADLINE_S * 1000)
            assert polled, f"{len(found)} of {count}"
            found += [
                Seen(
                    one.offset, one.key, one.value, tuple(one.headers), one.timestamp, one.timestamp_type == 1
                )
                for one in polled[partition]
            ]
        consumer.close()
        return found


class AioKafka:
    """aiokafka."""

    records = staticmethod(all_kinds)

    def write(self, servers: str, topic: str, records: Sequence[Record], way: Way = PLAINLY) -> None:
        asyncio.run(self._write(servers, topic, records, way))

    async def _write(self, servers: str, topic: str, records: Sequence[Record], way: Way) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if way.codec == "none" else way.codec,
            acks="all" if way.acks == ALL else way.acks,
            enable_idempotence=way.is_idempotent,
            linger_ms=5,
        )
        async with producer:
            sent = [
                await producer.send(
                    topic, one.value, one.key, 0, timestamp_ms=one.timestamp_ms, headers=list(one.headers)
                )
                for one in records
            ]
            await asyncio.wait_for(asyncio.gather(*sent), DEADLINE_S)

    def read(self, servers: str, topic: str, count: int, offset: int = 0) -> list[Seen]:
        return asyncio.run(self._read(servers, topic, count, offset))

    async def _read(self, servers: str, topic: str, count: int, offset: int) -> list[Seen]:
        found: list[Seen] = []
        partition = AioPartition(topic, 0)
        async with asyncio.timeout(DEADLINE_S), AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, offset)
            while len(found) < count:
                one = await consumer.getone(partition)
                found.append(
                    Seen(one.offset, one.key, one.value, one.headers, one.timestamp, one.timestamp_type == 1)
                )
        return found


class Kcat:
    """kcat, which is librdkafka of another time. It writes lines, all with the same headers."""

    HEADERS: Headers = (("a", b"1"), ("empty", b""), ("a", b"2"))

    def __init__(self, program: Sequence[str]) -> None:
        self._program = program

    def records(self, tag: str) -> list[Record]:
        name = tag.encode()
        values = [(b"key", name), (b"", name), (name, b""), (b"k", name + b" again" * 500)]
        return [Record(key, value, self.HEADERS) for key, value in values]

    def write(self, servers: str, topic: str, records: Sequence[Record], way: Way = PLAINLY) -> None:
        lines = [b"%s|%s\n" % (one.key, one.value) for one in records]
        headers = [
            f"-H{name}={(value or b'').decode()}" for name, value in (records[0].headers if records else ())
        ]
        self.run(
            *("-b", servers, "-P", "-t", topic, "-p", "0", "-K", "|", "-z", way.codec, *headers),
            *("-X", f"acks={way.acks}", "-X", f"enable.idempotence={str(way.is_idempotent).lower()}"),
            stdin=b"".join(lines),
        )

    def read(self, servers: str, topic: str, count: int, offset: int = 0) -> list[Seen]:
        lines = self.run(
            "-b", servers, "-C", "-q", "-t", topic, "-p", "0", "-o", f"{offset}", f"-c{count}", "-J"
        )
        return [self._seen(json.loads(line)) for line in lines.splitlines()]

    def _seen(self, message: dict) -> Seen:
        headers = message.get("headers", [])
        pairs = zip(headers[::2], headers[1::2], strict=True)
        return Seen(
            message["offset"],
            _bytes(message["key"]),
            _bytes(message["payload"]),
            tuple((name, _bytes(value)) for name, value in pairs),
            message["ts"],
            message["tstype"] == "logappend",
        )

    def run(self, *arguments: str, stdin: bytes = b"") -> str:
        command = [*self._program, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr.decode(errors='replace')}"
        return done.stdout.decode()


class Java:
    """The console producer and the console consumer of Apache Kafka. They write and read lines."""

    NULL = "~"

    def __init__(self, tools: ApacheTools) -> None:
        self._tools = tools

    def records(self, tag: str) -> list[Record]:
        return [one._replace(timestamp_ms=None) for one in all_kinds(tag)]

    def write(self, servers: str, topic: str, records: Sequence[Record], way: Way = PLAINLY) -> None:
        self._tools.run(
            "console_producer",
            *("--bootstrap-server", servers, "--topic", topic),
            *("--compression-codec", way.codec, "--request-required-acks", f"{way.acks}"),
            *("--request-timeout-ms", "30000", "--timeout", "5"),
            *("--command-property", f"enable.idempotence={str(way.is_idempotent).lower()}"),
            *("--command-property", "max.in.flight.requests.per.connection=1"),
            *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
            *("--reader-property", f"null.marker={self.NULL}"),
            stdin="".join(self._line(one) + "\n" for one in records),
        )

    def _line(self, record: Record) -> str:
        headers = ",".join(f"{name}:{self._text(value)}" for name, value in record.headers)
        return f"{headers or self.NULL}\t{self._text(record.key)}\t{self._text(record.value)}"

    def _text(self, value: bytes | None) -> str:
        return self.NULL if value is None else value.decode()

    def read(self, servers: str, topic: str, count: int, offset: int = 0) -> list[Seen]:
        shown = ("print.key", "print.headers", "print.timestamp", "print.offset")
        properties = [f"{name}=true" for name in shown] + [f"null.literal={self.NULL}"]
        printed = self._tools.run(
            "console_consumer",
            *("--bootstrap-server", servers, "--topic", topic, "--partition", "0", "--offset", f"{offset}"),
            *("--max-messages", f"{count}", "--timeout-ms", f"{DEADLINE_S * 1000:.0f}"),
            *(word for one in properties for word in ("--formatter-property", one)),
        )
        found = [self._seen(line) for line in printed.splitlines() if line.count("\t") == 4]
        assert len(found) == count, printed
        return found

    def _seen(self, line: str) -> Seen:
        time, offset, headers, key, value = line.split("\t")
        kind, _, timestamp = time.partition(":")
        pairs = [] if headers == "NO_HEADERS" else [one.split(":") for one in headers.split(",")]
        return Seen(
            int(offset.partition(":")[2]),
            self._value(key),
            self._value(value),
            tuple((name, self._value(of)) for name, of in pairs),
            int(timestamp),
            kind == "LogAppendTime",
        )

    def _value(self, text: str) -> bytes | None:
        return None if text == self.NULL else text.encode()


class Ours:
    """Quorate's own client."""

    records = staticmethod(all_kinds)

    def write(self, servers: str, topic: str, records: Sequence[Record], way: Way = PLAINLY) -> None:
        asyncio.run(self._write(servers, topic, records, way))

    async def _write(self, servers: str, topic: str, records: Sequence[Record], way: Way) -> None:
        settings = ProducerSettings(
            codec=Codec[way.codec.upper()], acks=way.acks, idempotent=way.is_idempotent
        )
        async with Cluster(servers) as cluster, Producer(cluster, settings) as producer:
            sent = [
                await producer.send(
                    topic,
                    one.value,
                    key=one.key,
                    headers=one.headers,
                    partition=0,
                    timestamp_ms=one.timestamp_ms,
                )
                for one in records
            ]
            await asyncio.wait_for(asyncio.gather(*sent), DEADLINE_S)

    def read(self, servers: str, topic: str, count: int, offset: int = 0) -> list[Seen]:
        return asyncio.run(self._read(servers, topic, count, offset))

    async def _read(self, servers: str, topic: str, count: int, offset: int) -> list[Seen]:
        found: list[Seen] = []
        async with asyncio.timeout(DEADLINE_S), Cluster(servers) as cluster, Fetcher(cluster) as fetcher:
            fetcher.assign({(topic, 0): offset})
            while len(found) < count:
                for part in await fetcher.fetch():
                    (has_append_time,) = {header.timestamp_type == 1 for header in part.batches}
                    found += [
                        Seen(
                            one.offset,
                            one.key,
                            one.value,
                            tuple(one.headers),
                            one.timestamp,
                            has_append_time,
                        )
                        for one in part.records()
                    ]
        return found


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
