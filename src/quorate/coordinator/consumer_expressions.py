"""Subscriptions by regular expression.

An expression is checked when a member brings it, and looked up a moment later: all those of the group
together, so that the group is assigned anew only once. Until then it matches nothing. It is looked up again
when topics were created, and every `group.consumer.regex.refresh.interval.ms`, but not more often than every
ten seconds. What it matched is in the log.

Looking up is done in parts (see `topic_matches`), because there may be many topics. Members may come and go
in between, with other expressions, and topics be created and deleted: what counts is what is there at the
last part. If the coordinator goes, so does what was found so far, and the next heartbeat to another one has
it looked up there.
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
from quorate.coordinator.consumer_resolution import Resolution
from quorate.coordinator.effects import Caller, LogRecord
from quorate.coordinator.events import GroupAppendRefused
from quorate.coordinator.refusals import storage_error
from quorate.coordinator.step import AGAIN_MIN_MS, Step
from quorate.coordinator.topic_matches import Allowance
from quorate.coordinator.topic_regex import check_expression
from quorate.coordinator.topics_view import metadata_hash
from quorate.protocol.errors import ErrorCode
from quorate.values import dataclass

__all__ = ["MATCHED_MAX", "REFRESH_MIN_INTERVAL_MS", "Noted", "note_expression", "resolve"]

REFRESH_MIN_INTERVAL_MS: Final = 10_000
MATCHED_MAX: Final = 100_000
"""So many topics may be matched by all expressions of a group together. As many fit into no batch of the log
by far, and to write them down would hold up the loop."""


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
    if used and group.resolution is None and _is_due(group, used, around, step):
        group.resolution = Resolution(says.member_id, caller)
        around.resolve_soon(state.group_id)
    return Noted(written, old != new, matters)


def _is_due(group: ConsumerGroup, used: set[str], around: Surroundings, step: Step) -> bool:
    last_ms, version = group.state.last_resolution()
    since_ms = step.wall_ms - last_ms
    if 0 <= since_ms <= REFRESH_MIN_INTERVAL_MS or step.now_ms < group.resolve_again_ms:
        return False
    return (
        any(expression not in group.state.regexes for expression in used)
        or version < around.topics.version
        or since_ms > around.rules.regex_refresh_interval_ms
    )


def resolve(group: ConsumerGroup, around: Surroundings, allowance: Allowance, step: Step) -> None:
    """Goes on with looking up all expressions of the group; at the last part, notes what they match."""
    state, resolution = group.state, group.resolution
    if resolution is None:
        return
    expressions = sorted(state.regex_counts)
    if expressions and not resolution.go_on(expressions, around, allowance):
        return
    group.resolution = None
    if not expressions:
        return
    if resolution.count > MATCHED_MAX:
        group.resolve_again_ms = step.now_ms + REFRESH_MIN_INTERVAL_MS
        error = ErrorCode.MESSAGE_TOO_LARGE
        told = storage_error(error)
        step.tell(GroupAppendRefused((group.group_id,), len(expressions), error.name, told.name))
        return
    group.resolve_again_ms = step.now_ms + AGAIN_MIN_MS  # if the log refuses it; what it takes says when
    wanted = set(state.name_counts)
    trigger, whose = None, state.members.get(resolution.member_id)
    for expression, topics in resolution.topics().items():
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
