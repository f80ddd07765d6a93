"""A cluster for the benchmarks of the controller: its image, and the snapshot of it on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from quorate.controller.features import default_features
from quorate.controller.settings import SUPPORTED_FEATURES, ControllerSettings
from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import NewPartitions
from quorate.metadata.records import FeatureLevelRecord, RegisterBrokerRecord, TopicRecord
from quorate.metadata.versions import METADATA_VERSION_LATEST
from quorate.protocol.types import Uuid
from quorate.storage.files import RealFiles
from quorate.storage.snapshots import SnapshotId, SnapshotWriter, snapshot_path

BROKERS: Final = 100
REPLICAS: Final = 3
PARTITIONS_PER_TOPIC: Final = 1000
VICTIM: Final = 7  # the broker that falls silent
CLUSTER_ID: Final = "q8K3yH5ASs2mFvAaEvJ0QA"
BUILD: Final = Path(__file__).parent.parent / "build"  # on a disk, where a temporary directory may not be

# Nothing happens by itself but what is measured.
QUIET: Final = {
    "metadata_max_idle_interval_ms": 0,
    "auto_leader_rebalance_enable": False,
    "unclean_leader_election_interval_ms": 10**12,
}


def settings() -> ControllerSettings:
    return ControllerSettings(node_id=1, cluster_id=CLUSTER_ID, **QUIET)  # type: ignore[arg-type]


def directory(broker_id: int) -> Uuid:
    return Uuid(b"directory-%06d" % broker_id)


def cluster(size: int, held: int | None = None) -> ClusterImage:
    """So many partitions of three replicas on a hundred brokers, spread at random, all in sync; or, if it is
    given, so many of them on the victim."""
    random = np.random.default_rng(7)
    image = with_brokers(BROKERS)
    per_topic = min(PARTITIONS_PER_TOPIC, size)
    for number in range(-(-size // per_topic)):
        image.apply(TopicRecord(name=f"topic-{number:06}", topic_id=Uuid(b"topic-%010d" % number)), 0)
    directories = [image.partitions.directory_ids.number(directory(one)) for one in range(BROKERS)]
    replicas = _spread(random, size) if held is None else _held_by_victim(random, size, held)
    zeros = np.zeros(size, np.int32)
    nobody = zeros.astype(np.uint8)
    image.partitions.put_many(
        [
            NewPartitions(
                topics=(np.arange(size) // per_topic).astype(np.int32),
                partition_ids=(np.arange(size) % per_topic).astype(np.int32),
                replicas=replicas,
                directories=np.array(directories, np.uint16)[replicas],
                isr=nobody + 0b111,
                elr=nobody,
                adding=nobody,
                removing=nobody,
                leader=replicas[:, 0],
                leader_epoch=zeros,
                partition_epoch=zeros,
                is_recovering=zeros == 1,
                last_known_leader=zeros - 1,
            )
        ]
    )
    return image


def with_brokers(count: int) -> ClusterImage:
    """Brokers that serve, and nothing else; the epoch of each is its id and a thousand."""
    image = ClusterImage(is_strict=True)
    for name, level in default_features(METADATA_VERSION_LATEST).items():
        image.apply(FeatureLevelRecord(name=name, feature_level=level), 0)
    for broker_id in range(count):
        image.apply(_registration(broker_id), epoch_of(broker_id))
    return image


def epoch_of(broker_id: int) -> int:
    return 1000 + broker_id


async def write_snapshot(image: ClusterImage, directory_path: Path, snapshot: SnapshotId) -> Path:
    directory_path.mkdir(parents=True, exist_ok=True)
    path = snapshot_path(str(directory_path), snapshot)
    with SnapshotWriter(
        RealFiles(), path, snapshot.epoch, timestamp_ms=1, last_contained_log_timestamp_ms=1
    ) as writer:
        writer.append_sections(image.freeze().sections())
        await writer.freeze()
    return Path(path)


def _registration(broker_id: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=Uuid(b"run-%012d" % broker_id),
        broker_epoch=epoch_of(broker_id),
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name="PLAINTEXT", host=f"broker-{broker_id}", port=9092, security_protocol=0
            )
        ],
        features=[
            RegisterBrokerRecord.BrokerFeature(
                name=name, min_supported_version=low, max_supported_version=high
            )
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        rack=None,
        fenced=False,
        log_dirs=[directory(broker_id)],
    )


def _spread(random: np.random.Generator, size: int) -> np.ndarray:
    first = random.integers(0, BROKERS, size, np.int32)
    shift = random.integers(1, BROKERS // 2, size, np.int32)  # twice that is no whole turn
    return np.stack([first, (first + shift) % BROKERS, (first + 2 * shift) % BROKERS], axis=1)


def _held_by_victim(random: np.random.Generator, size: int, held: int) -> np.ndarray:
    replicas = _spread(random, size)
    row, position = np.nonzero(replicas == VICTIM)
    substitute = (VICTIM + 1 + np.arange(len(row))) % BROKERS
    for _ in range(REPLICAS + 1):
        is_taken = (replicas[row] == substitute[:, None]).any(axis=1)
        substitute[is_taken] = (substitute[is_taken] + 1) % BROKERS
    replicas[row, position] = substitute
    some = random.choice(size, held, replace=False)
    replicas[some, random.integers(0, REPLICAS, held)] = VICTIM
    return replicas
