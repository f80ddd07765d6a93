"""Sections: bulk encoding gives the bytes of the ordinary encoder."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import samples
from quorate.metadata import records as r
from quorate.metadata.blocks import Block, Rows, mask_type
from quorate.metadata.log_format import decode_record, encode_record
from quorate.metadata.partition_changes import PartitionChanges
from quorate.metadata.sections import RECORDS_MAX, SECTION_BYTES_MAX, Section, encode_sections
from quorate.metadata.shapes import shape_of
from quorate.metadata.versions import METADATA_VERSION_LATEST, record_version, version_of
from quorate.protocol.batch import Record, build, build_encoded, read_header, records
from quorate.protocol.errors import ProtocolError
from quorate.protocol.record import encode_record as in_batch
from quorate.raft.quorum import BATCH_BYTES_MAX

LEVELS = st.sampled_from([7, 17, 23, METADATA_VERSION_LATEST])


def changes_of(count, width, seed, *, with_eligible=True):
    """Changes of everything that they can change, in any combination."""
    random = np.random.default_rng(seed)
    replicas = np.argsort(random.random((count, max(width, 100))), axis=1)[:, :width].astype(np.int32)
    lengths = random.integers(1, width + 1, count)
    replicas[np.arange(width) >= lengths[:, None]] = -1
    masks = (1 << lengths.astype(np.uint64)) - np.uint64(1)

    def some():
        return (random.integers(0, 2**63, count).astype(np.uint64) & masks).astype(mask_type(width))

    nothing = np.full(count, -2, np.int32)
    return PartitionChanges(
        rows=Rows(Block(width), np.arange(count)),
        topic_ids=np.frombuffer(random.bytes(16 * count), "V16"),
        partition_ids=random.integers(0, 2**31, count).astype(np.int32),
        replicas=replicas,
        has_isr=random.random(count) < 0.7,
        isr=some(),
        leader=np.where(random.random(count) < 0.5, replicas[:, 0], nothing),
        has_elr=(random.random(count) < 0.3) & with_eligible,
        elr=some(),
        last_known_leader=random.choice([-2, -1, 5] if with_eligible else [-2], count).astype(np.int32),
        recovery_state=random.choice([-1, -1, 0, 1], count).astype(np.int8),
    )


def values_of(section):
    batch = build_encoded(section.data, section.count, base_offset=70, leader_epoch=1, timestamp=9)
    found = records(batch, read_header(batch))
    assert [one.offset for one in found] == list(range(70, 70 + section.count))
    assert {one.timestamp for one in found} == {9}
    return [one.value for one in found]


def plain(values):
    return b"".join(in_batch(Record(at, 0, None, value), 0, 0) for at, value in enumerate(values))


def as_text(values):
    return sorted(map(repr, values))


@given(
    st.integers(1, 300),
    st.sampled_from([1, 3, 8, 16, 64]),
    st.integers(0, 2**32),
    st.sampled_from([30, 100, 10_000]),
)
def test_changes_in_bulk_have_the_bytes_of_single_records(count, width, seed, records_max):
    changes = changes_of(count, width, seed)
    sections = encode_sections([changes], METADATA_VERSION_LATEST, records_max=records_max)
    assert sum(section.count for section in sections) == count
    found = []
    for section in sections:
        assert section.count <= records_max
        values = values_of(section)
        again = [encode_record(*decode_record(value)) for value in values]
        assert plain(again) == section.data
        found += [decode_record(value) for value in values]
    version = record_version(r.PartitionChangeRecord, METADATA_VERSION_LATEST)
    assert as_text(found) == as_text((one, version) for one in changes.records())


@pytest.mark.parametrize("first", [60, 8190])
def test_offset_deltas_that_take_more_bytes(first):
    before = [r.NoOpRecord()] * first
    sections = encode_sections([*before, changes_of(20, 3, 1)], METADATA_VERSION_LATEST)
    assert len(sections) == 1
    assert plain(values_of(sections[0])) == sections[0].data


@given(LEVELS, st.integers(1, 40), st.integers(0, 2**32))
def test_every_level_writes_its_version(level, count, seed):
    changes = changes_of(count, 3, seed, with_eligible=level >= 23)
    (section,) = encode_sections([changes], level)
    versions = {decode_record(value)[1] for value in values_of(section)}
    assert versions == {record_version(r.PartitionChangeRecord, level)}


def test_eligible_leaders_cannot_be_written_before_their_time():
    with pytest.raises(ProtocolError, match="does not carry it"):
        encode_sections([changes_of(200, 3, 5)], 20)


def test_records_and_changes_keep_their_order():
    first, last = r.TopicRecord(name="a", topic_id=samples.ZERO_UUID), r.NoOpRecord()
    changes = changes_of(500, 3, 2)
    sections = encode_sections(
        [first, changes, last, changes, first], METADATA_VERSION_LATEST, records_max=64
    )
    found = [decode_record(value)[0] for section in sections for value in values_of(section)]
    assert found[0] == found[-1] == first
    assert found[501] == last
    assert as_text(found[1:501]) == as_text(found[502:1002]) == as_text(changes.records())
    assert [section.count for section in sections[:-1]] == [64] * (len(sections) - 1)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=30), st.sampled_from([100, 1000, 5000]))
def test_single_records_are_cut_where_the_limit_is(lengths, bytes_max):
    given_records = [r.TopicRecord(name="x" * length, topic_id=samples.ZERO_UUID) for length in lengths]
    sections = encode_sections(given_records, METADATA_VERSION_LATEST, bytes_max=bytes_max)
    found = []
    for section in sections:
        assert len(section.data) <= bytes_max or section.count == 1
        assert plain(values_of(section)) == section.data
        found += [decode_record(value)[0] for value in values_of(section)]
    assert found == given_records


def test_changes_are_cut_where_the_limit_is():
    sections = encode_sections([changes_of(300, 16, 3)], METADATA_VERSION_LATEST, bytes_max=2000)
    assert sum(section.count for section in sections) == 300
    assert all(len(section.data) <= 2000 for section in sections)
    assert all(section.count > 5 for section in sections[:-1])


def test_a_section_fits_into_a_batch_of_the_log():
    assert SECTION_BYTES_MAX + 61 <= BATCH_BYTES_MAX
    assert RECORDS_MAX == 10_000


def test_nothing_gives_no_section():
    assert encode_sections([], METADATA_VERSION_LATEST) == []


@given(st.sampled_from([r.PartitionRecord, r.PartitionChangeRecord]), st.data())
def test_a_template_has_the_bytes_of_the_ordinary_encoder(cls, data):
    """Every record that has a shape matches the template of its shape."""
    version = data.draw(st.sampled_from(list(cls.__versions__)))
    record = data.draw(samples.messages(cls, version))
    shape = shape_of(record, version)
    if shape is None:
        return
    for delta, delta_bytes in ((0, 1), (63, 1), (64, 2), (8191, 2), (8192, 3)):
        template = shape.template(delta_bytes)
        encoded = in_batch(Record(delta, 0, None, encode_record(record, version)), 0, 0)
        assert len(encoded) == template.row_bytes
        rows = np.frombuffer(encoded, template.row_type)
        assert template.matching(rows, np.array([delta])).all()
        assert not template.matching(rows, np.array([delta + 1])).any()
        assert rows["partition_id"][0] == record.partition_id
        assert rows["topic_id"][0].tobytes() == record.topic_id


def test_a_batch_of_a_section_is_the_batch_of_its_records():
    values = [encode_record(r.NoOpRecord(), 0)] * 70
    count, data = Section(70, plain(values))
    stored = [Record(500 + at, 33, None, value) for at, value in enumerate(values)]
    assert build_encoded(data, count, base_offset=500, leader_epoch=4, timestamp=33) == build(
        stored, base_offset=500, leader_epoch=4
    )


@given(st.sampled_from([cls for cls in samples.RECORDS_OF_LOGS if cls.__module__ == r.__name__]), st.data())
def test_every_record_can_stand_in_a_section(cls, data):
    record = data.draw(samples.messages(cls, max(cls.__versions__)))
    version = version_of(record, METADATA_VERSION_LATEST)
    try:
        expected = encode_record(record, version)
    except ProtocolError:
        return  # it says what its version cannot
    (section,) = encode_sections([record], METADATA_VERSION_LATEST)
    assert values_of(section) == [expected]
