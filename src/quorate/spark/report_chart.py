"""Charts of the report: lanes of bars over one axis of time, drawn as SVG whose widths are shares.

Positions are in percent of the width, so that a chart fits a phone and a wide screen alike while its letters
keep their size. A lane has as many bars as can be told apart: where there are more, neighbours that would be
thinner than a point are drawn as one, in the colour of the worst among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from quorate.spark.report_words import clock, escaped, moment

__all__ = ["Axis", "Bar", "Lane", "axis_of", "chart", "thinned"]

LANE_POINTS: Final = 26
BARS_PER_LANE_MAX: Final = 300
LANES_MAX: Final = 60
# The worst first: what a reader must not miss.
_SEVERITY: Final = ("fenced", "leaderless", "shutting_down", "other", "leads", "unfenced")
_STEPS_S: Final = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200),
    *(10800, 21600, 43200, 86400, 172800, 604800, 2592000, 7776000, 31536000),
)
_TICKS: Final = 8


@dataclass(frozen=True, slots=True)
class Bar:
    """From when to when something was so. `state` is its colour; `label` stands in it, `title` beside it."""

    start: datetime
    end: datetime
    state: str
    label: str = ""
    title: str = ""
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    name: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    start: datetime
    end: datetime

    def percent(self, time: datetime) -> float:
        share = (time - self.start) / (self.end - self.start)
        return min(max(share, 0.0), 1.0) * 100

    def ticks(self) -> list[datetime]:
        """Round moments, about as many as one can read."""
        length_s = (self.end - self.start).total_seconds()
        step_s = next((step for step in _STEPS_S if length_s / step <= _TICKS), _STEPS_S[-1])
        first = -(-self.start.timestamp() // step_s) * step_s
        count = int((self.end.timestamp() - first) // step_s) + 1
        return [
            datetime.fromtimestamp(first + number * step_s, self.start.tzinfo)
            for number in range(min(max(count, 0), 2 * _TICKS))
        ]


def axis_of(times: Iterable[datetime]) -> Axis | None:
    """From the first to the last, and a little more; None if there are none."""
    known = sorted(times)
    if not known:
        return None
    length = max(known[-1] - known[0], timedelta(seconds=1))
    return Axis(known[0] - length * 0.01, known[-1] + length * 0.02)


def thinned(bars: Sequence[Bar], axis: Axis) -> tuple[Bar, ...]:
    """At most as many bars as can be seen; none that matters is lost."""
    if len(bars) <= BARS_PER_LANE_MAX:
        return tuple(bars)
    narrowest = 100 / BARS_PER_LANE_MAX
    seen: list[Bar] = []
    gathered: list[Bar] = []

    def flush() -> None:
        if gathered:
            worst = min(gathered, key=lambda bar: _rank(bar.state))
            many = (
                f"{len(gathered)} changes from {moment(gathered[0].start)} to {moment(gathered[-1].end)} UTC"
            )
            title = many if len(gathered) > 1 else worst.title
            seen.append(
                Bar(
                    gathered[0].start, max(bar.end for bar in gathered), worst.state, "", title, worst.is_open
                )
            )
            gathered.clear()

    for bar in sorted(bars, key=lambda one: one.start):
        is_wide = axis.percent(bar.end) - axis.percent(bar.start) >= narrowest
        if gathered and (is_wide or axis.percent(bar.end) - axis.percent(gathered[0].start) > narrowest):
            flush()
        gathered.append(bar)
        if is_wide:
            flush()
    flush()
    return tuple(seen)


def chart(lanes: Sequence[Lane], axis: Axis, what: str) -> str:
    """Lanes under each other, with the hours below."""
    shown = lanes[:LANES_MAX]
    rows = "".join(_lane(lane, axis) for lane in shown)
    left = len(lanes) - len(shown)
    more = f'<p class="note">and {left:,} more lanes that are not shown</p>' if left > 0 else ""
    return (
        f'<div class="chart" role="img" aria-label="{escaped(what)}">{rows}'
        f'<div class="lane"><span></span>{_hours(axis)}</div></div>{more}'
    )


def _lane(lane: Lane, axis: Axis) -> str:
    bars = "".join(_bar(bar, axis) for bar in thinned(lane.bars, axis))
    lines = "".join(
        f'<line x1="{at:.2f}%" x2="{at:.2f}%" y1="0" y2="100%"/>' for at in map(axis.percent, axis.ticks())
    )
    return (
        f'<div class="lane"><span>{escaped(lane.name)}</span>'
        f'<svg width="100%" height="{LANE_POINTS}"><g class="grid">{lines}</g>{bars}</svg></div>'
    )


def _bar(bar: Bar, axis: Axis) -> str:
    left = axis.percent(bar.start)
    width = max(axis.percent(bar.end) - left, 0.15)
    title = f"<title>{escaped(bar.title)}</title>" if bar.title else ""
    state = bar.state if bar.state in _SEVERITY else "other"
    # A label only where it has room at the width of a phone too: about 270 points for the whole axis.
    room = width / 100 * 270 > 7 * len(bar.label) + 8
    label = (
        f'<text x="{left + width / 2:.2f}%" y="17" text-anchor="middle">{escaped(bar.label)}</text>'
        if bar.label and room
        else ""
    )
    return (
        f'<g class="{state}"><rect x="{left:.2f}%" width="{width:.2f}%" y="3" height="20" rx="2">'
        f"{title}</rect>{label}</g>"
    )


def _hours(axis: Axis) -> str:
    length_s = (axis.end - axis.start).total_seconds()
    marks = []
    for number, tick in enumerate(axis.ticks()):
        at = axis.percent(tick)
        if length_s < 10:
            text = moment(tick)[17:21] + " s"
        elif length_s < 36 * 3600:
            text = clock(tick)[:5] if length_s > 1800 else clock(tick)
        else:
            text = moment(tick)[5:16] if length_s < 14 * 86_400 else moment(tick)[:10]
        anchor = "start" if at < 5 else "end" if at > 95 else "middle"
        odd = ' class="odd"' if number % 3 else ""
        marks.append(f'<text x="{at:.2f}%" y="13" text-anchor="{anchor}"{odd}>{text}</text>')
    return f'<svg class="hours" width="100%" height="18">{"".join(marks)}</svg>'


def _rank(state: str) -> int:
    return _SEVERITY.index(state) if state in _SEVERITY else _SEVERITY.index("other")
