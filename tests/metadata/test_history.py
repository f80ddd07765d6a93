"""The cluster at any offset of a history."""

import pytest

from quorate.metadata.errors import ImageError
from quorate.metadata.history import History, moment_at
from quorate.metadata.log_format import encode_record
from quorate.metadata.records import FeatureLevelRecord, TopicRecord
from quorate.protocol.batch import Record, build
from quorate.protocol.types import Uuid


def batch(offset: int, *names: str) -> bytearray:
    """Creates topics."""
    records = [
        Record(
            offset + index,
            1000 + offset,
            None,
            encode_record(TopicRecord(name=name, topic_id=Uuid(name.encode().ljust(16))), 0),
        )
        for index, name in enumerate(names)
    ]
    return build(records, base_offset=offset, leader_epoch=3)


LOG = [batch(0, "a", "b"), batch(2, "c"), batch(3, "d", "e", "f")]


@pytest.mark.parametrize("offset", range(6))
def test_every_offset_has_its_record_and_none_after_it(offset: int):
    moment = moment_at(History(LOG), offset)
    assert sorted(moment.image.topics.by_name) == list("abcdef"[: offset + 1])
    assert (moment.offset, moment.epoch) == (offset, 3)


def test_the_end_is_where_the_log_ends():
    assert moment_at(History(LOG)).offset == 5
    assert moment_at(History()).offset == -1
    with pytest.raises(ImageError, match="the log ends at 5"):
        moment_at(History(LOG), 6)


def test_a_snapshot_stands_for_what_is_before_it():
    snapshot = [build([Record(0, 0, None, encode_record(FeatureLevelRecord(name="x", feature_level=1), 0))])]
    history = History(LOG, snapshot, snapshot_end_offset=2, snapshot_epoch=1)
    moment = moment_at(history, 1)
    assert (moment.image.features, len(moment.image.topics), moment.epoch) == ({"x": 1}, 0, 1)
    assert sorted(moment_at(history, 3).image.topics.by_name) == ["c", "d"]
    with pytest.raises(ImageError, match="a snapshot of everything up to 1"):
        moment_at(history, 0)


def test_what_is_missing_is_not_passed_over():
    with pytest.raises(ImageError, match="0 to 1 are missing"):
        moment_at(History(LOG[1:]))
