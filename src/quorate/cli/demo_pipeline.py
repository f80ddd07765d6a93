"""The last act of the demo: Spark reads the logs of the cluster and explains what happened.

The pipeline runs as the commands do that anybody would type, each in a process of its own: Spark wants a
Java machine beside it, and nothing of that belongs into the process that runs the story.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from importlib.util import find_spec
from typing import Final

from quorate.cli.demo_acts import Stage
from quorate.testing.control import quoted

__all__ = ["REPORT_FILE", "WAREHOUSE", "explain", "why_not"]

WAREHOUSE: Final = "warehouse"
REPORT_FILE: Final = "report.html"
_LOG_FILE: Final = "pipeline.log"
_PROGRESS: Final = re.compile(r" *[\d.]+ s  ")  # when, and what
_QUORATE: Final = "from quorate.cli.start import main; main()"
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
    is_done = _do(stage, "quorate pipeline run", "--cluster", servers, "--warehouse", str(warehouse)) and _do(
        stage, "quorate report", "--warehouse", str(warehouse), "--output", str(report)
    )
    if is_done:
        stage.claim("the report is written", holds=report.exists())
        stage.telling.say(f"{report}, after {time.monotonic() - began:.0f} s")
        stage.story.note({"warehouse": str(warehouse), "report": str(report)})


def _do(stage: Stage, command: str, *options: str) -> bool:
    """Runs a command of ours; whether it ended well. Its log has all that it says, the story its progress."""
    log = stage.launched.directory / _LOG_FILE
    words = [sys.executable, "-c", _QUORATE, *command.split()[1:], *options]
    stage.telling.say(command)
    with (
        log.open("a", encoding="utf-8") as output,
        subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                output.write(line)
                if _PROGRESS.match(line):
                    stage.telling.say(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    status = process.returncode
    stage.claim(f"{command} ended well", holds=status == 0, detail="" if not status else f"status {status}")
    if status:
        stage.telling.say(quoted(log))
    return status == 0


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it would be in
        return False
