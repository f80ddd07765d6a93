"""Real ZooKeeper servers on loopback: one alone, or an ensemble. They are started without a service manager,
with ticks short enough for sessions of two seconds, and without an fsync for every transaction."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "interop"))

from apache_oracle import BUILD, built, run

POM = Path(__file__).parent / "zookeeper.xml"
TICK_MS = 200
DEADLINE_S = 60

_OPTIONS = [
    "-Xms16m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xss512k",
    "-XX:+PerfDisableSharedMem",
    "-Dzookeeper.preAllocSize=1024",
    "-Dzookeeper.forceSync=no",
    "-Djute.maxbuffer=4194304",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
]


def jars() -> Path:
    """The server and what it needs, fetched once with Maven."""
    return built(BUILD / "zookeeper-server", POM, _copy_dependencies)


def _copy_dependencies(directory: Path) -> None:
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={directory}"]
    run(["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", *options])


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class ZooKeeperServer:
    """One server process. `stop` and `start` keep its data, as `kill` does."""

    def __init__(self, directory: Path, port: int, number: int = 0, servers: Sequence[str] = ()) -> None:
        self.port = port
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.extra: list[str] = []  # options of the Java machine
        (directory / "data").mkdir(parents=True)
        lines = [
            f"tickTime={TICK_MS}",
            "minSessionTimeout=400",
            "maxSessionTimeout=60000",
            f"dataDir={directory / 'data'}",
            "clientPortAddress=127.0.0.1",
            f"clientPort={port}",
            "admin.enableServer=false",
            "4lw.commands.whitelist=*",
            "maxClientCnxns=0",
        ]
        if servers:
            (directory / "data" / "myid").write_text(f"{number}\n")
            lines += ["initLimit=50", "syncLimit=25", *servers]
        (directory / "zoo.cfg").write_text("\n".join(lines) + "\n")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns at once; see `wait`."""
        with (self._directory / "out").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    "java",
                    *_OPTIONS,
                    *self.extra,
                    "-cp",
                    f"{jars()}/*",
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    str(self._directory / "zoo.cfg"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait(self) -> None:
        """Until it serves."""
        deadline = time.monotonic() + DEADLINE_S
        while "Mode:" not in self.ask("srvr"):
            assert self._process is not None
            assert self._process.poll() is None, (self._directory / "out").read_text()
            assert time.monotonic() < deadline, (self._directory / "out").read_text()
            time.sleep(0.02)

    def ask(self, word: str) -> str:
        """The answer to one of its four letter words; empty if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(word.encode())
                answer = b""
                while some := connection.recv(65536):
                    answer += some
                return answer.decode(errors="replace")
        except OSError:
            return ""

    @property
    def is_leader(self) -> bool:
        return "Mode: leader" in self.ask("srvr")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class Ensemble:
    """Servers that serve together."""

    def __init__(self, directory: Path, count: int) -> None:
        ports = free_ports(3 * count)
        lines = [
            f"server.{number}=127.0.0.1:{ports[3 * number - 2]}:{ports[3 * number - 1]}"
            for number in range(1, count + 1)
        ]
        self.servers = [
            ZooKeeperServer(directory / str(number), ports[3 * number - 3], number, lines)
            for number in range(1, count + 1)
        ]

    @property
    def addresses(self) -> str:
        return ",".join(one.address for one in self.servers)

    @property
    def leader(self) -> ZooKeeperServer:
        return next(one for one in self.servers if one.is_leader)

    def start(self) -> None:
        for one in self.servers:
            one.start()
        for one in self.servers:
            one.wait()

    def kill(self) -> None:
        for one in self.servers:
            one.kill()
