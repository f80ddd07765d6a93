"""What follows when brokers leave, come back and lose disks: cluster scenarios."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bulk_election import BROKERS, clusters, configure, everything, records_of

from controller_cluster import Cluster, directory, topic_id
from quorate.controller import fencing
from quorate.controller.bulk_election import Consequences
from quorate.controller.topic_settings import MIN_ISR, UNCLEAN
from quorate.metadata.partition_changes import PartitionChanges
from quorate.metadata.partitions import LOST, Partition
from quorate.metadata.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
)
from quorate.metadata.versions import version_of

NO_LEADER = -1
RECOVERING = 1


def happen(cluster: Cluster, event: Callable[..., Consequences], *args: Any, **options: Any) -> Consequences:
    """Something happens, and its records are applied."""
    found = event(cluster.situation(), *args, **options)
    for change in found.records:
        cluster.apply(change)
    return found


def order(found: Consequences) -> list[str]:
    """The kinds of records in their order, many of a kind as one."""
    kinds: list[str] = []
    for change in found.records:
        is_partition = isinstance(change, (PartitionChanges, PartitionChangeRecord))
        kind = "partitions" if is_partition else type(change).__name__
        if kinds[-1:] != [kind]:
            kinds.append(kind)
    return kinds


def at(replicas: Sequence[int], isr: Sequence[int], leader: int, **others: Any) -> Partition:
    """A partition, each replica in its broker's first directory."""
    where = tuple(map(directory, replicas))
    return Partition(tuple(replicas), where, tuple(isr), leader, **others)


def state(cluster: Cluster, number: int = 1, partition_id: int = 0) -> tuple[int, tuple[int, ...]]:
    """Who leads and who is in sync."""
    partition = cluster.partition(number, partition_id)
    return partition.leader, partition.isr


# Fencing


def test_others_take_over_before_a_broker_is_fenced() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1, 2, 3], [2, 3, 1], [2, 3]])
    found = happen(cluster, fencing.fence, 1)
    assert order(found) == ["partitions", "BrokerRegistrationChangeRecord"]
    assert [state(cluster, 1, number) for number in range(3)] == [(2, (2, 3)), (2, (2, 3)), (2, (2, 3))]
    assert cluster.partition(1, 0).leader_epoch == 1
    assert cluster.partition(1, 1).leader_epoch == 0
    assert cluster.image.brokers[1].is_fenced
    assert (found.partitions, found.leaderships, found.leaderless, found.unclean) == (2, 1, 0, 0)


def test_a_broker_in_no_isr_is_only_fenced() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [at([1, 2], [2], 2)])
    found = happen(cluster, fencing.fence, 1)
    assert found.records == [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=101, fenced=1)]
    assert found.partitions == 0


def test_brokers_fenced_in_turn_leave_the_last_one_listed() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1, 2, 3]])
    seen = []
    for broker_id in (1, 2, 3):
        found = happen(cluster, fencing.fence, broker_id)
        seen.append((*state(cluster), found.leaderless))
    assert seen == [(2, (2, 3), 0), (3, (3,), 0), (NO_LEADER, (3,), 1)]


def test_a_fenced_broker_that_is_fenced_again_changes_no_partition() -> None:
    cluster = Cluster([1])
    cluster.create(1, [[1]])
    happen(cluster, fencing.fence, 1)
    assert order(happen(cluster, fencing.fence, 1)) == ["BrokerRegistrationChangeRecord"]
    assert cluster.partition(1).leader_epoch == 1


def test_fencing_may_elect_uncleanly_only_in_topics_that_allow_it() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [at([1, 2], [1], 1)])
    cluster.create(2, [at([1, 2], [1], 1)])
    configure(cluster, 2, UNCLEAN, "true")
    found = happen(cluster, fencing.fence, 1)
    assert [state(cluster, 1), state(cluster, 2)] == [(NO_LEADER, (1,)), (2, (2,))]
    assert cluster.partition(2).is_recovering
    assert (found.leaderships, found.leaderless, found.unclean) == (2, 1, 1)


def test_fencing_completes_a_reassignment_that_waited_for_the_others() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [at([2, 3, 1], [3, 1], 1, adding=(3,), removing=(1,))])
    found = happen(cluster, fencing.fence, 1)
    partition = cluster.partition(1)
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 3), (3,), 3)
    assert not partition.is_reassigning
    assert (found.partitions, found.leaderships) == (1, 1)


