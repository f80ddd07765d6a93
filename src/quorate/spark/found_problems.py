"""A problem, as whoever notices it passes it on: see `quorate.spark.problems` for the table of them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Problem"]


class Problem(NamedTuple):
    """What is wrong, where. `source` is a file or an address."""

    kind: str
    source: str
    text: str
    cluster_id: str | None = None
    offset: int | None = None
