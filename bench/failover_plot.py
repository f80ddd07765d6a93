"""A plot with logarithmic axes, as SVG and by hand: it needs nothing but text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 250, 20, 50
COLOURS = {"kraft": "#1f6feb", "zookeeper": "#d9480f"}
DASHES = {"controller failover": "none", "broker failure": "7 4", "controlled shutdown": "2 3"}
SECONDS_MIN = 0.01


@dataclass(frozen=True)
class Line:
    name: str
    mode: str
    event: str
    points: Sequence[tuple[float, float]]


def draw(lines: Sequence[Line], across: str, upwards: str) -> str:
    """All lines in one picture. Both axes go by powers of ten."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [max(y, SECONDS_MIN) for line in lines for _, y in line.points]
    low_x, high_x = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)))
    low_y, high_y = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
    high_x, high_y = max(high_x, low_x + 1), max(high_y, low_y + 1)

    def place(x: float, y: float) -> tuple[float, float]:
        wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        right = (math.log10(x) - low_x) / (high_x - low_x)
        up = (math.log10(max(y, SECONDS_MIN)) - low_y) / (high_y - low_y)
        return LEFT + right * wide, HEIGHT - BOTTOM - up * tall

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in range(low_x, high_x + 1):
        x, bottom = place(10.0**power, 10.0**low_y)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom:.1f}" stroke="#ddd"/>')
        parts.append(_text(x, bottom + 18, f"{10**power:,}", "middle"))
    for power in range(low_y, high_y + 1):
        left, y = place(10.0**low_x, 10.0**power)
        parts.append(f'<line x1="{left:.1f}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(left - 8, y + 4, f"{10.0**power:g} s", "end"))
    parts.append(_text(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 10, across, "middle"))
    parts.append(_text(LEFT, TOP - 6, upwards, "start"))
    for number, line in enumerate(lines):
        colour, dash = COLOURS.get(line.mode, "#333"), DASHES.get(line.event, "none")
        places = [place(x, y) for x, y in line.points]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        style = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        parts.append(f'<polyline points="{points}" fill="none" {style}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        y = TOP + 20 + 20 * number
        left = WIDTH - RIGHT + 20
        parts.append(f'<line x1="{left}" x2="{left + 30}" y1="{y - 4}" y2="{y - 4}" {style}/>')
        parts.append(_text(left + 38, y, line.name, "start"))
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#333">{escape(text)}</text>'