@pytest.mark.parametrize(("level", "epoch"), [(11, 1), (12, 0)])
def test_a_shrunk_isr_begins_a_leader_epoch_at_older_levels(level: int, epoch: int) -> None:
    cluster = Cluster([1, 2], metadata_version=level)
    cluster.create(1, [[1, 2]])
    happen(cluster, fencing.fence, 2)
    assert state(cluster) == (1, (1,))
    assert cluster.partition(1).leader_epoch == epoch


# Unfencing


def test_a_broker_that_comes_back_leads_what_nobody_could() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [at([1, 2], [1], 1), [2, 1]])
    happen(cluster, fencing.fence, 1)
    found = happen(cluster, fencing.unfence, 1)
    assert order(found) == ["BrokerRegistrationChangeRecord", "partitions"]
    assert state(cluster, 1, 0) == (1, (1,))
    assert cluster.partition(1).leader_epoch == 2
    assert not cluster.image.brokers[1].is_fenced
    assert (found.partitions, found.leaderships, found.leaderless) == (1, 1, 0)


def test_one_that_was_shutting_down_leads_nothing_when_it_comes_back():
    cluster = Cluster([2])
    cluster.register(1, fenced=True)
    cluster.shut_down(1)
    cluster.create(1, [Partition((1, 2), (directory(1), directory(2)), (1,), NO_LEADER)])
    found = fencing.unfence(cluster.situation(), 1)
    assert found.leaderships == 0
    assert [type(one) for one in found.records] == [BrokerRegistrationChangeRecord]


def test_it_is_not_put_back_into_any_isr() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [[1, 2]])
    happen(cluster, fencing.fence, 1)
    assert happen(cluster, fencing.unfence, 1).partitions == 0
    assert state(cluster) == (2, (2,))


def test_a_broker_that_comes_back_helps_only_its_own_partitions() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1], [2]])
    happen(cluster, fencing.fence, 1)
    happen(cluster, fencing.fence, 2)
    happen(cluster, fencing.unfence, 2)
    assert [state(cluster, 1, 0)[0], state(cluster, 1, 1)[0]] == [NO_LEADER, 2]


# Shutting down


def test_a_broker_is_marked_before_it_hands_over() -> None:
    cluster = Cluster([1, 2])
    cluster.create(1, [[1, 2], [2, 1], [1]])
    found = happen(cluster, fencing.begin_shutdown, 1)
    assert order(found) == ["BrokerRegistrationChangeRecord", "partitions"]
    marked = found.records[0]
    assert isinstance(marked, BrokerRegistrationChangeRecord)
    assert (marked.fenced, marked.in_controlled_shutdown, version_of(marked, 30)) == (0, 1, 1)
    assert [state(cluster, 1, number) for number in range(3)] == [(2, (2,)), (2, (2,)), (NO_LEADER, (1,))]
    assert cluster.image.brokers[1].is_shutting_down
    assert (found.partitions, found.leaderships, found.leaderless) == (3, 2, 1)


def test_it_is_marked_once() -> None:
    cluster = Cluster([1, 2])
    happen(cluster, fencing.begin_shutdown, 1)
    cluster.create(1, [at([2, 1], [2, 1], 2)])
    assert order(happen(cluster, fencing.begin_shutdown, 1)) == ["partitions"]


# Unregistering


def test_a_broker_that_is_unregistered_leaves_its_partitions_first() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1, 2]])
    found = happen(cluster, fencing.unregister, 1)
    assert order(found) == ["partitions", "UnregisterBrokerRecord"]
    assert found.records[-1] == UnregisterBrokerRecord(broker_id=1, broker_epoch=101)
    assert state(cluster) == (2, (2,))
    assert cluster.partition(1).replicas == (1, 2)
    assert 1 not in cluster.image.brokers


def test_it_is_looked_at_where_it_is_eligible_too() -> None:
    cluster = Cluster([1, 2, 3], elr=True, topic_defaults={MIN_ISR: "2"})
    cluster.create(1, [at([1, 2, 3], [], NO_LEADER, elr=(1, 2))])
    found = happen(cluster, fencing.unregister, 1)
    assert (found.partitions, state(cluster), cluster.partition(1).elr) == (1, (2, (2,)), (1,))


# A new process with the id of an old one


