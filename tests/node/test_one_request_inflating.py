"""Batches of a few bytes that stand for megabytes, or for millions of records: whatever one request has of
them, the node answers it, and others meanwhile, in little more memory than before."""

from collections.abc import Callable, Iterator

import pytest
from fastcrc.crc32 import iscsi as crc32c

from node.broker_processes import BrokerProcesses
from node.one_request import MIB, Peer, Watched
from quorate.protocol.api.produce_fetch import ProduceRequest
from quorate.protocol.batch import NO_TIMESTAMP, Record, build_encoded
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ErrorCode
from quorate.protocol.record import encode_record

pytestmark = pytest.mark.processes

NODE = 1
TOPIC = "orders"
PARTITIONS = 250
VERSION = 12
REQUEST_BYTES_MAX = 4 * MIB


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path_factory.mktemp("cluster"), combined=1) as running:
        running.create_topic(TOPIC, *[[NODE]] * PARTITIONS)
        with Peer(running, NODE) as peer:  # has seen every codec once
            for codec in Codec:
                answer = peer.ask(produce([batch([Record(0, NO_TIMESTAMP, None, b"v")], codec)]), VERSION)
                assert codes(answer) == [ErrorCode.NONE]
        yield running


def batch(records: list[Record], codec: Codec, tail: bytes = b"") -> bytes:
    """Of records that are encoded with nothing in front of them; the tail is behind the last."""
    section = b"".join([encode_record(one, 0, NO_TIMESTAMP) for one in records]) + tail
    place = {"base_offset": 0, "leader_epoch": -1, "timestamp": NO_TIMESTAMP}
    return bytes(build_encoded(section, len(records), codec=codec, **place))


def produce(batches: list[bytes]) -> ProduceRequest:
    """One for each partition."""
    topic = ProduceRequest.TopicProduceData
    data = [
        topic.PartitionProduceData(index=index, records=memoryview(one)) for index, one in enumerate(batches)
    ]
    return ProduceRequest(
        transactional_id=None, acks=1, timeout_ms=1000, topic_data=[topic(name=TOPIC, partition_data=data)]
    )


def codes(answer: object) -> list[ErrorCode]:
    return [ErrorCode(one.error_code) for one in answer.responses[0].partition_responses]  # type: ignore[attr-defined]


def zeros(size_bytes: int, codec: Codec) -> Callable[[], bytes]:
    return lambda: batch([Record(0, NO_TIMESTAMP, None, bytes(size_bytes))], codec)


def zstd_of_unknown_size(size_bytes: int, window_log: int) -> bytes:
    """A batch as a program makes it that writes zeros and does not know how many will come: blocks of 128 KiB
    in four bytes each."""
    record = encode_record(Record(0, NO_TIMESTAMP, None, bytes(size_bytes)), 0, NO_TIMESTAMP)
    begin, blocks = record.rstrip(b"\0") + b"\0", b""
    left = len(record) - len(begin)
    while left:
        count = min(left, 128 << 10)
        left -= count
        blocks += (count << 3 | 1 << 1 | (not left)).to_bytes(3, "little") + b"\0"
    frame = b"\x28\xb5\x2f\xfd\0" + bytes([window_log - 10 << 3])
    frame += (len(begin) << 3).to_bytes(3, "little") + begin + blocks
    place = {"base_offset": 0, "leader_epoch": -1, "timestamp": NO_TIMESTAMP}
    whole = build_encoded(frame, 1, **place)
    whole[22] = Codec.ZSTD
    whole[17:21] = crc32c(memoryview(whole)[21:]).to_bytes(4, "big")
    return bytes(whole)


def small_records(count: int, *, headers: int = 0, tail: bytes = b"") -> Callable[[], bytes]:
    """Of two sizes, so that no short way leads through them."""
    about = [("", None)] * headers
    return lambda: batch(
        [Record(at, NO_TIMESTAMP, None, b"v" * (at % 2), about) for at in range(count)], Codec.ZSTD, tail
    )


GONE = ErrorCode.REQUEST_TIMED_OUT  # for this request: what is in it may be sent again
WRONG = ErrorCode.INVALID_RECORD
TAKEN = ErrorCode.NONE
COSTLY = {
    "128 MiB in 4 KB": (zeros(128 * MIB - 100, Codec.ZSTD), {WRONG, GONE}),
    "128 MiB of which nothing says that": (lambda: zstd_of_unknown_size(128 * MIB, 21), {WRONG, GONE}),
    "and with a window as large": (lambda: zstd_of_unknown_size(128 * MIB, 27), {WRONG, GONE}),
    "7 MiB with a window of 128 MiB": (lambda: zstd_of_unknown_size(7 * MIB, 27), {TAKEN, GONE}),
    "64 MiB, gzip": (zeros(64 * MIB, Codec.GZIP), {WRONG, GONE}),
    "64 MiB, lz4": (zeros(64 * MIB, Codec.LZ4), {WRONG, GONE}),
    "7 MiB, which is allowed": (zeros(7 * MIB, Codec.ZSTD), {TAKEN, GONE}),
    "half a million records": (small_records(MIB // 2), {TAKEN, GONE}),
    "a quarter of a million records with a header": (small_records(MIB // 4, headers=1), {TAKEN, GONE}),
    "a million headers": (small_records(2, headers=MIB // 2), {TAKEN, GONE}),
    "a million headers too many": (small_records(4, headers=MIB), {WRONG, GONE}),
    "records, and a byte too many": (small_records(MIB // 2, tail=b"\0"), {WRONG, GONE}),
}


@pytest.mark.parametrize("name", COSTLY)
def test_a_request_is_answered_whatever_its_batches_inflate_to(
    cluster: BrokerProcesses, record_property: Callable[[str, object], None], name: str
) -> None:
    make, expected = COSTLY[name]
    costly = make()
    request = produce([costly] * min(PARTITIONS, REQUEST_BYTES_MAX // len(costly)))
    with Watched(cluster, NODE) as watched, Peer(cluster, NODE) as peer:
        request_bytes = peer.say(request, VERSION)
        assert set(codes(peer.hear(request, VERSION))) <= expected
    watched.check(request_bytes, peer.heard_bytes)
    record_property("bystander_waited_ms", round(watched.waited_ms))
    record_property("grown_bytes", watched.grown_bytes)


def test_what_is_answered_with_a_time_out_is_taken_when_it_is_sent_again(cluster: BrokerProcesses) -> None:
    left = [zeros(7 * MIB, Codec.ZSTD)()] * 60
    with Peer(cluster, NODE) as peer:
        said = codes(peer.ask(produce(left), VERSION))
        assert set(said) == {TAKEN, GONE}
        left = [one for one, code in zip(left, said, strict=True) if code is GONE]
        assert set(codes(peer.ask(produce(left), VERSION))) == {TAKEN}


def test_a_topic_may_allow_more(cluster: BrokerProcesses) -> None:
    costly = zeros(20 * MIB, Codec.ZSTD)()
    cluster.create_topic("large", [NODE], max_decompressed_message_bytes=32 * MIB)
    with Peer(cluster, NODE) as peer:
        request = produce([costly])
        assert codes(peer.ask(request, VERSION)) == [WRONG]
        request.topic_data[0].name = "large"
        assert codes(peer.ask(request, VERSION)) == [TAKEN]


def test_a_node_that_is_told_to_end_meanwhile_ends_in_order(cluster: BrokerProcesses) -> None:
    make, _ = COSTLY["half a million records"]
    with Peer(cluster, NODE) as peer:
        peer.say(produce([make()] * 5), VERSION)
        assert cluster.terminate(NODE) == 0
