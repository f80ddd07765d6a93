"""Why did it rebalance? What is told of groups, and in which words."""

import json
from typing import Any

import pytest
from consumer_story import ConsumerStory
from group_story import Groups, subscription

from quorate.coordinator import events
from quorate.metadata.event import Event
from quorate.protocol.errors import ErrorCode


def last_start(groups: Groups) -> Any:
    return groups.told("RebalanceStarted")[-1]


def test_a_member_that_joins() -> None:
    groups = Groups()
    groups.started("a")
    groups.events.clear()
    b = groups.consumer("b")
    b.joins(reason="scaled up")
    (event,) = groups.events
    assert event == events.RebalanceStarted(
        group_id="g",
        generation=1,
        trigger="a member joined",
        state="Stable",
        members=2,
        member_id=b.member_id,
        instance_id=None,
        client_id="b",
        client_host="/host-of-b",
        reason="scaled up",
    )
    assert event.line() == (
        "Preparing to rebalance group g in state Stable with old generation 1: a member joined"
        " member=b-id2 client=b host=/host-of-b reason='scaled up' members=2"
    )


def test_a_generation_tells_how_long_it_took_and_who_is_missing() -> None:
    groups = Groups()
    a, b = groups.started("a", "b", session_ms=60_001)
    groups.events.clear()
    a.joins()
    groups.passes(60_000)
    removed, ended = groups.events[1:]
    assert (removed.kind, removed.member_id) == ("MemberRemoved", b.member_id)
    assert removed.check == "did not join again in time"
    assert (ended.generation, ended.duration_ms, ended.removed) == (2, 60_000, (b.member_id,))
    assert (ended.trigger, ended.leader) == ("the leader joined again", a.member_id)


def test_an_assignment() -> None:
    groups = Groups()
    a, _b = groups.consumer("a"), groups.consumer("b", instance_id="i")
    a.joins()
    _b.joins()
    groups.passes(6_000)
    groups.passes(250)
    a.syncs({a: b"all"})
    (stored,) = groups.told("AssignmentStored")
    assert (stored.members, stored.static_members, stored.without_assignment) == (2, 1, 1)
    assert stored.duration_ms == 250


@pytest.mark.parametrize(
    ("what", "trigger"),
    [
        ("leaves", "members left"),
        ("is silent", "a member missed its heartbeats"),
        ("changes", "a member changed its subscription"),
    ],
)
def test_who_did_it(what: str, trigger: str) -> None:
    groups = Groups()
    a, b = groups.started("a", "b")
    if what == "leaves":
        b.leaves(reason="the consumer is being closed")
    elif what == "changes":
        b.protocols = [("range", subscription("other"))]
        b.joins()
    else:
        groups.passes(9_000)
        a.beats()
        groups.passes(1_000)
    event = last_start(groups)
    assert (event.trigger, event.member_id, event.client_id) == (trigger, b.member_id, "b")


def test_a_twin_is_a_warning() -> None:
    groups = Groups()
    (a,) = groups.started("a", instance_id="i")
    again = a.restarts()
    again.joins()
    (fenced,) = groups.told("MemberFenced")
    assert (fenced.fenced_member_id, fenced.member_id) == (a.member_id, again.member_id)
    assert fenced.is_warning
    assert len(groups.told("RebalanceStarted")) == 1  # nobody noticed


def test_somebody_who_may_not_join() -> None:
    groups = Groups(group_max_size=1)
    groups.started("a")
    groups.consumer("b").joins()
    (refused,) = groups.told("MemberRefused")
    assert (refused.error, refused.client_id, refused.request) == ("GROUP_MAX_SIZE_REACHED", "b", "join")
    assert refused.line().startswith("Refused to let a member join group g: the group has 1 members")


def test_somebody_who_is_no_member_of_a_consumer_group() -> None:
    """What it is refused is what it asked for, which is not always to join."""
    story = ConsumerStory({"t": 1})
    story.member("a").joins("t")
    story.events.clear()
    for epoch in (0, 7, -1, -2, -9):
        stranger = story.member("b")
        stranger.sends(member_id="b", member_epoch=epoch, instance_id="i" if epoch == -2 else None)
    told = [event for event in story.events if isinstance(event, events.MemberRefused)]
    assert [event.request for event in told] == ["join", "heartbeat", "leave", "leave", "heartbeat"]
    assert [event.line().partition(" group g: ")[0] for event in told] == [
        "Refused to let a member join",
        "Refused a heartbeat to",
        "Refused to let a member leave",
        "Refused to let a member leave",
        "Refused a heartbeat to",
    ]


def test_a_refusal_that_was_noted_before_it_said_of_what() -> None:
    before = {"group_id": "g", "member_id": "m", "client_id": "c", "client_host": "/h"}
    assert events.MemberRefused(**before, error="E", reason="r").request == "join"
    later = events.MemberRefused(**before, error="E", reason="r", request="sync")
    assert later.line().startswith("Refused a sync to group g: r error=E")


def test_what_the_log_refused() -> None:
    groups = Groups()
    (a,) = groups.started("a")
    groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    a.commits(5)
    (refused,) = groups.told("GroupAppendRefused")
    assert refused.group_ids == ("g",)
    assert (refused.error, refused.answer) == ("NOT_ENOUGH_REPLICAS", "COORDINATOR_NOT_AVAILABLE")
    assert (refused.records, refused.offsets) == (1, 1)
    groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    a.leaves()
    group_itself = groups.told("GroupAppendRefused")[-1]
    assert (group_itself.records, group_itself.offsets) == (1, 0)


def test_what_is_forgotten() -> None:
    groups = Groups()
    groups.commits_offset(5)
    groups.passes(8 * 86_400_000)
    (expired,) = groups.told("OffsetsExpired")
    (deleted,) = groups.told("GroupDeleted")
    assert (expired.group_id, expired.offsets, deleted.group_id) == ("g", 1, "g")


def test_every_event_has_a_line_and_fits_into_json() -> None:
    groups = Groups()
    a, b = groups.started("a", "b", instance_id=None)
    c = groups.consumer("c", instance_id="i")
    c.joins()
    a.joins()
    b.joins()
    groups.settles(a, b, c)
    c.restarts().joins()
    groups.consumer("d", protocols=[]).joins()
    groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    a.commits(1)
    a.commits(1)
    b.leaves()
    groups.passes(8 * 86_400_000)
    groups.fails_over()
    groups.events += groups.shard.unload().events
    told = {event.kind for event in groups.events}
    assert told == set(events.__all__)
    for event in groups.events:
        assert isinstance(event, Event)
        assert event.line()
        assert "\n" not in event.line()
        json.dumps(event.to_json())
