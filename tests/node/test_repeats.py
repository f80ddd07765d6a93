"""What repeats itself is told once in a while, and counted every time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from quorate.controller.events import Event, HeartbeatTimedOut, RequestTimedOut
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
