"""Brokers to be measured: nodes of ours and of Apache Kafka, started as users start them.

Both get the same file of settings, in which stands what has to, and their own defaults for all the rest.
Apache's runs with the options that its start script gives a Java machine.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, Self

from bench.broker_wire import HOST, Wire, produce_request
from quorate.net.client import ConnectionLost
from quorate.protocol.api.produce_fetch import ProduceResponse
from quorate.protocol.api.topics import MetadataRequest, MetadataResponse

CLUSTER_ID = "q8K3yH5ASs2mFvAaEvJ0QA"
FIRST_TOPIC = "first"
START_SECONDS_MAX = 60
POLL_S = 0.002
JAVA_OPTIONS = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
# What is deleted is gone at once. Otherwise Apache's topics of earlier rounds keep memory from being used
# again, and are being written to the disk while later rounds are measured.
AT_ONCE = {"log.segment.delete.delay.ms": "0", "log.initial.task.delay.ms": "200"}
TESTS = Path(__file__).parent.parent / "tests"


class Nodes:
    """Nodes that are broker and controller, a cluster. Leaving the block ends them and takes their files."""

    def __init__(
        self,
        name: str,
        root: Path,
        commands: Commands,
        count: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._more_settings = settings or {}
        self._root = root / name.lower()
        self._commands = commands
        self._ids = range(1, count + 1)
        self._ports = dict(zip(self._ids, free_ports(count), strict=True))
        self._controller_ports = dict(zip(self._ids, free_ports(count), strict=True))
        self._processes: list[subprocess.Popen[bytes]] = []
        self.seconds_to_first_record = 0.0

    def __enter__(self) -> Self:
        self._root.mkdir(parents=True)
        for one in self._ids:
            path = self._file(one)
            path.write_text("".join(f"{key}={value}\n" for key, value in self._settings(one).items()))
            _run(self._commands.format_storage(path), _environment(self._root.parent))
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        shutil.rmtree(self._root, ignore_errors=True)

    def _start(self) -> None:
        started = time.perf_counter()
        for one in self._ids:
            with (self._root / f"{one}.log").open("wb") as output:
                self._processes.append(
                    subprocess.Popen(
                        self._commands.run(self._file(one)),
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        cwd=self._root,
                        env=_environment(self._root.parent),
                    )
                )
        self._wait_for_first_record(started + START_SECONDS_MAX)
        self.seconds_to_first_record = time.perf_counter() - started

    def _settings(self, node_id: int) -> Mapping[str, str]:
        voters = ",".join(f"{one}@{HOST}:{port}" for one, port in self._controller_ports.items())
        copies = str(min(3, len(self._ids)))
        return {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{HOST}:{self._ports[node_id]},"
            f"CONTROLLER://{HOST}:{self._controller_ports[node_id]}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._root / f"data-{node_id}"),
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            **AT_ONCE,
            **self._more_settings,
        }

    def _file(self, node_id: int) -> Path:
        return self._root / f"{node_id}.properties"

    def _wait_for_first_record(self, deadline: float) -> None:
        """A topic that is created because somebody asks for it, and a record in it."""
        wire = self._connect(deadline)
        leader = -1
        while True:
            self._check_alive(deadline)
            try:
                if leader < 0:
                    leader = _leader(wire, FIRST_TOPIC, len(self._ids))
                    if leader > 1:
                        wire.close()
                        wire = Wire(self.port_of(leader))
                elif _is_appended(wire):
                    break
                else:
                    leader = -1
            except ConnectionLost:
                wire = self._connect(deadline)
            time.sleep(POLL_S)
        wire.close()

    def _connect(self, deadline: float) -> Wire:
        while True:
            try:
                return Wire(self._ports[1])
            except OSError:
                self._check_alive(deadline)
                time.sleep(POLL_S)

    def _check_alive(self, deadline: float) -> None:
        if any(one.poll() is not None for one in self._processes) or time.perf_counter() > deadline:
            raise AssertionError(f"{self.name} does not start\n{self.logged()}")

    def logged(self) -> str:
        """The last lines of what the nodes have said."""
        return "\n".join(
            "\n".join(path.read_text(errors="replace").splitlines()[-20:])
            for path in sorted(self._root.glob("*.log"))
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports.values())

    def port_of(self, node_id: int) -> int:
        return self._ports[node_id]

    def leader_port(self, topic: str) -> int:
        """Where the leader of the first partition of a topic listens, once there is one."""
        wire = self._connect(time.perf_counter() + START_SECONDS_MAX)
        while (leader := _leader(wire, topic)) < 0:
            time.sleep(POLL_S)
        wire.close()
        return self._ports[leader]

    @property
    def pid(self) -> int:
        return self._processes[0].pid

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def kill(self, node_id: int) -> None:
        """As `kill -9` does."""
        process = self._processes[node_id - 1]
        process.kill()
        process.wait()

    def resident_bytes(self) -> int:
        return _status_bytes(self.pid, "VmRSS:")

    def resident_bytes_max(self) -> int:
        return _status_bytes(self.pid, "VmHWM:")


class Commands(Protocol):
    """How a node is made and run."""

    def format_storage(self, settings: Path) -> Sequence[str]: ...

    def run(self, settings: Path) -> Sequence[str]: ...


class QuorateCommands:
    """The `quorate` command of the Python that runs this."""

    _COMMAND = (sys.executable, "-c", "from quorate.cli.start import main; main()")

    def format_storage(self, settings: Path) -> Sequence[str]:
        return [*self._COMMAND, "storage", "format", "-t", CLUSTER_ID, "-c", str(settings)]

    def run(self, settings: Path) -> Sequence[str]:
        return [*self._COMMAND, "node", str(settings)]


class ApacheCommands:
    """The pinned release of Apache Kafka."""

    def __init__(self) -> None:
        sys.path[:0] = [str(TESTS / "interop")]
        from apache_oracle import PINNED
        from apache_programs import LOGGING, ApachePrograms

        command = ApachePrograms().command("unused")
        self.about = f"Quorate / Apache Kafka {PINNED}, one node each"
        self._options = [f"-Dlog4j2.configurationFile={LOGGING}", "-cp", command[command.index("-cp") + 1]]

    def format_storage(self, settings: Path) -> Sequence[str]:
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(settings)]
        return ["java", *self._options, "kafka.tools.StorageTool", *arguments]

    def run(self, settings: Path) -> Sequence[str]:
        return ["java", *JAVA_OPTIONS, *self._options, "kafka.Kafka", str(settings)]


def why_no_apache() -> str | None:
    """What is missing to run Apache's nodes here."""
    sys.path[:0] = [str(TESTS / "interop")]
    from apache_oracle import missing

    return missing()


