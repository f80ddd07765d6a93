"""Histories of a cluster to test with: records that can follow each other, encoded as they stand in a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from quorate.metadata import records as r
from quorate.metadata.errors import ImageError
from quorate.metadata.image import ClusterImage
from quorate.metadata.log_format import decode_record, encode_record
from quorate.metadata.partitions import LOST, MIGRATING, UNASSIGNED, Partition
from quorate.metadata.versions import METADATA_VERSION, METADATA_VERSION_LATEST, version_of
from quorate.protocol.batch import Record as Stored
from quorate.protocol.batch import build, build_encoded, read_header, records
from quorate.protocol.errors import ErrorCode, ProtocolError
from quorate.protocol.message import Record
from quorate.protocol.types import Uuid

BROKERS = range(8)
UNKNOWN = bytes.fromhex("01630000")  # a record with key 99


def encoded(record: Record, level: int = METADATA_VERSION_LATEST) -> bytes:
    return encode_record(record, version_of(record, level))


def apply_value(image: ClusterImage, value: bytes, offset: int) -> None:
    """What every reader does with one record, without any bulk."""
    try:
        record = decode_record(value)[0]
    except ProtocolError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise ImageError(str(error)) from error
        image.apply_unknown(value, error)
    else:
        image.apply(record, offset)


def folded(values: Sequence[bytes], image: ClusterImage | None = None, offset: int = 0) -> ClusterImage:
    """The image of records that are applied one by one."""
    image = ClusterImage() if image is None else image
    for at, value in enumerate(values):
        apply_value(image, value, offset + at)
    return image


def batch_of(values: Sequence[bytes], offset: int = 0) -> bytearray:
    stored = [Stored(offset + at, 17, None, value) for at, value in enumerate(values)]
    return build(stored, base_offset=offset, leader_epoch=3)


def batches_of(values: Sequence[bytes], sizes: Sequence[int], offset: int = 0) -> Iterator[bytearray]:
    """The same records in batches of these sizes, over and over."""
    start, turn = 0, 0
    while start < len(values):
        size = sizes[turn % len(sizes)]
        yield batch_of(values[start : start + size], offset + start)
        start, turn = start + size, turn + 1


def through_snapshot(image: ClusterImage, last_contained_offset: int = 0) -> ClusterImage:
    """The image that a snapshot of another one describes."""
    return ClusterImage.load(snapshot_batches(image), last_contained_offset, is_strict=False)


def snapshot_batches(image: ClusterImage) -> list[bytearray]:
    offset, batches = 0, []
    for section in image.freeze().sections():
        batches.append(
            build_encoded(section.data, section.count, base_offset=offset, leader_epoch=1, timestamp=5)
        )
        offset += section.count
    return batches


@st.composite
def histories(draw: Any, *, steps_max: int = 12, with_transactions: bool = True) -> list[bytes]:
    """Records that a cluster could have written, from a seed: fewer steps give the beginning of the same."""
    random = Random(draw(st.integers(0, 2**32)))
    history = History(random)
    steps = [*History.STEPS, *(History.TRANSACTIONS if with_transactions else ())]
    steps_left = draw(st.sampled_from([*range(steps_max), *[steps_max] * steps_max]))
    if steps_left:
        history.create_topics()
    for _ in range(steps_left):
        random.choice(steps)(history)
    if history.image.is_in_transaction:
        history.end()
    return Values(history.values)


class Values(list[bytes]):
    """Records, too many to be shown."""

    def __repr__(self) -> str:
        return f"<{len(self)} records>"


class History:
    """A log as it grows. `image` is what its records come to."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.image = ClusterImage()
        self.inside: ClusterImage | None = None  # inside a transaction, as if it had ended
        self.values: list[bytes] = []
        self.topics = 0
        self.write(r.FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LATEST))
        for broker_id in BROKERS:
            self.register(broker_id)

    @property
    def now(self) -> ClusterImage:
        return self.image if self.inside is None else self.inside

    def write(self, record: Record | bytes) -> None:
        value = record if isinstance(record, bytes) else encoded(record)
        offset = len(self.values)
        self.values.append(value)
        apply_value(self.image, value, offset)
        if self.inside is not None:
            apply_value(self.inside, value, offset)

    # Membership

    def register(self, broker_id: int | None = None) -> None:
        random = self.random
        broker_id = random.choice(BROKERS) if broker_id is None else broker_id
        self.write(
            r.RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=Uuid(random.randbytes(16)),
                broker_epoch=len(self.values),
                end_points=[
                    r.RegisterBrokerRecord.BrokerEndpoint(name="A", host="h", port=1, security_protocol=0)
                ],
                features=[
                    r.RegisterBrokerRecord.BrokerFeature(
                        name=METADATA_VERSION, min_supported_version=7, max_supported_version=30
                    )
                ],
                rack=random.choice([None, "a"]),
                fenced=random.random() < 0.5,
                log_dirs=sorted(Uuid(random.randbytes(16)) for _ in range(random.randint(0, 2))),
            )
        )

    def change_broker(self) -> None:
        brokers = list(self.now.brokers.values())
        if brokers:
            broker = self.random.choice(brokers)
            about = {"broker_id": broker.id, "broker_epoch": broker.epoch}
            fenced = self.random.choice([-1, 0, 1])
            change = r.BrokerRegistrationChangeRecord(
                **about, fenced=fenced, in_controlled_shutdown=self.random.choice([0, 1])
            )
            self.write(self.random.choice([change, r.UnregisterBrokerRecord(**about)]))

    def fence_as_of_old(self) -> None:
        for broker in list(self.now.brokers.values())[:2]:
            self.write(r.FenceBrokerRecord(id=broker.id, epoch=broker.epoch))
            self.write(r.UnfenceBrokerRecord(id=broker.id, epoch=broker.epoch))

    def register_controller(self) -> None:
        self.write(
            r.RegisterControllerRecord(
                controller_id=self.random.randint(3000, 3002),
                incarnation_id=Uuid(self.random.randbytes(16)),
                zk_migration_ready=False,
                end_points=[],
                features=[],
            )
        )

    # Topics

    def create_topics(self) -> None:
        for _ in range(self.random.choice([1, 1, 3])):
            self.topics += 1
            name, topic_id = f"topic-{self.topics % 5}", Uuid(self.random.randbytes(16))
            if name in self.now.topics.by_name:
                continue
            self.write(r.TopicRecord(name=name, topic_id=topic_id))
            if self.random.random() < 0.3:
                self.write(
                    r.ConfigRecord(
                        resource_type=2, resource_name=name, name="cleanup.policy", value="compact"
                    )
                )
            self._create(topic_id, 0, self.random.choice([0, 1, 5, 30, 70]))

    def grow_topic(self) -> None:
        topic = self._topic()
        if topic is not None:
            self._create(topic.id, self.now.partitions.count_of(topic.slot), self.random.choice([1, 4, 20]))

    def describe_again(self) -> None:
        """A partition for which there is a record already, in one batch with new ones."""
        topic = self._topic()
        if topic is not None and self.now.partitions.count_of(topic.slot):
            self._create(topic.id, self.random.randrange(self.now.partitions.count_of(topic.slot)), 20)
            self._create(topic.id, 0, 3)

    def remove_topic(self) -> None:
        topic = self._topic()
        if topic is not None:
            self.write(r.RemoveTopicRecord(topic_id=topic.id))

    def change_partitions(self) -> None:
        found = self._partitions()
        for topic_id, partition_id in found:
            self.write(self._change(topic_id, partition_id, self._plain_change))

    def change_partitions_unusually(self) -> None:
        found = self._partitions()
        found += found[: self.random.choice([0, 0, 3])]  # these twice
        for topic_id, partition_id in found:
            kind = self.random.choice([self._plain_change] * 9 + [self._reassignment])
            self.write(self._change(topic_id, partition_id, kind))

    def clear_elr(self) -> None:
        names = ["", *self.now.topics.by_name]
        self.write(r.ClearElrRecord(topic_name=self.random.choice(names)))

    def _topic(self) -> Any:
        topics = list(self.now.topics)
        return self.random.choice(topics) if topics else None

    def _partitions(self) -> list[tuple[Uuid, int]]:
        every = [
            (topic.id, partition_id)
            for topic in self.now.topics
            for partition_id, _ in self.now.partitions.of(topic.slot)
        ]
        return self.random.sample(every, min(len(every), self.random.choice([1, 30, 60, 100])))

    def _create(self, topic_id: Uuid, first: int, count: int) -> None:
        ids = list(range(first, first + count))
        if self.random.random() < 0.5:
            self.random.shuffle(ids)
        widths = self.random.choice([[3], [1, 2], [3, 3, 5], [2, 3, 8]])
        for partition_id in ids:
            self.write(self._partition(topic_id, partition_id, self.random.choice(widths)))

    def _partition(self, topic_id: Uuid, partition_id: int, width: int) -> r.PartitionRecord:
        random = self.random
        replicas = random.sample(BROKERS, width)
        isr = random.sample(replicas, random.randint(0, width))
        is_plain = random.random() < 0.8
        return r.PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=replicas,
            isr=isr,
            removing_replicas=[] if is_plain else replicas[:1],
            adding_replicas=[] if is_plain else replicas[1:],
            leader=isr[0] if isr else -1,
            leader_recovery_state=int(random.random() < 0.1),
            leader_epoch=random.randint(0, 9),
            partition_epoch=random.randint(0, 9),
            directories=[] if random.random() < 0.1 else [self._directory(one) for one in replicas],
            eligible_leader_replicas=None if is_plain else [one for one in replicas if one not in isr],
            last_known_elr=random.choice([None, [], [3]]),
        )

    def _directory(self, broker_id: int) -> Uuid:
        number = self.random.randint(0, 1)
        known = Uuid(b"directory".ljust(14) + bytes((broker_id, number)))
        return self.random.choice([known] * 6 + [UNASSIGNED, MIGRATING, LOST])

    def _change(self, topic_id: Uuid, partition_id: int, kind: Any) -> r.PartitionChangeRecord:
        partition = self.now.partition(topic_id, partition_id)
        assert partition is not None
        record = r.PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id)
        kind(record, partition)
        return record

    def _plain_change(self, record: r.PartitionChangeRecord, partition: Partition) -> None:
        random, replicas = self.random, partition.replicas
        if random.random() < 0.7:
            record.isr = random.sample(replicas, random.randint(0, len(replicas)))
        if random.random() < 0.4:
            record.leader = random.choice([-1, *replicas])
        if random.random() < 0.1:
            record.leader_recovery_state = random.choice([0, 1])
        if random.random() < 0.2:
            record.eligible_leader_replicas = random.sample(replicas, random.randint(0, len(replicas)))
        if random.random() < 0.2:
            record.last_known_elr = random.choice([[], [replicas[0]]])

    def _reassignment(self, record: r.PartitionChangeRecord, partition: Partition) -> None:
        random = self.random
        if random.random() < 0.3:
            record.directories = [self._directory(one) for one in partition.replicas]
            return
        wanted = random.sample(BROKERS, random.randint(1, len(BROKERS)))
        record.replicas = wanted
        record.isr = wanted[:1]
        record.adding_replicas = wanted[1:2]
        record.removing_replicas = []
        record.eligible_leader_replicas = []
        record.directories = random.choice([None, [self._directory(one) for one in wanted]])

    # Everything else

    def configure(self) -> None:
        resource_type, name = self.random.choice([(4, ""), (4, "1"), (2, "topic-1"), (16, "m"), (32, "g")])
        for _ in range(self.random.choice([1, 25])):
            self.write(
                r.ConfigRecord(
                    resource_type=resource_type,
                    resource_name=name,
                    name=self.random.choice("abc"),
                    value=self.random.choice([None, "1", "2"]),
                )
            )

    def finalize(self) -> None:
        name = self.random.choice(["group.version", "kraft.version", "eligible.leader.replicas.version"])
        self.write(r.FeatureLevelRecord(name=name, feature_level=self.random.choice([0, 1])))

    def limit(self) -> None:
        entity = self.random.choice(
            [[("user", "u")], [("client-id", None)], [("user", None), ("client-id", "c")]]
        )
        self.write(
            r.ClientQuotaRecord(
                entity=[
                    r.ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity
                ],
                key=self.random.choice(["producer_byte_rate", "request_percentage"]),
                value=float(self.random.randint(1, 100)),
                remove=self.random.random() < 0.3,
            )
        )

    def give_producer_ids(self) -> None:
        following = self.now.next_producer_id + 1000
        self.write(r.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=following))

    def allow(self) -> None:
        acls = list(self.now.acls)
        if acls and self.random.random() < 0.4:
            self.write(r.RemoveAccessControlEntryRecord(id=self.random.choice(acls)))
            return
        self.write(
            r.AccessControlEntryRecord(
                id=Uuid(self.random.randbytes(16)),
                resource_type=2,
                resource_name="t",
                pattern_type=3,
                principal="User:a",
                host="*",
                operation=3,
                permission_type=3,
            )
        )

    def set_password(self) -> None:
        users = list(self.now.scram)
        if users and self.random.random() < 0.4:
            name, mechanism = self.random.choice(users)
            self.write(r.RemoveUserScramCredentialRecord(name=name, mechanism=mechanism))
            return
        self.write(
            r.UserScramCredentialRecord(
                name=self.random.choice("ab"),
                mechanism=self.random.choice([1, 2]),
                salt=self.random.randbytes(4),
                stored_key=b"stored",
                server_key=b"server",
                iterations=4096,
            )
        )

    def give_token(self) -> None:
        token_id = self.random.choice("xyz")
        if self.random.random() < 0.3:
            self.write(r.RemoveDelegationTokenRecord(token_id=token_id))
            return
        self.write(
            r.DelegationTokenRecord(
                owner="User:a",
                requester="User:a",
                renewers=["User:b"],
                issue_timestamp=self.random.randint(0, 9),
                max_timestamp=10,
                expiration_timestamp=10,
                token_id=token_id,
            )
        )

    def say_nothing(self) -> None:
        self.write(r.NoOpRecord())
        self.write(r.ZkMigrationStateRecord(zk_migration_state=0))

    def say_what_nobody_knows(self) -> None:
        self.write(UNKNOWN)
        self.write(bytes.fromhex("010503") + self.random.randbytes(4))  # a change of a version to come

    def begin(self) -> None:
        if not self.image.is_in_transaction:
            copy = self.image.copy()
            self.write(r.BeginTransactionRecord())
            self.inside = copy

    def end(self) -> None:
        if self.image.is_in_transaction:
            self.inside = None
            self.write(r.EndTransactionRecord())

    def abort(self) -> None:
        if self.image.is_in_transaction:
            self.inside = None
            self.write(r.AbortTransactionRecord())

    STEPS = (
        register,
        change_broker,
        fence_as_of_old,
        register_controller,
        *[create_topics] * 5,
        grow_topic,
        describe_again,
        remove_topic,
        *[change_partitions] * 6,
        change_partitions_unusually,
        clear_elr,
        configure,
        finalize,
        limit,
        give_producer_ids,
        allow,
        set_password,
        give_token,
        say_nothing,
        say_what_nobody_knows,
    )
    TRANSACTIONS = (begin, end, abort)


def stored(batch: bytearray) -> list[Stored]:
    """The records of a batch."""
    return records(batch, read_header(batch))