@pytest.mark.parametrize("elr", [False, True])
def test_after_an_orderly_shutdown_the_way_is_cleared_as_if_it_were_fenced(elr: bool) -> None:
    cluster = Cluster([1, 2], elr=elr, topic_defaults={MIN_ISR: "2"})
    cluster.create(1, [[1, 2]])
    found = happen(cluster, fencing.clear_way, 1, is_clean=True)
    assert order(found) == ["partitions"]
    assert state(cluster) == (2, (2,))
    assert cluster.partition(1).elr == ((1,) if elr else ())
    assert not cluster.image.brokers[1].is_fenced


def test_after_a_crash_it_is_neither_in_sync_nor_eligible() -> None:
    cluster = Cluster([1, 2, 3], elr=True, topic_defaults={MIN_ISR: "3"})
    cluster.create(1, [[1, 2, 3], at([2, 1, 3], [2], 2, elr=(1, 3))])
    happen(cluster, fencing.clear_way, 1, is_clean=False)
    assert state(cluster, 1, 0) == (2, (2, 3))
    assert cluster.partition(1, 0).elr == ()
    assert state(cluster, 1, 1) == (2, (2,))
    assert cluster.partition(1, 1).elr == (3,)


def test_without_elr_a_crash_is_like_a_fencing() -> None:
    cluster = Cluster([1])
    cluster.create(1, [[1]])
    happen(cluster, fencing.clear_way, 1, is_clean=False)
    assert state(cluster) == (NO_LEADER, (1,))


def test_the_way_of_an_id_that_was_unregistered_is_cleared_too() -> None:
    cluster = Cluster([2], elr=True, topic_defaults={MIN_ISR: "2"})
    cluster.create(1, [at([1, 2], [2], 2, elr=(1,))])
    happen(cluster, fencing.clear_way, 1, is_clean=False)
    assert cluster.partition(1).elr == ()


def test_after_a_crash_of_all_the_last_known_leader_begins_anew() -> None:
    cluster = Cluster([1, 2], elr=True)
    cluster.create(1, [[1]])
    happen(cluster, fencing.clear_way, 1, is_clean=False)
    partition = cluster.partition(1)
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_leader) == (-1, (), (), 1)
    cluster.register(1, fenced=True, run=1)
    found = happen(cluster, fencing.unfence, 1)
    partition = cluster.partition(1)
    assert (partition.leader, partition.isr, partition.last_known_leader) == (1, (1,), NO_LEADER)
    assert partition.is_recovering
    assert found.unclean == 1


# Eligible leader replicas


def test_brokers_fenced_one_after_the_other_become_eligible() -> None:
    cluster = Cluster([1, 2, 3], elr=True, topic_defaults={MIN_ISR: "2"})
    cluster.create(1, [[1, 2, 3]])
    seen = []
    for broker_id in (1, 2, 3):
        happen(cluster, fencing.fence, broker_id)
        partition = cluster.partition(1)
        seen.append((partition.leader, partition.isr, partition.elr, partition.last_known_leader))
    assert seen == [
        (2, (2, 3), (), NO_LEADER),
        (3, (3,), (2,), NO_LEADER),
        (NO_LEADER, (), (2, 3), 3),
    ]


def test_the_first_eligible_one_that_comes_back_leads_and_loses_nothing() -> None:
    cluster = Cluster([1, 2, 3], elr=True, topic_defaults={MIN_ISR: "2"})
    cluster.create(1, [[1, 2, 3]])
    for broker_id in (1, 2, 3):
        happen(cluster, fencing.fence, broker_id)
    assert happen(cluster, fencing.unfence, 1).partitions == 0
    found = happen(cluster, fencing.unfence, 2)
    partition = cluster.partition(1)
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), (3,))
    assert (partition.last_known_leader, partition.is_recovering) == (NO_LEADER, False)
    assert (found.leaderships, found.unclean) == (1, 0)


def test_nobody_is_eligible_for_a_single_replica_that_must_be_in_sync_with_one() -> None:
    cluster = Cluster([1], elr=True, topic_defaults={MIN_ISR: "3"})
    cluster.create(1, [[1]])
    happen(cluster, fencing.fence, 1)
    partition = cluster.partition(1)
    assert (partition.isr, partition.elr, partition.last_known_leader) == ((), (1,), 1)


def test_the_smallest_isr_of_the_topic_counts() -> None:
    cluster = Cluster([1, 2, 3], elr=True)
    cluster.create(1, [[1, 2, 3]])
    cluster.create(2, [[1, 2, 3]])
    configure(cluster, 2, MIN_ISR, "3")
    happen(cluster, fencing.fence, 3)
    assert (cluster.partition(1).elr, cluster.partition(2).elr) == ((), (3,))


