"""The rule for many partitions at once is the rule for one: on any table, for any cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller_cluster import Cluster, directory
from quorate.controller.bulk_election import Cause, Consequences, change_partitions
from quorate.controller.partition_change import Candidates, Election, Wanted, build_change
from quorate.controller.topic_settings import MIN_ISR, UNCLEAN, allows_unclean, min_isr
from quorate.metadata.image import TOPIC
from quorate.metadata.partition_changes import PartitionChanges
from quorate.metadata.partitions import LOST, MIGRATING, NO_LEADER, UNASSIGNED, Partition, Rows
from quorate.metadata.records import ConfigRecord, PartitionChangeRecord
from quorate.metadata.versions import DIRECTORIES, ELR
from quorate.protocol.types import Uuid

LEVELS = (7, 11, 12, 20, 30)
BROKERS = 6

Changed = dict[tuple[Uuid, int], PartitionChangeRecord]


# Any cluster


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Brokers of all states; topics of several widths, some with settings of their own."""
    level = draw(st.sampled_from(LEVELS))
    defaults = {
        MIN_ISR: draw(st.sampled_from(["1", "2", "3"])),
        UNCLEAN: draw(st.sampled_from(["false", "true"])),
    }
    cluster = Cluster(
        metadata_version=level, elr=level >= ELR and draw(st.booleans()), topic_defaults=defaults
    )
    for broker_id in range(BROKERS):
        state = draw(st.sampled_from(["active", "active", "active", "fenced", "leaving", "unknown"]))
        if state != "unknown":
            cluster.register(broker_id, fenced=state == "fenced", directories=draw(st.integers(0, 2)))
        if state == "leaving":
            cluster.shut_down(broker_id)
    for number in range(draw(st.integers(1, 4))):
        width = draw(st.integers(1, 5))
        cluster.create(number, draw(st.lists(partitions(level, width), min_size=1, max_size=5)))
        for key, values in ((MIN_ISR, ["1", "2", "4"]), (UNCLEAN, ["false", "true"])):
            if draw(st.booleans()):
                configure(cluster, number, key, draw(st.sampled_from(values)))
    return cluster


@st.composite
def partitions(draw: st.DrawFn, level: int, width: int) -> Partition:
    """A partition with at most so many replicas in any state, likely or not."""
    replicas = tuple(draw(st.permutations(range(BROKERS)))[: draw(st.integers(1, width))])
    roles = draw(st.tuples(*[st.sampled_from(["in sync", "in sync", "eligible", "out"]) for _ in replicas]))
    isr = tuple(one for one, role in zip(replicas, roles, strict=True) if role == "in sync")
    elr = tuple(one for one, role in zip(replicas, roles, strict=True) if role == "eligible")
    has_elr = level >= ELR
    is_reassigning = draw(st.integers(0, 5)) == 0
    return Partition(
        replicas=replicas,
        directories=tuple(draw(directories(level, one)) for one in replicas),
        isr=isr,
        leader=draw(st.sampled_from([*isr, *isr, NO_LEADER])),
        leader_epoch=draw(st.integers(0, 9)),
        partition_epoch=draw(st.integers(0, 99)),
        adding=replicas[-1:] if is_reassigning and draw(st.booleans()) else (),
        removing=replicas[:1] if is_reassigning and len(replicas) > 1 else (),
        elr=elr if has_elr else (),
        last_known_leader=draw(st.sampled_from([NO_LEADER, *range(BROKERS)])) if has_elr else NO_LEADER,
        is_recovering=draw(st.booleans()),
    )


def directories(level: int, broker_id: int) -> st.SearchStrategy[Uuid]:
    if level < DIRECTORIES:
        return st.just(MIGRATING)
    own = directory(broker_id), directory(broker_id, 1)
    return st.sampled_from([*own, own[0], own[0], UNASSIGNED, MIGRATING, LOST])


