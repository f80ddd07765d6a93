"""What is wrong with the input, as a table: which file, which offset, what kind, in words.

Three places know about problems. The files themselves: what is damaged, missing, of nobody, or of two
clusters with one id (`file_problems`). The rows that came out of them: records of a newer Kafka, malformed
ones, and losses (`problems_in`). And whoever has rows from before: a log that was replaced after it had been
read (`replaced_rows`). Nothing of it stops the reading of the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from quorate.spark.event_files import read_journals
from quorate.spark.found_problems import Problem
from quorate.spark.group_files import read_partition_logs
from quorate.spark.log_files import read_clusters
from quorate.spark.log_places import EVENTS_DIRECTORY, GROUPS, METADATA, find_places
from quorate.spark.log_scan import ScanCache
from quorate.spark.schemas import PROBLEMS, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["KINDS", "file_problems", "problem_batch", "problems_in", "replaced_rows"]

KINDS: Final = {
    "conflict": "a copy has other content at the same offset and epoch: two clusters with one id",
    "corrupt": "bytes of a file that are no whole batch, or a snapshot that is not whole",
    "diverged": "a copy ends in records that were never committed",
    "foreign": "a file that is not what its place says",
    "loss": "offsets that nothing stands for",
    "malformed": "a record that is not what it says",
    "missing": "a path without a log",
    "no_cluster_id": "no meta.properties says of which cluster a log is",
    "no_snapshot": "a log that begins late, without a snapshot of what was before",
    "overlap": "a batch that begins before the end of the one before it",
    "replaced": "a row that was read before and is another one now",
    "truncated": "a file that ends within a batch or a line",
    "unknown": "a record of a kind or version that came after this was written",
    "unreadable": "a file that cannot be opened or read",
}
_TEXT_CHARS_MAX: Final = 500


def file_problems(paths: Sequence[str], cluster_id: str | None = None) -> list[Problem]:
    """All that is wrong with the files under these paths, of all three logs."""
    return list(dict.fromkeys(_all(paths, cluster_id)))


def _all(paths: Sequence[str], cluster_id: str | None) -> Iterator[Problem]:
    cache = ScanCache()
    metadata = find_places(paths, METADATA, cluster_id)
    groups = find_places(paths, GROUPS, cluster_id)
    journals = find_places(paths, EVENTS_DIRECTORY, cluster_id)
    has_found = dict.fromkeys(paths, False)
    for places in (metadata, groups, journals):
        missing = {one.source for one in places.problems if one.kind == "missing"}
        has_found |= {path: True for path in paths if path not in missing}
        yield from (one for one in places.problems if one.kind != "missing")
    # A path need not have all three logs; but it should have one.
    yield from (one for one in metadata.problems if one.kind == "missing" and not has_found.get(one.source))
    for log in read_clusters(metadata.found, cache):
        yield from log.problems
    for partition in read_partition_logs(groups.found, cache):
        yield from partition.problems
    for journal in read_journals(journals.found):
        yield from journal.problems


def problem_batch(problems: Iterable[Problem], found_at: datetime | None = None) -> pa.RecordBatch:
    """Problems as rows of the table `problems`.

    >>> problem_batch([Problem("missing", "/logs", "nothing there")]).column("kind").to_pylist()
    ['missing']
    """
    when = datetime.now(UTC) if found_at is None else found_at
    rows = [
        {
            "cluster_id": one.cluster_id,
            "source": one.source,
            "offset": one.offset,
            "kind": one.kind,
            "text": one.text,
            "found_ts": when,
        }
        for one in problems
    ]
    return pa.RecordBatch.from_pylist(rows, arrow_schema(PROBLEMS))


def problems_in(rows: DataFrame, source: str) -> DataFrame:
    """What rows of `records` or `group_records` say themselves: unknown and malformed ones, and losses."""
    from pyspark.sql import functions as f

    kind = (
        f.when(f.col("type") == "Unknown", f.lit("unknown"))
        .when(f.col("type") == "Malformed", f.lit("malformed"))
        .when(f.col("gap") == "loss", f.lit("loss"))
    )
    text = f.when(
        f.col("type").isin("Unknown", "Malformed"), f.substring("fields", 1, _TEXT_CHARS_MAX)
    ).otherwise(f.lit("offsets before this one are missing"))
    return (
        rows.select("cluster_id", "offset", kind.alias("kind"), text.alias("text"))
        .where(f.col("kind").isNotNull())
        .select(
            "cluster_id",
            f.lit(source).alias("source"),
            "offset",
            "kind",
            f.coalesce("text", f.lit("")).alias("text"),
            f.current_timestamp().alias("found_ts"),
        )
    )


def replaced_rows(before: DataFrame, now: DataFrame, source: str) -> DataFrame:
    """Rows of `records` that were read before and are others now, at the same offset of the same log."""
    from pyspark.sql import functions as f

    keys = ["cluster_id", "origin", "offset", "position"]
    content = f.struct("epoch", "type", "fields")
    was = before.select(*keys, content.alias("was"), f.col("epoch").alias("was_epoch"))
    is_now = now.select(*keys, content.alias("is_now"), f.col("epoch").alias("now_epoch"))
    text = f.format_string(
        "it was of epoch %d when it was read, and is of epoch %d now", "was_epoch", "now_epoch"
    )
    return (
        was.join(is_now, keys)
        .where(~f.col("was").eqNullSafe(f.col("is_now")))
        .select(
            "cluster_id",
            f.lit(source).alias("source"),
            "offset",
            f.lit("replaced").alias("kind"),
            text.alias("text"),
            f.current_timestamp().alias("found_ts"),
        )
    )
