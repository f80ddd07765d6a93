"""What every record does to the image, and what it cannot do."""

import numpy as np
import pytest

from histories import UNKNOWN, batch_of, encoded, folded
from quorate.metadata import records as r
from quorate.metadata.errors import ImageError
from quorate.metadata.image import BROKER, CLUSTER_DEFAULT, TOPIC, ClusterImage
from quorate.metadata.partition_changes import PartitionChanges
from quorate.metadata.partitions import MIGRATING, Rows
from quorate.metadata.sections import encode_sections
from quorate.metadata.versions import METADATA_VERSION
from quorate.protocol.batch import build_encoded
from quorate.protocol.types import Uuid

ID = Uuid(b"a topic".ljust(16))
OTHER = Uuid(b"another".ljust(16))
DIRECTORIES = [Uuid(bytes([number]) * 16) for number in (7, 8, 9)]


def image_of(*records, **options):
    image = ClusterImage(**options)
    for offset, record in enumerate(records):
        image.apply(record, offset)
    return image


def a_broker(broker_id=1, **fields):
    about = {
        "broker_id": broker_id,
        "incarnation_id": ID,
        "broker_epoch": 5,
        "end_points": [
            r.RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)
        ],
        "features": [],
        "rack": None,
    }
    return r.RegisterBrokerRecord(**{**about, **fields})


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
        "directories": DIRECTORIES,
    }
    return r.PartitionRecord(**{**about, **fields})


A_TOPIC = r.TopicRecord(name="t", topic_id=ID)


def a_change(**fields):
    return r.PartitionChangeRecord(partition_id=0, topic_id=ID, **fields)


# Membership


def test_a_broker_registers_and_registers_again():
    image = image_of(a_broker(rack="a"), a_broker(rack="b", broker_epoch=9, fenced=False))
    broker = image.brokers[1]
    assert (broker.rack, broker.epoch, broker.registration_offset, broker.is_fenced) == ("b", 9, 1, False)
    assert broker.is_active


def test_a_registration_changes():
    image = image_of(a_broker(log_dirs=DIRECTORIES[::-1]))
    about = {"broker_id": 1, "broker_epoch": 5}
    image.apply(r.BrokerRegistrationChangeRecord(**about, fenced=-1), 1)
    assert image.brokers[1].is_active
    assert image.brokers[1].directories == tuple(DIRECTORIES)
    image.apply(r.BrokerRegistrationChangeRecord(**about, in_controlled_shutdown=1), 2)
    assert image.brokers[1].is_shutting_down
    assert not image.brokers[1].is_fenced
    image.apply(r.BrokerRegistrationChangeRecord(**about, fenced=1, log_dirs=DIRECTORIES[:1]), 3)
    assert image.brokers[1].is_fenced
    assert image.brokers[1].directories == tuple(DIRECTORIES[:1])
    assert image.brokers[1].registration_offset == 0


def test_brokers_are_fenced_as_of_old():
    image = image_of(a_broker(), r.UnfenceBrokerRecord(id=1, epoch=5))
    assert not image.brokers[1].is_fenced
    image.apply(r.FenceBrokerRecord(id=1, epoch=5), 2)
    assert image.brokers[1].is_fenced


def test_a_broker_unregisters():
    assert not image_of(a_broker(), r.UnregisterBrokerRecord(broker_id=1, broker_epoch=5)).brokers


@pytest.mark.parametrize(
    "stale",
    [
        r.UnregisterBrokerRecord(broker_id=1, broker_epoch=4),
        r.UnregisterBrokerRecord(broker_id=2, broker_epoch=5),
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=4, fenced=1),
        r.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=5, fenced=1),
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=2),
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, in_controlled_shutdown=-1),
        r.FenceBrokerRecord(id=1, epoch=6),
        r.UnfenceBrokerRecord(id=1, epoch=4),
    ],
)
def test_records_about_another_incarnation_are_fatal(stale):
    with pytest.raises(ImageError):
        image_of(a_broker(), stale)


def test_a_controller_registers():
    record = r.RegisterControllerRecord(
        controller_id=3000, incarnation_id=ID, zk_migration_ready=False, end_points=[], features=[]
    )
    assert image_of(record).controllers[3000].incarnation_id == ID


# Topics and partitions


def test_a_topic_comes_and_goes_with_what_belongs_to_it():
    config = r.ConfigRecord(resource_type=TOPIC, resource_name="t", name="a", value="1")
    image = image_of(A_TOPIC, a_partition(), config)
    assert image.topics.by_name["t"].id == ID
    assert image.partition(ID, 0).replicas == (1, 2, 3)
    assert [partition_id for partition_id, _ in image.partitions_of(ID)] == [0]
    image.apply(r.RemoveTopicRecord(topic_id=ID), 3)
    assert image.equals(ClusterImage())
    assert image.partition(ID, 0) is None
    assert list(image.partitions_of(ID)) == []


