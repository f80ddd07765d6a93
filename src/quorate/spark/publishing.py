"""Answers are computed to a new place and become the answers in one step: nobody ever sees them half done.

They are computed again only if something is new. History that several of them are made of is computed once,
and what does not wait for another is computed at the same time: to plan takes one core, few rows or many.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from quorate import __version__
from quorate.spark.parts import count
from quorate.spark.raw_tables import RAW_TABLES
from quorate.spark.views import ANSWERS, HISTORY, Tables, held_tables, inputs, is_short, suited_to
from quorate.spark.warehouse import Contents, Part, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["publish_answers"]

_AT_ONCE: Final = 2


def publish_answers(spark: SparkSession, warehouse: Warehouse) -> bool:
    """Computes all answers to a new place, and makes them the answers in one step; whether that was
    needed."""
    with held_tables(spark, warehouse) as tables:
        of = _fingerprint(tables.contents)
        if tables.contents.answers_of == of:
            return False
        with ExitStack() as unpublished, suited_to(spark, tables.contents):
            # Plans of a short history take longer to make than to carry out, whatever they are of.
            kept = _all_needed() if is_short(tables.contents) else _needed_often()
            names = {name: unpublished.enter_context(warehouse.new_answer()) for name in kept}
            places = {name: warehouse.answer_place(part) for name, part in names.items()}
            counts = _Computation(spark, tables, places).run()
            parts = {name: Part(names[name], *counts[name]) for name in ANSWERS}
            now_ms = int(time.time() * 1000)
            warehouse.change(lambda newest: replace(newest, answers=parts, answers_ms=now_ms, answers_of=of))
    return True


@dataclass(frozen=True, slots=True)
class _Computation:
    """All tables that are kept, each as soon as those are there that it is made of."""

    spark: SparkSession
    tables: Tables
    places: Mapping[str, Path]
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)

    def run(self) -> Mapping[str, tuple[int, int]]:
        """How many rows and bytes each answer has."""
        waiting = {name: self._waits_for(name) for name in self.places}
        with ThreadPoolExecutor(_AT_ONCE, "answers") as pool:
            list(pool.map(self._take, _raw_inputs()))
            running: dict[Future[None], str] = {}
            try:
                while waiting or running:
                    for name in [name for name, missing in waiting.items() if not missing]:
                        running[pool.submit(self._compute, name)] = name
                        del waiting[name]
                    for done in wait(running, return_when=FIRST_COMPLETED).done:
                        done.result()
                        finished = running.pop(done)
                        for missing in waiting.values():
                            missing.discard(finished)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return self.counts

    def _waits_for(self, name: str) -> set[str]:
        """The kept tables that one is made of, also through those that are not kept."""
        found: set[str] = set()
        for one in _derived_inputs(name):
            found |= {one} if one in self.places else self._waits_for(one)
        return found

    def _take(self, name: str) -> None:
        """A raw table, for all that are made of it."""
        rows = self.tables.fresh(name)
        self.tables.give(name, self._at_hand(rows) if is_short(self.tables.contents) else rows)

    def _compute(self, name: str) -> None:
        rows = self.tables.fresh(name)
        if name not in ANSWERS and is_short(self.tables.contents):
            self.tables.give(name, self._at_hand(rows))
            return
        place = self.places[name]
        (rows.coalesce(1) if name in ANSWERS else rows).write.parquet(str(place))
        self.counts[name] = count(place)
        self.tables.give(name, self.spark.read.schema(rows.schema).parquet(str(place)))

    def _at_hand(self, rows: DataFrame) -> DataFrame:
        """The rows themselves in the place of the plan that leads to them: plans that are made of it are
        shorter, and no file is opened for them."""
        return self.spark.createDataFrame(rows.toArrow(), rows.schema)


def _needed_often() -> list[str]:
    """All answers, and history that several tables are made of. They are written and read back: a plan that
    has all of history in it takes longer to make than to carry out."""
    uses = Counter(one for name in _all_needed() for one in _derived_inputs(name))
    return [name for name in _all_needed() if name in ANSWERS or uses[name] > 1]


def _all_needed() -> list[str]:
    """All answers and what they are made of, each after what it is made of."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        for one in _derived_inputs(name):
            visit(one)
        found[name] = None

    for name in ANSWERS:
        visit(name)
    return list(found)


def _raw_inputs() -> list[str]:
    read = {one for name in _all_needed() for one in inputs(HISTORY.get(name) or ANSWERS[name])}
    return [name for name in RAW_TABLES if name in read]


def _derived_inputs(name: str) -> Iterator[str]:
    return (one for one in inputs(HISTORY.get(name) or ANSWERS[name]) if one not in RAW_TABLES)


def _fingerprint(contents: Contents) -> str:
    """What answers are answers to: the same as long as no row is new."""
    streams: Mapping[str, Any] = {name: one.covered for name, one in sorted(contents.streams.items())}
    samples = sum(part.rows for part in contents.tables.get("end_offsets", ()))
    unconfirmed = sorted(
        part.name for parts in contents.unconfirmed.values() for part in parts.values() if part.rows
    )
    return json.dumps([__version__, streams, samples, unconfirmed])
