"""Apache Kafka's node and tools, run with plain `java`."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from apache_oracle import BUILD, PINNED, built, run

POM = Path(__file__).parent / "apache" / "programs.xml"
LOGGING = Path(__file__).parent / "apache" / "log4j2.xml"
TIMEOUT_SECONDS = 60


class ApachePrograms:
    """The programs of a release, the pinned one if not another. Jars are kept in `build/apache/`."""

    def __init__(self, release: str = PINNED) -> None:
        self._jars = built(BUILD / f"{release}-programs", POM, partial(_copy_dependencies, release))

    def command(self, main_class: str, *arguments: str, heap: str = "256m") -> list[str]:
        options = [
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={LOGGING}",
        ]
        return ["java", *options, "-cp", f"{self._jars}/*", main_class, *arguments]

    def run(self, main_class: str, *arguments: str) -> str:
        """What a program prints; it must end well."""
        done = subprocess.run(
            self.command(main_class, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{main_class} {' '.join(arguments)}\n{done.stdout}"
        return done.stdout

    def dump_log(self, *files: Path) -> str:
        """kafka-dump-log over metadata logs and snapshots."""
        names = ",".join(str(file) for file in files)
        return self.run(
            "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", names
        )

    @contextlib.contextmanager
    def node(self, properties: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """A running Apache node; what it prints goes to a file."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.command("kafka.Kafka", str(properties), heap="512m"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"LOG_DIR": str(log.parent)},
            )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _copy_dependencies(release: str, directory: Path) -> None:
    options = [f"-Dkafka.version={release}", "-DincludeScope=runtime", f"-DoutputDirectory={directory}"]
    run(["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", *options])
