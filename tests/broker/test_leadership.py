"""What a leader concludes from what its followers ask for."""

from __future__ import annotations

from typing import Any

import pytest

from quorate.broker.leadership import Leadership, Proposal
from quorate.metadata.partition import UNASSIGNED, Partition

LAG_MS = 1000


def state(**changes: Any) -> Partition:
    fields: dict[str, Any] = {
        "replicas": (1, 2, 3),
        "directories": (UNASSIGNED,) * 3,
        "isr": (1, 2, 3),
        "leader": 1,
        "leader_epoch": 4,
        "partition_epoch": 7,
    }
    return Partition(**fields | changes)


def leading(*, end: int = 10, high_watermark: int = 5, **changes: Any) -> Leadership:
    return Leadership.begin(1, state(**changes), end, high_watermark, now_ms=0)


def fetch(leader: Leadership, follower: int, offset: int, *, end: int, now: float = 0) -> None:
    leader.fetched(follower, offset, 0, -1, end, now)


def advance(leader: Leadership, end: int, *, now: float = 0, min_isr: int = 1, eligible: bool = True) -> bool:
    return leader.advance(end, min_isr, LAG_MS, now, lambda _: eligible)


# The high watermark


def test_it_waits_for_everyone_in_sync():
    leader = leading()
    assert not advance(leader, 10), "nobody was heard of yet"
    fetch(leader, 2, 10, end=10)
    assert not advance(leader, 10)
    fetch(leader, 3, 8, end=10)
    assert advance(leader, 10)
    assert leader.high_watermark == 8
    fetch(leader, 3, 10, end=10)
    assert advance(leader, 10)
    assert leader.high_watermark == 10
    assert not advance(leader, 10)


def test_it_never_goes_back():
    leader = leading(high_watermark=9)
    fetch(leader, 2, 3, end=10)
    fetch(leader, 3, 3, end=10)
    assert not advance(leader, 10)
    assert leader.high_watermark == 9


def test_who_is_alone_commits_at_once():
    leader = leading(replicas=(1,), directories=(UNASSIGNED,), isr=(1,))
    assert advance(leader, 10)
    assert leader.high_watermark == 10


def test_those_out_of_sync_do_not_count():
    leader = leading(isr=(1, 2))
    fetch(leader, 2, 10, end=10)
    fetch(leader, 3, 1, end=10)
    assert advance(leader, 10)
    assert leader.high_watermark == 10


@pytest.mark.parametrize(("eligible", "expected"), [(True, 9), (False, 12)])
def test_it_waits_for_those_about_to_join(eligible: bool, expected: int):
    """A follower that has just caught up is waited for, or it would chase the end for ever."""
    leader = leading(isr=(1, 2), high_watermark=9)
    fetch(leader, 3, 10, end=10)  # caught up, then
    fetch(leader, 2, 12, end=12)
    leader.followers[3].end_offset = 9
    assert advance(leader, 12, eligible=eligible) is (expected > 9)
    assert leader.high_watermark == expected


def test_it_stands_still_while_too_few_are_in_sync():
    leader = leading(isr=(1,))
    assert not advance(leader, 10, min_isr=2)
    assert advance(leader, 10, min_isr=1)


def test_no_more_can_be_in_sync_than_there_are():
    leader = leading(replicas=(1,), directories=(UNASSIGNED,), isr=(1,))
    assert advance(leader, 10, min_isr=2)


def test_both_outcomes_of_a_proposal_count():
    leader = leading(isr=(1, 2), high_watermark=5)
    fetch(leader, 2, 10, end=10)
    fetch(leader, 3, 6, end=10)
    leader.proposal = Proposal((1, 3), 4, 7)
    assert leader.maximal_isr == (1, 2, 3)
    assert advance(leader, 10, now=LAG_MS * 9)
    assert leader.high_watermark == 6


# Joining


def test_who_has_caught_up_is_proposed():
    leader = leading(isr=(1, 2))
    fetch(leader, 3, 9, end=10)
    assert leader.newcomer(3, lambda _: True) is None, "not at the start of this epoch yet"
    fetch(leader, 3, 10, end=12)
    assert leader.newcomer(3, lambda _: False) is None
    proposal = leader.newcomer(3, lambda _: True)
    assert proposal == Proposal((1, 2, 3), 4, 7)
    assert leader.proposal is proposal
    assert leader.newcomer(3, lambda _: True) is None, "one proposal at a time"


