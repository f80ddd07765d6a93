"""Where the replicas of new partitions go: striped over racks, and over the brokers of each rack.

Racks come before brokers: the replicas of a partition are in as many racks as there are, even if the brokers
of a small rack get more of them than others. Within these, every broker leads and hosts about as much as its
neighbours. Kafka's rules:

- Each partition begins one rack further than the one before, and takes its replicas from the racks in turn.
  A rack gives the brokers of its list in turn, beginning one further than at its last partition.
- A rack gives fenced brokers only once it has no others left, and nobody fenced comes first: the first
  replica is the leader.
- After as many partitions as there are brokers alive everything is shuffled, so that the same sets of brokers
  do not come again and again: whoever shares all its partitions with two others takes them all down.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from quorate.controller.decision import Random
from quorate.controller.partition_change import default_directory
from quorate.metadata.brokers import BrokerRegistration
from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import REPLICAS_MAX
from quorate.metadata.records import PartitionRecord
from quorate.metadata.versions import DIRECTORIES
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = ["NewPartitions", "Usable", "place", "usable_brokers"]


@dataclass(frozen=True, slots=True)
class Usable:
    """A broker that can be given replicas."""

    id: int
    rack: str | None = None
    is_fenced: bool = False


def usable_brokers(image: ClusterImage) -> list[Usable]:
    """All registered brokers, except those that are about to leave and those that take nothing new because
    all their directories are cordoned."""
    return [
        Usable(one.id, one.rack, one.is_fenced)
        for one in image.brokers.values()
        if (one.is_fenced or not one.is_shutting_down) and not _is_cordoned(one)
    ]


def _is_cordoned(broker: BrokerRegistration) -> bool:
    return bool(broker.directories) and set(broker.directories) <= set(broker.cordoned)


def place(brokers: Collection[Usable], partitions: int, replicas: int, random: Random) -> list[list[int]]:
    """The replicas of so many partitions; the first of each is alive and will lead it.

    Raises INVALID_REPLICATION_FACTOR if there are not enough brokers.
    """
    alive = sum(not one.is_fenced for one in brokers)
    problem = None
    if replicas <= 0:
        problem = f"a replication factor of {replicas}: it must be 1 or more"
    elif replicas > REPLICAS_MAX:
        problem = f"a replication factor of {replicas}: {REPLICAS_MAX} is the most that is possible"
    elif replicas > len(brokers):
        problem = (
            f"The target replication factor of {replicas} cannot be reached because only {len(brokers)}"
            " broker(s) are registered or some brokers have all their log directories cordoned."
        )
    elif alive == 0:
        problem = "All brokers are currently fenced, or have all their log directories cordoned."
    if problem:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, problem)
    return list(_stripe(_racks(brokers, random), partitions, replicas, alive, random))


class _Stripe:
    """A list of brokers that is gone through once for each partition, each time from one further on."""

    __slots__ = ("_given", "_partition", "_start", "brokers")

    def __init__(self, brokers: Iterable[int], random: Random) -> None:
        self.brokers = sorted(brokers)
        self._start = random.randrange(len(self.brokers)) if self.brokers else 0
        self._partition = 0  # for which it was last used
        self._given = 0

    def next(self, partition: int) -> int | None:
        """The next broker for a partition, None when all were given."""
        count = len(self.brokers)
        if count == 0:
            return None
        if partition != self._partition:
            self._partition, self._given = partition, 0
            self._start = (self._start + 1) % count
        if self._given == count:
            return None
        self._given += 1
        return self.brokers[(self._start + self._given - 1) % count]


class _Rack:
    __slots__ = ("alive", "fenced")

    def __init__(self, brokers: Collection[Usable], random: Random) -> None:
        self.fenced = _Stripe((one.id for one in brokers if one.is_fenced), random)
        self.alive = _Stripe((one.id for one in brokers if not one.is_fenced), random)

    def next(self, partition: int) -> int | None:
        found = self.alive.next(partition)
        return self.fenced.next(partition) if found is None else found

    def shuffle(self, random: Random) -> None:
        random.shuffle(self.fenced.brokers)
        random.shuffle(self.alive.brokers)


def _racks(brokers: Iterable[Usable], random: Random) -> list[_Rack]:
    """The racks by their names; the brokers that are in none are a rack too, and the first."""
    by_rack: dict[tuple[bool, str], list[Usable]] = {}
    for one in brokers:
        by_rack.setdefault((one.rack is not None, one.rack or ""), []).append(one)
    return [_Rack(by_rack[key], random) for key in sorted(by_rack)]


def _stripe(
    racks: list[_Rack], partitions: int, replicas: int, alive: int, random: Random
) -> Iterator[list[int]]:
    start = random.randrange(len(racks))
    round_end = alive if alive > 1 else partitions  # shuffling a single leader would change nothing
    partition = 0
    for _ in range(partitions):
        if partition == round_end:
            random.shuffle(racks)
            for rack in racks:
                rack.shuffle(random)
            partition = 0
        yield _place_one(racks, start, replicas, partition)
        partition += 1
        start = (start + 1) % len(racks)


def _place_one(racks: list[_Rack], start: int, replicas: int, partition: int) -> list[int]:
    for first in range(start, start + len(racks)):
        leader = racks[first % len(racks)].alive.next(partition)
        if leader is not None:
            break
    assert leader is not None, "nobody is alive"
    placed = [leader]
    skip: int | None = first % len(racks)  # this rack had its turn
    at = start
    while len(placed) < replicas:
        if at == skip:
            skip = None
        else:
            broker_id = racks[at].next(partition)
            if broker_id is not None:
                placed.append(broker_id)
        at = (at + 1) % len(racks)
    return placed


class NewPartitions:
    """Makes the records of new partitions; what they need to know of brokers is looked up once."""

    def __init__(self, image: ClusterImage) -> None:
        self._active = frozenset(one.id for one in image.brokers.values() if one.is_active)
        self._directories = {broker_id: default_directory(image, broker_id) for broker_id in image.brokers}
        self._has_directories = image.metadata_version >= DIRECTORIES

    def record(self, topic_id: Uuid, partition_id: int, replicas: list[int]) -> PartitionRecord | None:
        """All replicas on active brokers are in sync, for there is nothing to copy, and the first of them
        leads; None if there is none."""
        in_sync = [one for one in replicas if one in self._active]
        if not in_sync:
            return None
        return PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=replicas,
            isr=in_sync,
            removing_replicas=[],
            adding_replicas=[],
            leader=in_sync[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[self._directories[one] for one in replicas] if self._has_directories else [],
        )
