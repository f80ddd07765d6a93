"""Coordinator records as bytes."""

import pytest

from quorate.coordinator import log_format
from quorate.coordinator.effects import LogRecord
from quorate.coordinator.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

OFFSET = OffsetCommitKey(group="g", topic="t", partition=7)


def test_an_offset_has_apaches_bytes():
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9)
    assert log_format.encode(LogRecord(OFFSET, value)) == (
        bytes.fromhex("0001 0001 67 0001 74 00000007"),
        bytes.fromhex("0003 0000000000000005 00000002 0001 6d 0000000000000009"),
    )


def test_an_offset_with_a_time_to_live_is_written_in_the_version_that_has_one():
    value = OffsetCommitValue(offset=5, metadata="", commit_timestamp=9, expire_timestamp=10)
    key, data = log_format.encode(LogRecord(OFFSET, value))
    assert data is not None
    assert data[:2] == b"\x00\x01"
    assert log_format.decode(key, data) == LogRecord(OFFSET, value)


@pytest.mark.parametrize(
    "record",
    [
        LogRecord(OFFSET, None),
        LogRecord(GroupMetadataKey(group="g"), None),
        LogRecord(
            GroupMetadataKey(group="g"),
            GroupMetadataValue(
                protocol_type="consumer",
                generation=3,
                protocol="range",
                leader="a",
                current_state_timestamp=11,
                members=[
                    GroupMetadataValue.MemberMetadata(
                        member_id="a",
                        group_instance_id=None,
                        client_id="c",
                        client_host="/127.0.0.1",
                        rebalance_timeout=1,
                        session_timeout=2,
                        subscription=b"s",
                        assignment=b"a",
                    )
                ],
            ),
        ),
    ],
)
def test_what_is_written_is_read(record):
    assert log_format.decode(*log_format.encode(record)) == record


def test_the_oldest_key_of_an_offset_is_read_as_todays():
    value = bytes.fromhex("0001 0000000000000005 0000 0000000000000009 ffffffffffffffff")
    record = log_format.decode(bytes.fromhex("0000 0001 67 0001 74 00000007"), value)
    assert record is not None
    assert record.key == OFFSET
    assert record.value == OffsetCommitValue(offset=5, metadata="", commit_timestamp=9)


def test_what_came_later_is_passed_over():
    assert log_format.decode(b"\x7f\x00whatever", b"\x00\x00") is None
