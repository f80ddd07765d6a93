"""Trogdor, Apache Kafka's workloads, run without its daemons: one task to its end."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from apache_oracle import BUILD, PINNED, built, run

POM = Path(__file__).parent / "apache" / "trogdor.xml"
TIMEOUT_SECONDS = 180
NODE = "node0"
SHUTDOWN = "Running agent shutdown hook"
CONFIGURATION = {
    "platform": "org.apache.kafka.trogdor.basic.BasicPlatform",
    "nodes": {NODE: {"hostname": "localhost", "trogdor.agent.port": 0, "trogdor.coordinator.port": 0}},
}


def run_task(spec: dict[str, Any], work: Path) -> str:
    """What the agent printed when the task had ended.

    Its own end is not waited for: at times it waits for ever for threads of its own, with all work done.
    """
    jars = built(BUILD / f"{PINNED}-trogdor", POM, _copy_dependencies)
    configuration, task, output = (work / name for name in ("trogdor.json", "task.json", "output.txt"))
    configuration.write_text(json.dumps(CONFIGURATION))
    task.write_text(json.dumps(spec | {"clientNode": NODE}))
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
    command += ["org.apache.kafka.trogdor.agent.Agent", "-n", NODE, "-c", str(configuration)]
    command += ["--exec", str(task)]
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with (
        output.open("w") as file,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT) as agent,
    ):
        try:
            while agent.poll() is None and SHUTDOWN not in output.read_text():
                assert time.monotonic() < deadline, output.read_text()
                time.sleep(0.1)
        finally:
            agent.kill()
    return output.read_text()


def _copy_dependencies(directory: Path) -> None:
    options = [f"-Dkafka.version={PINNED}", "-DincludeScope=runtime", f"-DoutputDirectory={directory}"]
    run(["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", *options])
