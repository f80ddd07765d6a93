"""Answers are computed to a new place and become the answers in one step: nobody ever sees them half done.

They are computed again only if something is new. History that several of them are made of is computed once.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quorate import __version__
from quorate.spark.parts import count
from quorate.spark.views import ANSWERS, HISTORY, held_tables, inputs, suited_to
from quorate.spark.warehouse import Contents, Part, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["publish_answers"]


def publish_answers(spark: SparkSession, warehouse: Warehouse) -> bool:
    """Computes all answers to a new place, and makes them the answers in one step; whether that was
    needed."""
    with held_tables(spark, warehouse) as tables:
        of = _fingerprint(tables.contents)
        if tables.contents.answers_of == of:
            return False
        with ExitStack() as unpublished, suited_to(spark, tables.contents):
            parts = {}
            for name in _in_order():
                part_name = unpublished.enter_context(warehouse.new_answer())
                place = warehouse.answer_place(part_name)
                rows = tables.fresh(name)
                (rows.coalesce(1) if name in ANSWERS else rows).write.parquet(str(place))
                tables.give(name, spark.read.parquet(str(place)))
                if name in ANSWERS:
                    parts[name] = Part(part_name, *count(place))
            now_ms = int(time.time() * 1000)
            warehouse.change(lambda newest: replace(newest, answers=parts, answers_ms=now_ms, answers_of=of))
    return True


def _in_order() -> list[str]:
    """All answers, and history that several tables are made of, each after what it is made of. They are
    written and read back: a plan that has all of history in it takes longer to make than to carry out."""
    uses: Counter[str] = Counter()
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        uses[name] += 1
        if uses[name] == 1:
            for one in inputs(HISTORY.get(name) or ANSWERS[name]):
                if one in HISTORY or one in ANSWERS:
                    visit(one)
            found[name] = None

    for name in ANSWERS:
        visit(name)
    return [name for name in found if name in ANSWERS or uses[name] > 1]


def _fingerprint(contents: Contents) -> str:
    """What answers are answers to: the same as long as no row is new."""
    streams: Mapping[str, Any] = {name: one.covered for name, one in sorted(contents.streams.items())}
    samples = sum(part.rows for part in contents.tables.get("end_offsets", ()))
    unconfirmed = sorted(
        part.name for parts in contents.unconfirmed.values() for part in parts.values() if part.rows
    )
    return json.dumps([__version__, streams, samples, unconfirmed])
