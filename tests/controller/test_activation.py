"""What a controller writes first when it becomes active: by the state of the log, and by its level."""

from __future__ import annotations

import pytest

from quorate.controller.features import activation_records, default_features
from quorate.controller.settings import ControllerSettings
from quorate.metadata.errors import ImageError
from quorate.metadata.image import CLUSTER_DEFAULT, ClusterImage
from quorate.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from quorate.metadata.versions import ELR_VERSION, METADATA_VERSION, METADATA_VERSION_LATEST
from quorate.protocol.message import Record

BEGIN = BeginTransactionRecord(name="Bootstrap records")
END = EndTransactionRecord()
ABORT = AbortTransactionRecord(reason="Controller failover")


def level(number: int, name: str = METADATA_VERSION) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=number)


def min_isr(value: str) -> ConfigRecord:
    kind, name = CLUSTER_DEFAULT
    return ConfigRecord(resource_type=kind, resource_name=name, name="min.insync.replicas", value=value)


def image_of(*records: Record) -> ClusterImage:
    image = ClusterImage(is_strict=True)
    for offset, record in enumerate(records):
        image.apply(record, offset)
    return image


def activate(image: ClusterImage, *bootstrap: Record, **settings: object) -> list[Record]:
    """What is written; the image has it then, and nothing more is to be done."""
    chosen = ControllerSettings(**settings)  # type: ignore[arg-type]
    records = activation_records(image, bootstrap, chosen)
    for offset, record in enumerate(records, 1000):
        image.apply(record, offset)
    assert not image.is_in_transaction
    assert activation_records(image, bootstrap, chosen) == []
    return records


EMPTY = ()
OPEN = (BEGIN, level(30))
CASES = [
    # the log, the bootstrap records, what is written
    (EMPTY, [level(13)], [BEGIN, level(13), END]),
    (EMPTY, [level(30), level(1, "group.version")], [BEGIN, level(30), level(1, "group.version"), END]),
    (EMPTY, [level(12)], [level(12)]),
    (EMPTY, [level(7)], [level(7)]),
    (EMPTY, [], [BEGIN, level(METADATA_VERSION_LATEST), END]),
    ([NoOpRecord()], [level(13)], [BEGIN, level(13), END]),
    (OPEN, [level(30)], [ABORT, BEGIN, level(30), END]),
    (OPEN, [], [ABORT, BEGIN, level(METADATA_VERSION_LATEST), END]),
    ([level(30)], [level(25)], []),
    ([level(7)], [level(30)], []),
    ([level(30), BEGIN], [level(30)], [ABORT]),
    ([level(13), BEGIN, NoOpRecord()], [level(30)], [ABORT]),
    ([*OPEN, END], [level(30)], []),
    ([*OPEN, ABORT], [level(30)], [BEGIN, level(30), END]),
]


@pytest.mark.parametrize(("log", "bootstrap", "written"), CASES)
def test_what_is_written(log, bootstrap, written):
    assert activate(image_of(*log), *bootstrap) == written


def test_a_beginning_that_was_never_completed_does_not_count():
    """Its records are in the log, but an abort undoes them: without another beginning there would be none."""
    image = image_of(*OPEN)
    activate(image, level(30))
    assert image.features == {METADATA_VERSION: 30}


@pytest.mark.parametrize(
    ("settings", "bound"), [({}, "1"), ({"topic_defaults": {"min.insync.replicas": "2"}}, "2")]
)
def test_with_eligible_leader_replicas_comes_the_bound_for_all_brokers(settings, bound):
    image = image_of()
    bootstrap = [level(number, name) for name, number in default_features(30).items()]
    assert activate(image, *bootstrap, **settings) == [BEGIN, *bootstrap, min_isr(bound), END]
    assert image.is_elr_enabled
    assert image.configs == {CLUSTER_DEFAULT: {"min.insync.replicas": bound}}


def test_a_cluster_that_exists_is_given_no_bound():
    assert activate(image_of(level(30), level(1, ELR_VERSION)), level(30), level(1, ELR_VERSION)) == []


@pytest.mark.parametrize(
    ("log", "bootstrap"),
    [
        ([level(12), BEGIN], [level(30)]),
        ([BEGIN], [level(12)]),
    ],
)
def test_levels_without_transactions_cannot_have_one(log, bootstrap):
    with pytest.raises(ImageError, match="a metadata transaction is open"):
        activate(image_of(*log), *bootstrap)


def test_a_beginning_must_say_its_level():
    with pytest.raises(ImageError, match=r"do not say which metadata\.version"):
        activate(image_of(), level(1, "group.version"))
