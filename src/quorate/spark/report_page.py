"""The page itself: one file that needs nothing from anywhere, light or dark, on a wide screen or a phone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quorate.spark.report_words import counted, escaped

__all__ = ["Column", "Table", "Tile", "legend", "page", "section", "table", "tiles"]

_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fbfbf9; --card: #fff; --ink: #1c2126; --faint: #5d6873;
  --line: #dfe3e6; --good: #2f8f6b; --bad: #c4342d; --warn: #c98a12; --calm: #3b72b8; --grey: #98a2ab; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181b; --card: #1c2226; --ink: #e8ecef;
  --faint: #9aa7b1; --line: #323a40; --good: #48b58b; --bad: #f0635a; --warn: #e3ab3d; --calm: #6fa3e6;
  --grey: #6b7680; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.45;
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 20px 16px 48px; }
h1 { font-size: 1.55rem; margin: 0 0 2px; } h2 { font-size: 1.15rem; margin: 32px 0 4px; }
h3 { font-size: 1rem; margin: 18px 0 6px; }
.id { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
p { margin: 4px 0 10px; } .note, .lead { color: var(--faint); } .note { font-size: .87rem; }
nav a { margin-right: 12px; } a { color: var(--calm); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(145px, 1fr)); gap: 10px;
  margin: 16px 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px; }
.tile b { display: block; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
.tile span { color: var(--faint); font-size: .85rem; }
.tile.bad b { color: var(--bad); } .tile.warn b { color: var(--warn); } .tile.good b { color: var(--good); }
.card, .chart { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 10px 12px; }
.lane { display: grid; grid-template-columns: 104px minmax(0, 1fr); align-items: center; min-height: 26px; }
.lane > span { font-size: .84rem; padding-right: 8px; overflow-wrap: anywhere; line-height: 1.1; }
.lane svg { display: block; overflow: visible; } .lane + .lane { border-top: 1px solid var(--line); }
.grid line { stroke: var(--line); } svg text { font-size: 11px; fill: #fff; }
.hours text { fill: var(--faint); }
.unfenced rect { fill: var(--good); } .fenced rect { fill: url(#hatched); stroke: var(--bad); }
.shutting_down rect { fill: var(--warn); } .leads rect { fill: var(--calm); stroke: var(--card); }
.leaderless rect { fill: var(--bad); } .other rect { fill: var(--grey); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 8px 0; font-size: .84rem;
  color: var(--faint); }
.legend svg { vertical-align: -3px; margin-right: 5px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th { text-align: left; color: var(--faint); font-weight: 600; border-bottom: 2px solid var(--line); }
th, td { padding: 5px 12px 5px 0; vertical-align: top; } td { border-bottom: 1px solid var(--line); }
td { overflow-wrap: anywhere; } .number { text-align: right; font-variant-numeric: tabular-nums;
  overflow-wrap: normal; white-space: nowrap; } .time { white-space: nowrap; }
td.bad { color: var(--bad); font-weight: 600; } td.warn { color: var(--warn); font-weight: 600; }
td.good { color: var(--good); }
footer { margin-top: 40px; color: var(--faint); font-size: .85rem; }
@media (max-width: 640px) {
  body { font-size: 15px; } main { padding: 14px 12px 40px; }
  .lane { grid-template-columns: 68px minmax(0, 1fr); } .lane > span { font-size: .78rem; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); } .odd { display: none; }
  table, tbody, tr, td { display: block; } thead { display: none; }
  tr { border-bottom: 1px solid var(--line); padding: 7px 0; }
  td { border: 0; padding: 1px 0; text-align: left !important; white-space: normal !important;
    display: grid; grid-template-columns: 108px minmax(0, 1fr); gap: 8px; }
  td::before { content: attr(data-label); color: var(--faint); font-weight: 400; }
  td:empty { display: none; } td.words { display: block; } td.words::before { display: none; }
}
@media print { .card, .chart, .tile { break-inside: avoid; } }
"""

_HATCHED: Final = (
    '<svg width="0" height="0" aria-hidden="true" style="position:absolute"><defs>'
    '<pattern id="hatched" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" style="fill:var(--bad);opacity:.35"/>'
    '<rect width="3" height="6" style="fill:var(--bad)"/></pattern></defs></svg>'
)


@dataclass(frozen=True, slots=True)
class Column:
    """`kind` is how a cell looks: number, time, words (which have a line of their own on a phone) or
    empty."""

    name: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are text; one that begins with `!bad `, `!warn ` or `!good ` has that colour. `total` is how many
    rows there are, of which these are shown."""

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[str]]
    total: int
    nothing: str = "None."


@dataclass(frozen=True, slots=True)
class Tile:
    value: str
    name: str
    mood: str = ""


def page(title: str, body: str) -> str:
    """A whole document. The policy in it forbids what it does not need: anything from elsewhere."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escaped(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{_HATCHED}<main>{body}</main></body></html>\n"
    )


def section(title: str, lead: str, content: str) -> str:
    said = f'<p class="lead">{escaped(lead)}</p>' if lead else ""
    return f"<section><h2>{escaped(title)}</h2>{said}{content}</section>"


def tiles(shown: Sequence[Tile]) -> str:
    inside = "".join(
        f'<div class="tile {one.mood}"><b>{escaped(one.value)}</b><span>{escaped(one.name)}</span></div>'
        for one in shown
    )
    return f'<div class="tiles">{inside}</div>'


def table(shown: Table) -> str:
    if not shown.rows:
        return f'<p class="note">{escaped(shown.nothing)}</p>'
    head = "".join(f'<th class="{one.kind}">{escaped(one.name)}</th>' for one in shown.columns)
    body = "".join(
        "<tr>" + "".join(_cell(*one) for one in zip(shown.columns, row, strict=True)) + "</tr>"
        for row in shown.rows
    )
    left = shown.total - len(shown.rows)
    more = (
        f'<p class="note">{len(shown.rows):,} of {counted(shown.total, "row")} shown</p>' if left > 0 else ""
    )
    inside = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="card wide">{inside}</div>{more}'


def legend(states: Sequence[tuple[str, str]]) -> str:
    """What the colours of a chart mean."""
    inside = "".join(
        f'<span><svg width="16" height="14"><g class="{state}"><rect width="16" height="14" rx="2"/></g>'
        f"</svg>{escaped(meaning)}</span>"
        for state, meaning in states
    )
    return f'<div class="legend">{inside}</div>'


def _cell(column: Column, text: str) -> str:
    mood = ""
    for known in ("bad", "warn", "good"):
        if text.startswith(f"!{known} "):
            mood, text = known, text.removeprefix(f"!{known} ")
    kinds = " ".join(filter(None, (column.kind, mood)))
    return f'<td class="{kinds}" data-label="{escaped(column.name)}">{escaped(text)}</td>'
