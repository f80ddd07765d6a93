r"""Java's properties files, which is what Kafka's settings and `meta.properties` are.

A line is a key, a separator (`=`, `:` or white space) and a value. `#` and `!` begin comments. A backslash
before the end of a line continues it; before `t`, `n`, `r` and `f` it stands for white space, before `u` and
four hexadecimal digits for a character of 16 bits; before anything else it only takes away that one's
meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["format_properties", "parse_properties"]

_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u.{0,4}|.?)", re.DOTALL)
_MEANING: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED: Final = {meaning: "\\" + letter for letter, meaning in _MEANING.items()} | {
    mark: "\\" + mark for mark in "=:#!\\"
}


def parse_properties(text: str) -> dict[str, str]:
    r"""The keys and values of a text. Of keys that stand there twice, the last counts.

    >>> parse_properties("# a comment\nnode.id=1\nlisteners = PLAINTEXT://:9092,\\\n    CONTROLLER://:9093\n")
    {'node.id': '1', 'listeners': 'PLAINTEXT://:9092,CONTROLLER://:9093'}
    """
    found = {}
    for number, line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None, "it matches nothing at least"
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None, "so does this"
        try:
            found[_plain(key[0])] = _plain(line[separator.end() :])
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return found


def format_properties(properties: Mapping[str, str]) -> str:
    """A text that means these keys and values, in the order of the keys. It is ASCII, whatever they are."""
    return "".join(
        f"{_escaped(key).replace(' ', chr(92) + ' ')}={_escaped_value(value)}\n"
        for key, value in sorted(properties.items())
    )


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, each with those that continue it, and the number of the first."""
    lines = enumerate(_LINE_END.split(text), start=1)
    for number, natural in lines:
        line = natural.lstrip(_BLANKS)
        if line in ("", "\\") or line[0] in "#!":
            continue  # nothing that goes on is nothing: the next line may be a comment
        while _is_continued(line):
            line = line[:-1] + next(lines, (0, ""))[1].lstrip(_BLANKS)
        yield number, line


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _plain(text: str) -> str:
    if "\\" not in text:
        return text
    units = _ESCAPE.sub(_meaning, text)
    # characters beyond 16 bits are written as two escapes
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _meaning(escape: re.Match[str]) -> str:
    escaped = escape[1]
    if not escaped.startswith("u"):
        return _MEANING.get(escaped, escaped)
    if not re.fullmatch("u[0-9a-fA-F]{4}", escaped):
        raise ValueError(f"\\{escaped} is no character: four hexadecimal digits belong after \\u")
    return chr(int(escaped[1:], 16))


def _escaped_value(value: str) -> str:
    text = _escaped(value)
    return "\\" + text if text.startswith(" ") else text


def _escaped(text: str) -> str:
    return "".join(_escaped_character(character) for character in text)


def _escaped_character(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2))
