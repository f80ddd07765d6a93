"""The oldest Spark that is supported: in an environment of its own, kept in the user's cache.

Making it takes about half a minute, once for every change of `requirements-spark-4.0.lock`; using it takes as
long as starting Spark. That Spark hands rows instead of Arrow to the writer of a stream, takes no filters
over, and neither limits a stream nor tells it where a micro-batch begins.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from topic_data import create, fill, values

from quorate.testing import Cluster

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parent.parent.parent
LOCK = ROOT / "requirements-spark-4.0.lock"
PROGRAM = """
import json, sys
import pyspark
from quorate.spark import session

servers, home = sys.argv[1:]
spark = session("local[2]")
source = {"bootstrap.servers": servers, "subscribe": "from", "includeHeaders": "true"}
frame = spark.read.format("quorate").options(**source).load()
found = {
    "version": pyspark.__version__.split(".")[:2],
    "rows": frame.count(),
    "filtered": frame.where("offset >= 90 and partition = 0").count(),
    "headers": frame.where("headers[0].key = 'n'").count(),
}
frame.select("key", "value").write.format("quorate").mode("append").options(
    **{"bootstrap.servers": servers, "topic": "batch"}
).save()

def copy():
    options = {**source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "70"}
    rows = spark.readStream.format("quorate").options(**options).load().select("key", "value", "headers")
    sink = {"bootstrap.servers": servers, "topic": "stream", "checkpointLocation": home}
    query = rows.writeStream.format("quorate").options(**sink).trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(one["numInputRows"] for one in query.recentProgress)

found["copied"] = copy() + copy()
print("FOUND", json.dumps(found))
spark.stop()
"""


def environment() -> Path:
    """The Python of the environment, made if it is not there."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quorate"
    home = caches / f"spark-4.0-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"
    python = home / "bin" / "python"
    caches.mkdir(parents=True, exist_ok=True)
    with (caches / "spark-4.0.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            uv = [sys.executable, "-m", "uv", "--quiet"]
            subprocess.run([*uv, "venv", "--clear", "--python", sys.executable, str(home)], check=True)
            install = [*uv, "pip", "install", "--python", str(python), "--require-hashes", "-r", str(LOCK)]
            subprocess.run(install, check=True)
            (home / "complete").touch()
    return python


def test_topics_are_read_and_written(tmp_path: Path) -> None:
    python = environment()
    with Cluster(mode="processes") as kafka:
        servers = kafka.bootstrap_servers
        for topic in ("from", "batch", "stream"):
            create(servers, topic, 2)
        rows = [
            {
                "partition": number % 2,
                "key": b"%d" % number,
                "value": None if number % 10 == 0 else b"%d" % number,
                "headers": [{"key": "n", "value": b"%d" % number}] if number % 4 == 0 else None,
            }
            for number in range(200)
        ]
        fill(servers, "from", rows)
        done = subprocess.run(
            [str(python), "-c", PROGRAM, servers, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        line = next((one for one in done.stdout.splitlines() if one.startswith("FOUND")), None)
        assert line is not None, done.stderr
        found = json.loads(line.removeprefix("FOUND "))
        assert found == {"version": ["4", "0"], "rows": 200, "filtered": 10, "headers": 50, "copied": 200}
        expected = sorted(repr(one["value"]) for one in rows)
        assert sorted(map(repr, values(servers, "batch"))) == expected
        assert sorted(map(repr, values(servers, "stream"))) == expected
