"""The sections of the report, each from the facts of one cluster."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from quorate.spark.report_chart import Axis, Bar, Lane, axis_of, chart
from quorate.spark.report_facts import ClusterFacts, Some
from quorate.spark.report_page import Column, Table, Tile, legend, section, table, tiles
from quorate.spark.report_words import counted, duration, escaped, moment, share

__all__ = ["cluster_part"]

Row = Mapping[str, Any]
_WORST_SHARE = 0.999


def cluster_part(facts: ClusterFacts) -> str:
    """All that is said of one cluster."""
    return "".join(
        (
            _head(facts),
            _tiles(facts),
            _incidents(facts),
            _chart(facts),
            _availability(facts.topics),
            _failovers(facts),
            _restarts(facts),
            _rebalances(facts),
            _lag(facts.lag) if facts.lag.rows else "",
            _balance(facts.balance),
            _problems(facts.problems) if facts.problems.rows else "",
        )
    )


def _head(facts: ClusterFacts) -> str:
    span = "" if facts.start is None else f"{moment(facts.start)[:19]} to {moment(facts.end)[:19]} UTC, "
    unproven = f", {facts.unconfirmed:,} of them not proven to be committed" if facts.unconfirmed else ""
    said = f"{span}{counted(facts.records, 'record')} of the metadata log{unproven}."
    return f'<h1>Cluster <span class="id">{escaped(facts.cluster_id)}</span></h1><p class="lead">{said}</p>'


def _tiles(facts: ClusterFacts) -> str:
    led = None if not facts.whole else 1 - (facts.whole.get("leaderless_share") or 0.0)
    worst = [one["leaderless_ms_max"] for one in facts.failovers.rows if one["leaderless_ms_max"]]
    shown = [Tile(share(led) or "?", "of the time partitions had a leader", _mood_of_share(led))]
    uncontrolled = sum(1 for one in facts.failovers.rows if one["cause"] != "controlled shutdown")
    shown.append(
        Tile(
            str(facts.failovers.total), f"departures of brokers, {uncontrolled} unasked", _warn(uncontrolled)
        )
    )
    if worst:
        shown.append(Tile(duration(max(worst)), "the longest that a partition had no leader", "bad"))
    if facts.restarts.total:
        is_all_good = facts.restarts_good == facts.restarts.total
        judged = f"{facts.restarts_good} of {facts.restarts.total}"
        shown.append(
            Tile(judged, "steps of rolling restarts as they should be", "good" if is_all_good else "warn")
        )
    shown.append(Tile(str(facts.terms.total), "terms of controllers"))
    if facts.rebalances.total:
        storms = f", {facts.storms} in storms" if facts.storms else ""
        shown.append(Tile(f"{facts.rebalances.total:,}", f"rebalances{storms}", _warn(facts.storms)))
    return tiles(shown)


def _incidents(facts: ClusterFacts) -> str:
    rows = [
        (moment(one["ts"])[:23], duration(_between(one["ts"], one["end_ts"])), one["text"] or one["kind"])
        for one in facts.incidents.rows
    ]
    columns = Column("when (UTC)", "time"), Column("lasted", "number"), Column("what happened", "words")
    shown = Table(columns, rows, facts.incidents.total, "Nothing happened that is worth a line.")
    return section("Incidents", "In the order in which they happened.", table(shown))


# The chart


def _chart(facts: ClusterFacts) -> str:
    times = [facts.start, facts.end]
    times += [
        one[name]
        for some in (facts.states, facts.terms)
        for one in some.rows
        for name in ("start_ts", "end_ts")
    ]
    axis = axis_of(time for time in times if time is not None)
    if axis is None:
        return ""
    lanes = [*_broker_lanes(facts, axis), *_controller_lanes(facts, axis)]
    unavailable = _unavailable_lane(facts, axis)
    if unavailable.bars:
        lanes.append(unavailable)
    left = [
        f"{some.total - len(some.rows):,} older {what}"
        for some, what in ((facts.states, "states of brokers"), (facts.terms, "terms"))
        if some.total > len(some.rows)
    ]
    note = f'<p class="note">Not shown: {" and ".join(left)}.</p>' if left else ""
    colours = legend(
        [
            ("unfenced", "serving"),
            ("fenced", "fenced"),
            ("shutting_down", "shutting down"),
            ("leads", "active controller, with its epoch"),
            *([("leaderless", "partitions without a leader")] if unavailable.bars else []),
        ]
    )
    drawn = chart(lanes, axis, "States of brokers and terms of controllers over time")
    day = moment(axis.start)[:10]
    return section("Brokers and controllers", f"Times are UTC, from {day}.", colours + drawn + note)


def _broker_lanes(facts: ClusterFacts, axis: Axis) -> list[Lane]:
    bars: dict[int, list[Bar]] = {}
    for one in facts.states.rows:
        words = str(one["state"]).replace("_", " ")
        title = f"broker {one['broker_id']}, epoch {one['broker_epoch']}: {words} {_from_to(one)}"
        bars.setdefault(one["broker_id"], []).append(_bar(one, axis, one["state"], "", title))
    return [Lane(f"broker {broker_id}", tuple(bars[broker_id])) for broker_id in sorted(bars)]


def _controller_lanes(facts: ClusterFacts, axis: Axis) -> list[Lane]:
    bars: dict[int, list[Bar]] = {}
    for one in facts.terms.rows:
        known = one["controller_id"] is not None
        controller_id = one["controller_id"] if known else -1
        title = f"controller {controller_id if known else 'unknown'}, epoch {one['epoch']} {_from_to(one)}"
        bars.setdefault(controller_id, []).append(
            _bar(one, axis, "leads" if known else "other", str(one["epoch"]), title)
        )
    return [
        Lane(f"controller {number}" if number >= 0 else "controller ?", tuple(bars[number]))
        for number in sorted(bars)
    ]


def _unavailable_lane(facts: ClusterFacts, axis: Axis) -> Lane:
    found = [one for one in facts.incidents.rows if one["kind"] == "unavailable" and one["ts"] is not None]
    bars = [
        Bar(one["ts"], one["end_ts"] or axis.end, "leaderless", "", str(one["text"]), one["end_ts"] is None)
        for one in found
    ]
    return Lane("no leader", tuple(bars))


def _bar(one: Row, axis: Axis, state: str, label: str, title: str) -> Bar:
    start = one["start_ts"] or axis.start
    # Clocks step back: what seems to end before it began is drawn as a moment.
    end = max(one["end_ts"] or axis.end, start) if one["end_offset"] is not None else max(axis.end, start)
    return Bar(start, end, state, label, title, one["end_offset"] is None)


def _from_to(one: Row) -> str:
    began = f"from {moment(one['start_ts'])}" if one["is_start_known"] else "from before the log begins"
    ended = "and still is" if one["end_offset"] is None else f"to {moment(one['end_ts'])}"
    lasted = duration(_between(one["start_ts"], one["end_ts"]))
    return f"{began} {ended}" + (f", {lasted}" if lasted else "")


# Tables


def _availability(topics: Some) -> str:
    rows = [
        (
            one["topic"] or one["topic_id"] or "",
            f"{one['partitions']:,}",
            _judged_share(one["leaderless_share"]),
            duration(one["leaderless_ms"]),
            f"{one['leaderless_count']:,}",
            _judged_share(one["under_min_isr_share"]),
            duration(one["under_min_isr_ms"]),
        )
        for one in topics.rows
    ]
    columns = (
        Column("topic"),
        Column("partitions", "number"),
        Column("led", "number"),
        Column("without leader", "number"),
        Column("times", "number"),
        Column("enough in sync", "number"),
        Column("too few in sync", "number"),
    )
    lead = "The worst first. Times are added up over the partitions of a topic."
    return section("Availability by topic", lead, table(Table(columns, rows, topics.total, "No topics.")))


def _failovers(facts: ClusterFacts) -> str:
    rows = [
        (
            moment(one["ts"]),
            str(one["broker_id"]),
            one["cause"] if one["cause"] == "controlled shutdown" else f"!warn {one['cause']}",
            duration(one["detection_ms"]),
            duration(one["election_ms"]),
            f"{one['partitions_moved']:,}",
            f"!bad {one['partitions_leaderless']:,}" if one["partitions_leaderless"] else "0",
            duration(one["leaderless_ms_max"]),
            duration(one["outage_ms"]) or "still away",
        )
        for one in facts.failovers.rows
    ]
    columns = (
        Column("when (UTC)", "time"),
        Column("broker", "number"),
        Column("cause"),
        Column("noticed after", "number"),
        Column("elected in", "number"),
        Column("moved", "number"),
        Column("leaderless", "number"),
        Column("for at most", "number"),
        Column("away for", "number"),
    )
    often = [
        f"broker {one['broker_id']} ({counted(one['fence_count'], 'time')})"
        for one in facts.flapping.rows
        if one["is_flapping"]
    ]
    lead = "Each time that a broker left, and what became of its partitions."
    lead += f" Comes and goes: {', '.join(often)}." if often else ""
    return section(
        "Failovers", lead, table(Table(columns, rows, facts.failovers.total, "No broker ever left."))
    )


def _restarts(facts: ClusterFacts) -> str:
    rows = [
        (
            f"{one['restart']}.{one['step']}",
            moment(one["left_ts"]),
            str(one["broker_id"]),
            duration(one["downtime_ms"]),
            _judged(one["was_controlled"], "yes", "no"),
            _judged(one["did_leadership_move_first"], "yes", f"no, {one['leaderships_lost']} lost"),
            _judged(
                one["was_isr_whole_before_next"], "yes", f"no, {one['under_replicated_before_next']} were not"
            ),
            _judged(one["is_good"], "good", "not good"),
        )
        for one in facts.restarts.rows
    ]
    columns = (
        Column("step"),
        Column("left (UTC)", "time"),
        Column("broker", "number"),
        Column("away for", "number"),
        Column("asked to go"),
        Column("gave leadership away first"),
        Column("all in sync before the next"),
        Column("verdict"),
    )
    lead = "Brokers that went and came back one after the other, and whether it was done as it should be."
    shown = Table(columns, rows, facts.restarts.total, "No rolling restart was found.")
    return section("Rolling restarts", lead, table(shown))


def _rebalances(facts: ClusterFacts) -> str:
    rows = [
        (
            moment(one["end_ts"]),
            one["group_id"] or "",
            "" if one["generation"] is None else str(one["generation"]),
            _trigger(one),
            one["client_id"] or one["member_id"] or "",
            "" if one["member_count"] is None else str(one["member_count"]),
            duration(one["duration_ms"]),
            "!bad storm" if one["is_storm"] else "",
        )
        for one in facts.rebalances.rows
    ]
    columns = (
        Column("when (UTC)", "time"),
        Column("group"),
        Column("generation", "number"),
        Column("set off by"),
        Column("member"),
        Column("members", "number"),
        Column("took", "number"),
        Column("part of a"),
    )
    lead = "What a log does not know, such as who set it off, is left empty."
    shown = Table(columns, rows, facts.rebalances.total, "No group was rebalanced.")
    return section("Rebalances", lead, table(shown))


def _lag(lag: Some) -> str:
    rows = [
        (
            one["group_id"] or "",
            one["topic"] or "",
            f"{one['partitions']:,}",
            f"{one['lag']:,}" if one["lag"] is not None else "",
            duration(one["lag_ms"]),
            moment(one["ts"])[:19],
        )
        for one in lag.rows
    ]
    columns = (
        Column("group"),
        Column("topic"),
        Column("partitions", "number"),
        Column("records behind", "number"),
        Column("time behind", "number"),
        Column("as of (UTC)", "time"),
    )
    return section("Lag of groups", "When it was last looked at.", table(Table(columns, rows, lag.total)))


def _balance(balance: Some) -> str:
    rows = [
        (
            str(one["broker_id"]),
            f"{one['replica_count']:,}",
            f"{one['leader_count']:,}",
            "" if one["leader_share"] is None else f"{one['leader_share']:.1%}",
            f"{one['preferred_led_count']:,} of {one['preferred_count']:,}",
        )
        for one in balance.rows
    ]
    columns = (
        Column("broker", "number"),
        Column("replicas", "number"),
        Column("leads", "number"),
        Column("share of all", "number"),
        Column("of those it should lead", "number"),
    )
    lead = "Who leads how much, at the end."
    return section("Balance", lead, table(Table(columns, rows, balance.total, "No partitions.")))


def _problems(problems: Some) -> str:
    rows = [
        (one["kind"], one["source"], "" if one["offset"] is None else str(one["offset"]), one["text"])
        for one in problems.rows
    ]
    columns = Column("kind"), Column("where"), Column("offset", "number"), Column("what", "words")
    lead = "What could not be read, or does not fit together. Everything else was read."
    return section("Problems with the input", lead, table(Table(columns, rows, problems.total)))


# Words


def _between(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start).total_seconds() * 1000


def _judged(verdict: bool | None, good: str, bad: str) -> str:
    return "" if verdict is None else f"!good {good}" if verdict else f"!bad {bad}"


def _judged_share(lost: float | None) -> str:
    kept = 1 - (lost or 0.0)
    text = share(kept)
    return text if kept == 1 else f"!warn {text}" if kept >= _WORST_SHARE else f"!bad {text}"


def _mood_of_share(kept: float | None) -> str:
    return "" if kept is None else "good" if kept == 1 else "warn" if kept >= _WORST_SHARE else "bad"


def _warn(count: int) -> str:
    return "warn" if count else ""


def _trigger(one: Row) -> str:
    said = str(one["trigger"] or "")
    reason = one["reason"]
    return f"{said} ({reason})" if said and reason else said or str(reason or "")
