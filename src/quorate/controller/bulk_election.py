"""The rule of `partition_change.py` for many partitions at once: a broker leaves, or a leader is missing.

A row's replicas are positions, and a set of them is a number with a bit per position. So the rule becomes
arithmetic on columns of such numbers:

    acceptable   the positions whose brokers may lead, with the directory of the replica online
    in_sync      the ISR without the one that leaves
    eligible     (ELR | ISR) & ~in_sync, where fewer are in sync than must be
    valid        acceptable & (in_sync, or eligible where nobody is in sync)
    elected      the leader of now if it is valid, else the lowest bit of valid; then the last known leader;
                 then, in topics that allow it, the lowest bit of acceptable

Partitions that are being reassigned may lose replicas on the way. They are few, and go through `build_change`
one by one. Settings of topics are looked up only for topics that are affected, and whether a topic allows an
unclean election only if one of its partitions would else be left without a leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from quorate.controller.decision import Change
from quorate.controller.partition_change import Candidates, Election, Wanted, build_change
from quorate.controller.settings import ControllerSettings
from quorate.controller.topic_settings import MIN_ISR, allows_unclean, effective, min_isr
from quorate.metadata.image import TOPIC, ClusterImage
from quorate.metadata.partition_changes import NO_CHANGE, UNCHANGED_STATE, PartitionChanges
from quorate.metadata.partitions import LOST, NO_LEADER, Rows, mask_type
from quorate.metadata.versions import SHRINK_KEEPS_EPOCH
from quorate.values import dataclass

__all__ = ["Cause", "Consequences", "change_partitions", "in_topics_that_allow_unclean"]

Column = NDArray[Any]

_NOBODY: Final = -2  # equals no broker, and no place where a replica is missing


@dataclass(frozen=True, slots=True)
class Cause:
    """Why partitions are looked at: a broker leaves them, perhaps without records that it should have; or one
    comes back that is still stored as fenced; or neither."""

    leaving: int = -1
    may_lack_records: bool = False
    returning: int = -1


@dataclass(slots=True)
class Consequences:
    """Records, and how many partitions change, change their leader, have none any more, and are led by a
    replica that may lack records."""

    records: list[Change] = field(default_factory=list)
    partitions: int = 0
    leaderships: int = 0
    leaderless: int = 0
    unclean: int = 0


def change_partitions(
    image: ClusterImage, settings: ControllerSettings, groups: Iterable[Rows], cause: Cause
) -> Consequences:
    """What becomes of some partitions. Rows of a group are in their order, and no partition comes twice."""
    found = Consequences()
    candidates: _Candidates | None = None  # a look at every broker, which most registrations need not take
    for rows in groups:
        block, index = rows.block, rows.index
        is_plain = (block.adding[index] | block.removing[index]) == 0
        if is_plain.any():
            candidates = candidates or _Candidates(image, cause)
            _change_plain(found, _Ballot(image, settings, Rows(block, index[is_plain]), candidates))
        if not is_plain.all():
            _change_reassigned(found, image, settings, Rows(block, index[~is_plain]), cause)
    return found


def in_topics_that_allow_unclean(
    image: ClusterImage, settings: ControllerSettings, groups: Iterable[Rows]
) -> Iterator[Rows]:
    """Those of the rows where anyone alive may be made the leader."""
    for rows in groups:
        allowed = _TopicsOf(image, settings, rows).allow_unclean
        if allowed.any():
            yield Rows(rows.block, rows.index[allowed])


# Many at once


class _Ballot:
    """The partitions of some rows as columns, and what they shall become."""

    def __init__(
        self, image: ClusterImage, settings: ControllerSettings, rows: Rows, candidates: _Candidates
    ) -> None:
        block, index = rows.block, rows.index
        self.image = image
        self.rows = rows
        self.topics = _TopicsOf(image, settings, rows)
        self.replicas = block.replicas.take(index, axis=0)
        self.by_position = self.replicas.T
        self.isr = block.isr[index]
        self.elr = block.elr[index]
        self.leader = block.leader[index]
        self.last_known = block.last_known_leader[index]
        cause = candidates.cause
        self.leaving = self.bits(self.by_position == (cause.leaving if cause.leaving >= 0 else _NOBODY))
        directories = block.directories.take(index, axis=0)
        self.acceptable = self.bits(candidates.accept(self.by_position, directories.T))
        self.in_sync = self.isr & ~self.leaving
        self.eligible = self._eligible(cause)
        self.elected, self.is_unclean = self._elect()
        self.new_leader = _broker_at(self.elected, self.replicas)
        self.is_moved = self.new_leader != self.leader
        self._settle()

    def bits(self, matches: Column) -> Column:
        """What is true at the positions, a row of `matches` for each, as bits."""
        mask = mask_type(self.rows.block.width)
        bits: Column = matches[0].astype(mask)
        for position in range(1, len(matches)):
            bits |= matches[position].astype(mask) << mask(position)
        return bits

    def _eligible(self, cause: Cause) -> Column:
        if not self.image.is_elr_enabled:
            return self.elr
        eligible = (self.elr | self.isr) & ~self.in_sync
        if cause.may_lack_records:
            eligible &= ~self.leaving
        eligible[np.bitwise_count(self.in_sync) >= self.topics.min_isr] = 0
        return eligible

    def _elect(self) -> tuple[Column, Column]:
        """The bit of who shall lead, 0 for nobody, and whether this is not clean."""
        valid = self.acceptable & np.where(self.in_sync != 0, self.in_sync, self.eligible)
        leading = valid & self.bits(self.by_position == self.leader)
        elected = np.where(leading != 0, leading, _lowest(valid))
        is_open = elected == 0
        if not is_open.any():
            return elected, is_open
        if self.image.is_elr_enabled:
            known = self.acceptable & self.bits(self.by_position == self.last_known)
            is_alone = is_open & ((self.in_sync | self.eligible) == 0)
            elected = np.where(is_alone, known, elected)
        if (is_open & (elected == 0) & (self.acceptable != 0)).any():
            allowed = (elected == 0) & self.topics.allow_unclean
            elected = np.where(allowed, _lowest(self.acceptable), elected)
        return elected, is_open & (elected != 0)

    def _settle(self) -> None:
        """An election that was not clean, or not from the ISR, makes the elected one the only one in sync."""
        self.is_unclean = self.is_unclean & self.is_moved
        is_promoted = self.is_moved & ((self.elected & self.eligible) != 0)
        self.in_sync = np.where(is_promoted | self.is_unclean, self.elected, self.in_sync)
        is_kept = ~self.is_unclean & self.image.is_elr_enabled
        self.eligible = np.where(is_kept, self.eligible & ~self.in_sync, self.eligible.dtype.type(0))

    # What the records say

    def changes(self) -> PartitionChanges | None:
        """What is different, as columns."""
        image, block, index = self.image, self.rows.block, self.rows.index
        has_elr = self.eligible != self.elr
        has_isr = self.is_unclean | (self.in_sync != self.isr)
        if not image.is_elr_enabled:
            has_isr &= self.in_sync != 0
        leader = np.where(self.is_moved, self.new_leader, NO_CHANGE)
        if image.metadata_version < SHRINK_KEEPS_EPOCH:
            is_shrunk = has_isr & ((self.isr & ~self.in_sync) != 0) & ~self.is_moved
            leader = np.where(is_shrunk, self.leader, leader)
        # The recovery state and the last known leader change only together with the leader.
        is_changed = has_isr | has_elr | (leader != NO_CHANGE)
        if not is_changed.any():
            return None
        chosen = slice(None) if is_changed.all() else is_changed
        index = index[chosen]
        return PartitionChanges(
            rows=Rows(block, index),
            topic_ids=image.topics.ids[block.topic[index]],
            partition_ids=self.topics.partition_ids[chosen],
            replicas=self.replicas[chosen],
            has_isr=has_isr[chosen],
            isr=self.in_sync[chosen],
            leader=leader[chosen].astype(np.int32, copy=False),
            has_elr=has_elr[chosen],
            elr=self.eligible[chosen],
            last_known_leader=self._last_known(leader)[chosen],
            recovery_state=self.recovery_state[chosen],
        )

    @cached_property
    def recovery_state(self) -> Column:
        is_new = self.is_unclean & ~self.rows.block.is_recovering[self.rows.index]
        return np.where(is_new, 1, UNCHANGED_STATE).astype(np.int8)

    def _last_known(self, leader: Column) -> Column:
        known = np.full(len(leader), NO_CHANGE, np.int32)
        if self.image.is_elr_enabled:
            is_lost = (leader == NO_LEADER) & (self.last_known == NO_LEADER)
            known[is_lost] = self.leader[is_lost]
            known[(leader >= 0) & (self.last_known != NO_LEADER)] = NO_LEADER
        return known


def _change_plain(found: Consequences, ballot: _Ballot) -> None:
    changes = ballot.changes()
    if changes is None:
        return
    found.records.append(changes)
    found.partitions += len(changes)
    found.leaderships += int(ballot.is_moved.sum())
    found.leaderless += int((ballot.is_moved & (ballot.new_leader == NO_LEADER)).sum())
    found.unclean += int((ballot.recovery_state == 1).sum())


class _Candidates:
    """`partition_change.Candidates` for columns: who may lead, by broker and by number of directory."""

    def __init__(self, image: ClusterImage, cause: Cause) -> None:
        self.cause = cause
        numbers = image.partitions.directory_ids
        brokers = image.brokers.values()
        is_in = {one.id: one.is_active or one.id == cause.returning for one in brokers}
        self._active = np.array([one for one in is_in if is_in[one] and one != cause.leaving], np.int32)
        self._anywhere = np.array([one.id for one in brokers if not one.directories], np.int32)
        self._lost = numbers.ids.index(LOST)  # before it stand only the two that are always online
        self._owner = np.full(len(numbers.ids), _NOBODY, np.int32)
        for broker in brokers:
            for one in broker.directories:
                number = numbers.known(one)
                if number is not None:
                    self._owner[number] = broker.id

    def accept(self, replicas: Column, directories: Column) -> Column:
        """For every position whether its broker may lead; never where there is none."""
        is_online: Column = (self._owner.take(directories) == replicas) | (directories < self._lost)
        if len(self._anywhere):
            is_online |= np.isin(replicas, self._anywhere) & (directories != self._lost)
        return is_online & np.isin(replicas, self._active)


class _TopicsOf:
    """What must be known of the topics of some rows, which stand in runs, a run being a topic's."""

    def __init__(self, image: ClusterImage, settings: ControllerSettings, rows: Rows) -> None:
        self.image = image
        self.settings = settings
        self.rows = rows
        slots = rows.block.topic[rows.index]
        firsts = np.flatnonzero(np.diff(slots, prepend=NO_LEADER))
        self._counts = np.diff(firsts, append=len(slots))
        self._slots: list[int] = slots[firsts].tolist()

    @cached_property
    def partition_ids(self) -> Column:
        ids: Column = self.rows.index - self._spread(self._starts)
        return ids.astype(np.int32)

    @cached_property
    def allow_unclean(self) -> Column:
        image, settings = self.image, self.settings
        allowed = np.full(len(self._slots), allows_unclean(image, settings, ""))
        for position, name in self._configured:
            allowed[position] = allows_unclean(image, settings, name)
        return self._spread(allowed)

    @cached_property
    def min_isr(self) -> Column:
        """As `topic_settings.min_isr`: never more than the first partition has replicas."""
        image, settings, block = self.image, self.settings, self.rows.block
        wanted = np.full(len(self._slots), int(effective(image, settings, "", MIN_ISR)))
        for position, name in self._configured:
            wanted[position] = int(effective(image, settings, name, MIN_ISR))
        replicas = (block.replicas.take(self._starts, axis=0) >= 0).sum(axis=1)
        has_first = block.topic[self._starts] >= 0
        return self._spread(np.where(has_first, np.minimum(wanted, replicas), wanted))

    @cached_property
    def _starts(self) -> Column:
        runs = self.image.partitions.runs
        return np.array([runs[slot].start for slot in self._slots], np.int64)

    @cached_property
    def _configured(self) -> list[tuple[int, str]]:
        """The topics with settings of their own; the others have those of a topic that does not exist."""
        configs, at = self.image.configs, self.image.topics.at
        names = enumerate(at(slot).name for slot in self._slots)
        return [(position, name) for position, name in names if (TOPIC, name) in configs]

    def _spread(self, values: Column) -> Column:
        """What is known by topic, by row."""
        return np.repeat(values, self._counts)


