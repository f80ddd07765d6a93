"""Apache Kafka's command-line tools, all in one Java machine that stays.

A tool that finishes its work while the machine ends, such as kafka-verifiable-producer, needs one of its own.

    with ApacheTools.start(programs) as tools:
        print(tools.run("topics", "--bootstrap-server", "localhost:9092", "--list"))
"""

import base64
import subprocess
import threading
from pathlib import Path
from typing import Self

from apache_oracle import BUILD, PINNED, built, run
from apache_programs import ApachePrograms

SOURCE = Path(__file__).parent / "apache" / "Tools.java"
STOP_TIMEOUT_SECONDS = 10
TIMEOUT_SECONDS = 60

CLASSES = {
    "api_versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "client_metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "compatibility": "org.apache.kafka.tools.ClientCompatibilityTest",
    "configs": "kafka.admin.ConfigCommand",
    "console_consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console_producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer_groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "delete_records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump_log": "org.apache.kafka.tools.DumpLogSegments",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get_offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader_election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log_dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata_quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "producer_performance": "org.apache.kafka.tools.ProducerPerformance",
    "reassign": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "reassign_partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable_consumer": "org.apache.kafka.tools.VerifiableConsumer",
}


class ApacheTools:
    """Running tools, one at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @classmethod
    def start(cls, programs: ApachePrograms) -> Self:
        command = programs.command("Tools")
        at = command.index("-cp") + 1
        jars = command[at]

        def compile_it(directory: Path) -> None:
            run(["javac", "--release", "17", "-cp", jars, "-d", str(directory), str(SOURCE)])

        command[at] += f":{built(BUILD / f'{PINNED}-tools', SOURCE, compile_it)}"
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        return cls(subprocess.Popen(command, text=True, **streams))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def run(self, name: str, *arguments: str, stdin: str = "") -> str:
        """What a tool prints; it must end well."""
        code, printed = self.ended(name, *arguments, stdin=stdin)
        assert code == 0, f"{name} {' '.join(arguments)}: exit code {code}\n{printed}"
        return printed

    def refused(self, name: str, *arguments: str, stdin: str = "") -> str:
        """What a tool prints that must not end well."""
        code, printed = self.ended(name, *arguments, stdin=stdin)
        assert code != 0, f"{name} {' '.join(arguments)}: it ended well\n{printed}"
        return printed

    def ended(self, name: str, *arguments: str, stdin: str = "") -> tuple[int, str]:
        """The exit code of a tool, and what it printed."""
        words = [CLASSES[name], stdin, *arguments]
        line = " ".join("." + base64.b64encode(word.encode()).decode() for word in words)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        deadline = threading.Timer(TIMEOUT_SECONDS, self._process.kill)
        deadline.start()
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        finally:
            deadline.cancel()
        assert answer, f"{name} {' '.join(arguments)}: no end in {TIMEOUT_SECONDS} seconds"
        code, _, printed = answer.rstrip("\n").partition(" .")
        return int(code), base64.b64decode(printed).decode(errors="replace")
