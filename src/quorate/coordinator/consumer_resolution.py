"""One look at all expressions of a group, in parts: see `consumer_expressions`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from quorate.coordinator.consumer_group import Surroundings
from quorate.coordinator.effects import Caller
from quorate.coordinator.topic_matches import Allowance, Matches

__all__ = ["Resolution"]

_JUDGING_STEPS: Final = 5_000  # for a topic: the rights to it are looked up, and its hash is computed


class Resolution:
    """With the rights of the member whose heartbeat asked for it, be it still there or not."""

    __slots__ = ("_caller", "_found", "_to_judge", "_visible", "member_id")

    def __init__(self, member_id: str, caller: Caller) -> None:
        self.member_id = member_id
        self._caller = caller
        self._found: dict[str, Matches] = {}
        self._to_judge: Iterator[str] = iter(())
        self._visible: dict[str, bool] = {}

    def go_on(self, expressions: Collection[str], around: Surroundings, allowance: Allowance) -> bool:
        """Takes as many steps as are allowed, but at least one. Whether everything is found now."""
        for gone in self._found.keys() - expressions:
            del self._found[gone]
        for expression in expressions:
            found = around.matches.of(expression, self._found.get(expression))
            self._found[expression] = found
            while not found.is_complete:
                if allowance.is_spent:
                    return False
                found.go_on(allowance)
        return self._judge(around, allowance)

    @property
    def count(self) -> int:
        """How many topics all expressions match, each by itself."""
        return sum(found.count for found in self._found.values())

    def topics(self) -> dict[str, frozenset[str]]:
        """What each expression matches, once everything is found."""
        visible = self._visible
        return {
            expression: frozenset(name for name in found.names() if visible[name])
            for expression, found in self._found.items()
        }

    def _judge(self, around: Surroundings, allowance: Allowance) -> bool:
        """Of the topics that match, looks at those that were not looked at yet."""
        while True:
            for name in self._to_judge:
                self._visible[name] = around.may_describe(self._caller, name)
                if (topic := around.topics.by_name(name)) is not None:
                    _ = topic.hash  # which is remembered; the group's own is made of them
                allowance.spend(_JUDGING_STEPS)
                if allowance.is_spent:
                    return False
            found = dict.fromkeys(name for one in self._found.values() for name in one.names())
            new = [name for name in found if name not in self._visible]
            if not new:
                return True
            self._to_judge = iter(new)
