"""The jars of Delta and Iceberg for Spark 4.0, fetched with Maven and kept in `build/apache/`."""

from __future__ import annotations

from pathlib import Path

from apache_oracle import BUILD, built, run

POM = Path(__file__).parent / "apache" / "spark-tables.xml"


def table_jars(table_format: str) -> str:
    """What `spark.jars` should be for tables in this format."""
    directory = built(BUILD / "spark-tables", POM, _copy_dependencies)
    return ",".join(str(jar) for jar in sorted(directory.glob(f"{table_format}-*.jar")))


def _copy_dependencies(directory: Path) -> None:
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={directory}"]
    run(["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", *options])
