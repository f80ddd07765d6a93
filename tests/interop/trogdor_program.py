"""Trogdor, Apache Kafka's workloads, run without its daemons: one task to its end."""

import json
import subprocess
from pathlib import Path
from typing import Any

from apache_oracle import BUILD, PINNED, built, run

POM = Path(__file__).parent / "apache" / "trogdor.xml"
TIMEOUT_SECONDS = 180
NODE = "node0"
CONFIGURATION = {
    "platform": "org.apache.kafka.trogdor.basic.BasicPlatform",
    "nodes": {NODE: {"hostname": "localhost", "trogdor.agent.port": 0, "trogdor.coordinator.port": 0}},
}


def run_task(spec: dict[str, Any], work: Path) -> tuple[int, str]:
    """The exit code of the agent, and what it printed."""
    jars = built(BUILD / f"{PINNED}-trogdor", POM, _copy_dependencies)
    configuration, task = work / "trogdor.json", work / "task.json"
    configuration.write_text(json.dumps(CONFIGURATION))
    task.write_text(json.dumps(spec | {"clientNode": NODE}))
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
    command += ["org.apache.kafka.trogdor.agent.Agent", "-n", NODE, "-c", str(configuration)]
    done = subprocess.run(
        [*command, "--exec", str(task)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


def _copy_dependencies(directory: Path) -> None:
    options = [f"-Dkafka.version={PINNED}", "-DincludeScope=runtime", f"-DoutputDirectory={directory}"]
    run(["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", *options])
