"""Subscriptions by regular expression.

An expression is checked when a member brings it, and looked up a moment later, as a step of its own: all
those of the group together, so that the group is assigned anew only once. Until then it matches nothing. It
is looked up again when topics were created, and every `group.consumer.regex.refresh.interval.ms`, but not
more often than every ten seconds. What it matched is in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quorate.coordinator import consumer_records as records
from quorate.coordinator.consumer_group import (
    TOPICS_CHANGED,
    ConsumerGroup,
    Surroundings,
    next_epoch,
)
from quorate.coordinator.consumer_members import Member
from quorate.coordinator.effects import Caller, LogRecord
from quorate.coordinator.step import Step, TimerKind
from quorate.coordinator.topic_regex import check_expression, resolve_expressions
from quorate.coordinator.topics_view import metadata_hash
from quorate.values import dataclass

__all__ = ["REFRESH_MIN_INTERVAL_MS", "Noted", "note_expression", "resolve"]

REFRESH_MIN_INTERVAL_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Noted:
    """What a member's expression leads to."""

    records: Sequence[LogRecord]
    changed: bool
    matters: bool
    """The group must be assigned anew at once, since it is known what the member now subscribes to."""


_NOTHING: Final = Noted((), changed=False, matters=False)


def note_expression(
    group: ConsumerGroup, member: Member, says: Member, caller: Caller, around: Surroundings, step: Step
) -> Noted:
    """Notes the expression that a member brings, if it does, and has expressions looked up if that is due."""
    state, old, new = group.state, member.regex, says.regex
    if old is None and new is None and not state.regex_counts:
        return _NOTHING  # most groups have no expressions
    written: list[LogRecord] = []
    matters = False
    used = set(state.regex_counts)
    if old != new:
        if old is not None and state.regex_counts[old] == 1:
            written.append(records.regex_tombstone(state.group_id, old))
            used.discard(old)
        if new is None:
            matters = True
        elif state.regex_counts[new] == 0:
            check_expression(new)
        else:
            matters = new in state.regexes
    if new is not None:
        used.add(new)
    if used and group.resolver is None and _is_due(group, used, around, step):
        group.resolver = (says.member_id, caller)
        step.set_timer(group.timer(TimerKind.EXPRESSIONS), 0)
    return Noted(written, old != new, matters)


def _is_due(group: ConsumerGroup, used: set[str], around: Surroundings, step: Step) -> bool:
    last_ms, version = group.state.last_resolution()
    since_ms = step.wall_ms - last_ms
    if 0 <= since_ms <= REFRESH_MIN_INTERVAL_MS:
        return False
    return (
        any(expression not in group.state.regexes for expression in used)
        or version < around.topics.version
        or since_ms > around.rules.regex_refresh_interval_ms
    )


def resolve(group: ConsumerGroup, around: Surroundings, step: Step) -> None:
    """Looks all expressions of the group up, with the rights of the member whose heartbeat asked for it."""
    state, resolver = group.state, group.resolver
    group.resolver = None
    if resolver is None or not state.regex_counts:
        return
    member_id, caller = resolver
    matched = resolve_expressions(sorted(state.regex_counts), around.topics.names())
    named = frozenset[str]().union(*matched.values())
    hidden = {name for name in named if not around.may_describe(caller, name)}
    wanted = set(state.name_counts)
    trigger, whose = None, state.members.get(member_id)
    for expression, found in matched.items():
        topics = found - hidden
        known = state.regexes.get(expression)
        if topics != (frozenset() if known is None else known.topics):
            trigger = "a regular expression matches other topics"
        wanted |= topics
        step.records.append(
            records.resolved_regex(state.group_id, expression, topics, around.topics.version, step.wall_ms)
        )
    found_hash = metadata_hash(wanted, around.topics)
    if trigger is None and found_hash != state.metadata_hash:
        trigger, whose = TOPICS_CHANGED, None
    if trigger is not None:
        step.records.append(next_epoch(group, found_hash, trigger, whose, step))
        group.refreshed(state.epoch + 1)