def configure(cluster: Cluster, number: int, key: str, value: str) -> None:
    cluster.apply(ConfigRecord(resource_type=TOPIC, resource_name=f"topic-{number}", name=key, value=value))


def causes() -> st.SearchStrategy[Cause]:
    broker_ids = st.integers(0, BROKERS - 1)
    return st.one_of(
        st.just(Cause()),
        st.builds(Cause, leaving=broker_ids, may_lack_records=st.booleans()),
        st.builds(Cause, returning=broker_ids),
    )


def a_wide_cluster(random: Random) -> Cluster:
    """Topics of up to 64 replicas."""
    cluster = Cluster(elr=random.random() < 0.5, topic_defaults={MIN_ISR: str(random.randint(1, 60))})
    for broker_id in range(70):
        cluster.register(broker_id, fenced=random.random() < 0.3, directories=random.randint(0, 2))
    for number, width in enumerate((8, 9, 16, 17, 31, 32, 33, 63, 64)):
        cluster.create(number, [a_wide_partition(random, width) for _ in range(8)])
        configure(cluster, number, UNCLEAN, random.choice(["false", "true"]))
    return cluster


def a_wide_partition(random: Random, width: int) -> Partition:
    replicas = tuple(random.sample(range(70), width))
    isr = tuple(one for one in replicas if random.random() < random.choice((0.0, 0.1, 0.9)))
    return Partition(
        replicas=replicas,
        directories=tuple(random.choice((directory(one), directory(one, 1), LOST)) for one in replicas),
        isr=isr,
        leader=random.choice((NO_LEADER, *isr[-1:], *isr[:1])),
        elr=tuple(one for one in replicas if one not in isr and random.random() < 0.2),
        last_known_leader=random.choice((NO_LEADER, replicas[-1])),
    )


# Both ways


def all_rows(cluster: Cluster) -> list[Rows]:
    blocks = cluster.image.partitions.blocks
    return [Rows(blocks[width], np.flatnonzero(blocks[width].topic >= 0)) for width in sorted(blocks)]


def everything(cluster: Cluster) -> Iterator[tuple[Uuid, int, Partition]]:
    for topic in cluster.image.topics:
        for partition_id, partition in cluster.image.partitions_of(topic.id):
            yield topic.id, partition_id, partition


def one_by_one(cluster: Cluster, cause: Cause) -> Changed:
    image, static = cluster.image, cluster.settings
    candidates = Candidates(image, without=cause.leaving, unfencing=cause.returning)
    found = {}
    for key, partition_id, partition in everything(cluster):
        name = image.topics.by_id[key].name
        wanted = Wanted(
            election=Election.UNCLEAN if allows_unclean(image, static, name) else Election.ONLINE,
            isr=[one for one in partition.isr if one != cause.leaving],
            unclean_shutdown=[cause.leaving] if cause.may_lack_records else [],
        )
        least = min_isr(image, static, name)
        record = build_change(image, key, partition_id, partition, wanted, candidates, least)
        if record is not None:
            found[key, partition_id] = record
    return found


def records_of(changes: Sequence[Any]) -> Iterator[PartitionChangeRecord]:
    for change in changes:
        yield from change.records() if isinstance(change, PartitionChanges) else [change]


def by_partition(found: Consequences) -> Changed:
    records = list(records_of(found.records))
    changed = {(record.topic_id, record.partition_id): record for record in records}
    assert len(changed) == len(records)
    return changed


def in_bulk(cluster: Cluster, cause: Cause) -> Consequences:
    return change_partitions(cluster.image, cluster.settings, all_rows(cluster), cause)


@settings(max_examples=150, deadline=None)
@given(clusters(), causes())
def test_many_at_once_change_like_each_alone(cluster: Cluster, cause: Cause) -> None:
    assert by_partition(in_bulk(cluster, cause)) == one_by_one(cluster, cause)


