"""What the report is about: a bounded number of rows of each table, for one cluster, as plain values.

Spark does the counting and the choosing, so that a history of years costs the page no more than one of hours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from quorate.spark.views import Tables

__all__ = ["ClusterFacts", "Some", "facts_of"]

STATES_MAX: Final = 20_000
TERMS_MAX: Final = 5_000
ROWS_MAX: Final = 60
INCIDENTS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Some:
    """Rows of a table, and how many there are altogether. Times in them are in UTC."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    total: int = 0


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    cluster_id: str
    start: datetime | None
    end: datetime | None
    records: int
    unconfirmed: int
    states: Some = field(default_factory=Some)
    terms: Some = field(default_factory=Some)
    whole: dict[str, Any] = field(default_factory=dict)  # availability of the cluster as a whole
    topics: Some = field(default_factory=Some)
    failovers: Some = field(default_factory=Some)
    flapping: Some = field(default_factory=Some)
    restarts: Some = field(default_factory=Some)
    restarts_good: int = 0
    balance: Some = field(default_factory=Some)
    rebalances: Some = field(default_factory=Some)
    storms: int = 0
    lag: Some = field(default_factory=Some)
    incidents: Some = field(default_factory=Some)
    problems: Some = field(default_factory=Some)


def facts_of(tables: Tables, cluster_id: str) -> ClusterFacts:
    """Everything that the report says of one cluster."""

    def of(name: str) -> DataFrame:
        return tables[name].where(F.col("cluster_id") == cluster_id)

    span = (
        of("records")
        .agg(
            F.min("ts").alias("start"),
            F.max("ts").alias("end"),
            F.count("*").alias("records"),
            F.count_if(~F.col("is_confirmed")).alias("unconfirmed"),
        )
        .collect()[0]
    )
    availability, restarts, rebalances = of("availability"), of("rolling_restarts"), of("rebalances")
    whole = _rows(availability.where("level = 'cluster'"))
    by_topic = availability.where("level = 'topic'").orderBy(
        F.desc("leaderless_ms"), F.desc("under_min_isr_ms"), "topic"
    )
    fenced_often = of("flapping").where("fence_count > 0").orderBy(F.desc("fence_count"), "broker_id")
    problems = tables["problems"].where(F.col("cluster_id").isNull() | (F.col("cluster_id") == cluster_id))
    return ClusterFacts(
        cluster_id,
        _utc(span.start),
        _utc(span.end),
        span.records,
        span.unconfirmed,
        states=_newest(of("broker_states"), "start_offset", STATES_MAX),
        terms=_newest(of("controller_terms"), "start_offset", TERMS_MAX),
        whole=whole[0] if whole else {},
        topics=_some(by_topic),
        failovers=_newest(of("failovers"), "offset"),
        flapping=_some(fenced_often),
        restarts=_newest(restarts, "left_ts"),
        restarts_good=restarts.where("is_good").count(),
        balance=_some(of("imbalance").orderBy("broker_id")),
        rebalances=_newest(rebalances, "end_ts"),
        storms=rebalances.where("is_storm").count(),
        lag=_some(_lag_by_group(of("lag"))),
        incidents=_newest(of("incidents"), "ts", INCIDENTS_MAX),
        problems=_newest(problems, "found_ts"),
    )


def _lag_by_group(lag: DataFrame) -> DataFrame:
    """How far each group was behind when it was last looked at."""
    newest = lag.groupBy("group_id", "topic", "partition").agg(
        F.max_by("lag", "ts").alias("lag"), F.max_by("lag_ms", "ts").alias("lag_ms"), F.max("ts").alias("ts")
    )
    return (
        newest.groupBy("group_id", "topic")
        .agg(
            F.sum("lag").alias("lag"),
            F.max("lag_ms").alias("lag_ms"),
            F.max("ts").alias("ts"),
            F.count("*").alias("partitions"),
        )
        .orderBy(F.desc("lag"), "group_id", "topic")
    )


def _some(frame: DataFrame, rows_max: int = ROWS_MAX) -> Some:
    """The first rows in the order of the frame."""
    rows = _rows(frame.limit(rows_max))
    return Some(rows, len(rows) if len(rows) < rows_max else frame.count())


def _newest(frame: DataFrame, order: str, rows_max: int = ROWS_MAX) -> Some:
    """The last rows, in the order in which they happened."""
    found = _some(frame.orderBy(F.desc_nulls_last(order)), rows_max)
    return Some(found.rows[::-1], found.total)


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [
        {
            name: _utc(value) if isinstance(value, datetime) else value
            for name, value in row.asDict(recursive=True).items()
        }
        for row in frame.collect()
    ]


def _utc(time: datetime | None) -> datetime | None:
    """Spark gives times without a zone, in that of this machine."""
    return None if time is None else time.astimezone(UTC)
