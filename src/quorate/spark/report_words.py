"""How the report says things: times, durations, shares, numbers, and text that cannot break the page."""

from __future__ import annotations

import html
from datetime import UTC, datetime

__all__ = ["clock", "counted", "duration", "escaped", "moment", "share"]

TEXT_MAX = 500


def escaped(value: object) -> str:
    """Text as it stands in a page, whatever is in it: names of topics and groups come from strangers.

    >>> escaped("<b>&")
    '&lt;b&gt;&amp;'
    """
    text = str(value)
    text = text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
    return html.escape("".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text))


def moment(time: datetime | None) -> str:
    """
    >>> moment(datetime(2026, 11, 15, 12, 3, 7, 123456, UTC))
    '2026-11-15 12:03:07.123'
    """
    return "" if time is None else _utc(time).isoformat(sep=" ", timespec="milliseconds")[:23]


def clock(time: datetime | None) -> str:
    """The time of day alone.

    >>> clock(datetime(2026, 11, 15, 12, 3, 7, 123456, UTC))
    '12:03:07'
    """
    return "" if time is None else _utc(time).strftime("%H:%M:%S")


def duration(milliseconds: float | None) -> str:
    """
    >>> [duration(ms) for ms in (0, 42, 1234, 61_000, 3_700_000, 200_000_000, -1500, None)]
    ['0 ms', '42 ms', '1.2 s', '1 min 1 s', '1 h 1 min', '2 d 7 h', '-1.5 s', '']
    """
    if milliseconds is None:
        return ""
    sign, rest = ("-", -milliseconds) if milliseconds < 0 else ("", milliseconds)
    if rest < 1000:
        return f"{sign}{rest:.0f} ms"
    seconds = rest / 1000
    if seconds < 60:
        return f"{sign}{seconds:.1f} s"
    for unit, name, smaller, smaller_name in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= unit:
            return f"{sign}{int(seconds // unit)} {name} {int(seconds % unit // smaller)} {smaller_name}"
    raise AssertionError(seconds)


def share(part: float | None) -> str:
    """A share of time, with as many digits as it takes to tell it from all of it.

    >>> [share(part) for part in (1.0, 0.99987, 0.5, 0.9999999, None)]
    ['100 %', '99.987 %', '50 %', '99.99999 %', '']
    """
    if part is None:
        return ""
    for digits in range(8):
        percent = f"{part * 100:.{digits}f}"
        if float(percent) == part * 100 or (digits >= 3 and float(percent) < 100):
            break
    return f"{percent.rstrip('0').rstrip('.') if '.' in percent else percent} %"


def counted(number: int, one: str, many: str | None = None) -> str:
    """
    >>> counted(1, "failover"), counted(1200, "failover"), counted(0, "entry", "entries")
    ('1 failover', '1,200 failovers', '0 entries')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
