"""Which topics a regular expression means.

An expression becomes a machine of many small states, of which a name can be in several at once. The sets of
states that names have led to are remembered with what follows from them, so that all but the first few names
cost one look-up per character. Neither an expression nor a name can make it slow: the time is linear in the
name, and both the states and what is remembered are limited.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from quorate.coordinator.topic_regex_syntax import (
    Alternatives,
    Assertion,
    Characters,
    Node,
    RegexError,
    Repeat,
    Sequence,
    parse,
)
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["STATES_MAX", "TopicRegex", "check_expression", "resolve_expressions"]

STATES_MAX: Final = 5_000
"""How large the machine of an expression may be."""
_REMEMBERED_MAX: Final = 1_000

_MATCH: Final = 0
_WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


class TopicRegex:
    """A compiled expression.

    >>> TopicRegex("orders-(eu|us)").matches("orders-eu"), TopicRegex("orders").matches("orders-eu")
    (True, False)
    """

    __slots__ = ("_remembered", "_start", "_states")

    def __init__(self, expression: str) -> None:
        """Raises `RegexError` if it is not one."""
        # A state is what it takes to leave it: a set of characters and where to, or a condition and where to,
        # or None and all the states that are entered with it.
        self._states: list[tuple[int | str | None, tuple[int, ...]]] = [(None, ())]
        self._start = self._compile(parse(expression), _MATCH)
        self._remembered: dict[tuple[frozenset[int], str], _Place] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name is what the expression describes."""
        place = self._place(frozenset({self._start}), "")
        for character in name:
            following = place.following.get(character)
            if following is None:
                following = self._follow(place, character)
                place.following[character] = following
            place = following
            if not place.states:
                return False
        if place.accepts is None:
            place.accepts = _MATCH in self._closure(place, "")
        return place.accepts

    def _compile(self, node: Node, following: int) -> int:
        """The state at which the node begins, if `following` comes after it."""
        match node:
            case Characters(mask):
                return self._add(mask, (following,))
            case Assertion(kind):
                return self._add(kind, (following,))
            case Sequence(nodes):
                for part in reversed(nodes):
                    following = self._compile(part, following)
                return following
            case Alternatives(nodes):
                return self._add(None, tuple(self._compile(part, following) for part in nodes))
            case Repeat(part, least, most):
                return self._compile_repeat(part, least, most, following)

    def _compile_repeat(self, part: Node, least: int, most: int | None, following: int) -> int:
        if most is None:
            loop = self._add(None, ())
            self._states[loop] = (None, (self._compile(part, loop), following))
            following = loop
        else:
            end = following
            for _ in range(most - least):
                following = self._add(None, (self._compile(part, following), end))
        for _ in range(least):
            following = self._compile(part, following)
        return following

    def _add(self, condition: int | str | None, following: tuple[int, ...]) -> int:
        if len(self._states) >= STATES_MAX:
            raise RegexError("expression is too large")
        self._states.append((condition, following))
        return len(self._states) - 1

    def _place(self, states: frozenset[int], before: str) -> _Place:
        if len(self._remembered) > _REMEMBERED_MAX:
            self._remembered = {}
        # Of the character before, only this matters: is it part of a word, or not, or is there none?
        kind = "" if not before else "w" if before in _WORD else "-"
        place = self._remembered.get((states, kind))
        if place is None:
            place = self._remembered[states, kind] = _Place(states, kind)
        return place

    def _follow(self, place: _Place, character: str) -> _Place:
        bit = 1 << ord(character) if ord(character) < 128 else 0
        entered: set[int] = set()
        for state in self._closure(place, character):
            condition, following = self._states[state]
            if isinstance(condition, int) and condition & bit:
                entered.update(following)
        return self._place(frozenset(entered), character)

    def _closure(self, place: _Place, after: str) -> set[int]:
        """All states that a name is in at this place, given the character that follows it, if any."""
        changes_word = (place.before == "w") != (after in _WORD if after else False)
        holds = {
            "begin": not place.before,
            "end": not after,
            "boundary": changes_word,
            "inside": not changes_word,
        }
        seen = set(place.states)
        waiting = list(place.states)
        while waiting:
            condition, following = self._states[waiting.pop()]
            if isinstance(condition, int) or (condition is not None and not holds[condition]):
                continue
            for state in following:
                if state not in seen:
                    seen.add(state)
                    waiting.append(state)
        return seen


class _Place:
    """A set of states, and what is known to follow from it."""

    __slots__ = ("accepts", "before", "following", "states")

    def __init__(self, states: frozenset[int], before: str) -> None:
        self.states = states
        self.before = before
        self.following: dict[str, _Place] = {}
        self.accepts: bool | None = None


def check_expression(expression: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION if it is not one."""
    try:
        TopicRegex(expression)
    except RegexError as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {error}.",
        ) from error


def resolve_expressions(expressions: Iterable[str], names: Iterable[str]) -> dict[str, frozenset[str]]:
    """What each expression matches of the names. One that is not valid matches nothing: it was let in by a
    coordinator that knew more than this one."""
    listed = list(names)
    resolved: dict[str, frozenset[str]] = {}
    for expression in expressions:
        try:
            regex = TopicRegex(expression)
        except RegexError:
            resolved[expression] = frozenset()
        else:
            resolved[expression] = frozenset(filter(regex.matches, listed))
    return resolved
