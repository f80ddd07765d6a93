"""The last act of the demo: Spark reads the logs of the cluster and explains what happened.

The pipeline runs as the commands do that anybody would type, each in a process of its own: Spark wants a
Java machine beside it, and nothing of that belongs into the process that runs the story.
"""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from quorate.cli.demo_acts import Stage
from quorate.testing.control import quoted

__all__ = ["REPORT_FILE", "WAREHOUSE", "explain", "why_not"]

WAREHOUSE: Final = "warehouse"
REPORT_FILE: Final = "report.html"
_LOG_FILE: Final = "pipeline.log"
_TIMEOUT_S: Final = 600.0
_NEEDED: Final = {
    "pyspark": "Spark is not installed: pip install 'quorate[spark]' brings it",
    "quorate.spark.pipeline": "this installation has no pipeline",
}


def why_not() -> str | None:
    """Why there is no pipeline; None if there is one."""
    for module, reason in _NEEDED.items():
        if not _exists(module):
            return reason
    return None


def explain(stage: Stage) -> None:
    """Runs the pipeline over the cluster, which is still up, and writes the report."""
    stage.telling.act("Spark explains what happened")
    reason = why_not()
    if reason is not None:
        stage.telling.say(f"left out: {reason}")
        return
    directory = stage.launched.directory
    warehouse, report = directory / WAREHOUSE, directory / REPORT_FILE
    began = time.monotonic()
    servers = stage.launched.state()["bootstrap_servers"]
    for words in (
        ("pipeline", "run", "--cluster", servers, "--warehouse", str(warehouse)),
        ("report", "--warehouse", str(warehouse), "--out", str(report)),
    ):
        if not _do(stage, words, directory / _LOG_FILE):
            return
    stage.telling.say(f"{report}, after {time.monotonic() - began:.0f} s")
    stage.claim("the report is written", holds=report.exists())
    stage.story.note({"warehouse": str(warehouse), "report": str(report)})


def _do(stage: Stage, words: tuple[str, ...], log: Path) -> bool:
    """Runs a command of ours; whether it ended well. What it says goes into a file."""
    command = [sys.executable, "-m", "quorate.cli.start", *words]
    with log.open("ab") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            status = process.wait(_TIMEOUT_S)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    name = f"quorate {' '.join(words[:2])}"
    stage.claim(f"{name} ended well", holds=status == 0, detail="" if not status else f"status {status}")
    if status:
        stage.telling.say(quoted(log))
    return status == 0


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it would be in
        return False
