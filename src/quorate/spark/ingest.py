"""How a batch of a stream gets into a table: once, whatever happens.

The rows are written to a place of their own; then one version of the warehouse names it and says that the
batch is done, both at once. A process that dies before that leaves a place that nobody names; one that dies
after it, before Spark has noted the batch, meets the batch again and sees that it is done. Which checkpoint
a batch number belongs to is part of a stream's name, so that numbers which begin anew after a checkpoint
was removed are not mistaken for old ones; what then comes again is left out, because its offsets are
covered.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from quorate.spark.parts import are_equal, look_at, read_parts
from quorate.spark.raw_tables import LOGS, not_covered
from quorate.spark.storage_formats import Batch, Storage, Written
from quorate.spark.warehouse import Contents, Part, StreamState, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BatchWriter", "ForeignRows", "append_rows", "note_problems", "read_raw", "replace_unconfirmed"]

_IDENTITY: Final = ["cluster_id", "source", "offset", "kind", "text"]


class ForeignRows(Exception):  # noqa: N818
    """A stream of one cluster was given rows of another."""


class BatchWriter:
    """What `foreachBatch` calls for one stream: a log of one cluster, into its table."""

    def __init__(
        self,
        warehouse: Warehouse,
        storage: Storage,
        *,
        table: str,
        cluster_id: str,
        stream: str,
        tell: Callable[[int], None],
    ) -> None:
        self._warehouse, self._storage = warehouse, storage
        self._table, self._cluster_id = table, cluster_id
        self._checkpoint = warehouse.checkpoint(stream)
        self._stream = stream
        self._tell = tell

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        stream = f"{self._stream}/{self._query_id()}"
        contents = self._warehouse.contents()
        done = contents.streams.get(stream)
        if done is not None and batch_id <= done.batch_id:
            return
        others = [one for name, one in contents.streams_of(self._table).items() if name != stream]
        fresh = not_covered(frame, self._table, others) if self._table in LOGS else frame
        batch = Batch(fresh, self._table, stream, batch_id)
        with self._storage.turn(self._table), self._warehouse.new_part(self._table) as name:
            before = self._warehouse.contents().tables.get(self._table, ())
            written = self._storage.append(batch, name, before)
            self._refuse_foreigners(written)
            self._warehouse.change(lambda newest: self._published(newest, stream, batch_id, written))
        self._tell(written.rows)

    def _published(self, newest: Contents, stream: str, batch_id: int, written: Written) -> Contents:
        state = newest.streams.get(stream)
        covered = dict(state.covered) if state is not None else {}
        for key, (first, end) in written.covered.items():
            before = covered.get(key, (first, end))
            covered[key] = min(before[0], first), max(before[1], end)
        if written.part is not None:
            newest = self._storage.publish(newest, self._table, written.part)
        return newest.with_stream(stream, StreamState(batch_id, covered))

    def _refuse_foreigners(self, written: Written) -> None:
        foreign = [name for name in written.clusters if name != self._cluster_id]
        if foreign:
            raise ForeignRows(
                f"{self._checkpoint} is where the {self._table} of cluster {self._cluster_id} are read,"
                f" and there came rows of cluster {', '.join(foreign)}"
            )

    def _query_id(self) -> str:
        return str(json.loads((self._checkpoint / "metadata").read_text())["id"])


def read_raw(spark: SparkSession, warehouse: Warehouse, contents: Contents, table: str) -> DataFrame:
    """All rows of a raw table, the unconfirmed ones of files too unless a stream has read them since."""
    from quorate.spark.storage_formats import storage_of

    if table not in LOGS:
        return read_parts(spark, warehouse, table, contents.tables.get(table, ()))
    frame = storage_of(spark, warehouse).read(table, contents)
    unconfirmed = contents.unconfirmed.get(table, {})
    if unconfirmed:
        rest = read_parts(spark, warehouse, table, unconfirmed.values())
        frame = frame.unionByName(not_covered(rest, table, contents.streams_of(table).values()))
    return frame


def replace_unconfirmed(warehouse: Warehouse, table: str, cluster_id: str, frame: DataFrame) -> int:
    """Puts the rows that files do not prove in the place of those of the run before; how many they are."""
    with warehouse.new_part(table) as name:
        place = warehouse.table_place(table, name)
        frame.write.partitionBy("cluster_id").parquet(str(place))
        found = look_at(place, table)
        part = Part(name, found.rows, found.size_bytes, found.clusters) if found.rows else None
        before = warehouse.contents().unconfirmed.get(table, {}).get(cluster_id)
        if part != before and not (
            part and before and are_equal(place, warehouse.table_place(table, before.name))
        ):
            warehouse.change(lambda newest: newest.with_unconfirmed(table, cluster_id, part))
    return found.rows


def append_rows(warehouse: Warehouse, table: str, frame: DataFrame) -> int:
    """Adds rows to a table that no stream feeds, such as the problems; how many they are."""
    with warehouse.new_part(table) as name:
        place = warehouse.table_place(table, name)
        frame.write.partitionBy("cluster_id").parquet(str(place))
        found = look_at(place, table)
        if found.rows:
            part = Part(name, found.rows, found.size_bytes, found.clusters)
            warehouse.change(lambda newest: newest.with_part(table, part))
    return found.rows


def note_problems(spark: SparkSession, warehouse: Warehouse, found: DataFrame) -> int:
    """Adds problems that are not known yet to their table; how many there were."""
    known = read_parts(spark, warehouse, "problems", warehouse.contents().tables.get("problems", ()))
    is_same = [known[name].eqNullSafe(found[name]) for name in _IDENTITY]
    fresh = found.dropDuplicates(_IDENTITY).join(known, is_same, "left_anti")
    return append_rows(warehouse, "problems", fresh.coalesce(1))