def _lowest(bits: Column) -> Column:
    """The lowest bit of each."""
    lowest: Column = bits & (~bits + bits.dtype.type(1))
    return lowest


def _broker_at(bit: Column, replicas: Column) -> Column:
    """The broker at the position of the one bit of each, `NO_LEADER` where there is none."""
    position = np.where(bit == 0, 0, np.bitwise_count(bit - bit.dtype.type(1)))
    return np.where(bit == 0, NO_LEADER, np.take_along_axis(replicas, position[:, None], axis=1)[:, 0])


# One by one


def _change_reassigned(
    found: Consequences, image: ClusterImage, settings: ControllerSettings, rows: Rows, cause: Cause
) -> None:
    candidates = Candidates(image, without=cause.leaving, unfencing=cause.returning)
    partition_ids = image.partitions.partition_ids(rows).tolist()
    for slot, partition_id in zip(rows.block.topic[rows.index].tolist(), partition_ids, strict=True):
        topic = image.topics.at(slot)
        partition = image.partitions.get(slot, partition_id)
        assert partition is not None
        is_allowed = allows_unclean(image, settings, topic.name)
        wanted = Wanted(
            election=Election.UNCLEAN if is_allowed else Election.ONLINE,
            isr=[one for one in partition.isr if one != cause.leaving],
            unclean_shutdown=(cause.leaving,) if cause.may_lack_records else (),
        )
        least = min_isr(image, settings, topic.name)
        record = build_change(image, topic.id, partition_id, partition, wanted, candidates, least)
        if record is None:
            continue
        is_moved = record.leader not in (NO_CHANGE, partition.leader)
        found.records.append(record)
        found.partitions += 1
        found.leaderships += is_moved
        found.leaderless += is_moved and record.leader == NO_LEADER
        found.unclean += record.leader_recovery_state == 1
