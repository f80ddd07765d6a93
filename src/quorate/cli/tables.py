"""Tables for people: columns under each other, as wide as they need to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from quorate.one_line import one_line

__all__ = ["table"]


def table(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Rows with their columns under each other, each on one line; what is not there is a dash.

    >>> list(table([("ID", "RACK"), (1, None)]))
    ['ID  RACK', '1   -']
    """
    texts = [["-" if cell is None or cell == "" else one_line(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
