"""How one partition changes: who is in sync, who leads, when a reassignment is complete.

`build_change` is the one rule for all of it. What triggers it (a broker leaves, a leader reports, an
administrator asks) only says what it wants: `Wanted`. The order of the steps matters and is Kafka's:

1. A reassignment is complete once the added replicas are in sync; if it removes more than it adds, once all
   that shall stay are.
2. The eligible leader replicas are those that left the ISR while it was smaller than it must be.
3. A leader is elected: from the ISR; if that is empty, from the eligible ones; then the last known leader;
   and, where an unclean election is allowed, anyone alive.
4. A partition that loses a replica gets a new leader epoch in any case.
5. An ISR is never written empty, unless eligible leader replicas are on.

`bulk_election.py` has the same rule for many partitions at once, and the tests hold the two together.

Apache's own builder is asked the same questions by a test. On purpose we differ in two things, both of which
happen only when a reassignment ends: a replica that is dropped is not eligible any more (Apache may list one
that is no replica), and a partition that had no leader before has no last known one (Apache writes -1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Final

from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import LOST, MIGRATING, NO_LEADER, UNASSIGNED, Partition
from quorate.metadata.records import PartitionChangeRecord
from quorate.metadata.versions import DIRECTORIES, SHRINK_KEEPS_EPOCH
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = ["Candidates", "Election", "Wanted", "build_change", "default_directory", "is_directory_online"]

_NO_CHANGE: Final = -2


class Election(Enum):
    """Whom to prefer."""

    PREFERRED = "the first replica, if it is in sync"
    ONLINE = "the leader of now, else anyone in sync"
    UNCLEAN = "like ONLINE, but anyone alive if nobody is in sync"


@dataclass(frozen=True, slots=True)
class Candidates:
    """Who may lead: registered, active, and with the replica's directory online.

    `without` is on its way out; `unfencing` is still stored as fenced and is about to come back.
    """

    image: ClusterImage
    without: int = -1
    unfencing: int = -1

    def accept(self, broker_id: int, directory: Uuid) -> bool:
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker_id == self.without:
            return False
        if not broker.is_active and broker_id != self.unfencing:
            return False
        return is_directory_online(directory, broker.directories)


def is_directory_online(directory: Uuid, online: Sequence[Uuid]) -> bool:
    """A broker that names no directories is from before there were any."""
    if directory in (UNASSIGNED, MIGRATING):
        return True
    return directory != LOST and (not online or directory in online)


def default_directory(image: ClusterImage, broker_id: int) -> Uuid:
    """Where a new replica on a broker will be, as far as one can know."""
    if image.metadata_version < DIRECTORIES:
        return MIGRATING
    broker = image.brokers.get(broker_id)
    if broker is None or len(broker.directories) > 1:
        return UNASSIGNED
    return broker.directories[0] if broker.directories else MIGRATING


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a partition shall become; None is what it is."""

    election: Election = Election.ONLINE
    isr: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    removing: Sequence[int] | None = None
    adding: Sequence[int] | None = None
    is_recovering: bool | None = None
    unclean_shutdown: Sequence[int] = ()  # these may have lost records, and are no longer eligible
    directories: Mapping[int, Uuid] = field(default_factory=dict)


def build_change(
    image: ClusterImage,
    topic_id: Uuid,
    partition_id: int,
    partition: Partition,
    wanted: Wanted,
    candidates: Candidates,
    min_isr: int,
) -> PartitionChangeRecord | None:
    """The record that makes a partition what is wanted, as far as the rules allow; None if none is needed."""
    return _Builder(image, partition, wanted, candidates, min_isr).build(topic_id, partition_id)