@pytest.mark.parametrize(
    "records",
    [
        [A_TOPIC, A_TOPIC],
        [A_TOPIC, r.TopicRecord(name="t", topic_id=OTHER)],
        [r.RemoveTopicRecord(topic_id=ID)],
        [a_partition()],
        [A_TOPIC, a_change(isr=[1])],
        [a_change(isr=[1])],
        [A_TOPIC, a_partition(), a_change(isr=[9])],
        [A_TOPIC, a_partition(last_known_elr=[1, 2])],
        [A_TOPIC, a_partition(replicas=list(range(65)), isr=[], directories=[])],
        [r.ClearElrRecord(topic_name="t")],
    ],
)
def test_what_cannot_be_said_of_topics(records):
    with pytest.raises(ImageError):
        image_of(*records)


def test_a_partition_from_before_there_were_directories():
    assert image_of(A_TOPIC, a_partition(directories=[])).partition(ID, 0).directories == (MIGRATING,) * 3


def test_a_change_says_only_what_changes():
    image = image_of(A_TOPIC, a_partition())
    before = image.partition(ID, 0)
    assert before.isr == (1, 3), "in the order of the replicas"
    image.apply(a_change(isr=[1]), 2)
    after = image.partition(ID, 0)
    assert (after.isr, after.leader, after.leader_epoch, after.partition_epoch) == ((1,), 1, 4, 7)


def test_a_named_leader_begins_an_epoch_even_if_it_is_the_same_or_none():
    image = image_of(A_TOPIC, a_partition(), a_change(leader=1), a_change(leader=-1), a_change(leader=2))
    after = image.partition(ID, 0)
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (2, 7, 9)


def test_a_reassignment():
    change = a_change(replicas=[1, 4], isr=[4], adding_replicas=[4], removing_replicas=[1])
    after = image_of(A_TOPIC, a_partition(), change).partition(ID, 0)
    assert (after.replicas, after.isr, after.adding, after.removing) == ((1, 4), (4,), (4,), (1,))
    assert after.is_reassigning
    assert after.directories == (MIGRATING,) * 2, "the record should have named them"


def test_eligible_leaders_and_recovery():
    image = image_of(
        A_TOPIC,
        a_partition(),
        a_change(isr=[], eligible_leader_replicas=[3], last_known_elr=[1], leader_recovery_state=1),
    )
    after = image.partition(ID, 0)
    assert (after.isr, after.elr, after.last_known_leader, after.is_recovering) == ((), (3,), 1, True)
    image.apply(a_change(leader_recovery_state=0, last_known_elr=[]), 3)
    after = image.partition(ID, 0)
    assert (after.elr, after.last_known_leader, after.is_recovering) == ((3,), -1, False)


@pytest.mark.parametrize("name", ["", "t"])
def test_eligible_leaders_are_forgotten(name):
    eligible = a_partition(1, eligible_leader_replicas=[2], last_known_elr=[2])
    image = image_of(A_TOPIC, a_partition(), eligible, r.ClearElrRecord(topic_name=name))
    assert image.partition(ID, 0).partition_epoch == 6
    after = image.partition(ID, 1)
    assert (after.elr, after.last_known_leader, after.partition_epoch) == ((), -1, 7)


# Everything else


def test_configurations():
    def config(value, name="a"):
        return r.ConfigRecord(resource_type=BROKER, resource_name="", name=name, value=value)

    image = image_of(config("1"), config("2"), config("3", "b"))
    assert image.configs == {CLUSTER_DEFAULT: {"a": "2", "b": "3"}}
    image.apply(config(None), 3)
    image.apply(config(None, "never set"), 4)
    assert image.configs == {CLUSTER_DEFAULT: {"b": "3"}}
    image.apply(config(None, "b"), 5)
    assert not image.configs


def test_features():
    def feature(name, level):
        return r.FeatureLevelRecord(name=name, feature_level=level)

    image = image_of(feature(METADATA_VERSION, 20), feature("kraft.version", 1), feature("x", 2))
    assert image.features == {METADATA_VERSION: 20, "x": 2}
    assert image.metadata_version == 20
    assert not image.is_elr_enabled
    assert not image.has_consumer_protocol
    assert image_of(feature(METADATA_VERSION, 22), feature("group.version", 1)).has_consumer_protocol
    assert image_of().has_consumer_protocol  # nothing has a level, as in ZooKeeper mode
    image.apply(feature("x", 0), 3)
    image.apply(feature("eligible.leader.replicas.version", 1), 4)
    assert image.is_elr_enabled
    assert "x" not in image.features
    with pytest.raises(ImageError, match="the lowest is 7"):
        image.apply(feature(METADATA_VERSION, 6), 5)


