"""Answers are computed to a new place and become the answers in one step: nobody ever sees them half done.

They are computed again only if something is new. History that several of them are made of is computed once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quorate import __version__
from quorate.spark.parts import count
from quorate.spark.views import ANSWERS, HISTORY, Tables, held_tables, inputs, suited_to
from quorate.spark.warehouse import Contents, Part, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["publish_answers"]


def publish_answers(spark: SparkSession, warehouse: Warehouse) -> bool:
    """Computes all answers to a new place, and makes them the answers in one step; whether that was
    needed."""
    with held_tables(spark, warehouse) as tables:
        of = _fingerprint(tables.contents)
        if tables.contents.answers_of == of:
            return False
        with ExitStack() as unpublished, suited_to(spark, tables.contents), _kept_at_hand(tables):
            parts = {}
            for name in ANSWERS:
                part_name = unpublished.enter_context(warehouse.new_answer())
                place = warehouse.answer_place(part_name)
                tables.fresh(name).coalesce(1).write.parquet(str(place))
                parts[name] = Part(part_name, *count(place))
            now_ms = int(time.time() * 1000)
            warehouse.change(lambda newest: replace(newest, answers=parts, answers_ms=now_ms, answers_of=of))
    return True


@contextmanager
def _kept_at_hand(tables: Tables) -> Iterator[None]:
    """History that several answers are made of is computed once."""
    uses = [one for function in ANSWERS.values() for one in inputs(function)]
    shared: list[DataFrame] = [tables.fresh_input(one) for one in HISTORY if uses.count(one) > 1]
    for frame in shared:
        frame.persist()
    try:
        yield
    finally:
        for frame in shared:
            frame.unpersist()


def _fingerprint(contents: Contents) -> str:
    """What answers are answers to: the same as long as no row is new."""
    streams: Mapping[str, Any] = {name: one.covered for name, one in sorted(contents.streams.items())}
    samples = sum(part.rows for part in contents.tables.get("end_offsets", ()))
    unconfirmed = sorted(
        part.name for parts in contents.unconfirmed.values() for part in parts.values() if part.rows
    )
    return json.dumps([__version__, streams, samples, unconfirmed])
