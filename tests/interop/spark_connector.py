"""The jars of Spark's own Kafka connector, fetched with Maven and kept in `build/apache/`."""

from __future__ import annotations

from pathlib import Path

from apache_oracle import BUILD, built, run

# The newest that Maven's central repository has; it runs on the Spark after it, too.
RELEASE = "4.2.0"
POM = Path(__file__).parent / "apache" / "spark-connector.xml"


def connector_jars() -> str:
    """What `spark.jars` should be."""
    directory = built(BUILD / f"spark-connector-{RELEASE}", POM, _copy_dependencies)
    return ",".join(str(jar) for jar in sorted(directory.glob("*.jar")))


def _copy_dependencies(directory: Path) -> None:
    options = [
        f"-Dspark.version={RELEASE}",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={directory}",
    ]
    run(["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", *options])