class _Builder:
    def __init__(
        self,
        image: ClusterImage,
        partition: Partition,
        wanted: Wanted,
        candidates: Candidates,
        min_isr: int,
    ) -> None:
        self.image = image
        self.now = partition
        self.wanted = wanted
        self.min_isr = min_isr
        self.replicas = _or(wanted.replicas, partition.replicas)
        self.isr = _or(wanted.isr, partition.isr)
        self.removing = _or(wanted.removing, partition.removing)
        self.adding = _or(wanted.adding, partition.adding)
        self.elr = partition.elr
        self.directories = dict(zip(partition.replicas, partition.directories, strict=True))
        self.directories.update(wanted.directories)
        self.candidates = candidates

    def build(self, topic_id: Uuid, partition_id: int) -> PartitionChangeRecord | None:
        now, image = self.now, self.image
        record = PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id)
        self._complete_reassignment()
        self._find_eligible()
        self._elect(record)
        if record.leader == _NO_CHANGE and not set(now.replicas) <= set(self.replicas):
            record.leader = now.leader
        if record.isr is not None or not image.is_elr_enabled:
            self.elr = ()  # after an unclean election nobody is eligible any more
        if set(self.elr) != set(now.elr):
            record.eligible_leader_replicas = list(self.elr)
        if record.isr is None and set(self.isr) != set(now.isr) and (self.isr or image.is_elr_enabled):
            record.isr = list(self.isr)
        self._bump_epoch_for_shrink(record)
        self._remember_leader(record)
        self._assign(record)
        if self.wanted.is_recovering is not None and self.wanted.is_recovering != now.is_recovering:
            record.leader_recovery_state = int(self.wanted.is_recovering)
        nothing = PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id)
        return None if record == nothing else record

    def _complete_reassignment(self) -> None:
        if not self.removing and not self.adding:
            return
        staying = tuple(one for one in self.replicas if one not in self.removing)
        in_sync = tuple(one for one in self.isr if one not in self.removing)
        needed = staying if len(self.adding) < len(self.removing) else self.adding
        if in_sync and staying and set(needed) <= set(in_sync):
            self.replicas, self.isr, self.removing, self.adding = staying, in_sync, (), ()

    def _find_eligible(self) -> None:
        if not self.image.is_elr_enabled:
            return
        if len(self.isr) >= self.min_isr:
            self.elr = ()
            return
        excluded = {*self.isr, *self.wanted.unclean_shutdown}
        before = {*self.now.elr, *self.now.isr}
        self.elr = tuple(one for one in self.replicas if one in before and one not in excluded)

    # Election

    def _elect(self, record: PartitionChangeRecord) -> None:
        leader, is_unclean = self._choose()
        if leader == self.now.leader:
            return
        record.leader = leader
        if leader in self.elr:
            self.isr = (leader,)
            self.elr = tuple(one for one in self.elr if one != leader)
        if is_unclean:
            record.isr = [leader]
            if not self.now.is_recovering:
                record.leader_recovery_state = 1

    def _choose(self) -> tuple[int, bool]:
        now, election = self.now, self.wanted.election
        if election is Election.PREFERRED and self._is_valid(self.replicas[0]):
            return self.replicas[0], False
        if self._is_valid(now.leader):
            return now.leader, False
        for one in self.replicas:
            if self._is_valid(one):
                return one, False
        if self._may_lead_again(now.last_known_leader):
            return now.last_known_leader, True
        if election is Election.UNCLEAN:
            for one in self.replicas:
                if self._accepts(one):
                    return one, True
        return NO_LEADER, False

    def _accepts(self, broker_id: int) -> bool:
        """Only who has been a replica has anything to lead with, and in the directory where it has been."""
        if broker_id not in self.now.replicas or broker_id not in self.replicas:
            return False
        return self.candidates.accept(broker_id, self.now.directory_of(broker_id))

    def _is_valid(self, broker_id: int) -> bool:
        return broker_id in (self.isr or self.elr) and self._accepts(broker_id)

    def _may_lead_again(self, broker_id: int) -> bool:
        """The last known leader has more than anyone else, now that nobody is in sync or eligible."""
        is_alone = self.image.is_elr_enabled and not self.isr and not self.elr
        return is_alone and self._accepts(broker_id)

    # What else the record says

    def _bump_epoch_for_shrink(self, record: PartitionChangeRecord) -> None:
        """Brokers of that time need a new leader epoch whenever the ISR shrinks."""
        if self.image.metadata_version >= SHRINK_KEEPS_EPOCH or record.leader != _NO_CHANGE:
            return
        if record.isr is not None and not set(self.now.isr) <= set(record.isr):
            record.leader = self.now.leader

    def _remember_leader(self, record: PartitionChangeRecord) -> None:
        if not self.image.is_elr_enabled:
            return
        known = self.now.last_known_leader != NO_LEADER
        if record.leader == NO_LEADER and not known and self.now.leader != NO_LEADER:
            record.last_known_elr = [self.now.leader]
        elif record.leader >= 0 and known:
            record.last_known_elr = []

    def _assign(self, record: PartitionChangeRecord) -> None:
        now = self.now
        if self.image.metadata_version >= DIRECTORIES:
            directories = tuple(
                self.directories[one] if one in self.directories else default_directory(self.image, one)
                for one in self.replicas
            )
            if directories != now.directories:
                record.directories = list(directories)
        if self.replicas != now.replicas:
            record.replicas = list(self.replicas)
        if set(self.removing) != set(now.removing):
            record.removing_replicas = list(self.removing)
        if set(self.adding) != set(now.adding):
            record.adding_replicas = list(self.adding)


def _or(wanted: Sequence[int] | None, now: tuple[int, ...]) -> tuple[int, ...]:
    return now if wanted is None else tuple(wanted)
