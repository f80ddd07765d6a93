"""The states of a classic group: there is a way to every line of the table, and none besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from group_story import GROUP, Consumer, Groups, subscription

from quorate.coordinator import classic
from quorate.coordinator.classic import TRANSITIONS, ClassicGroup, State, TransitionError, Trigger
from quorate.coordinator.consumer_protocol import ConsumerProtocolAssignment
from quorate.coordinator.settings import GroupSettings
from quorate.protocol import codec
from quorate.protocol.errors import ErrorCode

PAGE = Path(__file__).parents[2] / "docs" / "groups.md"
NOTHING = b"\0\0" + bytes(codec.encode(ConsumerProtocolAssignment(assigned_partitions=[]), 0))


def run_to(state: State) -> tuple[Groups, Consumer, Consumer]:
    """A group in a state, with two members, of which the first leads and the second is static."""
    groups = Groups()
    groups.has_topics(t=2)
    a, b = groups.consumer("a"), groups.consumer("b", instance_id="i", session_ms=300_000)
    a.joins()
    b.joins()
    groups.passes(6_000)
    if state is State.COMPLETING:
        return groups, a, b
    a.syncs({a: NOTHING, b: NOTHING})
    b.syncs()
    if state is State.PREPARING:
        a.joins()
    elif state is State.EMPTY:
        a.leaves(b)
    return groups, a, b


def _joins(groups: Groups, _a: Consumer, _b: Consumer) -> None:
    groups.consumer("c").joins()


def _leaves(_groups: Groups, a: Consumer, _b: Consumer) -> None:
    a.leaves()


def _is_silent(groups: Groups, _a: Consumer, _b: Consumer) -> None:
    groups.passes(10_000)


def _changes(_groups: Groups, _a: Consumer, b: Consumer) -> None:
    b.protocols = [("range", subscription("t", "u"))]
    b.joins()


def _leads_again(_groups: Groups, a: Consumer, _b: Consumer) -> None:
    a.joins()


def _is_replaced(_groups: Groups, _a: Consumer, b: Consumer) -> None:
    b.restarts().joins()


def _is_replaced_by_another(groups: Groups, a: Consumer, b: Consumer) -> None:
    for one in (a, b):
        one.protocols = [("range", subscription("t")), ("sticky", subscription("t"))]
    a.joins()
    b.joins()
    groups.settles(a, b)
    again = b.restarts()
    again.protocols = [("sticky", subscription("t"))]
    again.joins()


def _does_not_sync(groups: Groups, a: Consumer, _b: Consumer) -> None:
    for _ in range(12):
        a.beats()
        groups.passes(5_000)


def _does_not_sync_though_stable(groups: Groups, a: Consumer, b: Consumer) -> None:
    a.joins()
    b.joins()
    a.syncs({a: b"", b: b""})
    _does_not_sync(groups, a, b)


def _cannot_store(groups: Groups, a: Consumer, _b: Consumer) -> None:
    groups.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    a.syncs()


def _is_too_large(groups: Groups, _a: Consumer, _b: Consumer) -> None:
    groups.settings = GroupSettings(group_max_size=1)
    groups.fails_over()


def _come_back(_groups: Groups, _a: Consumer, b: Consumer) -> None:
    b.joins()


def _all_leave(_groups: Groups, a: Consumer, b: Consumer) -> None:
    a.leaves(b)


def _assigns(_groups: Groups, a: Consumer, _b: Consumer) -> None:
    a.syncs()


def _is_deleted(groups: Groups, _a: Consumer, _b: Consumer) -> None:
    groups.deletes(GROUP)


def _is_upgraded(groups: Groups, _a: Consumer, _b: Consumer) -> None:
    assert groups.hears("m").code is ErrorCode.NONE


def _is_unloaded(groups: Groups, _a: Consumer, _b: Consumer) -> None:
    groups.fails_over()


WAYS: Mapping[tuple[State, Trigger], Callable[[Groups, Consumer, Consumer], None]] = {
    (State.EMPTY, Trigger.JOINED): _joins,
    (State.STABLE, Trigger.JOINED): _joins,
    (State.STABLE, Trigger.LEFT): _leaves,
    (State.STABLE, Trigger.EXPIRED): _is_silent,
    (State.STABLE, Trigger.CHANGED): _changes,
    (State.STABLE, Trigger.LEADER_REJOINED): _leads_again,
    (State.STABLE, Trigger.REPLACED): _is_replaced_by_another,
    (State.STABLE, Trigger.SYNC_OVERDUE): _does_not_sync_though_stable,
    (State.STABLE, Trigger.OVERSIZED): _is_too_large,
    (State.COMPLETING, Trigger.JOINED): _joins,
    (State.COMPLETING, Trigger.LEFT): _leaves,
    (State.COMPLETING, Trigger.EXPIRED): _is_silent,
    (State.COMPLETING, Trigger.CHANGED): _changes,
    (State.COMPLETING, Trigger.REPLACED): _is_replaced,
    (State.COMPLETING, Trigger.SYNC_OVERDUE): _does_not_sync,
    (State.COMPLETING, Trigger.NOT_STORED): _cannot_store,
    (State.COMPLETING, Trigger.ASSIGNED): _assigns,
    (State.PREPARING, Trigger.COMPLETE): _come_back,
    (State.PREPARING, Trigger.ABANDONED): _all_leave,
    (State.EMPTY, Trigger.DELETED): _is_deleted,
    (State.PREPARING, Trigger.UPGRADED): _is_upgraded,
    (State.COMPLETING, Trigger.UPGRADED): _is_upgraded,
    (State.STABLE, Trigger.UPGRADED): _is_upgraded,
    (State.EMPTY, Trigger.UNLOADED): _is_unloaded,
    (State.PREPARING, Trigger.UNLOADED): _is_unloaded,
    (State.COMPLETING, Trigger.UNLOADED): _is_unloaded,
    (State.STABLE, Trigger.UNLOADED): _is_unloaded,
}


def test_there_is_a_way_to_every_line_of_the_table() -> None:
    assert set(WAYS) == set(TRANSITIONS)
    assert {trigger for _, trigger in TRANSITIONS} == set(Trigger)


@pytest.mark.parametrize("line", TRANSITIONS, ids=lambda line: f"{line[0].name}-{line[1].name}")
def test_every_line_of_the_table(line: tuple[State, Trigger], monkeypatch: pytest.MonkeyPatch) -> None:
    state, trigger = line
    groups, a, b = run_to(state)
    group = groups.shard.classic_groups.get(GROUP)
    assert group is not None
    assert group.state is state
    moved: list[tuple[State, Trigger, State]] = []
    move = ClassicGroup.move

    def watched(self: ClassicGroup, trigger: Trigger, *rest: Any) -> None:
        before = self.state
        move(self, trigger, *rest)
        moved.append((before, trigger, self.state))

    monkeypatch.setattr(classic.ClassicGroup, "move", watched)
    WAYS[line](groups, a, b)
    assert (state, trigger, TRANSITIONS[line]) in moved


def test_what_is_not_in_the_table_is_an_error_with_both_names() -> None:
    group = ClassicGroup("g", 0)
    with pytest.raises(TransitionError, match="group g is Empty: the assignment is stored"):
        group.move(Trigger.ASSIGNED, 0)


def test_the_page_shows_the_table_as_it_is() -> None:
    lines = [
        "| state | what happens | next state |",
        "|---|---|---|",
        *(f"| {state} | {trigger} | {after} |" for (state, trigger), after in TRANSITIONS.items()),
    ]
    table = "\n".join(lines)
    assert table in PAGE.read_text(), f"the table in {PAGE.name} should be:\n{table}"


def test_the_page_draws_the_table_as_it_is() -> None:
    arrows: dict[tuple[State, State], list[str]] = {}
    for (state, trigger), after in TRANSITIONS.items():
        arrows.setdefault((state, after), []).append(str(trigger))
    drawing = "\n".join(
        ["stateDiagram-v2", "    [*] --> Empty"]
        + [f"    {state} --> {after}: {', '.join(why)}" for (state, after), why in arrows.items()]
        + ["    Dead --> [*]"]
    )
    assert drawing in PAGE.read_text(), f"the diagram in {PAGE.name} should be:\n{drawing}"
