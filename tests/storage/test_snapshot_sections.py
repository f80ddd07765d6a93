"""Snapshots of records that are encoded already."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_batches import FILES

from quorate.metadata.log_format import decode_record, encode_record
from quorate.metadata.records import NoOpRecord, TopicRecord
from quorate.metadata.sections import Section, encode_sections
from quorate.protocol.types import ZERO_UUID
from quorate.storage.limits import SNAPSHOT_BATCH_BYTES_MAX
from quorate.storage.snapshots import SnapshotId, SnapshotReader, SnapshotWriter, snapshot_path

ID = SnapshotId(offset=87, epoch=5)


def writer_in(directory):
    path = snapshot_path(str(directory), ID)
    return SnapshotWriter(FILES, path, ID.epoch, timestamp_ms=2000, last_contained_log_timestamp_ms=1500)


@given(count=st.integers(1, 50), records_max=st.sampled_from([1, 7, 100]))
def test_sections_become_batches(tmp_path_factory, count, records_max):
    directory = tmp_path_factory.mktemp("snapshot")
    topics = [TopicRecord(name=f"t{one}", topic_id=ZERO_UUID) for one in range(count)]
    sections = encode_sections(topics, 30, records_max=records_max)

    async def write():
        with writer_in(directory) as writer:
            writer.append_sections(sections)
            writer.append([encode_record(NoOpRecord(), 0)])
            await writer.freeze()

    asyncio.run(write())
    with SnapshotReader(FILES, snapshot_path(str(directory), ID), ID.epoch) as reader:
        reader.verify()
        assert [decode_record(value)[0] for value in reader.values()] == [*topics, NoOpRecord()]
        headers = [header for header, _ in reader.batches() if not header.is_control]
    assert [header.record_count for header in headers[:-1]] == [section.count for section in sections]
    assert {header.max_timestamp for header in headers} == {2000}


def test_a_section_has_the_limit_of_a_batch(tmp_path):
    with writer_in(tmp_path) as writer, pytest.raises(AssertionError):
        writer.append_sections([Section(2, bytes(SNAPSHOT_BATCH_BYTES_MAX + 1))])
