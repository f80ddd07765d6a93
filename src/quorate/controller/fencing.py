"""What follows for partitions when a broker leaves, comes back, or loses a disk.

Each function answers with `Consequences`: the records in the order in which they must stand in the log, and
what there is to say about them. A broker that leaves is taken out of the ISRs first and fenced last, and one
that comes back is unfenced first: whoever reads the log up to any record sees no fenced leader that could
have been avoided.

| what happens       | partitions looked at               | the broker                   | its own record |
|--------------------|------------------------------------|------------------------------|----------------|
| `fence`            | it is in sync for                  | leaves                       | last           |
| `unfence`          | without a leader                   | may lead though still fenced | first          |
| `begin_shutdown`   | it is in sync for                  | leaves                       | first          |
| `unregister`       | in sync for, then eligible for     | leaves                       | last           |
| `clear_way`        | in sync for (unclean: or eligible) | leaves (may lack records)    | the caller's   |
| `fail_directories` | with its replica in the directory  | leaves                       | last           |
| `leave`            | as given                           | leaves                       | the caller's   |
| `elect_leaderless` | leaderless, if unclean is allowed  | -                            | none           |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

import numpy as np

from quorate.controller.bulk_election import (
    Cause,
    Consequences,
    change_partitions,
    in_topics_that_allow_unclean,
)
from quorate.controller.decision import Situation
from quorate.metadata.brokers import BrokerRegistration
from quorate.metadata.partition_changes import PartitionChanges
from quorate.metadata.partitions import NO_LEADER, PartitionTable, Rows
from quorate.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)
from quorate.protocol.types import Uuid

__all__ = [
    "Consequences",
    "begin_shutdown",
    "clear_way",
    "elect_leaderless",
    "fail_directories",
    "fence",
    "leave",
    "unfence",
    "unregister",
]


def fence(situation: Situation, broker_id: int) -> Consequences:
    """A broker is not heard of any more, or asks for it: others take over, then it is fenced."""
    table, broker = situation.image.partitions, situation.image.brokers[broker_id]
    found = _change(situation, table.in_sync_on(broker_id), Cause(leaving=broker_id))
    found.records.append(_registration_change(broker, fenced=1))
    return found


def unfence(situation: Situation, broker_id: int) -> Consequences:
    """A broker may serve: it is unfenced, then leads what nobody else could.

    One that was marked as shutting down stays so for as long as it runs, and leads nothing.
    """
    table, broker = situation.image.partitions, situation.image.brokers[broker_id]
    rows = [] if broker.is_shutting_down else table.led_by(NO_LEADER)
    found = _change(situation, rows, Cause(returning=broker_id))
    found.records.insert(0, _registration_change(broker, fenced=-1))
    return found


def begin_shutdown(situation: Situation, broker_id: int) -> Consequences:
    """A broker wants to go: it is marked, unless it is already, then others take over."""
    table, broker = situation.image.partitions, situation.image.brokers[broker_id]
    found = _change(situation, table.in_sync_on(broker_id), Cause(leaving=broker_id))
    if not broker.is_shutting_down:
        found.records.insert(0, _registration_change(broker, in_controlled_shutdown=1))
    return found


def unregister(situation: Situation, broker_id: int) -> Consequences:
    """An administrator says that a broker will not come back."""
    table, broker = situation.image.partitions, situation.image.brokers[broker_id]
    rows = table.in_sync_on(broker_id) + table.eligible_on(broker_id)
    found = _change(situation, rows, Cause(leaving=broker_id))
    found.records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
    return found


def clear_way(situation: Situation, broker_id: int, *, is_clean: bool) -> Consequences:
    """A broker id is about to be registered by a new process: the old one leads nothing from here on.

    Without an orderly shutdown before, it may have lost records that it was counted on for, so it is not
    eligible either. The id need not be registered.
    """
    table = situation.image.partitions
    rows = table.in_sync_on(broker_id)
    if is_clean or not situation.image.is_elr_enabled:
        return _change(situation, rows, Cause(leaving=broker_id))
    cause = Cause(leaving=broker_id, may_lack_records=True)
    return _change(situation, rows + table.eligible_on(broker_id), cause)


def fail_directories(situation: Situation, broker_id: int, directories: Iterable[Uuid]) -> Consequences:
    """Disks of a broker failed: it leaves what it had there, then the remaining directories are recorded.

    Directories that are not registered as its own, or not any more, are passed over. That the last one failed
    cannot be said in a record, where an empty list means no change: then there is none, and a broker without
    any directory must stop by itself.
    """
    broker = situation.image.brokers[broker_id]
    failed = set(directories) & set(broker.directories)
    rows = _in_directories(situation.image.partitions, broker_id, sorted(failed))
    found = _change(situation, rows, Cause(leaving=broker_id))
    remaining = [one for one in broker.directories if one not in failed]
    if failed and remaining:
        found.records.append(_registration_change(broker, log_dirs=remaining))
    return found


def leave(situation: Situation, broker_id: int, partitions: Iterable[tuple[Uuid, int]]) -> Consequences:
    """A broker cannot serve some partitions, each given by topic id and number, any more: it has assigned
    them to directories that are not online."""
    return _change(situation, _rows_of(situation, partitions), Cause(leaving=broker_id))


def elect_leaderless(situation: Situation, *, limit: int) -> Consequences:
    """Partitions without a leader get one that may lack records, where their topics allow that; at most so
    many at once."""
    image, settings = situation.image, situation.settings
    rows = in_topics_that_allow_unclean(image, settings, image.partitions.led_by(NO_LEADER))
    found = _change(situation, rows, Cause())
    return found if found.partitions <= limit else _first(found, limit)


def _change(situation: Situation, groups: Iterable[Rows], cause: Cause) -> Consequences:
    return change_partitions(situation.image, situation.settings, groups, cause)


def _registration_change(
    broker: BrokerRegistration,
    *,
    fenced: int = 0,
    in_controlled_shutdown: int = 0,
    log_dirs: Sequence[Uuid] = (),
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=list(log_dirs),
    )


def _in_directories(table: PartitionTable, broker_id: int, directories: Iterable[Uuid]) -> list[Rows]:
    """The partitions that a broker has in these directories."""
    numbers = [table.directory_ids.known(one) for one in directories]
    wanted = np.array([one for one in numbers if one is not None], np.uint16)
    found = []
    for rows in table.hosted_by(broker_id) if len(wanted) else ():
        block, index = rows.block, rows.index
        is_there = np.isin(block.directories[index], wanted) & (block.replicas[index] == broker_id)
        found.append(Rows(block, index[is_there.any(axis=1)]))
    return found


def _rows_of(situation: Situation, partitions: Iterable[tuple[Uuid, int]]) -> list[Rows]:
    image = situation.image
    by_width: dict[int, set[int]] = {}
    for topic_id, partition_id in partitions:
        run = image.partitions.runs[image.topics.by_id[topic_id].slot]
        assert 0 <= partition_id < run.count
        by_width.setdefault(run.width, set()).add(run.start + partition_id)
    return [
        Rows(image.partitions.blocks[width], np.array(sorted(by_width[width]), np.int64))
        for width in sorted(by_width)
    ]


def _first(found: Consequences, count: int) -> Consequences:
    """The first so many of the elections of partitions that had no leader."""
    kept = Consequences()
    for each in found.records:
        room = count - kept.partitions
        if isinstance(each, PartitionChanges):
            some = _first_rows(each, room)
            kept.records.append(some)
            kept.partitions += len(some)
            kept.leaderships += int((some.leader >= 0).sum())
            kept.unclean += int((some.recovery_state == 1).sum())
        elif isinstance(each, PartitionChangeRecord):
            kept.records.append(each)
            kept.partitions += 1
            kept.leaderships += each.leader >= 0
            kept.unclean += each.leader_recovery_state == 1
        if kept.partitions == count:
            break
    return kept


def _first_rows(changes: PartitionChanges, count: int) -> PartitionChanges:
    columns = {each.name: getattr(changes, each.name) for each in fields(changes)}
    rows = columns.pop("rows")
    cut = {name: column[:count] for name, column in columns.items()}
    return PartitionChanges(rows=Rows(rows.block, rows.index[:count]), **cut)
