"""Who leads, when somebody asks, and when leaderships have drifted away from where they were placed.

Every change of a partition ends with an election, because `build_change` holds one. `Changes` collects the
changes of single partitions that one decision comes to: elections here, and also reassignments, new ISRs and
new directories, which are built on it. A later change sees what the earlier ones did, so a request that names
a partition twice gets two answers that follow from one another.

The *preferred* leader is the first replica. It gets its partition back when an administrator asks
(ElectLeaders), and by itself, some partitions at a time (`balance_leaders`). Both may look at all partitions
there are, so they search the columns of the table for those where an election can come to something, and
build changes for these only. The search may find too many, never too few: `build_change` has the last word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from quorate.controller.decision import RECORDS_MAX, Change, Decision, Situation, check_count
from quorate.controller.events import Event, LeadershipMoved
from quorate.controller.partition_change import Candidates, Election, Wanted, build_change
from quorate.controller.topic_settings import allows_unclean, min_isr
from quorate.metadata.brokers import BrokerRegistration
from quorate.metadata.image import ClusterImage
from quorate.metadata.partition import changed_by
from quorate.metadata.partition_changes import NO_CHANGE
from quorate.metadata.partitions import LOST, MIGRATING, NO_LEADER, UNASSIGNED, Partition, Rows
from quorate.metadata.records import PartitionChangeRecord
from quorate.metadata.topics import Topic
from quorate.protocol.api.topics import ElectLeadersRequest, ElectLeadersResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid

__all__ = ["Changes", "balance_leaders", "decide_elect_leaders"]

_TopicResult = ElectLeadersResponse.ReplicaElectionResult
_Result = ElectLeadersResponse.ReplicaElectionResult.PartitionResult
_Mask = NDArray[Any]


class Changes:
    """The changes of single partitions that one decision comes to, in their order."""

    def __init__(self, situation: Situation) -> None:
        self.image = situation.image
        self.records: list[Change] = []
        self._settings = situation.settings
        self._changed: dict[tuple[int, int], Partition] = {}  # by slot of the topic and partition id
        self._min_isr: dict[int, int] = {}  # by slot
        self._moved = self._leaderless = self._unclean = 0

    def partition(self, topic: Topic, partition_id: int) -> Partition | None:
        """A partition as it will be after the changes so far."""
        changed = self._changed.get((topic.slot, partition_id))
        return changed or self.image.partitions.get(topic.slot, partition_id)

    def election(self, topic: Topic) -> Election:
        """What a topic allows when its leader is gone."""
        is_unclean = allows_unclean(self.image, self._settings, topic.name)
        return Election.UNCLEAN if is_unclean else Election.ONLINE

    def build(
        self, topic: Topic, partition_id: int, wanted: Wanted, candidates: Candidates | None = None
    ) -> PartitionChangeRecord | None:
        """The record that makes a partition what is wanted. It is not added."""
        if topic.slot not in self._min_isr:
            self._min_isr[topic.slot] = min_isr(self.image, self._settings, topic.name)
        partition = self.partition(topic, partition_id)
        assert partition is not None
        return build_change(
            self.image,
            topic.id,
            partition_id,
            partition,
            wanted,
            candidates or Candidates(self.image),
            self._min_isr[topic.slot],
        )

    def add(self, topic: Topic, record: PartitionChangeRecord) -> Partition:
        """One more change; returns the partition after it."""
        before = self.partition(topic, record.partition_id)
        assert before is not None
        after = changed_by(before, record)
        self.records.append(record)
        self._changed[topic.slot, record.partition_id] = after
        if after.leader != before.leader:
            self._moved += 1
            self._leaderless += after.leader == NO_LEADER
            self._unclean += record.leader_recovery_state == 1
        return after

    def events(self, check: str) -> list[Event]:
        """What there is to say about leaders that changed."""
        if not self._moved:
            return []
        return [LeadershipMoved(check, self._moved, self._leaderless, self._unclean)]


class _Kind(NamedTuple):
    """What an administrator can ask for."""

    election: Election
    check: str  # for the event
    unavailable: ErrorCode
    reason: str

    def is_needed(self, partition: Partition) -> bool:
        if self.election is Election.PREFERRED:
            return partition.leader != partition.replicas[0]
        return partition.leader == NO_LEADER


_KINDS: Final = {
    0: _Kind(
        Election.PREFERRED,
        "asked for",
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        "its first replica is not in sync, or its broker cannot lead now",
    ),
    1: _Kind(
        Election.UNCLEAN,
        "unclean election",
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "none of its replicas is on a broker that can lead now",
    ),
}


def decide_elect_leaders(situation: Situation, request: ElectLeadersRequest) -> Decision:
    """Elections on request: of the preferred leader, or of anyone alive where there is no leader.

    An unclean election that is asked for does not need the topic's permission. Without a list of partitions
    it is about all of them, and those that need nothing are left out of the reply.
    """
    kind = _KINDS.get(request.election_type)
    if kind is None:
        reason = f"there is no election of type {request.election_type}: 0 is preferred, 1 is unclean"
        raise ApiError(ErrorCode.INVALID_REQUEST, reason)
    changes = Changes(situation)
    if request.topic_partitions is None:
        results = _elect_everywhere(changes, kind)
    else:
        known: dict[tuple[str, int], _Result] = {}
        results = [
            _TopicResult(
                topic=asked.topic,
                partition_result=[
                    _elect_once(changes, kind, asked.topic, one, known) for one in asked.partitions
                ],
            )
            for asked in request.topic_partitions
        ]
    check_count(changes.records)
    reply = ElectLeadersResponse(throttle_time_ms=0, error_code=0, replica_election_results=results)
    return Decision(reply=reply, records=changes.records, events=changes.events(kind.check))


def balance_leaders(situation: Situation, limit: int = 1000) -> Decision:
    """Gives partitions back to their preferred leaders, and leaders to those that could have one.

    Where it comes to `limit` records there may be more to do.
    """
    changes = Changes(situation)
    wanted = Wanted(election=Election.PREFERRED)
    for rows in _displaced(changes.image):
        promising = _can_elect_cleanly(changes.image, rows)
        for topic, partition_id in _named(changes.image, Rows(rows.block, rows.index[promising])):
            if len(changes.records) == limit:
                break
            record = changes.build(topic, partition_id, wanted)
            if _names_leader(record):
                changes.add(topic, record)
    return Decision(records=changes.records, events=changes.events("preferred leader"))


def _elect(changes: Changes, kind: _Kind, name: str, partition_id: int) -> _Result:
    topic = changes.image.topics.by_name.get(name)
    partition = None if topic is None else changes.partition(topic, partition_id)
    if topic is None or partition is None:
        what = f"topic {name}" if topic is None else f"partition {name}-{partition_id}"
        return _result(partition_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {what}")
    if not kind.is_needed(partition):
        reason = f"{name}-{partition_id} is led by replica {partition.leader}"
        return _result(partition_id, ErrorCode.ELECTION_NOT_NEEDED, reason)
    record = changes.build(topic, partition_id, Wanted(election=kind.election))
    if not _names_leader(record):
        return _unavailable(kind, name, partition_id)
    changes.add(topic, record)
    return _result(partition_id, ErrorCode.NONE, None)


def _elect_once(
    changes: Changes, kind: _Kind, name: str, partition_id: int, known: dict[tuple[str, int], _Result]
) -> _Result:
    """The same; where nothing comes of it, nothing will when it is asked for again: that is `known`."""
    result = known.get((name, partition_id))
    if result is None:
        result = _elect(changes, kind, name, partition_id)
        if result.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            known[name, partition_id] = result
    return result


def _elect_everywhere(changes: Changes, kind: _Kind) -> list[_TopicResult]:
    image = changes.image
    is_preferred = kind.election is Election.PREFERRED
    found = _displaced(image) if is_preferred else image.partitions.led_by(NO_LEADER)
    can_elect = _can_elect_cleanly if is_preferred else _can_elect_anyone
    results: dict[str, list[_Result]] = {}
    for rows in found:
        promising = can_elect(image, rows)
        for (topic, partition_id), is_promising in zip(_named(image, rows), promising.tolist(), strict=True):
            if is_promising:
                result = _elect(changes, kind, topic.name, partition_id)
            else:
                result = _unavailable(kind, topic.name, partition_id)
            results.setdefault(topic.name, []).append(result)
            if len(changes.records) > RECORDS_MAX:
                check_count(changes.records)
    return [_TopicResult(topic=name, partition_result=some) for name, some in results.items()]


def _names_leader(record: PartitionChangeRecord | None) -> TypeGuard[PartitionChangeRecord]:
    return record is not None and record.leader not in (NO_CHANGE, NO_LEADER)


def _unavailable(kind: _Kind, name: str, partition_id: int) -> _Result:
    return _result(partition_id, kind.unavailable, f"{name}-{partition_id}: {kind.reason}")


def _result(partition_id: int, code: ErrorCode, message: str | None) -> _Result:
    return _Result(partition_id=partition_id, error_code=code, error_message=message)


# Searching the columns


def _displaced(image: ClusterImage) -> list[Rows]:
    """The partitions that their first replica does not lead, those without a leader included."""
    found = []
    for width in sorted(image.partitions.blocks):
        block = image.partitions.blocks[width]
        leader, first = block.leader[: block.end], block.replicas[: block.end, 0]
        index = np.flatnonzero((block.topic[: block.end] >= 0) & (leader != first))
        if len(index):
            found.append(Rows(block, index))
    return found


def _can_elect_cleanly(image: ClusterImage, rows: Rows) -> _Mask:
    """Where a preferred election may come to something: the first replica can lead, or whoever leads cannot
    and another one can."""
    block, index = rows.block, rows.index
    replicas, alive = block.replicas[index], _alive(image, rows)
    isr, elr = block.isr[index], block.elr[index]
    positions = np.arange(block.width, dtype=isr.dtype)
    members = (np.where(isr != 0, isr, elr)[:, None] >> positions) & 1 != 0
    valid = alive & members
    has_leader = (valid & (replicas == block.leader[index][:, None])).any(axis=1)
    last_known = (alive & (replicas == block.last_known_leader[index][:, None])).any(axis=1)
    anyone: _Mask = valid[:, 0] | (~has_leader & (valid.any(axis=1) | (last_known & (isr == 0))))
    return anyone


def _can_elect_anyone(image: ClusterImage, rows: Rows) -> _Mask:
    """Where an unclean election may come to something."""
    return np.asarray(_alive(image, rows).any(axis=1))


def _alive(image: ClusterImage, rows: Rows) -> _Mask:
    """For every replica, whether its broker is active and its directory online."""
    brokers = [broker for broker in image.brokers.values() if broker.is_active]
    nameless = [broker.id for broker in brokers if not broker.directories]  # from before directories had ids
    replicas, directories = rows.block.replicas[rows.index], rows.block.directories[rows.index]
    is_active: _Mask = np.isin(replicas, [broker.id for broker in brokers])
    is_nameless: _Mask = np.isin(replicas, nameless)
    is_lost: _Mask = np.isin(directories, _numbers(image, [LOST]))
    is_anywhere: _Mask = np.isin(directories, _numbers(image, [MIGRATING, UNASSIGNED]))
    is_own: _Mask = _owners(image, brokers)[directories] == replicas
    return is_active & (is_own | is_anywhere | (is_nameless & ~is_lost))


def _owners(image: ClusterImage, brokers: Sequence[BrokerRegistration]) -> NDArray[np.int32]:
    """Which of the brokers has a directory online, by the number of the directory."""
    owners = np.full(len(image.partitions.directory_ids.ids), -1, np.int32)
    for broker in brokers:
        owners[_numbers(image, broker.directories)] = broker.id
    return owners


def _numbers(image: ClusterImage, directories: Sequence[Uuid]) -> list[int]:
    """The numbers by which the partition table knows directories, without those that hold no replica."""
    known = map(image.partitions.directory_ids.known, directories)
    return [number for number in known if number is not None]


def _named(image: ClusterImage, rows: Rows) -> Iterator[tuple[Topic, int]]:
    """The topics and ids of partitions."""
    slots = rows.block.topic[rows.index].tolist()
    partition_ids = image.partitions.partition_ids(rows).tolist()
    for slot, partition_id in zip(slots, partition_ids, strict=True):
        yield image.topics.at(slot), partition_id