def test_eligible_ones_of_a_deleted_topic_are_forgotten() -> None:
    cluster = Cluster([1, 2], elr=True, topic_defaults={MIN_ISR: "2"})
    cluster.create(1, [[1, 2]])
    happen(cluster, fencing.fence, 1)
    assert sum(map(len, cluster.image.partitions.eligible_on(1))) == 1
    cluster.apply(RemoveTopicRecord(topic_id=topic_id(1)))
    assert cluster.image.partitions.eligible_on(1) == []


def test_forgotten_eligible_ones_cannot_be_elected() -> None:
    cluster = Cluster([1, 2], elr=True, topic_defaults={MIN_ISR: "2"})
    cluster.create(1, [[1, 2]])
    happen(cluster, fencing.fence, 1)
    happen(cluster, fencing.fence, 2)
    cluster.apply(ClearElrRecord(topic_name="topic-1"))
    assert happen(cluster, fencing.unfence, 1).partitions == 0


# Directories


def two_disks() -> Cluster:
    """Brokers 1 and 2 with two directories each, and a partition in each directory of broker 1."""
    cluster = Cluster()
    for broker_id in (1, 2):
        cluster.register(broker_id, directories=2)
    first = at([1, 2], [1, 2], 1)
    second = replace(first, directories=(directory(1, 1), directory(2)))
    cluster.create(1, [first, second])
    return cluster


def test_what_was_on_a_failed_disk_is_left_and_the_rest_stays() -> None:
    cluster = two_disks()
    found = happen(cluster, fencing.fail_directories, 1, [directory(1)])
    assert order(found) == ["partitions", "BrokerRegistrationChangeRecord"]
    assert [state(cluster, 1, 0), state(cluster, 1, 1)] == [(2, (2,)), (1, (1, 2))]
    assert cluster.image.brokers[1].directories == (directory(1, 1),)
    assert version_of(found.records[-1], 30) == 2  # type: ignore[arg-type]
    assert (found.partitions, found.leaderships, found.leaderless) == (1, 1, 0)


def test_a_failed_disk_that_is_reported_again_changes_nothing() -> None:
    cluster = two_disks()
    happen(cluster, fencing.fail_directories, 1, [directory(1)])
    assert happen(cluster, fencing.fail_directories, 1, [directory(1)]).records == []


def test_directories_of_others_and_unknown_ones_are_passed_over() -> None:
    cluster = two_disks()
    assert happen(cluster, fencing.fail_directories, 1, [directory(2), directory(7)]).records == []


def test_a_failed_disk_without_partitions_is_only_recorded() -> None:
    cluster = two_disks()
    found = happen(cluster, fencing.fail_directories, 2, [directory(2, 1)])
    assert order(found) == ["BrokerRegistrationChangeRecord"]


def test_the_last_disk_is_left_though_no_record_can_say_that_it_failed() -> None:
    cluster = two_disks()
    found = happen(cluster, fencing.fail_directories, 1, [directory(1), directory(1, 1)])
    assert order(found) == ["partitions"]
    assert [state(cluster, 1, 0), state(cluster, 1, 1)] == [(2, (2,)), (2, (2,))]


def test_a_replica_on_a_failed_disk_is_not_elected_later() -> None:
    cluster = two_disks()
    happen(cluster, fencing.fail_directories, 1, [directory(1)])
    happen(cluster, fencing.fence, 2)
    assert [state(cluster, 1, 0), state(cluster, 1, 1)] == [(NO_LEADER, (2,)), (1, (1,))]


def test_partitions_that_were_assigned_to_a_lost_directory_are_left() -> None:
    cluster = two_disks()
    cluster.create(2, [at([2, 1, 3], [2, 1], 2)])
    cluster.apply(
        PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), directories=[LOST, directory(2)])
    )
    given_twice = [(topic_id(1), 0), (topic_id(2), 0), (topic_id(1), 0)]
    found = happen(cluster, fencing.leave, 1, given_twice)
    assert order(found) == ["partitions"]
    assert [state(cluster, 1, 0), state(cluster, 1, 1), state(cluster, 2, 0)] == [
        (2, (2,)),
        (1, (1, 2)),
        (2, (2,)),
    ]


# The sweep for partitions without a leader


def without_leaders(count: int) -> Cluster:
    """A topic whose in-sync broker is gone; broker 2 has its replicas too."""
    cluster = Cluster([1, 2])
    cluster.create(1, [at([1, 2], [1], 1)] * count)
    cluster.create(2, [at([1, 2], [1], 1)] * count)
    happen(cluster, fencing.fence, 1)
    return cluster


