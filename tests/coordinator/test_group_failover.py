"""Another broker coordinates: what it finds, whatever the group was doing."""

import math

import pytest
from group_story import OK, Groups, subscription

from quorate.coordinator.events import GroupsLoaded, GroupsUnloaded
from quorate.protocol.errors import ErrorCode

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def test_a_stable_group_goes_on() -> None:
    groups = Groups()
    a, b = groups.started("a", "b")
    a.commits(5)
    groups.fails_over()
    assert groups.state == "Stable"
    assert (a.beats(), b.beats()) == (OK, OK)
    assert b.syncs().assignment == b"b"
    assert groups.fetched() == (5, OK)
    described = groups.described()
    assert [(one.client_id, one.client_host) for one in described.members] == [
        ("a", "/host-of-a"),
        ("b", "/host-of-b"),
    ]
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")


def test_the_leader_is_still_the_leader() -> None:
    groups = Groups()
    a, b = groups.started("a", "b")
    groups.fails_over()
    assert b.joins().response.leader == a.member_id
    a.joins()
    assert groups.state == "PreparingRebalance"


def test_members_have_their_full_time() -> None:
    groups = Groups()
    a, b = groups.started("a", "b")
    groups.passes(9_000)
    groups.fails_over()
    groups.passes(9_999)
    assert a.beats() is OK
    groups.passes(1)
    assert b.beats() is UNKNOWN


def test_an_empty_group_is_empty_and_remembers_its_generation() -> None:
    groups = Groups()
    (a,) = groups.started("a")
    a.leaves()
    groups.fails_over()
    assert groups.state == "Empty"
    again = groups.consumer("a")
    again.joins()
    groups.passes(3_000)
    assert again.generation == 3


def test_while_it_prepares() -> None:
    groups = Groups()
    a, b = groups.started("a", "b")
    joining = a.joins()
    groups.fails_over()
    assert (joining.code, joining.response.member_id) == (ErrorCode.NOT_COORDINATOR, a.member_id)
    assert groups.state == "Stable"
    assert b.beats() is OK


def test_while_the_leader_works() -> None:
    groups = Groups()
    a, b = groups.started("a", "b")
    a.joins()
    b.joins()
    syncing = b.syncs()
    groups.fails_over()
    assert syncing.code is ErrorCode.NOT_COORDINATOR
    assert groups.described().group_state == "Stable"  # at the generation before
    assert a.syncs().code is ErrorCode.ILLEGAL_GENERATION
    a.joins()
    b.joins()
    assert a.generation == 2


def test_before_its_first_generation_was_complete() -> None:
    groups = Groups()
    a = groups.consumer("a")
    joining = a.joins()
    groups.fails_over()
    assert joining.code is ErrorCode.NOT_COORDINATOR
    assert groups.state == "Empty"
    assert a.asks_to_join().code is UNKNOWN


def test_ids_that_were_given_out_are_forgotten() -> None:
    groups = Groups()
    a = groups.consumer("a")
    a.member_id = a.asks_to_join().response.member_id
    groups.fails_over()
    assert a.asks_to_join().code is UNKNOWN


def test_static_members_keep_their_names() -> None:
    groups = Groups()
    (a,) = groups.started("a", instance_id="i")
    groups.fails_over()
    again = a.restarts()
    assert again.joins().code is OK
    assert again.skips_assignment
    assert a.beats() is ErrorCode.FENCED_INSTANCE_ID


def test_only_the_protocol_that_was_chosen_is_remembered() -> None:
    groups = Groups()
    both = [("range", subscription("t")), ("sticky", b"")]
    a, b = groups.started("a", "b", protocols=both)
    groups.fails_over()
    assert b.joins().waits  # it says more than is known of it, so the group rebalances
    a.joins()
    assert (a.generation, b.generation) == (2, 2)


def test_what_members_subscribe_to_is_known_again() -> None:
    groups = Groups()
    (a,) = groups.started("a")
    a.commits(5)
    groups.fails_over()
    reply = groups.deletes_offsets("t", [0])
    assert reply.response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


@pytest.mark.parametrize("generation", [1, 2])
def test_one_coordinator_after_the_other(generation: int) -> None:
    groups = Groups()
    (a,) = groups.started("a")
    for _ in range(generation - 1):
        a.joins()
        groups.settles(a)
    for _ in range(3):
        groups.fails_over()
        assert a.beats() is OK
    assert a.generation == generation


def test_a_compacted_log_says_the_same() -> None:
    groups = Groups()
    a, b = groups.started("a", "b")
    for offset in range(5):
        a.commits(offset)
    groups.commits_offset(1, group_id="gone")
    groups.deletes("gone")
    b.leaves()
    a.joins()
    groups.settles(a)
    last = {logged.key: place for place, logged in enumerate(groups.log)}
    whole = groups.replayed()
    groups.log = [logged for place, logged in enumerate(groups.log) if last[logged.key] == place]
    compacted = groups.replayed()
    assert compacted.classic_groups.stored == whole.classic_groups.stored
    groups.fails_over()
    assert (a.beats(), groups.fetched()) == (OK, (4, OK))
    assert [one.group_id for one in groups.listed()] == ["g"]


def test_it_says_what_it_has_found() -> None:
    groups = Groups()
    a, _b = groups.started("a", "b")
    a.commits(5)
    groups.commits_in_transaction(1, 5, group_id="h")
    joining = groups.consumer("c").joins()
    unloaded = groups.shard.unload()
    assert unloaded.events == [GroupsUnloaded(partition=7, groups=2, waiting=1)]
    assert [one.response.error_code for one in unloaded.answers] == [ErrorCode.NOT_COORDINATOR]
    assert joining.waits
    shard = groups.replayed()
    assert shard.loaded(groups.moment).events == [GroupsLoaded(7, 2, 2, 1, 1)]


def test_nothing_is_left_of_what_another_coordinates() -> None:
    """Connections remember groups for as long as they last, which may be long."""
    groups = Groups()
    groups.has_topics(t=2)
    a, _b = groups.started("a", "b")
    a.commits(5)
    groups.hears("m", group_id="new")
    shard = groups.shard
    (classic,), (consumer,) = shard.classic_groups, shard.consumer_groups
    shard.unload()
    assert len(shard.committed_offsets) == len(shard.classic_groups) == len(shard.consumer_groups) == 0
    assert not shard.classic_groups.stored
    assert not classic.members
    assert not consumer.state.members
    assert shard.next_deadline_ms == math.inf


def test_a_group_that_had_only_offsets_has_them_still_if_its_members_could_not_be_stored() -> None:
    groups = Groups()
    groups.commits_offset(5)
    a = groups.consumer("a")
    a.joins()
    groups.passes(3_000)
    groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert a.syncs({a: b"a"}).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    groups.refuses = None
    assert a.beats() is UNKNOWN
    assert (groups.state, groups.fetched()) == ("Empty", (5, OK))
    assert groups.deletes("g") == [OK]
    assert groups.fetched() == (-1, OK)
