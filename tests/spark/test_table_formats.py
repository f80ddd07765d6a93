"""The raw tables in Delta and Iceberg: the same rows as in Parquet, once, whatever happens in between.

Both formats have jars for the oldest Spark that is supported, and none that fits the newest: so this runs in
the environment of `test_topic_spark_4_0`, with our command and its packages added to it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from apache_oracle import missing
from metadata_directories import copy_of, leads
from random_logs import random_logs
from spark_tables import table_jars
from test_topic_spark_4_0 import ROOT, environment

from quorate.protocol.batch import read_header

pytestmark = [pytest.mark.spark, pytest.mark.interop]

BATCHES = [bytes(batch) for batch in random_logs(range(3, 4), steps=12)[0].batches]
LAST = read_header(BATCHES[-1])
# The only voter has all of it: then all of it counts.
WHOLE = [*BATCHES, leads(LAST.next_offset, LAST.partition_leader_epoch + 1, voters=[1])]

PROGRAM = """
import json, shutil, sys
from pathlib import Path
import pyspark
from quorate.spark import session
from quorate.spark.ingest import read_raw
from quorate.spark.origins import files_in
from quorate.spark.pipeline import PipelineError, read_logs
from quorate.spark.storage_formats import Batch, session_settings, storage_of
from quorate.spark.views import held_tables, suited_to
from quorate.spark.warehouse import Warehouse, WarehouseError

name, jars, home = sys.argv[1], sys.argv[2], Path(sys.argv[3])
house = Warehouse.create(home / "house", name)
memory = {"spark.driver.memory": "1g", "spark.local.dir": str(home / "local")}
spark = session("local[2]", settings={**session_settings(house), "spark.jars": jars, **memory})
found = {"version": pyspark.__version__.split(".")[:2]}

def read(warehouse, log):
    return read_logs(spark, warehouse, files_in([str(home / log)])).rows.get("records", 0)

def offsets(warehouse):
    rows = read_raw(spark, warehouse, warehouse.contents(), "records").select("origin", "offset", "position")
    return sorted(map(tuple, rows.collect()))

def crash(log):
    '''What is appended is not published: as if the driver had died between the two.'''
    def die(how):
        raise PipelineError("died")
    house.change = die
    try:
        read(house, log)
        return "survived"
    except PipelineError as error:
        return str(error).rpartition(": ")[2]
    finally:
        del house.change

plain = Warehouse.create(home / "plain")
found["whole"] = read(plain, "whole")

# In the first batch of all; then the same batch again; then a later one, and its checkpoint is lost too.
found["died"] = [crash("half")]
found["half"] = read(house, "half")
found["died"].append(crash("whole"))
shutil.rmtree(home / "house" / "checkpoints")
found["rest"] = read(house, "whole")
found["again"] = read(house, "whole")
found["each once"] = offsets(house) == offsets(plain)
(part,) = house.contents().tables["records"]
found["counted"] = part.rows

def rows_of(warehouse, table):
    with held_tables(spark, warehouse) as tables, suited_to(spark, tables.contents):
        return sorted(map(repr, tables[table].collect()))

# All of history is made of the records in the same way; one table of it shows that it can be.
for table in ("records", "broker_sessions"):
    rows = rows_of(house, table)
    found[table] = [len(rows) > 0, rows == rows_of(plain, table)]

# A column more, which rows from before do not have.
older = Warehouse.create(home / "older", name)
storage = storage_of(spark, older)
rows = read_raw(spark, plain, plain.contents(), "records").where("origin = 'log'")
for number, frame in enumerate([rows.where("offset < 3").drop("gap"), rows.where("offset between 3 and 5")]):
    before = older.contents().tables.get("records", ())
    written = storage.append(Batch(frame, "records", "s", number), "", before)
    older.change(lambda newest: storage.publish(newest, "records", written.part))
    seen = storage.read("records", older.contents())
    found[f"columns {number}"] = [seen.columns == rows.columns, seen.count()]

other = {"delta": "iceberg", "iceberg": "delta"}[name]
try:
    storage_of(spark, Warehouse.create(home / "other", other))
except WarehouseError as error:
    found["without its jar"] = str(error)

print("FOUND", json.dumps(found), flush=True)
from quorate.cli.pipeline import query
sql = "SELECT count(*) AS rows FROM records"
query(sql, str(home / "house"), as_json=True, rows=10, master="local[2]", spark_conf=[])
"""


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_tables_are_those_of_parquet(tmp_path: Path, table_format: str) -> None:
    if reason := missing():
        pytest.skip(reason)
    copy_of(tmp_path / "half", (0, BATCHES[: len(BATCHES) // 2]))
    copy_of(tmp_path / "whole", (0, WHOLE))
    python = environment()
    packages = next(python.parent.parent.glob("lib/python*/site-packages"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, table_format, table_jars(table_format), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(packages)])},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    line = next((one for one in done.stdout.splitlines() if one.startswith("FOUND")), None)
    assert line is not None, done.stdout + done.stderr
    found = json.loads(line.removeprefix("FOUND "))
    whole = found["whole"]
    assert found["version"] == ["4", "0"]
    assert found["died"] == ["died", "died"]
    assert 0 < found["half"] < whole
    assert found["half"] + found["rest"] == whole
    assert found["again"] == 0
    assert found["each once"], "a batch that came again was added twice, or lost"
    assert found["counted"] == whole
    assert found["records"] == found["broker_sessions"] == [True, True]
    assert found["columns 0"] == [True, 3]
    assert found["columns 1"] == [True, 6]
    assert "needs its jar" in found["without its jar"]
    answer = done.stdout[done.stdout.index(line) + len(line) :]
    assert json.loads(answer) == [{"rows": whole}]