def test_quotas():
    def quota(value, *, remove=False):
        entity = [
            r.ClientQuotaRecord.EntityData(entity_type="user", entity_name="u"),
            r.ClientQuotaRecord.EntityData(entity_type="client-id", entity_name=None),
        ]
        return r.ClientQuotaRecord(entity=entity, key="k", value=value, remove=remove)

    image = image_of(quota(1.0), quota(2.0))
    assert image.quotas == {(("client-id", None), ("user", "u")): {"k": 2.0}}
    image.apply(quota(0.0, remove=True), 2)
    image.apply(quota(0.0, remove=True), 3)
    assert not image.quotas


def test_producer_ids_only_grow():
    def ids(following):
        return r.ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=following)

    image = image_of(ids(1000), ids(2000))
    assert image.next_producer_id == 2000
    with pytest.raises(ImageError, match="from 2000 to 2000"):
        image.apply(ids(2000), 2)


def test_access_control():
    entry = r.AccessControlEntryRecord(
        id=ID,
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    image = image_of(entry)
    assert image.acls == {ID: entry}
    image.apply(r.RemoveAccessControlEntryRecord(id=ID), 1)
    assert not image.acls
    with pytest.raises(ImageError, match="never added"):
        image.apply(r.RemoveAccessControlEntryRecord(id=ID), 2)


def test_passwords():
    user = r.UserScramCredentialRecord(
        name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    image = image_of(user)
    assert image.scram == {("u", 1): user}
    image.apply(r.RemoveUserScramCredentialRecord(name="u", mechanism=1), 1)
    with pytest.raises(ImageError, match="never added"):
        image.apply(r.RemoveUserScramCredentialRecord(name="u", mechanism=1), 2)


def test_tokens():
    token = r.DelegationTokenRecord(
        owner="User:a",
        requester="User:a",
        renewers=[],
        issue_timestamp=1,
        max_timestamp=2,
        expiration_timestamp=3,
        token_id="x",
    )
    image = image_of(token)
    assert image.tokens == {"x": token}
    image.apply(r.RemoveDelegationTokenRecord(token_id="x"), 1)
    image.apply(r.RemoveDelegationTokenRecord(token_id="x"), 2)
    assert not image.tokens


def test_records_from_which_nothing_follows():
    assert image_of(r.NoOpRecord(), r.ZkMigrationStateRecord(zk_migration_state=4)).equals(ClusterImage())


# Transactions

BEGIN, END, ABORT = r.BeginTransactionRecord(), r.EndTransactionRecord(), r.AbortTransactionRecord()


def test_a_transaction_counts_when_it_ends():
    image = image_of(BEGIN, A_TOPIC, a_partition(), a_broker())
    assert image.is_in_transaction
    assert not image.topics
    copy = image.copy()
    image.apply(END, 4)
    assert not image.is_in_transaction
    assert image.partition(ID, 0) is not None
    assert image.brokers[1].registration_offset == 3
    copy.apply(ABORT, 4)
    assert copy.equals(ClusterImage())


@pytest.mark.parametrize(
    "records", [[BEGIN, BEGIN], [END], [ABORT], [BEGIN, END, END], [BEGIN, ABORT, ABORT]]
)
def test_transactions_that_cannot_be(records):
    with pytest.raises(ImageError, match="metadata transaction"):
        image_of(*records)


@pytest.mark.parametrize("ending", [END, ABORT])
def test_transactions_in_batches(ending):
    """Many partitions, and what nobody knows, between a beginning and an end in another batch."""
    inside = [A_TOPIC, *(a_partition(one) for one in range(40)), *(a_change(isr=[2]) for _ in range(20))]
    values = [encoded(BEGIN), *map(encoded, inside), UNKNOWN]
    image = ClusterImage()
    image.apply_batch(batch_of(values))
    assert image.is_in_transaction
    assert not image.topics
    assert not image.unknown
    image.apply_batch(batch_of([encoded(ending), *map(encoded, [a_broker()] * 20)], len(values)))
    expected = folded([*map(encoded, inside), UNKNOWN] if ending is END else [])
    expected.apply(a_broker(), 0)
    assert image.equals(expected)


# Records of unknown kinds


def test_a_reader_keeps_what_it_does_not_know():
    newer = bytes.fromhex("010503") + b"something new"
    image = ClusterImage()
    image.apply_batch(batch_of([UNKNOWN, newer]))
    assert image.unknown == [UNKNOWN, newer]


def test_a_controller_refuses_what_it_does_not_know():
    with pytest.raises(ImageError, match="does not understand"):
        ClusterImage(is_strict=True).apply_batch(batch_of([UNKNOWN]))


def test_what_is_not_a_record_is_an_error_for_everyone():
    for values in ([b""], [b"\1\2"], [encoded(a_broker()) + b"more"]):
        with pytest.raises(ImageError, match="not one"):
            ClusterImage().apply_batch(batch_of(values))


# What a controller decided


def changes_in(image, rows, **columns):
    count = len(rows)
    nothing = np.full(count, -2, np.int32)
    about = {
        "rows": rows,
        "topic_ids": image.topics.ids[rows.block.topic[rows.index]],
        "partition_ids": image.partitions.partition_ids(rows),
        "replicas": rows.block.replicas[rows.index],
        "has_isr": np.ones(count, np.bool_),
        "isr": np.full(count, 0b001, np.uint8),
        "leader": nothing,
        "has_elr": np.zeros(count, np.bool_),
        "elr": np.zeros(count, np.uint8),
        "last_known_leader": nothing,
        "recovery_state": np.full(count, -1, np.int8),
    }
    return PartitionChanges(**{**about, **columns})


@pytest.fixture
def topics():
    values = [A_TOPIC, r.TopicRecord(name="u", topic_id=OTHER)]
    values += [a_partition(one) for one in range(30)]
    values += [a_partition(one, topic_id=OTHER) for one in range(30)]
    return image_of(*values)


def test_changes_apply_like_their_records(topics):
    (rows,) = topics.partitions.in_sync_on(3)
    changes = changes_in(topics, rows)
    expected = topics.copy()
    for record in [a_broker(), *changes.records(), a_change(leader=2), a_broker(2)]:
        expected.apply(record, 0)
    topics.apply_changes([a_broker(), changes, a_change(leader=2), a_broker(2)], 100)
    assert topics.equals(expected)
    assert topics.brokers[1].registration_offset == 100
    assert topics.brokers[2].registration_offset == 100 + 1 + 60 + 1


def test_changes_apply_to_another_image_too(topics):
    other = topics.copy()
    (rows,) = topics.partitions.in_sync_on(3)
    changes = changes_in(topics, rows)
    topics.apply_changes([changes], 100)
    other.apply_changes([changes], 100)
    assert other.equals(topics)


def test_changes_find_their_partitions_when_rows_have_moved(topics):
    (rows,) = topics.partitions.hosted_by(1)
    changes = changes_in(topics, Rows(rows.block, rows.index[:30]))
    expected = topics.copy()
    for record in changes.records():
        expected.apply(record, 0)
    grown = a_partition(30)
    expected.apply(grown, 0)
    topics.apply_changes([grown, changes], 0)
    assert topics.equals(expected)


def test_changes_in_a_transaction_wait_for_its_end(topics):
    before = topics.copy()
    changes = changes_in(topics, topics.partitions.in_sync_on(3)[0])
    topics.apply_changes([BEGIN, changes], 0)
    topics.apply_changes([ABORT], 61)
    assert topics.equals(before)
    topics.apply_changes([BEGIN, changes, END], 0)
    before.apply_changes([changes], 0)
    assert topics.equals(before)


def test_who_is_no_replica_any_more_is_not_eligible():
    """Apache's controllers can write such a record when a reassignment ends."""
    for is_bulk in (False, True):
        image = ClusterImage()
        topic = Uuid(b"a" * 16)
        image.apply(r.TopicRecord(name="a", topic_id=topic), 0)
        partition = r.PartitionRecord(
            partition_id=0,
            topic_id=topic,
            replicas=[1, 2, 3],
            isr=[1],
            removing_replicas=[],
            adding_replicas=[],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            eligible_leader_replicas=[2, 3],
        )
        image.apply(partition, 1)
        change = r.PartitionChangeRecord(
            partition_id=0, topic_id=topic, isr=[], leader=-1, eligible_leader_replicas=[1, 2, 9]
        )
        if is_bulk:
            [section] = encode_sections([change], 30)
            image.apply_batch(build_encoded(section.data, 1, base_offset=2, leader_epoch=1, timestamp=0))
        else:
            image.apply(change, 2)
        assert image.partition(topic, 0).elr == (1, 2)
        moved = r.PartitionChangeRecord(partition_id=0, topic_id=topic, replicas=[1, 4])
        image.apply(moved, 3)
        assert image.partition(topic, 0).elr == (1,)
