"""`quorate report`: one page that says what happened to the clusters of a warehouse.

    write_report(spark, Warehouse.open("history"), Path("report.html"))

The page stands alone: no script, no font and no picture from elsewhere, so that it can be sent and kept.
Its size is bounded whatever the history: each table shows so many rows and says how many there are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quorate.spark.report_facts import ClusterFacts, facts_of
from quorate.spark.report_page import page
from quorate.spark.report_sections import cluster_part
from quorate.spark.report_words import counted, escaped
from quorate.spark.swap import write_whole
from quorate.spark.views import held_tables, suited_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quorate.spark.warehouse import Warehouse

__all__ = ["CLUSTERS_MAX", "render", "write_report"]

CLUSTERS_MAX: Final = 12


def write_report(spark: SparkSession, warehouse: Warehouse, path: Path) -> int:
    """Writes the page; how many bytes it has."""
    with held_tables(spark, warehouse) as tables:
        clusters = tables.contents.clusters
        with suited_to(spark, tables.contents):
            facts = [facts_of(tables, cluster_id) for cluster_id in clusters[:CLUSTERS_MAX]]
    written = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    data = render(facts, clusters, written).encode()
    write_whole(path.absolute(), data)
    return len(data)


def render(facts: Sequence[ClusterFacts], clusters: Sequence[str], written: str) -> str:
    """The page; `clusters` are all that there are, of which some may not be shown."""
    parts = [
        f'<article id="cluster-{number}">{cluster_part(one)}</article>' for number, one in enumerate(facts)
    ]
    links = "".join(
        f'<a class="id" href="#cluster-{number}">{escaped(one.cluster_id)}</a>'
        for number, one in enumerate(facts)
    )
    nav = f"<nav>{links}</nav>" if len(facts) > 1 else ""
    left = len(clusters) - len(facts)
    more = (
        f" {counted(left, 'more cluster')} in this warehouse {'is' if left == 1 else 'are'} not shown."
        if left
        else ""
    )
    footer = f"<footer>Written by quorate report at {escaped(written)}.{escaped(more)}</footer>"
    title = f"Cluster {facts[0].cluster_id}" if len(facts) == 1 else counted(len(clusters), "cluster")
    return page(f"{title}: what happened", nav + "".join(parts) + footer)