@contextmanager
def apart(pid: int) -> Iterator[None]:
    """A process has a core to itself, and we have the others. How long two processes take to speak to each
    other depends on whether they share a core; where they are left to the system, that changes from run to
    run."""
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        yield
        return
    theirs = max(cores)
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {theirs})
    os.sched_setaffinity(0, cores - {theirs})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores)


def cpu_seconds(pid: int) -> float:
    """What all threads of a process have used, to the nanosecond: its clock, as clock_getcpuclockid(3) names
    it."""
    return time.clock_gettime((~pid << 3) | 2)


def _status_bytes(pid: int, field: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(field))


def _leader(wire: Wire, topic: str, brokers: int = 1) -> int:
    """Who leads the first partition of a topic, once there is somebody, and at least so many brokers."""
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)], allow_auto_topic_creation=True)
    answer = wire.ask(request, 9)
    assert isinstance(answer, MetadataResponse)
    partitions = answer.topics[0].partitions
    known = {one.node_id for one in answer.brokers}
    is_led = partitions and partitions[0].leader_id in known and len(known) >= brokers
    return partitions[0].leader_id if is_led else -1


def _is_appended(wire: Wire) -> bool:
    answer = wire.ask(produce_request(FIRST_TOPIC, [b"x" * 100]), 9)
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code == 0


def free_ports(count: int) -> list[int]:
    free = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in free]
    for one in free:
        one.close()
    return ports


def _environment(root: Path) -> dict[str, str]:
    """Modules are compiled once, as those of an installed package are, but beside our own."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(root / "compiled")}


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")