@pytest.mark.parametrize("seed", range(12))
def test_wide_partitions_too(seed: int) -> None:
    random = Random(seed)
    cluster = a_wide_cluster(random)
    broker_id = random.randrange(70)
    for cause in (
        Cause(),
        Cause(leaving=broker_id),
        Cause(leaving=broker_id, may_lack_records=True),
        Cause(returning=broker_id),
    ):
        assert by_partition(in_bulk(cluster, cause)) == one_by_one(cluster, cause)


@settings(max_examples=150, deadline=None)
@given(clusters(), causes())
def test_the_counts_are_those_of_the_records(cluster: Cluster, cause: Cause) -> None:
    leaders = {(key, number): partition.leader for key, number, partition in everything(cluster)}
    found = in_bulk(cluster, cause)
    records = by_partition(found)
    moved = [one for key, one in records.items() if one.leader not in (-2, leaders[key])]
    assert found.partitions == len(records)
    assert found.leaderships == len(moved)
    assert found.leaderless == sum(one.leader == NO_LEADER for one in moved)
    assert found.unclean == sum(one.leader_recovery_state == 1 for one in records.values())


@settings(max_examples=150, deadline=None)
@given(clusters(), causes())
def test_afterwards_who_left_leads_nothing_and_no_epoch_went_back(cluster: Cluster, cause: Cause) -> None:
    before = {(key, number): partition for key, number, partition in everything(cluster)}
    found = in_bulk(cluster, cause)
    changed = by_partition(found)
    for change in found.records:
        cluster.apply(change)
    for key, number, after in everything(cluster):
        was = before[key, number]
        assert after.leader != cause.leaving or cause.leaving < 0
        assert after.leader_epoch - was.leader_epoch in (0, 1)
        assert after.partition_epoch - was.partition_epoch == ((key, number) in changed)
        assert after.leader == was.leader or after.leader_epoch > was.leader_epoch
        assert after.isr or cluster.image.is_elr_enabled or not was.isr


@settings(max_examples=100, deadline=None)
@given(clusters(), causes())
def test_a_second_time_nobody_else_leads_or_is_in_sync(cluster: Cluster, cause: Cause) -> None:
    """Except that an unclean election may have made a reassignment complete."""
    moving = {(key, number) for key, number, partition in everything(cluster) if partition.is_reassigning}
    for change in in_bulk(cluster, cause).records:
        cluster.apply(change)
    for key, record in by_partition(in_bulk(cluster, cause)).items():
        assert key in moving or (record.leader, record.isr) == (-2, None)


def test_broker_ids_may_be_as_large_as_they_like() -> None:
    largest = 2**31 - 1
    cluster = Cluster([5, largest])
    cluster.create(1, [[5, largest], [largest, 5]])
    assert by_partition(in_bulk(cluster, Cause(leaving=5))) == one_by_one(cluster, Cause(leaving=5))


def test_plain_partitions_are_columns_and_reassigned_ones_are_records() -> None:
    cluster = Cluster([1, 2, 3])
    replicas = (1, 2, 3)
    moving = Partition(replicas, tuple(map(directory, replicas)), (1, 2), 1, adding=(3,))
    cluster.create(1, [[1, 2], [2, 1], moving])
    kinds = [type(change) for change in in_bulk(cluster, Cause(leaving=1)).records]
    assert kinds == [PartitionChanges, PartitionChangeRecord]


def test_the_smallest_isr_is_bounded_by_the_replicas_of_the_first_partition() -> None:
    cluster = Cluster([1, 2, 3], elr=True, topic_defaults={MIN_ISR: "3"})
    cluster.create(1, [[1, 2], [1, 2]])
    cluster.create(2, [[1], [1, 2]])
    records = by_partition(in_bulk(cluster, Cause(leaving=2)))
    eligible = {key: record.eligible_leader_replicas for key, record in records.items()}
    first, second = (topic.id for topic in cluster.image.topics)
    assert eligible == {(first, 0): [2], (first, 1): [2], (second, 1): None}
