"""`quorate report`: what happened, as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quorate.cli.asking import fail, pairs
from quorate.cli.spark_session import (
    MasterOption,
    SparkConfOption,
    WarehouseOption,
    require_spark,
    spark_session,
)

__all__ = ["app"]

app = typer.Typer()


@app.command()
def report(
    warehouse: WarehouseOption,
    output: Annotated[
        str, typer.Option("--output", "--out", metavar="FILE", help="The page.")
    ] = "report.html",
    master: MasterOption = "local[*]",
    spark_conf: SparkConfOption = None,
) -> None:
    """Writes one HTML page: members, terms, availability, failovers, restarts, rebalances, incidents."""
    require_spark()
    from quorate.spark.report import write_report
    from quorate.spark.storage_formats import session_settings
    from quorate.spark.warehouse import Warehouse, WarehouseError

    target = Path(output)
    if not target.absolute().parent.is_dir():
        fail(f"--output {output}: there is no directory {target.absolute().parent}")
    try:
        house = Warehouse.open(warehouse)
        if not house.contents().clusters:
            fail(f"{house.directory} has no records yet: quorate pipeline run fills it")
        settings = {**session_settings(house), **pairs(spark_conf or [], "--spark-conf")}
        with spark_session(master, settings) as spark:
            size_bytes = write_report(spark, house, target)
    except (WarehouseError, OSError) as error:
        fail(str(error))
    print(f"{target}: {size_bytes / 1000:.0f} kB")
