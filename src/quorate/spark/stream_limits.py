"""How much a stream may take at once: Spark's words for it, and stand-ins for before 4.2."""

from __future__ import annotations

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark before 4.2

    class ReadLimit:  # type: ignore[no-redef]
        """Nobody asks."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Nobody asks."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Nobody asks."""


__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "limit_of",
    "rows_max",
]


def limit_of(rows: int | None) -> ReadLimit:
    return ReadAllAvailable() if rows is None else ReadMaxRows(rows)


def rows_max(limit: ReadLimit | None, otherwise: int | None) -> int | None:
    """How many rows a limit allows; None for all that there are."""
    if limit is None:
        return otherwise
    return limit.max_rows if isinstance(limit, ReadMaxRows) else None
