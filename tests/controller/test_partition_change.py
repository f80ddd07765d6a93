"""The rule for one partition, scenario by scenario."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller_cluster import Cluster, directory, topic_id
from quorate.controller.partition_change import (
    Candidates,
    Election,
    Wanted,
    build_change,
    default_directory,
    is_directory_online,
)
from quorate.metadata.partition import changed_by
from quorate.metadata.partitions import LOST, MIGRATING, UNASSIGNED, Partition
from quorate.metadata.records import PartitionChangeRecord

NO_LEADER = -1
KEPT = -2
RECOVERING = 1


def partition(*replicas: int, leader: int | None = None, isr: tuple[int, ...] | None = None) -> Partition:
    """Replicas, all in sync and led by the first unless said otherwise, each in the first directory."""
    return Partition(
        replicas=replicas,
        directories=tuple(map(directory, replicas)),
        isr=replicas if isr is None else isr,
        leader=replicas[0] if leader is None else leader,
        leader_epoch=5,
        partition_epoch=50,
    )


def change(
    cluster: Cluster,
    before: Partition,
    wanted: Wanted | None = None,
    *,
    without: int = -1,
    unfencing: int = -1,
    min_isr: int = 1,
) -> PartitionChangeRecord | None:
    candidates = Candidates(cluster.image, without=without, unfencing=unfencing)
    return build_change(cluster.image, topic_id(1), 7, before, wanted or Wanted(), candidates, min_isr)


def record(**fields: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=7, topic_id=topic_id(1), **fields)


@pytest.fixture
def cluster() -> Cluster:
    """Six active brokers, without eligible leader replicas."""
    return Cluster(range(1, 7))


@pytest.fixture
def elr_cluster() -> Cluster:
    """Six active brokers, with eligible leader replicas."""
    return Cluster(range(1, 7), elr=True)


# Nothing to do


@pytest.mark.parametrize("election", list(Election))
def test_a_healthy_partition_stays_as_it_is(cluster: Cluster, election: Election) -> None:
    assert change(cluster, partition(1, 2, 3), Wanted(election=election)) is None


def test_the_same_in_another_order_is_no_change(cluster: Cluster) -> None:
    assert change(cluster, partition(1, 2, 3), Wanted(isr=[3, 1, 2])) is None


def test_a_partition_that_stays_without_a_leader_is_not_told_again(cluster: Cluster) -> None:
    cluster.fence(1)
    assert change(cluster, partition(1, leader=NO_LEADER)) is None


# Elections


def test_the_first_replica_leads_when_preferred(cluster: Cluster) -> None:
    wanted = Wanted(election=Election.PREFERRED)
    assert change(cluster, partition(1, 2, 3, leader=2), wanted) == record(leader=1)


def test_without_the_preferred_one_the_leader_stays(cluster: Cluster) -> None:
    wanted = Wanted(election=Election.PREFERRED)
    assert change(cluster, partition(1, 2, 3, leader=3, isr=(2, 3)), wanted) is None


def test_without_both_the_next_in_sync_leads(cluster: Cluster) -> None:
    cluster.fence(1)
    cluster.fence(2)
    wanted = Wanted(election=Election.PREFERRED)
    assert change(cluster, partition(1, 2, 3, 4, leader=2), wanted) == record(leader=3)


def test_a_preferred_election_never_turns_unclean(cluster: Cluster) -> None:
    cluster.fence(1)
    before = partition(1, 2, isr=(1,))
    assert change(cluster, before, Wanted(election=Election.PREFERRED)) == record(leader=NO_LEADER)


def test_a_leader_that_may_lead_stays_though_another_comes_first(cluster: Cluster) -> None:
    assert change(cluster, partition(1, 2, 3, leader=3)) is None


def test_the_first_in_sync_in_the_order_of_replicas_takes_over(cluster: Cluster) -> None:
    before = partition(1, 2, 3, 4, leader=1, isr=(1, 3, 4))
    assert change(cluster, before, Wanted(isr=[3, 4])) == record(leader=3, isr=[3, 4])


def test_nobody_alive_in_sync_means_no_leader(cluster: Cluster) -> None:
    cluster.fence(1)
    assert change(cluster, partition(1, 2, 3, isr=(1,))) == record(leader=NO_LEADER)


def test_an_unclean_election_takes_anyone_alive_and_makes_it_recover(cluster: Cluster) -> None:
    cluster.fence(1)
    wanted = Wanted(election=Election.UNCLEAN)
    expected = record(leader=2, isr=[2], leader_recovery_state=RECOVERING)
    assert change(cluster, partition(1, 2, 3, isr=(1,)), wanted) == expected


def test_one_that_recovers_already_is_not_told_again(cluster: Cluster) -> None:
    cluster.fence(1)
    before = replace(partition(1, 2, 3, isr=(1,)), is_recovering=True)
    assert change(cluster, before, Wanted(election=Election.UNCLEAN)) == record(leader=2, isr=[2])


def test_where_unclean_is_allowed_a_clean_leader_comes_first(cluster: Cluster) -> None:
    cluster.fence(1)
    before = partition(1, 2, 3, isr=(1, 3))
    assert change(cluster, before, Wanted(election=Election.UNCLEAN)) == record(leader=3)


def test_a_new_replica_has_nothing_to_lead_with_even_uncleanly(cluster: Cluster) -> None:
    cluster.fence(1)
    wanted = Wanted(election=Election.UNCLEAN, replicas=[2, 1], adding=[2], removing=[1])
    changed = change(cluster, partition(1), wanted)
    assert changed is not None
    assert changed.leader == NO_LEADER


def test_the_recovery_state_is_what_the_leader_says(cluster: Cluster) -> None:
    before = replace(partition(1, 2, isr=(1,)), is_recovering=True)
    wanted = Wanted(isr=[1, 2], is_recovering=False)
    assert change(cluster, before, wanted) == record(isr=[1, 2], leader_recovery_state=0)


# Who may lead


def test_who_leaves_may_not_lead_and_who_comes_back_may(cluster: Cluster) -> None:
    before = partition(1, 2, leader=NO_LEADER)
    cluster.fence(1)
    cluster.fence(2)
    assert change(cluster, before) is None
    assert change(cluster, before, unfencing=2) == record(leader=2)
    assert change(cluster, partition(3, 4), without=3) == record(leader=4)


def test_a_broker_that_shuts_down_may_not_lead(cluster: Cluster) -> None:
    cluster.shut_down(1)
    assert change(cluster, partition(1, 2)) == record(leader=2)


def test_a_broker_that_is_not_registered_may_not_lead(cluster: Cluster) -> None:
    assert change(cluster, partition(9, 2)) == record(leader=2)


@pytest.mark.parametrize(
    ("where", "online", "expected"),
    [
        (directory(1), [directory(1)], True),
        (directory(1, 1), [directory(1)], False),
        (UNASSIGNED, [directory(1)], True),
        (MIGRATING, [directory(1)], True),
        (LOST, [directory(1)], False),
        (directory(1), [], True),
        (LOST, [], False),
    ],
)
def test_directories_that_count_as_online(where: object, online: list[object], expected: bool) -> None:
    assert is_directory_online(where, online) is expected  # type: ignore[arg-type]


def test_a_replica_in_a_directory_that_is_offline_may_not_lead(cluster: Cluster) -> None:
    before = replace(partition(1, 2), directories=(directory(1, 5), directory(2)))
    assert change(cluster, before) == record(leader=2)


# Leader epochs


@pytest.mark.parametrize(("level", "leader"), [(11, 1), (12, KEPT), (30, KEPT)])
def test_a_smaller_isr_begins_a_leader_epoch_only_at_older_levels(level: int, leader: int) -> None:
    cluster = Cluster(range(1, 4), metadata_version=level)
    before = replace(partition(1, 2, 3), directories=(MIGRATING,) * 3)
    assert change(cluster, before, Wanted(isr=[1, 2])) == record(isr=[1, 2], leader=leader)


@pytest.mark.parametrize("level", [11, 12, 30])
def test_a_larger_isr_never_begins_a_leader_epoch(level: int) -> None:
    cluster = Cluster(range(1, 4), metadata_version=level)
    before = replace(partition(1, 2, 3, isr=(1, 2)), directories=(MIGRATING,) * 3)
    assert change(cluster, before, Wanted(isr=[1, 2, 3])) == record(isr=[1, 2, 3])


def test_at_an_older_level_a_changed_leader_is_enough() -> None:
    old = Cluster(range(1, 4), metadata_version=11)
    before = replace(partition(1, 2, 3), directories=(MIGRATING,) * 3)
    assert change(old, before, Wanted(isr=[2, 3])) == record(isr=[2, 3], leader=2)


def test_a_dropped_replica_begins_a_leader_epoch_with_the_same_leader(cluster: Cluster) -> None:
    changed = change(cluster, partition(1, 2, 3), Wanted(replicas=[1, 2], isr=[1, 2]))
    assert changed == record(leader=1, replicas=[1, 2], isr=[1, 2], directories=[directory(1), directory(2)])


def test_an_added_replica_does_not(cluster: Cluster) -> None:
    changed = change(cluster, partition(1, 2), Wanted(replicas=[1, 2, 3], adding=[3]))
    assert changed is not None
    assert changed.leader == KEPT


def test_every_record_advances_the_partition_and_a_named_leader_its_epoch() -> None:
    before = partition(1, 2, 3)
    assert changed_by(before, record(isr=[1, 2])).partition_epoch == 51
    assert changed_by(before, record(isr=[1, 2])).leader_epoch == 5
    assert changed_by(before, record(leader=1)).leader_epoch == 6
    assert changed_by(before, record(leader=NO_LEADER)).leader_epoch == 6


# The last one in sync


def test_without_elr_the_last_one_in_sync_stays_listed(cluster: Cluster) -> None:
    before = partition(1, 2, isr=(1,))
    assert change(cluster, before, Wanted(isr=[]), without=1) == record(leader=NO_LEADER)


def test_with_elr_the_isr_may_be_empty(elr_cluster: Cluster) -> None:
    before = partition(1, 2, isr=(1,))
    assert change(elr_cluster, before, Wanted(isr=[]), without=1) == record(
        leader=NO_LEADER, isr=[], eligible_leader_replicas=[1], last_known_elr=[1]
    )


# Reassignment


def reassigning(
    *replicas: int, adding: tuple[int, ...] = (), removing: tuple[int, ...] = (), isr: tuple[int, ...]
) -> Partition:
    return replace(partition(*replicas, leader=isr[0], isr=isr), adding=adding, removing=removing)


def test_a_new_order_is_written_and_the_leader_stays(cluster: Cluster) -> None:
    assert change(cluster, partition(1, 2, 3), Wanted(replicas=[3, 2, 1])) == record(
        replicas=[3, 2, 1], directories=[directory(3), directory(2), directory(1)]
    )


def test_it_starts_with_the_new_ones_added_in_their_default_directories(cluster: Cluster) -> None:
    cluster.register(5, directories=2)
    wanted = Wanted(replicas=[4, 5, 1], adding=[4, 5], removing=[1])
    assert change(cluster, partition(1), wanted) == record(
        replicas=[4, 5, 1],
        directories=[directory(4), UNASSIGNED, directory(1)],
        adding_replicas=[4, 5],
        removing_replicas=[1],
    )


def test_it_completes_when_the_added_ones_are_in_sync(cluster: Cluster) -> None:
    before = reassigning(4, 2, 1, adding=(4,), removing=(1,), isr=(1, 2))
    assert change(cluster, before, Wanted(isr=[4, 2, 1])) == record(
        replicas=[4, 2],
        isr=[4, 2],
        leader=4,
        directories=[directory(4), directory(2)],
        adding_replicas=[],
        removing_replicas=[],
    )


def test_a_replica_that_stays_need_not_be_in_sync_for_that(cluster: Cluster) -> None:
    before = reassigning(4, 2, 1, adding=(4,), removing=(1,), isr=(1,))
    changed = change(cluster, before, Wanted(isr=[4, 1]))
    assert changed is not None
    assert (changed.replicas, changed.isr, changed.leader) == ([4, 2], [4], 4)


def test_but_it_must_if_more_are_removed_than_added(cluster: Cluster) -> None:
    before = reassigning(2, 3, 1, removing=(1,), isr=(1, 2))
    assert change(cluster, before) is None
    changed = change(cluster, before, Wanted(isr=[1, 2, 3]))
    assert changed is not None
    assert (changed.replicas, changed.isr, changed.leader) == ([2, 3], [2, 3], 2)


def test_it_waits_for_every_added_one(cluster: Cluster) -> None:
    before = reassigning(4, 5, 1, adding=(4, 5), removing=(1,), isr=(1,))
    assert change(cluster, before, Wanted(isr=[4, 1])) == record(isr=[4, 1])


def test_it_waits_while_only_those_are_in_sync_that_shall_go(cluster: Cluster) -> None:
    assert change(cluster, reassigning(2, 1, removing=(1,), isr=(1,))) is None


def test_any_change_may_complete_it(cluster: Cluster) -> None:
    before = reassigning(1, 4, adding=(4,), isr=(1, 4))
    assert change(cluster, before) == record(adding_replicas=[])


def test_one_that_only_adds_keeps_leader_and_epoch(cluster: Cluster) -> None:
    before = reassigning(1, 2, 3, adding=(3,), isr=(1, 2))
    assert change(cluster, before, Wanted(isr=[1, 2, 3])) == record(isr=[1, 2, 3], adding_replicas=[])


def test_a_leader_that_is_removed_steps_down_even_if_nobody_can_follow(cluster: Cluster) -> None:
    cluster.fence(4)
    before = reassigning(4, 1, adding=(4,), removing=(1,), isr=(1, 4))
    changed = change(cluster, before)
    assert changed is not None
    assert (changed.replicas, changed.isr, changed.leader) == ([4], [4], NO_LEADER)


def test_a_cancelled_one_drops_what_it_had_added_with_a_new_leader_epoch(cluster: Cluster) -> None:
    before = reassigning(4, 1, 2, adding=(4,), removing=(2,), isr=(1, 2))
    wanted = Wanted(replicas=[1, 2], isr=[1, 2], adding=[], removing=[])
    assert change(cluster, before, wanted) == record(
        leader=1,
        replicas=[1, 2],
        directories=[directory(1), directory(2)],
        adding_replicas=[],
        removing_replicas=[],
    )


def test_a_dropped_replica_is_not_eligible(elr_cluster: Cluster) -> None:
    before = reassigning(2, 1, removing=(1,), isr=(1, 2))
    changed = change(elr_cluster, before, min_isr=2)
    assert changed is not None
    assert (changed.replicas, changed.eligible_leader_replicas) == ([2], None)


def test_a_leaderless_partition_that_is_reassigned_has_no_last_known_leader(elr_cluster: Cluster) -> None:
    elr_cluster.fence(2)
    before = replace(reassigning(2, 1, removing=(1,), isr=(2,)), leader=NO_LEADER)
    changed = change(elr_cluster, before)
    assert changed is not None
    assert (changed.leader, changed.last_known_elr) == (NO_LEADER, None)


# Eligible leader replicas


def test_who_leaves_an_isr_that_becomes_too_small_is_eligible(elr_cluster: Cluster) -> None:
    before = partition(1, 2, 3)
    assert change(elr_cluster, before, Wanted(isr=[1, 2]), min_isr=2) == record(isr=[1, 2])
    assert change(elr_cluster, before, Wanted(isr=[1]), min_isr=2) == record(
        isr=[1], eligible_leader_replicas=[2, 3]
    )


def test_the_eligible_ones_grow_in_number_while_the_isr_shrinks(elr_cluster: Cluster) -> None:
    before = replace(partition(1, 2, 3, 4, isr=(1, 2)), elr=(3,))
    assert change(elr_cluster, before, Wanted(isr=[1]), min_isr=3) == record(
        isr=[1], eligible_leader_replicas=[2, 3]
    )


def test_an_isr_that_is_large_enough_needs_no_eligible_ones(elr_cluster: Cluster) -> None:
    before = replace(partition(1, 2, 3, isr=(1,)), elr=(2, 3))
    assert change(elr_cluster, before, Wanted(isr=[1, 2]), min_isr=2) == record(
        isr=[1, 2], eligible_leader_replicas=[]
    )


def test_who_is_in_sync_again_is_no_longer_eligible(elr_cluster: Cluster) -> None:
    before = replace(partition(1, 2, 3, 4, isr=(1,)), elr=(2, 3))
    assert change(elr_cluster, before, Wanted(isr=[1, 3]), min_isr=3) == record(
        isr=[1, 3], eligible_leader_replicas=[2]
    )


def test_who_may_have_lost_records_is_not_eligible(elr_cluster: Cluster) -> None:
    before = replace(partition(1, 2, 3, isr=(1, 2)), elr=(3,))
    wanted = Wanted(isr=[1], unclean_shutdown=[2, 3])
    assert change(elr_cluster, before, wanted, min_isr=3) == record(isr=[1], eligible_leader_replicas=[])


def test_an_eligible_one_leads_when_nobody_is_in_sync(elr_cluster: Cluster) -> None:
    elr_cluster.fence(1)
    before = replace(partition(1, 2, 3, leader=NO_LEADER, isr=()), elr=(1, 3), last_known_leader=1)
    assert change(elr_cluster, before, min_isr=2) == record(
        leader=3, isr=[3], eligible_leader_replicas=[1], last_known_elr=[]
    )


def test_as_long_as_someone_is_in_sync_no_eligible_one_leads(elr_cluster: Cluster) -> None:
    elr_cluster.fence(1)
    before = replace(partition(1, 2, isr=(1,)), elr=(2,))
    assert change(elr_cluster, before, min_isr=2) == record(leader=NO_LEADER, last_known_elr=[1])


def test_the_last_known_leader_leads_when_nobody_else_is_in_sync_or_eligible(elr_cluster: Cluster) -> None:
    before = replace(partition(1, 2, 3, leader=NO_LEADER, isr=()), last_known_leader=2)
    expected = record(leader=2, isr=[2], leader_recovery_state=RECOVERING, last_known_elr=[])
    assert change(elr_cluster, before) == expected
    assert change(elr_cluster, before, Wanted(election=Election.PREFERRED)) == expected
    assert change(elr_cluster, before, Wanted(election=Election.UNCLEAN)) == expected


def test_but_only_if_it_is_alive(elr_cluster: Cluster) -> None:
    elr_cluster.fence(2)
    before = replace(partition(1, 2, 3, leader=NO_LEADER, isr=()), last_known_leader=2)
    assert change(elr_cluster, before) is None
    assert change(elr_cluster, before, unfencing=2) is not None


def test_and_only_if_it_is_still_a_replica(elr_cluster: Cluster) -> None:
    before = replace(partition(1, 2, 3, leader=NO_LEADER, isr=()), last_known_leader=5)
    assert change(elr_cluster, before) is None


def test_a_leader_is_remembered_when_it_is_lost_and_not_replaced_by_a_later_one(elr_cluster: Cluster) -> None:
    before = partition(1, 2, isr=(1,))
    lost = change(elr_cluster, before, Wanted(isr=[]), without=1, min_isr=2)
    assert lost is not None
    assert lost.last_known_elr == [1]
    after = changed_by(before, lost)
    again = change(elr_cluster, after, Wanted(isr=[], unclean_shutdown=[1]), without=1, min_isr=2)
    assert again == record(eligible_leader_replicas=[])


def test_an_unclean_election_ends_all_eligibility(elr_cluster: Cluster) -> None:
    elr_cluster.fence(1)
    elr_cluster.fence(2)
    before = replace(partition(1, 2, 3, isr=(1,)), elr=(2,))
    wanted = Wanted(election=Election.UNCLEAN)
    assert change(elr_cluster, before, wanted, min_isr=2) == record(
        leader=3, isr=[3], eligible_leader_replicas=[], leader_recovery_state=RECOVERING
    )


def test_once_elr_is_off_the_next_change_forgets_the_eligible_ones(cluster: Cluster) -> None:
    before = replace(partition(1, 2, 3, isr=(1, 2)), elr=(3,), last_known_leader=3)
    assert change(cluster, before) == record(eligible_leader_replicas=[])


# Directories


def test_a_directory_is_assigned_without_a_new_leader_epoch(cluster: Cluster) -> None:
    wanted = Wanted(directories={2: directory(2, 1)})
    assert change(cluster, partition(1, 2), wanted) == record(directories=[directory(1), directory(2, 1)])


def test_assigning_a_directory_keeps_the_eligible_ones(elr_cluster: Cluster) -> None:
    before = replace(partition(1, 2, 3, isr=(1,)), elr=(2,))
    changed = change(elr_cluster, before, Wanted(directories={3: directory(3, 1)}), min_isr=2)
    assert changed is not None
    assert changed.eligible_leader_replicas is None


def test_the_same_directory_again_is_no_change(cluster: Cluster) -> None:
    assert change(cluster, partition(1, 2), Wanted(directories={2: directory(2)})) is None


def test_older_levels_write_no_directories() -> None:
    cluster = Cluster(range(1, 4), metadata_version=16)
    before = replace(partition(1), directories=(MIGRATING,))
    assert change(cluster, before, Wanted(replicas=[2, 1], adding=[2])) == record(
        replicas=[2, 1], adding_replicas=[2]
    )


def test_default_directories() -> None:
    cluster = Cluster()
    for broker_id, count in enumerate((0, 1, 2)):
        cluster.register(broker_id, directories=count)
    assert default_directory(cluster.image, 0) == MIGRATING
    assert default_directory(cluster.image, 1) == directory(1)
    assert default_directory(cluster.image, 2) == UNASSIGNED
    assert default_directory(cluster.image, 9) == UNASSIGNED
    assert default_directory(Cluster([1], metadata_version=16).image, 1) == MIGRATING
