"""The syntax of regular expressions for topics: RE2's, as Kafka's coordinator reads it.

There are no back references and no looking around, so that every expression can be matched in a time that is
linear in the name. A topic's name is made of ASCII characters; a set of characters is therefore a number with
a bit for each of the first 128, and whatever an expression says of others never matches.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from typing import Final

from quorate.values import dataclass

__all__ = [
    "Alternatives",
    "Assertion",
    "Characters",
    "Node",
    "RegexError",
    "Repeat",
    "Sequence",
    "parse",
]

REPEAT_MAX: Final = 1000
DEPTH_MAX: Final = 100
LENGTH_MAX: Final = 4096

_ALL: Final = (1 << 128) - 1
_PUNCTUATION: Final = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ")


class RegexError(ValueError):
    """Not an expression; the message says why."""


@dataclass(frozen=True, slots=True)
class Characters:
    """One character of a set."""

    mask: int


@dataclass(frozen=True, slots=True)
class Assertion:
    """A place: `begin`, `end`, `boundary` or `inside` of a word."""

    kind: str


@dataclass(frozen=True, slots=True)
class Sequence:
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    node: Node
    least: int
    most: int | None


Node = Characters | Assertion | Sequence | Alternatives | Repeat


def parse(expression: str) -> Node:
    """What the expression means, or `RegexError`."""
    if len(expression) > LENGTH_MAX:
        raise RegexError(f"expression is longer than {LENGTH_MAX} characters")
    parser = _Parser(expression)
    node = parser.alternatives(0)
    if parser.peek() == ")":
        raise RegexError("unexpected )")
    return node


def _mask(characters: Iterable[str]) -> int:
    mask = 0
    for character in characters:
        if ord(character) < 128:
            mask |= 1 << ord(character)
    return mask


def _where(condition: Callable[[str], bool]) -> int:
    return _mask(filter(condition, map(chr, range(128))))


_UPPER: Final = _where(lambda c: "A" <= c <= "Z")
_LOWER: Final = _where(lambda c: "a" <= c <= "z")
_DIGIT: Final = _where(lambda c: "0" <= c <= "9")
_WORD: Final = _UPPER | _LOWER | _DIGIT | _mask("_")
_PERL: Final = {"d": _DIGIT, "w": _WORD, "s": _mask("\t\n\f\r ")}
_POSIX: Final = {
    "alnum": _UPPER | _LOWER | _DIGIT,
    "alpha": _UPPER | _LOWER,
    "ascii": _ALL,
    "blank": _mask("\t "),
    "cntrl": _where(lambda c: c < " " or c == "\x7f"),
    "digit": _DIGIT,
    "graph": _where(lambda c: "!" <= c <= "~"),
    "lower": _LOWER,
    "print": _where(lambda c: " " <= c <= "~"),
    "punct": _mask(_PUNCTUATION - {" "}),
    "space": _mask("\t\n\v\f\r "),
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": _DIGIT | _mask("abcdefABCDEF"),
}
_ESCAPED: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_SUBCATEGORIES: Final = {
    "L": "ultmo",
    "M": "nce",
    "N": "dlo",
    "P": "cdseifo",
    "S": "mcko",
    "Z": "slp",
    "C": "cfos",
}
_CATEGORIES: Final = frozenset(
    major + minor for major, minors in _SUBCATEGORIES.items() for minor in ("", *minors)
)


class _Parser:
    """Reads from left to right; every level of brackets is one call deeper."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._folds_case = False
        self._dot_matches_newline = False
        self._names: set[str] = set()

    def peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise RegexError("invalid or unsupported Perl syntax")
        self._at += 1
        return self._text[self._at - 1]

    def _skip(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def alternatives(self, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise RegexError("expression nests too deeply")
        branches = [self._sequence(depth)]
        while self._skip("|"):
            branches.append(self._sequence(depth))
        return branches[0] if len(branches) == 1 else Alternatives(tuple(branches))

    def _sequence(self, depth: int) -> Node:
        nodes: list[Node] = []
        while (character := self.peek()) and character not in "|)":
            counts = self._quantifier()
            if counts is None:
                nodes.extend(self._atom(depth))
                continue
            if not nodes:
                raise RegexError("missing argument to repetition operator")
            follow = self._at
            if self._quantifier() is not None:
                raise RegexError("invalid nested repetition operator")
            self._at = follow
            nodes[-1] = Repeat(nodes[-1], *counts)
        return nodes[0] if len(nodes) == 1 else Sequence(tuple(nodes))

    def _quantifier(self) -> tuple[int, int | None] | None:
        """The counts of a repetition, if one stands here. Greed is no matter: the whole name must match."""
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(self.peek())
        counts: tuple[int, int | None] | None
        if simple is not None:
            self._at += 1
            counts = simple
        else:
            counts = self._counted()
        if counts is not None:
            self._skip("?")
        return counts

    def _counted(self) -> tuple[int, int | None] | None:
        if self.peek() != "{":
            return None
        end = self._text.find("}", self._at)
        least_text, comma, most_text = self._text[self._at + 1 : end].partition(",")
        if end < 0 or not _is_number(least_text) or (most_text and not _is_number(most_text)):
            return None  # an ordinary bracket
        least = int(least_text)
        most = (int(most_text) if most_text else None) if comma else least
        if max(least, most or 0) > REPEAT_MAX or (most is not None and most < least):
            raise RegexError("invalid repeat count")
        self._at = end + 1
        return least, most

    def _atom(self, depth: int) -> list[Node]:
        character = self._next()
        if character == "(":
            return self._group(depth)
        if character == "[":
            return [Characters(self._bracket())]
        if character == ".":
            return [Characters(_ALL if self._dot_matches_newline else _ALL & ~_mask("\n"))]
        if character in "^$":
            return [Assertion("begin" if character == "^" else "end")]
        if character == "\\":
            return self._escape()
        return [self._literal(character)]

    def _literal(self, character: str) -> Node:
        return Characters(self._folded(_mask(character)))

    def _folded(self, mask: int) -> int:
        if self._folds_case:
            mask |= (mask & _UPPER) << 32 | (mask & _LOWER) >> 32
        return mask

    def _group(self, depth: int) -> list[Node]:
        flags = (self._folds_case, self._dot_matches_newline)
        if self._skip("?"):
            if self._skip("P<") or self._skip("<"):
                self._name()
            elif not self._flags():
                return []  # they hold for the rest of the group around
        node = self.alternatives(depth + 1)
        if not self._skip(")"):
            raise RegexError("missing closing )")
        self._folds_case, self._dot_matches_newline = flags
        return [node]

    def _name(self) -> None:
        end = self._text.find(">", self._at)
        name = self._text[self._at : end] if end >= 0 else ""
        if not name or not name.isascii() or not name.replace("_", "a").isalnum():
            raise RegexError("invalid named capture")
        if name in self._names:
            raise RegexError("duplicate capture group name")
        self._names.add(name)
        self._at = end + 1

    def _flags(self) -> bool:
        """Reads flags; whether a group follows that they hold for."""
        value, is_empty = True, True
        while (character := self._next()) not in ":)":
            if character == "-" and value:
                value, is_empty = False, True
                continue
            if character not in "imsU":
                raise RegexError("invalid or unsupported Perl syntax")
            is_empty = False
            if character == "i":
                self._folds_case = value
            elif character == "s":
                self._dot_matches_newline = value
        if is_empty and not value:
            raise RegexError("invalid or unsupported Perl syntax")
        return character == ":"

    def _escape(self) -> list[Node]:
        character = self.peek()
        if character in {"A", "z", "b", "B"}:
            self._at += 1
            return [Assertion({"A": "begin", "z": "end", "b": "boundary", "B": "inside"}[character])]
        if character == "Q":
            self._at += 1
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at : end if end >= 0 else len(self._text)]
            self._at += len(quoted) + (2 if end >= 0 else 0)
            return [self._literal(one) for one in quoted]
        mask = self._class_escape()
        return [Characters(mask)] if mask is not None else [self._literal(self._character_escape())]

    def _class_escape(self) -> int | None:
        """The set that stands after a backslash, if it is one."""
        character = self.peek()
        if character.lower() in _PERL:
            self._at += 1
            mask = self._folded(_PERL[character.lower()])
            return mask if character.islower() else _ALL & ~mask
        if character in {"p", "P"}:
            self._at += 1
            return self._unicode_class(is_negated=character == "P")
        return None

    def _unicode_class(self, *, is_negated: bool) -> int:
        name = self._next()
        if name == "{":
            end = self._text.find("}", self._at)
            if end < 0:
                raise RegexError("invalid character class range")
            name = self._text[self._at : end]
            self._at = end + 1
        if name.startswith("^"):
            name, is_negated = name[1:], not is_negated
        if name == "Any":
            mask = _ALL
        elif name in _CATEGORIES:
            mask = _where(lambda c: unicodedata.category(c).startswith(name))
        elif name in {"Latin", "Common"}:
            mask = _UPPER | _LOWER if name == "Latin" else _ALL & ~(_UPPER | _LOWER)
        elif len(name) > 2 and name.isascii() and name.replace("_", "").isalpha() and name[0].isupper():
            mask = 0  # a script that has no letter a topic can have
        else:
            raise RegexError("invalid character class range")
        mask = self._folded(mask)
        return _ALL & ~mask if is_negated else mask

    def _character_escape(self) -> str:
        character = self._next() if self.peek() else ""
        if character in _ESCAPED and character:
            return _ESCAPED[character]
        if character in _PUNCTUATION and character:
            return character
        if character == "x":
            return self._hexadecimal()
        if character == "0" or (character in "1234567" and self.peek() in set("01234567")):
            digits = character
            while len(digits) < 3 and self.peek() in set("01234567"):
                digits += self._next()
            return chr(int(digits, 8))
        if not character:
            raise RegexError("trailing backslash at end of expression")
        raise RegexError("invalid escape sequence")

    def _hexadecimal(self) -> str:
        if self._skip("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : end] if end >= 0 else ""
            self._at = end + 1
            is_complete = 1 <= len(digits) <= 8
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
            is_complete = len(digits) == 2
        if not is_complete or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise RegexError("invalid escape sequence")
        code = int(digits, 16)
        if code > 0x10FFFF:
            raise RegexError("invalid escape sequence")
        return chr(code)

    def _bracket(self) -> int:
        is_negated = self._skip("^")
        mask, is_first = 0, True
        while self.peek() != "]" or is_first:
            is_first = False
            if self._text.startswith("[:", self._at) and (end := self._text.find(":]", self._at)) >= 0:
                mask |= self._posix(self._text[self._at + 2 : end])
                self._at = end + 2
                continue
            if self.peek() == "\\":
                self._at += 1
                if (of_class := self._class_escape()) is not None:
                    mask |= of_class
                    continue
                first = self._character_escape()
            else:
                first = self._next_in_bracket()
            mask |= self._range(first)
        self._at += 1
        mask = self._folded(mask)
        return _ALL & ~mask if is_negated else mask

    def _next_in_bracket(self) -> str:
        if not self.peek():
            raise RegexError("missing closing ]")
        return self._next()

    def _range(self, first: str) -> int:
        if self.peek() != "-" or self._text[self._at + 1 : self._at + 2] in {"", "]"}:
            return _mask(first)
        self._at += 1
        last = self._next_in_bracket()
        if last == "\\":
            last = self._character_escape()
        if last < first:
            raise RegexError("invalid character class range")
        return _where(lambda c: first <= c <= last)

    def _posix(self, name: str) -> int:
        mask = _POSIX.get(name.removeprefix("^"))
        if mask is None:
            raise RegexError("invalid character class range")
        mask = self._folded(mask)
        return _ALL & ~mask if name.startswith("^") else mask


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and (text == "0" or not text.startswith("0")) and len(text) <= 9
