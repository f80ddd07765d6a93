"""The same tables as a project for Spark Declarative Pipelines, for those who run such pipelines already.

    python -m quorate.spark.declarative DIRECTORY --cluster 127.0.0.1:9092
    spark-pipelines run --spec DIRECTORY/spark-pipeline.yml --conf spark.sql.catalogImplementation=hive

`quorate pipeline run` does more: answers are never seen empty, rows that files do not prove
are shown, and end offsets are sampled. What a project of this kind has to heed is written beside its parts.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from quorate.spark.origins import files_in
from quorate.spark.raw_tables import LOGS

__all__ = ["SPEC", "copy_project"]

SPEC = "spark-pipeline.yml"


def copy_project(
    directory: Path | str, *, cluster: str = "", controllers: str = "", logs: Sequence[str] = ()
) -> Path:
    """Writes the project into a directory that is not there yet, with what it is to read; its spec."""
    if bool(cluster) == bool(logs):
        raise ValueError("say what to read: a cluster or directories with logs, and not both")
    # Directories need not have all three logs; a stream of one that is not there would fail.
    tables = sorted({table for origin in files_in(logs) for table in origin.options}) if logs else list(LOGS)
    target = Path(directory).absolute()
    shutil.copytree(Path(__file__).parent / "project", target, ignore=shutil.ignore_patterns("__pycache__"))
    spec = target / SPEC
    spec.write_text(spec.read_text().replace("STORAGE", (target / "storage").as_uri()))
    options = (
        {"paths": json.dumps([str(Path(one).absolute()) for one in logs])}
        if logs
        else {"bootstrap.servers": cluster, **({"controllers": controllers} if controllers else {})}
    )
    origin = {"tables": tables, "options": options}
    (target / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")
    return spec
