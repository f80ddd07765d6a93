"""Where new replicas go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_cluster import Cluster, directory, topic_id
from quorate.controller.placement import NewPartitions, Usable, place, usable_brokers
from quorate.metadata.partitions import MIGRATING, REPLICAS_MAX, UNASSIGNED
from quorate.metadata.records import BrokerRegistrationChangeRecord
from quorate.protocol.errors import ApiError, ErrorCode


def refused(brokers: Sequence[Usable], replicas: int) -> str:
    with pytest.raises(ApiError) as caught:
        place(brokers, 1, replicas, Random(1))
    assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    return caught.value.message


def alive(*ids: int, rack: str | None = None) -> list[Usable]:
    return [Usable(one, rack) for one in ids]


def fenced(*ids: int, rack: str | None = None) -> list[Usable]:
    return [Usable(one, rack, is_fenced=True) for one in ids]


# Refusals


@pytest.mark.parametrize("replicas", [0, -1, -5])
def test_a_replication_factor_is_positive(replicas: int) -> None:
    assert "must be 1 or more" in refused(alive(1), replicas)


def test_there_must_be_a_broker_for_each_replica() -> None:
    assert "only 2 broker(s)" in refused(alive(1, 2), 3)


def test_there_must_be_a_broker_at_all() -> None:
    assert "only 0 broker(s)" in refused([], 1)


def test_somebody_must_be_alive_to_lead() -> None:
    assert "fenced" in refused(fenced(1, 2, 3), 1)


def test_a_partition_has_no_more_replicas_than_the_table_can_hold() -> None:
    assert str(REPLICAS_MAX) in refused(alive(*range(100)), REPLICAS_MAX + 1)


# Brokers


def test_a_single_broker_gets_everything() -> None:
    assert place(alive(7), 5, 1, Random(1)) == [[7]] * 5


def test_one_broker_alive_leads_many_partitions() -> None:
    placed = place(alive(1) + fenced(2, 3), 100, 3, Random(1))
    assert {replicas[0] for replicas in placed} == {1}
    assert all(sorted(replicas) == [1, 2, 3] for replicas in placed)


def test_one_broker_alive_leads_while_the_fenced_ones_take_turns() -> None:
    placed = place(alive(1) + fenced(2, 3, 4), 9, 2, Random(1))
    assert Counter(follower for _, follower in placed) == {2: 3, 3: 3, 4: 3}


def test_the_fenced_are_avoided_while_there_are_others() -> None:
    placed = place(alive(1, 2, 3) + fenced(4, 5), 50, 3, Random(1))
    assert all(sorted(replicas) == [1, 2, 3] for replicas in placed)


def test_the_fenced_fill_up_what_is_missing() -> None:
    for replicas in place(alive(1, 2) + fenced(3), 20, 3, Random(1)):
        assert replicas[2] == 3


def test_partitions_begin_one_broker_further_each_time() -> None:
    placed = place(alive(0, 1, 2, 3), 4, 3, Random(1))
    for before, after in pairwise(placed):
        assert after == [(one + 1) % 4 for one in before]


def test_no_partitions_are_no_replicas() -> None:
    assert place(alive(1, 2), 0, 1, Random(1)) == []


# Racks


def test_each_rack_gets_one_replica_when_there_are_as_many() -> None:
    brokers = alive(0, 1, 2, rack="a") + alive(3, 4, 5, rack="b") + alive(6, 7, 8, rack="c")
    for replicas in place(brokers, 60, 3, Random(1)):
        assert {one // 3 for one in replicas} == {0, 1, 2}


def test_leaders_come_from_the_racks_in_turn() -> None:
    brokers = alive(0, 1, 2, rack="a") + alive(3, 4, 5, rack="b") + alive(6, 7, 8, rack="c")
    racks = [replicas[0] // 3 for replicas in place(brokers, 9, 3, Random(1))]
    assert all(after == (before + 1) % 3 for before, after in pairwise(racks))


def test_brokers_without_a_rack_are_a_rack_of_their_own() -> None:
    brokers = alive(0, 1) + alive(2, 3, rack="a")
    for replicas in place(brokers, 20, 2, Random(1)):
        assert {one // 2 for one in replicas} == {0, 1}


def test_an_empty_rack_name_is_not_the_same_as_none() -> None:
    brokers = alive(0, 1) + alive(2, 3, rack="")
    for replicas in place(brokers, 20, 2, Random(1)):
        assert {one // 2 for one in replicas} == {0, 1}


def test_a_small_rack_gets_its_share_although_its_broker_then_has_more() -> None:
    brokers = alive(0, rack="a") + alive(*range(1, 10), rack="b")
    assert all(0 in replicas for replicas in place(brokers, 50, 2, Random(1)))


def test_a_rack_that_is_fenced_leads_nothing_but_holds_replicas() -> None:
    brokers = fenced(0, 1, rack="a") + alive(2, 3, rack="b")
    for replicas in place(brokers, 30, 2, Random(1)):
        assert replicas[0] in (2, 3)
        assert replicas[1] in (0, 1)


def test_a_rack_prefers_its_own_broker_alive() -> None:
    brokers = alive(0, rack="a") + fenced(1, rack="a") + alive(2, rack="b")
    assert all(sorted(replicas) == [0, 2] for replicas in place(brokers, 30, 2, Random(1)))


def test_racks_that_are_exhausted_are_passed_over() -> None:
    brokers = alive(0, rack="a") + alive(1, 2, 3, 4, rack="b")
    assert all(sorted(replicas) == [0, 1, 2, 3, 4] for replicas in place(brokers, 30, 5, Random(1)))


# Laws

clusters = st.lists(
    st.builds(Usable, st.integers(0, 50), st.sampled_from([None, "", "a", "b", "c"]), st.booleans()),
    min_size=1,
    max_size=12,
    unique_by=lambda one: one.id,
).filter(lambda brokers: any(not one.is_fenced for one in brokers))


@given(clusters, st.integers(1, 40), st.data())
def test_no_broker_twice_leaders_alive_and_as_many_racks_as_possible(
    brokers: list[Usable], partitions: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(brokers)))
    by_id = {one.id: one for one in brokers}
    racks = len({one.rack for one in brokers})
    placed = place(brokers, partitions, count, Random(data.draw(st.integers(0, 1000))))
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == count
        assert not by_id[replicas[0]].is_fenced
        assert len({by_id[one].rack for one in replicas}) == min(racks, count)


@given(st.integers(1, 10), st.integers(1, 5), st.integers(1, 5), st.integers(0, 1000))
def test_equal_brokers_lead_and_hold_equally(per_rack: int, racks: int, rounds: int, seed: int) -> None:
    count = per_rack * racks
    brokers = [Usable(one, f"rack-{one % racks}") for one in range(count)]
    placed = place(brokers, count * rounds, racks, Random(seed))
    replicas = Counter(one for each in placed for one in each)
    assert set(replicas.values()) == {racks * rounds}  # one replica in every rack for each partition
    rack_leaders = Counter(each[0] % racks for each in placed)
    assert set(rack_leaders.values()) == {per_rack * rounds}


@given(st.integers(2, 12), st.integers(1, 5), st.integers(0, 1000), st.data())
def test_without_racks_everybody_leads_the_same(
    count: int, rounds: int, seed: int, data: st.DataObject
) -> None:
    replicas = data.draw(st.integers(1, count))
    placed = place(alive(*range(count)), count * rounds, replicas, Random(seed))
    assert set(Counter(each[0] for each in placed).values()) == {rounds}
    assert set(Counter(one for each in placed for one in each).values()) == {rounds * replicas}


def test_the_same_seed_places_the_same_and_another_differently() -> None:
    brokers = alive(*range(10))
    assert place(brokers, 30, 3, Random(5)) == place(brokers, 30, 3, Random(5))
    assert place(brokers, 30, 3, Random(5)) != place(brokers, 30, 3, Random(6))


def test_the_order_in_which_brokers_are_known_does_not_matter() -> None:
    brokers = [Usable(one, f"rack-{one % 3}") for one in range(9)]
    assert place(brokers, 30, 3, Random(5)) == place(brokers[::-1], 30, 3, Random(5))


def test_sets_of_brokers_vary_after_a_round() -> None:
    placed = place(alive(*range(10)), 200, 3, Random(1))
    assert len({frozenset(each) for each in placed}) > 50


# Who can be used


def test_brokers_are_usable_with_their_rack_and_state() -> None:
    cluster = Cluster([1])
    cluster.register(2, rack="a", fenced=True)
    assert usable_brokers(cluster.image) == [Usable(1), Usable(2, "a", is_fenced=True)]


def test_a_broker_that_is_shutting_down_gets_nothing_new() -> None:
    cluster = Cluster([1, 2])
    cluster.shut_down(1)
    assert usable_brokers(cluster.image) == [Usable(2)]


def test_a_broker_that_has_shut_down_can_hold_a_replica_until_it_is_back() -> None:
    cluster = Cluster([1, 2])
    cluster.shut_down(1)
    cluster.fence(1)
    assert usable_brokers(cluster.image) == [Usable(1, is_fenced=True), Usable(2)]


def test_a_broker_with_all_directories_cordoned_gets_nothing_new() -> None:
    cluster = Cluster([1])
    cluster.register(2, directories=2)
    cordon(cluster, 2, 1)
    assert [one.id for one in usable_brokers(cluster.image)] == [1, 2]
    cordon(cluster, 2, 2)
    assert [one.id for one in usable_brokers(cluster.image)] == [1]


def test_a_broker_that_names_no_directories_is_not_cordoned() -> None:
    cluster = Cluster()
    cluster.register(1, directories=0)
    assert usable_brokers(cluster.image) == [Usable(1)]


def cordon(cluster: Cluster, broker_id: int, directories: int) -> None:
    cluster.apply(
        BrokerRegistrationChangeRecord(
            broker_id=broker_id,
            broker_epoch=cluster.image.brokers[broker_id].epoch,
            cordoned_log_dirs=[directory(broker_id, number) for number in range(directories)],
        )
    )


# Records


def test_active_replicas_are_in_sync_and_the_first_leads() -> None:
    cluster = Cluster([1, 2, 3, 4])
    cluster.fence(1)
    cluster.shut_down(3)
    record = NewPartitions(cluster.image).record(topic_id(1), 5, [1, 4, 3, 2])
    assert record is not None
    assert (record.partition_id, record.replicas, record.isr, record.leader) == (5, [1, 4, 3, 2], [4, 2], 4)
    assert (record.leader_epoch, record.partition_epoch, record.leader_recovery_state) == (0, 0, 0)


def test_nobody_active_is_no_partition() -> None:
    cluster = Cluster([1, 2])
    cluster.fence(1)
    cluster.shut_down(2)
    assert NewPartitions(cluster.image).record(topic_id(1), 0, [1, 2]) is None


def test_a_replica_is_in_the_only_directory_or_nobody_knows_where() -> None:
    cluster = Cluster([1])
    cluster.register(2, directories=2)
    cluster.register(3, directories=0)
    record = NewPartitions(cluster.image).record(topic_id(1), 0, [1, 2, 3])
    assert record is not None
    assert record.directories == [directory(1), UNASSIGNED, MIGRATING]


def test_before_there_were_directories_none_are_written() -> None:
    cluster = Cluster([1], metadata_version=16)
    record = NewPartitions(cluster.image).record(topic_id(1), 0, [1])
    assert record is not None
    assert record.directories == []
