"""What a snapshot says, and what it never says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import histories
from histories import batch_of, batches_of, encoded, folded, snapshot_batches, through_snapshot
from quorate.metadata import records as r
from quorate.metadata.errors import ImageError
from quorate.metadata.image import ClusterImage
from quorate.metadata.log_format import decode_record
from quorate.metadata.partitions import MIGRATING, UNASSIGNED
from quorate.metadata.versions import METADATA_VERSION
from quorate.protocol.errors import ApiError, ProtocolError
from quorate.protocol.types import Uuid

ID = Uuid(b"a topic".ljust(16))
CHANGES = [bytes([key]) for key in (1, 5, 7, 8, 9, 17, 19, 22, 23, 24, 25, 26, 28)]

ORDER = [
    r.FeatureLevelRecord,
    r.RegisterBrokerRecord,
    r.RegisterControllerRecord,
    r.TopicRecord,
    r.PartitionRecord,
    r.ConfigRecord,
    r.ClientQuotaRecord,
    r.ProducerIdsRecord,
    r.AccessControlEntryRecord,
    r.UserScramCredentialRecord,
    r.DelegationTokenRecord,
    None,
]


def records_of(image):
    """The records of a snapshot with their versions; (None, -1) for one that we do not know."""
    found = []
    for batch in snapshot_batches(image):
        for one in histories.stored(batch):
            try:
                found.append(decode_record(one.value))
            except ProtocolError:
                found.append((None, -1))
    return found


@given(histories.histories(steps_max=15, with_transactions=False))
def test_records_come_in_an_order_in_which_they_can_be_applied(values):
    image = folded(values)
    found = records_of(image)
    places = [ORDER.index(None if one is None else type(one)) for one, _ in found]
    assert places == sorted(places)
    assert found[0][0].name == METADATA_VERSION
    assert sum(isinstance(one, r.PartitionRecord) for one, _ in found) == len(image.partitions)
    for one, _ in found:
        if isinstance(one, r.ProducerIdsRecord):
            assert (one.broker_id, one.broker_epoch) == (-1, -1)
    again = ClusterImage()
    for one, _ in found:
        if one is not None:
            again.apply(one, 0)
    again.unknown = image.unknown
    assert again.equals(image)


def test_an_empty_image_gives_an_empty_snapshot():
    assert ClusterImage().freeze().sections() == []
    assert ClusterImage.load([], 0).equals(ClusterImage())


def test_a_frozen_image_does_not_change_any_more():
    history = histories.History(histories.Random(5))
    history.create_topics()
    frozen = history.image.freeze()
    before = frozen.sections()
    for step in history.STEPS * 2:
        step(history)
    assert frozen.sections() == before


def test_sections_have_their_limit():
    values = [r.TopicRecord(name="t", topic_id=ID)]
    values += [a_partition(one) for one in range(20_000)]
    image = folded(list(map(encoded, values)))
    sections = image.freeze().sections()
    assert [section.count for section in sections] == [1, 8192, 8192, 20_000 - 2 * 8192]


def a_partition(partition_id=0, **fields):
    about = {
        "partition_id": partition_id,
        "topic_id": ID,
        "replicas": [1, 2, 3],
        "isr": [3, 1],
        "removing_replicas": [],
        "adding_replicas": [],
        "leader": 1,
        "leader_epoch": 4,
        "partition_epoch": 6,
        "directories": [UNASSIGNED] * 3,
        "eligible_leader_replicas": [2],
        "last_known_elr": [2],
    }
    return r.PartitionRecord(**{**about, **fields})


@pytest.mark.parametrize(
    ("level", "version", "broker_version"), [(30, 2, 4), (23, 2, 3), (17, 1, 3), (16, 0, 2), (7, 0, 1)]
)
def test_a_snapshot_says_what_its_level_can(level, version, broker_version):
    """After a downgrade, what a lower level cannot express is left out."""
    history = histories.History(histories.Random(1))
    history.write(r.TopicRecord(name="t", topic_id=ID))
    history.write(a_partition())
    history.register_controller()
    history.set_password()
    history.give_token()
    history.write(r.FeatureLevelRecord(name=METADATA_VERSION, feature_level=level))
    found = {type(one): (one, of) for one, of in records_of(history.image)}
    assert found[r.PartitionRecord][1] == version
    assert found[r.RegisterBrokerRecord][1] == broker_version
    assert (r.RegisterControllerRecord in found) == (level >= 15)
    assert (r.UserScramCredentialRecord in found) == (level >= 11)
    assert (r.DelegationTokenRecord in found) == (level >= 14)
    loaded = through_snapshot(history.image).partition(ID, 0)
    assert loaded.directories == (UNASSIGNED if level >= 17 else MIGRATING,) * 3
    assert (loaded.elr, loaded.last_known_leader) == (((2,), 2) if level >= 23 else ((), -1))
    assert (loaded.isr, loaded.leader_epoch, loaded.partition_epoch) == ((1, 3), 4, 6)


@pytest.mark.parametrize(
    "record",
    [
        r.PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[1]),
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1),
        r.FenceBrokerRecord(id=1, epoch=1),
        r.UnfenceBrokerRecord(id=1, epoch=1),
        r.UnregisterBrokerRecord(broker_id=1, broker_epoch=1),
        r.RemoveTopicRecord(topic_id=ID),
        r.RemoveAccessControlEntryRecord(id=ID),
        r.RemoveUserScramCredentialRecord(name="u", mechanism=1),
        r.RemoveDelegationTokenRecord(token_id="x"),
        r.BeginTransactionRecord(),
        r.EndTransactionRecord(),
        r.AbortTransactionRecord(),
        r.ClearElrRecord(topic_name=""),
    ],
)
def test_what_happened_does_not_belong_in_a_snapshot(record):
    values = [encoded(r.TopicRecord(name="t", topic_id=ID)), encoded(record)]
    with pytest.raises(ImageError, match="says what happened"):
        ClusterImage.load([batch_of(values)], 0)


def test_records_that_nobody_knows_survive_a_snapshot():
    image = folded([histories.UNKNOWN])
    assert through_snapshot(image).unknown == [histories.UNKNOWN]
    with pytest.raises(ImageError, match="does not understand"):
        ClusterImage.load(snapshot_batches(image), 0, is_strict=True)


@given(histories.histories(with_transactions=False), st.sampled_from([5, 30, 500]), st.data())
@settings(max_examples=200)
def test_damage_is_an_error_or_the_same_as_for_the_plain_reader(values, size, data):
    """Bytes are changed at will, and no checksum tells: bulk must come to the plain reader's verdict."""
    contained = [one.value for batch in snapshot_batches(folded(values)) for one in histories.stored(batch)]
    batches = list(batches_of(contained, [size]))
    for _ in range(data.draw(st.integers(1, 3))):
        batch = data.draw(st.sampled_from(batches))
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    expected, loaded = result_of(one_by_one, batches), result_of(ClusterImage.load, batches, 0)
    assert (expected is None) == (loaded is None)
    assert loaded is None or loaded.equals(expected)


def one_by_one(batches):
    image = ClusterImage()
    for batch in batches:
        for one in histories.stored(batch):
            is_change = one.value is not None and one.value[:1] == b"\1" and one.value[1:2] in CHANGES
            histories.apply_value(image, one.value or b"", 0)
            if is_change and one.value not in image.unknown:
                raise ImageError("what happened does not belong in a snapshot")
    return image


def result_of(read, *about):
    """What is read, or None if it is refused."""
    try:
        return read(*about)
    except (ImageError, ApiError, OverflowError):
        return None