def test_who_is_behind_the_high_watermark_is_not():
    leader = leading(isr=(1, 2), high_watermark=20)
    fetch(leader, 3, 19, end=25)
    assert leader.newcomer(3, lambda _: True) is None


@pytest.mark.parametrize("follower", [2, 9])
def test_nor_who_is_in_sync_or_a_stranger(follower: int):
    assert leading().newcomer(follower, lambda _: True) is None


# Leaving


def test_who_has_not_caught_up_for_too_long_leaves():
    leader = leading()
    fetch(leader, 2, 10, end=10, now=500)
    fetch(leader, 3, 9, end=10, now=500)
    assert leader.without_laggards(10, LAG_MS, LAG_MS) is None, "all were caught up when it began"
    assert leader.without_laggards(10, LAG_MS + 1, LAG_MS) == Proposal((1, 2), 4, 7)
    assert leader.without_laggards(10, LAG_MS * 9, LAG_MS) is None, "one proposal at a time"


def test_who_has_everything_stays_however_long_ago_it_asked():
    leader = leading(isr=(1, 2))
    fetch(leader, 2, 10, end=10)
    assert leader.without_laggards(10, LAG_MS * 100, LAG_MS) is None
    assert leader.without_laggards(11, LAG_MS * 100, LAG_MS) == Proposal((1,), 4, 7)


def test_who_keeps_up_with_a_moving_end_stays():
    """It is never at the end, but always at what was the end when it asked before."""
    leader = leading(isr=(1, 2))
    for round_ in range(1, 20):
        fetch(leader, 2, 10 * round_, end=10 * (round_ + 1), now=LAG_MS * round_ / 2)
        assert leader.without_laggards(10 * (round_ + 1), LAG_MS * round_ / 2, LAG_MS) is None


# Answers


def test_an_answer_changes_what_counts():
    leader = leading()
    leader.proposal = Proposal((1, 2), 4, 7)
    leader.accepted((1, 2), 8, is_recovering=False)
    assert (leader.isr, leader.partition_epoch, leader.proposal) == ((1, 2), 8, None)
    leader.proposal = Proposal((1, 2, 3), 4, 8)
    leader.refused()
    assert (leader.isr, leader.proposal) == ((1, 2), None)


def test_an_answer_that_the_metadata_has_overtaken():
    leader = leading()
    leader.update(state(isr=(1,), partition_epoch=9))
    leader.accepted((1, 2), 8, is_recovering=False)
    assert (leader.isr, leader.partition_epoch) == ((1,), 9)


def test_metadata_that_is_not_news_leaves_a_proposal_alone():
    """The answer to a proposal comes before the metadata, and the next proposal may come between them. It may
    be granted already: who it adds must count."""
    leader = leading(isr=(1,))
    leader.proposal = Proposal((1, 2), 4, 7)
    leader.accepted((1, 2), 8, is_recovering=False)
    fetch(leader, 3, 10, end=10)
    proposal = leader.newcomer(3, lambda _: True)
    leader.update(state(isr=(1, 2), partition_epoch=8))
    assert leader.proposal is proposal
    assert leader.maximal_isr == (1, 2, 3)
    leader.update(state(isr=(1, 2), partition_epoch=9))
    assert leader.proposal is None


def test_a_reassignment_brings_and_takes_followers():
    leader = leading()
    fetch(leader, 2, 9, end=10)
    leader.update(state(replicas=(1, 2, 4), isr=(1, 2), partition_epoch=8))
    assert set(leader.followers) == {2, 4}
    assert leader.followers[2].end_offset == 9
    assert leader.followers[4].end_offset == -1


def test_a_proposal_names_who_had_caught_up_when_it_was_made():
    """A follower that comes back with nothing before the controller is asked is another one."""
    leader = leading(isr=(1, 2))
    leader.fetched(2, 10, 0, 102, 10, 0.0)
    leader.fetched(3, 10, 0, 103, 10, 0.0)
    proposal = leader.newcomer(3, lambda _: True)
    assert proposal is not None
    assert proposal.broker_epochs == {2: 102, 3: 103}
    leader.fetched(3, 0, 0, 203, 10, 1.0)
    assert proposal.broker_epochs == {2: 102, 3: 103}
    leader.refused()
    leader.fetched(3, 10, 0, 203, 10, 2.0)
    again = leader.newcomer(3, lambda _: True)
    assert again is not None
    assert again.broker_epochs == {2: 102, 3: 203}
