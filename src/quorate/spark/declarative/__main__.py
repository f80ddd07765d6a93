"""`python -m quorate.spark.declarative DIRECTORY --cluster HOST:PORT,...`, or `--logs DIR`."""

from __future__ import annotations

import argparse

from quorate.spark.declarative import copy_project
from quorate.spark.origins import NothingToRead


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m quorate.spark.declarative")
    parser.add_argument("directory")
    parser.add_argument("--cluster", default="", metavar="HOST:PORT,...")
    parser.add_argument("--controllers", default="", metavar="HOST:PORT,...")
    parser.add_argument("--logs", nargs="+", default=(), metavar="DIR")
    given = parser.parse_args()
    try:
        spec = copy_project(
            given.directory, cluster=given.cluster, controllers=given.controllers, logs=given.logs
        )
    except (NothingToRead, ValueError, OSError) as error:
        parser.error(str(error))
    print(f"spark-pipelines run --spec {spec} --conf spark.sql.catalogImplementation=hive")


if __name__ == "__main__":
    main()
