"""Which topics expressions mean, found out in parts.

    matches = TopicMatches()
    matches.topics_changed(topics, names)          before the first look, and after every change
    found = matches.of(expression, found)          the one of before, or another if that is of no more use
    found.go_on(allowance)                         one part: as many steps as are allowed, or one more name
    found.is_complete, found.names()

There is one `TopicMatches` for all groups of a broker. Whoever asks for the same expression shares what is
found, and when topics were created only those are looked at. A part may be the last one before the topics
change: then the expression is complete again after the next.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Final

from quorate.coordinator.topic_regex import RegexError, TopicRegex
from quorate.coordinator.topics_view import Topics, TopicsView

__all__ = ["KEPT_MAX", "NAMES_KEPT_MAX", "Allowance", "Matches", "TopicMatches"]

KEPT_MAX: Final = 1_000
"""So many expressions are remembered with what they match, the last ones."""
NAMES_KEPT_MAX: Final = 500_000
"""So many topics they match all together, unless a single one does."""
_STALE_MIN: Final = 10_000


class Allowance:
    """How many steps may be taken in this turn. A step is a look at one instruction of an expression."""

    __slots__ = ("steps",)

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def spend(self, steps: int) -> None:
        self.steps -= steps

    @property
    def is_spent(self) -> bool:
        return self.steps <= 0


class TopicMatches:
    """What is known of expressions."""

    def __init__(self) -> None:
        self._topics: TopicsView = Topics()
        self._listed: list[str] | None = None  # names in the order in which they are looked at
        self._listed_first = 0  # so many when the list was made; later ones may be there twice, or be gone
        self._kept: OrderedDict[str, Matches] = OrderedDict()
        self._names_kept = 0

    def topics_changed(self, topics: TopicsView, names: Iterable[str]) -> None:
        """The topics as they are now. These were created or deleted, or have changed."""
        self._topics = topics
        if self._listed is None:
            return
        present = topics.names()
        self._listed += [name for name in names if name in present]
        if len(self._listed) > 2 * self._listed_first + _STALE_MIN:
            self._listed = None
            self._kept.clear()
            self._names_kept = 0

    def of(self, expression: str, found: Matches | None = None) -> Matches:
        """What is known of an expression, by whoever asked for it before. `found` is what the asker had."""
        if self._listed is None:
            self._listed = list(self._topics.names())
            self._listed_first = len(self._listed)
        if found is None or found.listed is not self._listed:
            found = self._kept.get(expression) or Matches(self, expression, self._listed)
        return found

    def keep(self, found: Matches, more: int) -> None:
        """It was looked at last, and matches so many more topics than before."""
        if found.listed is not self._listed:
            return
        if self._kept.get(found.expression) is not found:
            self._kept[found.expression] = found
            more = found.count
        self._kept.move_to_end(found.expression)
        self._names_kept += more
        while len(self._kept) > KEPT_MAX or (self._names_kept > NAMES_KEPT_MAX and len(self._kept) > 1):
            _, forgotten = self._kept.popitem(last=False)
            self._names_kept -= forgotten.count

    @property
    def present(self) -> Collection[str]:
        """The names that there are now."""
        return self._topics.names()


class Matches:
    """What one expression matches of the names that it was compared with so far."""

    __slots__ = ("_all", "_at", "_matched", "expression", "listed")

    def __init__(self, among: TopicMatches, expression: str, listed: list[str]) -> None:
        self.expression = expression
        self.listed = listed
        self._all = among
        self._at = 0
        self._matched: dict[str, None] = {}

    @property
    def is_complete(self) -> bool:
        return self._at == len(self.listed)

    @property
    def count(self) -> int:
        return len(self._matched)

    def names(self) -> list[str]:
        """Those of the topics that there are now."""
        present = self._all.present
        return [name for name in self._matched if name in present]

    def go_on(self, allowance: Allowance) -> None:
        """Compares it with as many names as is allowed, or with one. An expression that is none matches
        nothing: it was let in by a coordinator that knew more than this one."""
        if self.is_complete:
            return
        before = len(self._matched)
        try:
            regex = TopicRegex(self.expression)
        except RegexError:
            self._at = len(self.listed)
        else:
            allowance.spend(regex.compiling_steps)
            self._compare(regex, allowance)
        self._all.keep(self, len(self._matched) - before)

    def _compare(self, regex: TopicRegex, allowance: Allowance) -> None:
        listed, at = self.listed, self._at
        while at < len(listed):
            name = listed[at]
            at += 1
            if regex.matches(name):
                self._matched[name] = None
            allowance.spend(regex.steps(name))
            if allowance.is_spent:
                break
        self._at = at
