"""Facts of a small story, as the tables would tell it: what the report is tried with without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from quorate.spark.report_facts import ClusterFacts, Some

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def some(*rows: dict[str, Any]) -> Some:
    return Some(list(rows), len(rows))


def state(broker_id: int, name: str, start: float, end: float | None, epoch: int = 5) -> dict[str, Any]:
    return {"broker_id": broker_id, "broker_epoch": epoch, "state": name, **_span(start, end)}


def term(controller_id: int | None, epoch: int, start: float, end: float | None) -> dict[str, Any]:
    return {"controller_id": controller_id, "epoch": epoch, **_span(start, end)}


def _span(start: float, end: float | None) -> dict[str, Any]:
    return {
        "start_ts": at(start),
        "end_ts": None if end is None else at(end),
        "end_offset": None if end is None else 1,
        "is_start_known": True,
    }


def topic(name: str, partitions: int, leaderless_ms: int, under_ms: int, observed_ms: int) -> dict[str, Any]:
    return {
        "topic": name,
        "topic_id": "id",
        "partitions": partitions,
        "leaderless_ms": leaderless_ms,
        "under_min_isr_ms": under_ms,
        "leaderless_count": 1 if leaderless_ms else 0,
        "leaderless_share": leaderless_ms / observed_ms,
        "under_min_isr_share": under_ms / observed_ms,
    }


def failover(broker_id: int, ts: float, cause: str, **more: Any) -> dict[str, Any]:
    columns = ("detection_ms", "election_ms", "leaderless_ms_max", "outage_ms")
    nothing = dict.fromkeys(columns)
    counts = {"partitions_moved": 0, "partitions_leaderless": 0}
    return {"broker_id": broker_id, "ts": at(ts), "cause": cause, **nothing, **counts, **more}


def step(number: int, broker_id: int, left: float, **more: Any) -> dict[str, Any]:
    return {
        "restart": 1,
        "step": number,
        "broker_id": broker_id,
        "left_ts": at(left),
        "downtime_ms": 4200,
        "was_controlled": True,
        "did_leadership_move_first": True,
        "leaderships_lost": 0,
        "was_isr_whole_before_next": True,
        "under_replicated_before_next": 0,
        "is_good": True,
        **more,
    }


def rebalance(group_id: str, generation: int, end: float, **more: Any) -> dict[str, Any]:
    names = ("trigger", "reason", "client_id", "member_id", "member_count", "duration_ms", "is_storm")
    return {"group_id": group_id, "generation": generation, "end_ts": at(end), **dict.fromkeys(names), **more}


def incident(ts: float, end: float | None, kind: str, text: str) -> dict[str, Any]:
    return {"ts": at(ts), "end_ts": None if end is None else at(end), "kind": kind, "text": text}


def story(**changed: Any) -> ClusterFacts:
    """Broker 2 is killed and comes back; controller 101 is killed; the brokers are restarted in turn."""
    facts: dict[str, Any] = {
        "states": some(
            *(state(one, "unfenced", 0, 240 + 20 * one) for one in (1, 3)),
            state(2, "unfenced", 0, 67),
            state(2, "fenced", 67, 121),
            state(2, "unfenced", 121, 280, 41),
            *(state(one, "shutting_down", 240 + 20 * one, 243 + 20 * one) for one in (1, 2, 3)),
            *(state(one, "fenced", 243 + 20 * one, 246 + 20 * one) for one in (1, 2, 3)),
            *(state(one, "unfenced", 246 + 20 * one, None, 60 + one) for one in (1, 2, 3)),
        ),
        "terms": some(term(101, 1, 0, 180), term(102, 2, 181.3, None)),
        "whole": {"leaderless_share": 0.00012},
        "topics": some(
            topic("orders", 12, 3600, 54_000, 12 * 360_000),
            topic("payments.with-a-rather-long-name.and-more", 3, 0, 9_000, 3 * 360_000),
            topic("__consumer_offsets", 4, 0, 0, 4 * 360_000),
        ),
        "failovers": some(
            failover(
                2,
                67,
                "fenced",
                detection_ms=9000,
                election_ms=12,
                partitions_moved=412,
                partitions_leaderless=3,
                leaderless_ms_max=1200,
                outage_ms=54_000,
            ),
            *(
                failover(
                    one,
                    240 + 20 * one,
                    "controlled shutdown",
                    election_ms=0,
                    partitions_moved=6,
                    outage_ms=6000,
                )
                for one in (1, 2, 3)
            ),
        ),
        "flapping": some({"broker_id": 2, "fence_count": 1, "is_flapping": False}),
        "restarts": some(
            step(1, 1, 260),
            step(2, 2, 280, was_isr_whole_before_next=False, under_replicated_before_next=4, is_good=False),
            step(3, 3, 300, was_isr_whole_before_next=None),
        ),
        "restarts_good": 2,
        "balance": some(
            *(
                {
                    "broker_id": one,
                    "replica_count": 19,
                    "leader_count": 6 + one % 2,
                    "leader_share": (6 + one % 2) / 19,
                    "preferred_led_count": 6,
                    "preferred_count": 7,
                }
                for one in (1, 2, 3)
            )
        ),
        "rebalances": some(
            rebalance(
                "bills", 1, 20, trigger="member joined", client_id="app-1", member_count=1, duration_ms=30
            ),
            rebalance(
                "bills", 2, 70, trigger="member left", reason="poll timeout", member_count=1, is_storm=True
            ),
        ),
        "storms": 1,
        "lag": some(
            {
                "group_id": "bills",
                "topic": "orders",
                "partitions": 12,
                "lag": 1234,
                "lag_ms": 5600,
                "ts": at(350),
            }
        ),
        "incidents": some(
            incident(
                67,
                121,
                "broker left",
                "broker 2 was fenced at 12:01:07 after 9.0 s without a heartbeat; 412 partitions moved;"
                " 3 were leaderless for 1.2 s",
            ),
            incident(67, 68.2, "unavailable", "3 partitions of orders had no leader for 1.2 s"),
            incident(181.3, None, "controller changed", "controller 102 took over from 101 in epoch 2"),
        ),
        **changed,
    }
    return ClusterFacts("M5K2h8dYR1W0pXoQ7fZtUg", at(0), at(360), 1234, 0, **facts)