def test_the_sweep_elects_only_where_it_is_allowed() -> None:
    cluster = without_leaders(2)
    assert happen(cluster, fencing.elect_leaderless, limit=1000).records == []
    configure(cluster, 2, UNCLEAN, "true")
    found = happen(cluster, fencing.elect_leaderless, limit=1000)
    assert [state(cluster, 1), state(cluster, 2)] == [(NO_LEADER, (1,)), (2, (2,))]
    assert (found.partitions, found.leaderships, found.leaderless, found.unclean) == (2, 2, 0, 2)


def test_the_sweep_stops_at_its_limit_and_goes_on_the_next_time() -> None:
    cluster = without_leaders(3)
    moving = at([1, 2, 3], [1], NO_LEADER, removing=(3,))
    cluster.create(3, [moving, moving])
    for number in (1, 2, 3):
        configure(cluster, number, UNCLEAN, "true")
    counts = []
    for _ in range(4):
        found = happen(cluster, fencing.elect_leaderless, limit=3)
        counts.append((found.partitions, found.leaderships, found.unclean))
    assert counts == [(3, 3, 3), (3, 3, 3), (2, 2, 2), (0, 0, 0)]


def test_nobody_alive_is_nobody_elected() -> None:
    cluster = without_leaders(1)
    happen(cluster, fencing.fence, 2)
    configure(cluster, 1, UNCLEAN, "true")
    assert happen(cluster, fencing.elect_leaderless, limit=1000).records == []


# Which partitions are looked at


def test_who_is_in_sync_leads_or_is_missing_is_found_as_things_change() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create(1, [[1, 2], [2, 1], [3]])
    cluster.create(2, [[1, 2, 3]])
    table = cluster.image.partitions

    def count(rows: Sequence[Any]) -> int:
        return sum(map(len, rows))

    assert [count(table.in_sync_on(one)) for one in (1, 2, 3, 4)] == [3, 3, 2, 0]
    assert [count(table.led_by(one)) for one in (1, 2, 3, NO_LEADER)] == [2, 1, 1, 0]
    happen(cluster, fencing.fence, 3)
    assert [count(table.in_sync_on(one)) for one in (1, 2, 3)] == [3, 3, 1]
    assert [count(table.led_by(one)) for one in (1, 2, 3, NO_LEADER)] == [2, 1, 0, 1]
    happen(cluster, fencing.fence, 1)
    assert [count(table.in_sync_on(one)) for one in (1, 2, 3)] == [0, 3, 1]
    assert not table.is_leading(1)


# Whatever happens


EVENTS: list[Callable[..., Consequences]] = [
    fencing.fence,
    fencing.unfence,
    fencing.begin_shutdown,
    lambda situation, broker_id: fencing.clear_way(situation, broker_id, is_clean=False),
    lambda situation, broker_id: fencing.clear_way(situation, broker_id, is_clean=True),
    lambda situation, broker_id: fencing.fail_directories(situation, broker_id, [directory(broker_id)]),
    lambda situation, _: fencing.elect_leaderless(situation, limit=2),
    fencing.unregister,
]


@settings(max_examples=150, deadline=None)
@given(clusters(), st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, BROKERS - 1)), max_size=8))
def test_nobody_leads_after_it_was_fenced_and_epochs_only_grow(
    cluster: Cluster, events: list[tuple[Callable[..., Consequences], int]]
) -> None:
    for broker_id, broker in list(cluster.image.brokers.items()):
        if not broker.is_active:
            happen(cluster, fencing.fence, broker_id)
    for event, broker_id in events:
        if broker_id not in cluster.image.brokers:
            continue
        before = {(key, number): partition for key, number, partition in everything(cluster)}
        found = happen(cluster, event, broker_id)
        changed = {(one.topic_id, one.partition_id) for one in partition_records(found)}
        assert found.partitions == len(changed)
        for key, number, after in everything(cluster):
            was = before[key, number]
            assert after.leader_epoch >= was.leader_epoch
            assert after.partition_epoch == was.partition_epoch + ((key, number) in changed)
        if event in (fencing.fence, fencing.begin_shutdown, fencing.unregister):
            assert not cluster.image.partitions.is_leading(broker_id)


def partition_records(found: Consequences) -> list[PartitionChangeRecord]:
    return [one for one in records_of(found.records) if isinstance(one, PartitionChangeRecord)]
