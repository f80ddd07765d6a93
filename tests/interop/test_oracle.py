"""The oracle itself: that it answers, that it refuses, and that it does not hang or hide a death."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from apache_oracle import PINNED, ApacheOracle, Api, OracleDiedError, OracleError

from quorate.protocol.errors import ErrorCode

pytestmark = pytest.mark.interop

REQUEST_HEADER_V2 = bytes.fromhex(
    "003f"  # api key 63
    "0001"  # api version 1
    "0000002a"  # correlation id 42
    "0005 6f74746572"  # client id "otter": a header keeps the old kind of string, flexible or not
    "00"  # no tagged fields
)
BROKER_HEARTBEAT_V1 = bytes.fromhex(
    "00000007"  # broker id 7
    "0000000000000102"  # broker epoch
    "0000000000001000"  # current metadata offset
    "01"  # want fence
    "00"  # want shut down
    "01 00 11"  # one tagged field: tag 0, 17 bytes
    "02 000102030405060708090a0b0c0d0e0f"  # one offline log dir
)


def test_error_codes_are_those_of_apache(apache: ApacheOracle) -> None:
    ours = [(int(code), code.name, code.retriable) for code in ErrorCode]
    assert ours == sorted(tuple(error) for error in apache.errors())


@pytest.mark.parametrize(
    ("name", "version", "data"),
    [
        ("RequestHeader", 2, REQUEST_HEADER_V2),
        ("BrokerHeartbeatRequest", 1, BROKER_HEARTBEAT_V1),
        ("ApiVersionsRequest", 0, b""),
    ],
    ids=["RequestHeader", "BrokerHeartbeatRequest", "a message of no bytes"],
)
def test_a_message_comes_back_as_it_went(apache: ApacheOracle, name: str, version: int, data: bytes) -> None:
    assert apache.roundtrip(name, version, data).data == data


@dataclass(frozen=True)
class RecordsField:
    """A message with one `records` field, and what stands before and after it."""

    name: str
    version: int
    before: str
    length_of: Callable[[bytes], bytes]
    after: str = ""

    def message(self, records: bytes) -> bytes:
        return bytes.fromhex(self.before) + self.length_of(records) + records + bytes.fromhex(self.after)


def int32_length(records: bytes) -> bytes:
    return len(records).to_bytes(4, "big")


def compact_length(records: bytes) -> bytes:
    rest = len(records) + 1
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes(encoded) + bytes([rest])


UUID = "000102030405060708090a0b0c0d0e0f"
RECORDS_FIELDS = [
    RecordsField("ProduceRequest", 3, "ffff ffff 00001388 00000001 0001 74 00000001 00000000", int32_length),
    RecordsField(
        "FetchResponse",
        4,
        "00000000 00000001 0001 74 00000001 00000000 0000 0000000000000009 0000000000000009 ffffffff",
        int32_length,
    ),
    RecordsField(
        "FetchSnapshotResponse",
        0,
        "00000000 0000 02 02 74 02 00000000 0000 0000000000000009 00000001 00"
        "0000000000100000 0000000000000000",
        compact_length,
        "00 00 00",
    ),
    RecordsField(
        "ShareFetchResponse",
        1,
        f"00000000 0000 00 00007530 02 {UUID} 02 00000000 0000 00 0000 00 00000001 00000002 00",
        compact_length,
        "01 00 00 01 00",
    ),
]


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00", b"not a record batch at all", bytes(range(256)) * 4096],
    ids=["empty", "one byte", "text", "a megabyte"],
)
@pytest.mark.parametrize("field", RECORDS_FIELDS, ids=lambda field: field.name)
def test_records_are_bytes_and_nobody_parses_them(
    apache: ApacheOracle, field: RecordsField, content: bytes
) -> None:
    data = field.message(content)
    assert apache.roundtrip(field.name, field.version, data).data == data


@pytest.mark.parametrize(
    ("name", "version", "data", "reason"),
    [
        ("BrokerHeartbeatRequest", 1, BROKER_HEARTBEAT_V1[:-1], "BufferUnderflow"),
        ("BrokerHeartbeatRequest", 1, BROKER_HEARTBEAT_V1 + b"\x00", "1 bytes are left over"),
        ("BrokerHeartbeatRequest", 99, BROKER_HEARTBEAT_V1, "version 99 is not one of 0 to 2"),
        ("OtterRequest", 0, b"", "no schema is called OtterRequest"),
    ],
    ids=["truncated", "one byte too many", "unknown version", "unknown name"],
)
def test_a_refusal_says_why(apache: ApacheOracle, name: str, version: int, data: bytes, reason: str) -> None:
    with pytest.raises(OracleError, match=reason):
        apache.roundtrip(name, version, data)


@pytest.mark.parametrize(
    "garbage",
    ["", " ", "FetchRequest", "FetchRequest x 00", "FetchRequest 4 0g", "headers 999 0", "\x00 \xff ö ö"],
)
def test_garbage_gets_one_answer_and_harms_nobody(apache: ApacheOracle, garbage: str) -> None:
    with pytest.raises(OracleError):
        apache._ask(garbage)
    assert apache.roundtrip("ApiVersionsRequest", 0, b"") == (b"", "{}")


def test_many_round_trips_fill_both_pipes_without_a_deadlock(apache: ApacheOracle) -> None:
    good = ("RequestHeader", 2, REQUEST_HEADER_V2)
    bad = ("RequestHeader", 2, REQUEST_HEADER_V2[:-1])
    answers = apache.roundtrip_many([good, bad] * 2500)
    assert [answer.data for answer in answers[::2]] == [REQUEST_HEADER_V2] * 2500
    assert all(isinstance(answer, OracleError) for answer in answers[1::2])


def test_versions_of_both_releases(apache: ApacheOracle, apache_39: ApacheOracle) -> None:
    assert apache.versions("FetchRequest") == range(4, 19)
    assert apache_39.versions("FetchRequest") == range(18)
    assert apache.versions("LeaderAndIsrRequest") is None
    assert apache_39.versions("LeaderAndIsrRequest") == range(8)


def test_names_are_schema_names_and_each_has_versions(apache: ApacheOracle, apache_39: ApacheOracle) -> None:
    assert {"RequestHeader", "QuorumStateData", "DefaultPrincipalData", "TopicRecord"} <= set(apache.names())
    for oracle in (apache, apache_39):
        assert all(oracle.versions(name) for name in oracle.names())


def test_apis_and_their_headers(apache: ApacheOracle, apache_39: ApacheOracle) -> None:
    controller, zookeeper_broker = frozenset({"controller"}), frozenset({"zk_broker"})
    assert Api(63, "BrokerHeartbeat", 0, 2, 2, controller, forwardable=False) in apache.apis()
    assert Api(4, "LeaderAndIsr", 0, -1, -1, frozenset(), forwardable=False) in apache.apis()
    assert Api(4, "LeaderAndIsr", 0, 7, 7, zookeeper_broker, forwardable=False) in apache_39.apis()
    assert apache.header_versions(key=18, version=4) == (2, 0)
    assert apache_39.header_versions(key=7, version=0) == (0, 0)


def test_a_death_is_told_with_its_last_words(apache: ApacheOracle) -> None:
    del apache  # only its jars, and its reasons to skip
    with ApacheOracle.start(PINNED) as oracle:
        assert oracle.versions("FetchRequest")
        oracle._process.kill()
        with pytest.raises(OracleDiedError, match="exit code -9"):
            oracle.roundtrip("RequestHeader", 2, REQUEST_HEADER_V2)
    oracle._stderr.unlink()
