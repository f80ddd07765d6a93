"""A cluster in a test: an image, sessions and a clock, on which decisions are made and applied at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from quorate.controller.decision import Asker, Change, Decision, Situation
from quorate.controller.sessions import Sessions
from quorate.controller.settings import ControllerSettings
from quorate.metadata.image import ClusterImage
from quorate.metadata.log_format import decode_record, encode_record
from quorate.metadata.partition_changes import PartitionChanges
from quorate.metadata.partitions import UNASSIGNED, Partition
from quorate.metadata.records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from quorate.metadata.versions import (
    DIRECTORIES,
    ELR_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LATEST,
    version_of,
)
from quorate.protocol.message import Record
from quorate.protocol.types import Uuid

__all__ = ["Cluster", "directory", "incarnation", "topic_id"]

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


def topic_id(number: int) -> Uuid:
    return Uuid(b"topic".ljust(12, b".") + number.to_bytes(4))


def directory(broker_id: int, number: int = 0) -> Uuid:
    return Uuid(b"dir".ljust(8, b".") + broker_id.to_bytes(4) + number.to_bytes(4))


def incarnation(broker_id: int, number: int = 0) -> Uuid:
    return Uuid(b"run".ljust(8, b".") + broker_id.to_bytes(4) + number.to_bytes(4))


class Cluster:
    """`decide` makes a decision and applies it: the next one sees what it did."""

    def __init__(
        self,
        brokers: Sequence[int] = (),
        *,
        metadata_version: int = METADATA_VERSION_LATEST,
        elr: bool = False,
        seed: int = 1,
        **settings: Any,
    ) -> None:
        self.image = ClusterImage(is_strict=True)
        self.settings = ControllerSettings(node_id=3000, cluster_id=CLUSTER_ID, **settings)
        self.sessions = Sessions(self.settings.broker_session_timeout_ms)
        self.random = Random(seed)
        self.now_ms = 1_000_000.0
        self.next_offset = 100
        self.voters: tuple[int, ...] = ()
        self.is_forwarded = False  # what is asked, by a broker
        self.records: list[Record] = []  # everything that was ever applied
        self.apply(FeatureLevelRecord(name=METADATA_VERSION, feature_level=metadata_version))
        if elr:
            self.apply(FeatureLevelRecord(name=ELR_VERSION, feature_level=1))
        for broker_id in brokers:
            self.register(broker_id)

    @property
    def has_directories(self) -> bool:
        """Older clusters know nothing of the directories of brokers."""
        return self.image.metadata_version >= DIRECTORIES

    # Making it what a test needs

    def register(
        self,
        broker_id: int,
        *,
        fenced: bool = False,
        rack: str | None = None,
        directories: int = 1,
        run: int = 0,
    ) -> int:
        """A broker with this id, as if it had registered and been unfenced; returns its epoch."""
        epoch = self.next_offset
        self.apply(
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=incarnation(broker_id, run),
                broker_epoch=epoch,
                end_points=[
                    RegisterBrokerRecord.BrokerEndpoint(
                        name="PLAINTEXT", host=f"broker-{broker_id}", port=9092, security_protocol=0
                    )
                ],
                features=[
                    RegisterBrokerRecord.BrokerFeature(
                        name=name, min_supported_version=low, max_supported_version=high
                    )
                    for name, (low, high) in self.settings.features.items()
                ],
                rack=rack,
                fenced=fenced,
                log_dirs=[
                    directory(broker_id, number) for number in range(directories * self.has_directories)
                ],
            )
        )
        return epoch

    def create(self, number: int, partitions: Sequence[Partition | Sequence[int]], name: str = "") -> Uuid:
        """A topic with these partitions; a list of replicas is one with all in sync, led by the first."""
        key = topic_id(number)
        self.apply(TopicRecord(name=name or f"topic-{number}", topic_id=key))
        for partition_id, given in enumerate(partitions):
            partition = given
            if not isinstance(given, Partition):
                replicas = tuple(given)
                partition = Partition(replicas, tuple(map(directory, replicas)), replicas, replicas[0])
            assert isinstance(partition, Partition)
            self.apply(
                PartitionRecord(
                    partition_id=partition_id,
                    topic_id=key,
                    replicas=list(partition.replicas),
                    isr=list(partition.isr),
                    removing_replicas=list(partition.removing),
                    adding_replicas=list(partition.adding),
                    leader=partition.leader,
                    leader_recovery_state=int(partition.is_recovering),
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    directories=(list(partition.directories) or [UNASSIGNED] * len(partition.replicas))
                    * self.has_directories,
                    eligible_leader_replicas=list(partition.elr) or None,
                    last_known_elr=[partition.last_known_leader]
                    if partition.last_known_leader >= 0
                    else None,
                )
            )
        return key

    def fence(self, broker_id: int) -> None:
        """Marks a broker as fenced and nothing else: its partitions stay as they are."""
        epoch = self.image.brokers[broker_id].epoch
        self.apply(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=1))

    def shut_down(self, broker_id: int) -> None:
        """Marks a broker as shutting down and nothing else."""
        epoch = self.image.brokers[broker_id].epoch
        self.apply(
            BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, in_controlled_shutdown=1)
        )

    # Deciding

    def situation(self, api_version: int = 0) -> Situation:
        return Situation(
            image=self.image,
            sessions=self.sessions,
            settings=self.settings,
            random=self.random,
            now_ms=self.now_ms,
            wall_ms=1_700_000_000_000 + int(self.now_ms),
            next_offset=self.next_offset,
            asker=Asker(api_version=api_version, is_forwarded=self.is_forwarded),
            voters=self.voters,
        )

    def decide(self, decide: Callable[..., Decision], *args: Any, api_version: int = 0) -> Decision:
        """What is decided; its records are applied."""
        decision = decide(self.situation(api_version), *args)
        for change in decision.records:
            self.apply(change)
        if decision.then is not None:
            decision.then(self.next_offset - 1)
        return decision

    def apply(self, change: Change) -> None:
        """Applies what a log would hold: every record goes through its encoding."""
        if isinstance(change, PartitionChanges):
            for one in change.records():
                self.apply(one)
            return
        value = encode_record(change, version_of(change, self.image.metadata_version))
        self.records.append(change)
        self.image.apply(decode_record(value)[0], self.next_offset)
        self.next_offset += 1

    def partition(self, number: int, partition_id: int = 0) -> Partition:
        found = self.image.partition(topic_id(number), partition_id)
        assert found is not None
        return found
