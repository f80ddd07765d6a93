"""Offsets that nobody needs any more, and groups that have none left."""

import pytest
from group_story import OK, Consumer, Groups, subscription

from quorate.protocol.errors import ErrorCode

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
CHECK_MS = 600_000


def stay(groups: Groups, ms: int, *consumers: Consumer) -> None:
    """Time passes, and these are heard of all the while."""
    for _ in range(ms // 1_000_000):
        for consumer in consumers:
            assert consumer.beats() is OK
        groups.passes(1_000_000)


def test_of_a_group_that_never_had_members_each_offset_has_its_own_age() -> None:
    groups = Groups()
    groups.commits_offset(5)
    groups.passes(DAY_MS)
    groups.commits_offset(6, "t", 1)
    groups.passes(6 * DAY_MS + CHECK_MS)
    assert groups.fetched() == (-1, OK)
    assert groups.fetched("t", 1) == (6, OK)
    groups.passes(DAY_MS)
    assert groups.fetched("t", 1) == (-1, OK)
    assert groups.listed() == []
    assert groups.kinds_of_records()[-1] == "GroupMetadata gone"


def test_of_an_empty_group_they_age_since_it_is_empty() -> None:
    groups = Groups()
    (a,) = groups.started("a", session_ms=1_800_000)
    a.commits(5)
    stay(groups, 8 * DAY_MS, a)
    a.leaves()
    groups.passes(WEEK_MS - 1)
    assert groups.fetched() == (5, OK)
    groups.passes(CHECK_MS + 1)
    assert groups.fetched() == (-1, OK)
    assert groups.listed() == []


def test_that_is_not_forgotten_by_another_coordinator() -> None:
    groups = Groups()
    (a,) = groups.started("a")
    a.commits(5)
    a.leaves()
    groups.passes(6 * DAY_MS)
    groups.fails_over()
    groups.passes(DAY_MS + CHECK_MS)
    assert groups.fetched() == (-1, OK)


def test_of_a_stable_group_only_topics_that_are_not_subscribed_to() -> None:
    groups = Groups()
    (a,) = groups.started("a", session_ms=1_800_000, protocols=[("range", subscription("t"))])
    a.commits(5, "t")
    a.commits(6, "u")
    stay(groups, WEEK_MS + 2 * CHECK_MS, a)
    assert groups.fetched("t") == (5, OK)
    assert groups.fetched("u") == (-1, OK)
    assert groups.state == "Stable"


def test_a_subscription_that_cannot_be_read_keeps_everything() -> None:
    groups = Groups()
    (a,) = groups.started("a", session_ms=1_800_000, protocols=[("range", b"?")])
    a.commits(5)
    stay(groups, WEEK_MS + 2 * CHECK_MS, a)
    assert groups.fetched() == (5, OK)


def test_groups_of_other_kinds_keep_everything_while_they_live() -> None:
    groups = Groups()
    (a,) = groups.started("a", session_ms=1_800_000, protocol_type="connect")
    a.commits(5)
    stay(groups, WEEK_MS + 2 * CHECK_MS, a)
    assert groups.fetched() == (5, OK)


def test_a_time_of_its_own_counts_whatever_the_group_does() -> None:
    groups = Groups()
    groups.commits_offset(5, version=4, retention_time_ms=DAY_MS)
    groups.commits_offset(6, "t", 1, version=4, retention_time_ms=30 * DAY_MS)
    groups.passes(DAY_MS + CHECK_MS)
    assert groups.fetched() == (-1, OK)
    groups.passes(8 * DAY_MS)
    assert groups.fetched("t", 1) == (6, OK)


def test_a_commit_may_ask_to_be_kept_for_ever() -> None:
    groups = Groups()
    groups.commits_offset(5, version=4, retention_time_ms=(1 << 63) - 1)
    groups.commits_offset(6, "t", 1, version=4, retention_time_ms=-2)
    groups.fails_over()
    groups.passes(30 * DAY_MS)
    assert groups.fetched() == (5, OK)
    assert groups.fetched("t", 1) == (-1, OK)


def test_what_a_transaction_may_change_is_kept() -> None:
    groups = Groups()
    groups.commits_offset(5)
    groups.commits_in_transaction(1, 9)
    groups.passes(WEEK_MS + CHECK_MS)
    assert groups.fetched() == (5, OK)
    groups.marks(1, "abort")
    groups.passes(CHECK_MS)
    assert groups.fetched() == (-1, OK)


def test_a_group_with_an_open_transaction_is_kept() -> None:
    groups = Groups()
    groups.commits_in_transaction(1, 9)
    groups.passes(WEEK_MS)
    assert groups.state == "Empty"
    groups.marks(1, "abort")
    groups.passes(CHECK_MS)
    assert groups.listed() == []


def test_an_empty_group_without_offsets_goes_at_the_next_look() -> None:
    groups = Groups()
    (a,) = groups.started("a")
    a.leaves()
    groups.passes(CHECK_MS)
    assert groups.listed() == []
    assert groups.replayed().classic_groups.stored == {}


def test_but_not_while_somebody_is_about_to_join() -> None:
    groups = Groups()
    groups.passes(CHECK_MS - 2_000)
    a = groups.consumer("a")
    a.member_id = a.asks_to_join().response.member_id
    groups.passes(5_000)
    assert a.asks_to_join().waits


def test_what_the_log_refuses_expires_later() -> None:
    groups = Groups()
    groups.commits_offset(5)
    groups.passes(WEEK_MS - 2_000)
    groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    groups.passes(CHECK_MS)
    assert groups.refuses is None
    assert groups.fetched() == (5, OK)
    groups.passes(CHECK_MS)
    assert groups.fetched() == (-1, OK)


def test_what_the_log_refuses_is_not_tried_again_and_again() -> None:
    groups = Groups()
    for partition in range(1_500):
        groups.commits_offset(1, "t", partition)
    groups.passes(WEEK_MS - 2_000)
    refused = 0
    for _ in range(CHECK_MS // 10):
        groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        groups.passes(10)
        refused += groups.refuses is None
    assert 1 < refused <= CHECK_MS // 1_000
    groups.refuses = None
    groups.passes(2_000)
    assert groups.fetched("t", 1_499) == (-1, OK)


@pytest.mark.parametrize("interval_ms", [0, 1])
def test_offsets_are_not_looked_through_all_the_time(interval_ms: int) -> None:
    groups = Groups(offsets_retention_check_interval_ms=interval_ms)
    groups.commits_offset(1)
    before_ms, ticks = groups.now_ms, 0
    while ticks < 20:
        groups.passes(groups.shard.next_deadline_ms - groups.now_ms)
        ticks += 1
    assert groups.now_ms - before_ms >= 19_000


def test_many_expire_in_several_steps() -> None:
    groups = Groups()
    for partition in range(2_500):
        groups.commits_offset(1, "t", partition)
    for number in range(500):
        groups.commits_offset(1, group_id=f"group-{number}")
    groups.passes(WEEK_MS - 2_000)
    before = len(groups.log)
    sizes = []
    deadline_ms = groups.now_ms + CHECK_MS
    while groups.shard.next_deadline_ms <= deadline_ms:
        groups.passes(groups.shard.next_deadline_ms - groups.now_ms)
        sizes.append(len(groups.log) - before)
        before = len(groups.log)
    assert max(sizes) <= 1_002
    assert groups.listed() == []
    assert sum(sizes) == 2_500 + 1 + 2 * 500


def test_the_retention_can_be_set() -> None:
    groups = Groups(offsets_retention_minutes=60, offsets_retention_check_interval_ms=1_000)
    groups.commits_offset(5)
    groups.passes(3_599_000)
    assert groups.fetched() == (5, OK)
    groups.passes(2_000)
    assert groups.fetched() == (-1, OK)
