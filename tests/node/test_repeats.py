"""What repeats itself is told once in a while, and counted every time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.controller.events import BrokerUnfenced, Event, HeartbeatTimedOut, RequestTimedOut
from quorate.coordinator.events import GroupAppendRefused, MemberRefused, MemberRemoved, RebalanceStarted
from quorate.node import repeats
from quorate.node.account import Account
from quorate.node.event_journal import EventJournal
from quorate.node.host import real_host
from quorate.node.metrics import NodeMetrics
from quorate.node.repeats import EVERY_S, Repeats
from quorate.protocol.types import Uuid


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def late(broker_id: int = 1, epoch: int = 5) -> HeartbeatTimedOut:
    return HeartbeatTimedOut(broker_id, epoch, 3000)


def test_one_is_told_for_all_that_come_soon_after_it():
    clock = Clock()
    seen = Repeats(clock)
    assert seen.untold(late()) == 0
    for _ in range(7):
        clock.now_s += 1
        assert seen.untold(late()) is None
    clock.now_s += EVERY_S
    assert seen.untold(late()) == 7
    assert seen.untold(late()) is None
    clock.now_s += EVERY_S
    assert seen.untold(late()) == 1


def test_others_are_told():
    seen = Repeats(Clock())
    others: list[Event] = [late(), late(broker_id=2), late(epoch=6), RequestTimedOut("A", 1, 2)]
    assert [seen.untold(one) for one in [*others, RequestTimedOut("B", 1, 2)]] == [0] * 5
    assert [seen.untold(one) for one in others] == [None] * 4


def refused(
    group_id: str = "g", error: str = "GROUP_MAX_SIZE_REACHED", request: str = "join", member_id: str = "m"
) -> MemberRefused:
    return MemberRefused(
        group_id=group_id,
        member_id=member_id,
        client_id="c",
        client_host="/h",
        error=error,
        reason="it is full",
        request=request,
    )


def not_appended(*group_ids: str, offsets: int = 1) -> GroupAppendRefused:
    return GroupAppendRefused(
        group_ids=group_ids,
        records=1,
        error="NOT_ENOUGH_REPLICAS",
        answer="COORDINATOR_NOT_AVAILABLE",
        offsets=offsets,
    )


def test_one_refusal_stands_for_those_of_the_same_group_for_the_same_reason():
    seen = Repeats(Clock())
    told = [
        refused(),
        refused("h"),
        refused(error="FENCED_MEMBER_EPOCH", request="heartbeat"),
        refused(error="FENCED_MEMBER_EPOCH", request="leave"),
        not_appended("g"),
        not_appended("g", "h"),
    ]
    assert [seen.untold(one) for one in told] == [0] * 6
    assert [seen.untold(one) for one in [*told, refused(member_id="another")]] == [None] * 7


def test_what_explains_a_rebalance_is_always_told():
    seen = Repeats(Clock())
    started = RebalanceStarted(group_id="g", generation=1, trigger="t", state="Stable", members=1)
    removed = MemberRemoved(
        group_id="g",
        generation=1,
        member_id="m",
        instance_id=None,
        client_id="c",
        client_host="/h",
        check="left",
        session_timeout_ms=1,
    )
    for one in (started, removed, not_appended("g", offsets=0)) * 3:
        assert seen.untold(one) == 0


def test_groups_that_are_not_there_are_not_told_apart():
    clock = Clock()
    seen = Repeats(clock)
    made_up = [refused(f"g{n}", error="GROUP_ID_NOT_FOUND", request="heartbeat") for n in range(5000)]
    assert [seen.untold(one) for one in made_up] == [0] + [None] * 4999
    assert seen.untold(refused(error="GROUP_ID_NOT_FOUND", request="leave")) == 0
    assert seen.untold(refused("there")) == 0, "they are not in the way of others"
    clock.now_s += EVERY_S
    assert seen.untold(made_up[7]) == 4999


@pytest.mark.parametrize("make", [refused, not_appended])
def test_only_so_many_groups_are_told_apart(make: Callable[[str], Event]):
    clock = Clock()
    seen = Repeats(clock)
    told = [seen.untold(make(f"g{number}")) for number in range(5000)]
    assert told == [0] * (repeats.GROUPS_MAX + 1) + [None] * (4999 - repeats.GROUPS_MAX)
    clock.now_s += EVERY_S - 1
    assert seen.untold(make("g0")) is None
    assert seen.untold(make("another")) is None, "for which another stands"
    clock.now_s += 1
    assert seen.untold(make("g0")) == 1
    told = [seen.untold(make(f"h{number}")) for number in range(5000)]
    assert [one for one in told if one is not None] == [0] * (repeats.GROUPS_MAX - 1) + [
        5000 - repeats.GROUPS_MAX
    ], "one says how many of all the rest were not told"


def test_names_that_clients_chose_are_not_remembered():
    """They may be long."""
    seen = Repeats(Clock())
    seen.untold(refused("g" * 30_000))
    assert [type(key) for key in seen._told] == [int]


def test_there_is_a_limit_to_what_is_remembered(monkeypatch):
    monkeypatch.setattr(repeats, "KNOWN_MAX", 3)
    seen = Repeats(Clock())
    for broker_id in range(10):
        assert seen.untold(late(broker_id)) == 0
    assert len(seen._told) == 3
    assert seen.untold(late(9)) is None


def test_an_overload_does_not_fill_the_journal(tmp_path: Path):
    async def scenario() -> None:
        host = real_host("1")
        journal = EventJournal(host, str(tmp_path), 1, Uuid(b"i" * 16))
        metrics = NodeMetrics()
        account = Account(host, journal, metrics)
        account.saw([late() for _ in range(1000)])
        journal.flush()
        lines = [
            json.loads(line) for path in tmp_path.rglob("*.jsonl") for line in path.read_text().splitlines()
        ]
        assert [line["kind"] for line in lines].count(late().kind) == 1
        assert metrics.heartbeats_timed_out == 1000

    asyncio.run(scenario())


def test_members_that_are_refused_do_not_fill_the_journal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    clock = Clock()

    async def scenario() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", clock)
        journal = EventJournal(real_host("1"), str(tmp_path), 1, Uuid(b"i" * 16))
        metrics = NodeMetrics()
        account = Account(real_host("1"), journal, metrics)
        account.saw([BrokerUnfenced(2, 5, 10, 9, 0)])
        account.saw([refused(member_id=str(number)) for number in range(10_000)])
        clock.now_s += EVERY_S
        account.saw([refused(member_id="last")])
        kinds = [event["kind"] for event in journal.read()]
        assert kinds == ["BrokerUnfenced", "MemberRefused", "MemberRefused"]
        assert [event.get("untold") for event in journal.read()] == [None, None, 9_999]
        assert metrics.events[("MemberRefused", "")] == 10_001

    asyncio.run(scenario())
    assert len(caplog.records) <= 3
    assert caplog.messages[-1].endswith(" member=last client=c host=/h untold=9999")
