"""A cluster of `quorate node` processes on this machine, with their directories under one temporary one.

    with Processes(tmp_path) as cluster:
        cluster.format_static(3)
        cluster.start(1, 2, 3)
        leader = cluster.wait_for_leader()
        cluster.kill(leader["leader_id"])

Whatever happens, leaving the block ends the processes that it started. A condition that does not come true
fails with the last lines that every node has logged.
"""

import asyncio
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from quorate.cli.quorum import describe
from quorate.net.connections import Connections
from quorate.node.metadata_log import PARTITION_DIRECTORY
from quorate.protocol import batch as batches
from quorate.protocol.errors import ApiError
from quorate.protocol.message import Request, Response
from quorate.storage.files import RealFiles
from quorate.storage.limits import LogConfig
from quorate.storage.log import Log
from quorate.testing.ports import HOST, Ports, claim

CLUSTER_ID = "q8K3yH5ASs2mFvAaEvJ0QA"
DEADLINE_S = 60.0
POLL_S = 0.05
SETTINGS = {
    "controller.quorum.election.timeout.ms": "250",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "600",
    "controller.quorum.request.timeout.ms": "600",
    "metadata.max.idle.interval.ms": "20",
    "quorate.events.publish": "false",  # clusters of tests have the topics that tests give them
}

T = TypeVar("T")


def quorate(*arguments: str) -> list[str]:
    """The command, run by the Python that runs the tests."""
    return [sys.executable, "-c", "from quorate.cli.start import main; main()", *arguments]


def run_quorate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end."""
    command = quorate(*arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def has_ended(pid: int) -> bool:
    """Whether a process has ended that need not be our child; one whose parent has not been told yet, too."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the latter if it goes while it is read
        return True


class Processes:
    """Nodes by their ids: their files, and the processes that run them."""

    def __init__(self, root: Path, **settings: str) -> None:
        self.root = root
        self.settings = SETTINGS | {key.replace("_", "."): value for key, value in settings.items()}
        self._ports: dict[int, _Port] = {}
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()
        for port in self._ports.values():
            port.give_back()

    # Files

    def port(self, node_id: int) -> int:
        if node_id not in self._ports:
            self._ports[node_id] = _Port()
        return self._ports[node_id].number

    def address(self, node_id: int) -> tuple[str, int]:
        return HOST, self.port(node_id)

    def directory(self, node_id: int) -> Path:
        return self.root / f"node-{node_id}"

    def metadata(self, node_id: int) -> Path:
        return self.directory(node_id) / PARTITION_DIRECTORY

    def configure(self, node_id: int, /, **changes: str | None) -> Path:
        """Writes the configuration of a node; None takes a key away."""
        listener = f"CONTROLLER://{HOST}:{self.port(node_id)}"
        properties: dict[str, str | None] = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "listeners": listener,
            "controller.listener.names": "CONTROLLER",
            "metadata.log.dir": str(self.directory(node_id)),
            **self.settings,
            **{key.replace("_", "."): value for key, value in changes.items()},
        }
        path = self.root / f"node-{node_id}.properties"
        lines = [f"{key}={value}" for key, value in properties.items() if value is not None]
        path.write_text("\n".join(lines) + "\n")
        return path

    def configuration(self, node_id: int) -> Path:
        return self.root / f"node-{node_id}.properties"

    def format_static(self, count: int) -> None:
        """Voters 1 to `count`, as every configuration lists them."""
        ids = range(1, count + 1)
        voters = ",".join(f"{one}@{HOST}:{self.port(one)}" for one in ids)
        for one in ids:
            self.configure(one, controller_quorum_voters=voters)
            self.format(one)

    def format(self, node_id: int, *options: str) -> None:
        config = str(self.configuration(node_id))
        done = run_quorate("storage", "format", "-t", CLUSTER_ID, "-c", config, *options)
        assert done.returncode == 0, done.stderr

    # Processes

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            assert node_id not in self._running, f"node {node_id} is running"
            with self._log(node_id).open("ab") as output:
                self._running[node_id] = subprocess.Popen(
                    quorate("node", str(self.configuration(node_id))),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )

    def kill(self, *node_ids: int) -> None:
        """As `kill -9` does."""
        for node_id in node_ids:
            process = self._running.pop(node_id)
            process.kill()
            process.wait()

    def terminate(self, node_id: int) -> int:
        """Asks a node to end; returns its exit code."""
        self._running[node_id].terminate()
        return self.wait_for_end(node_id)

    def wait_for_end(self, node_id: int) -> int:
        """The exit code of a node that ends by itself."""
        process = self._running.pop(node_id)
        try:
            return process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"node {node_id} does not end\n{self._logs()}") from None

    def pause(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self._running[node_id].send_signal(signal.SIGSTOP)

    def resume(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self._running[node_id].send_signal(signal.SIGCONT)

    # Questions

    def describe(self, *node_ids: int) -> dict[str, Any] | None:
        """What the leader says, looked for among these nodes or all that run; None if there is none now."""
        try:
            return describe([self.address(one) for one in node_ids or self._running])
        except ApiError:
            return None

    def ask(self, node_id: int, request: Request, version_cap: int | None = None) -> Response:
        """One request on a connection of its own."""

        async def send() -> Response:
            connections = Connections(rng=random.Random(), client_id="quorate-tests")
            try:
                return await connections.request(
                    self.address(node_id), request, version_cap, timeout_ms=DEADLINE_S * 1000
                )
            finally:
                await connections.close()

        return asyncio.run(send())

    def wait(self, what: str, condition: Callable[[], T | None]) -> T:
        """The first answer that is true, within the deadline."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            found = condition()
            if found:
                return found
            gone = [one for one, process in self._running.items() if process.poll() is not None]
            if gone or time.monotonic() > deadline:
                reason = f"nodes {gone} have ended" if gone else f"not in {DEADLINE_S:.0f} seconds"
                raise AssertionError(f"{what}: {reason}\n{self._logs()}")
            time.sleep(POLL_S)

    def wait_for_leader(
        self, *node_ids: int, other_than: int | None = None, above: int = -1
    ) -> dict[str, Any]:
        """The quorum, once it has a leader that has committed beyond an offset."""

        def led() -> dict[str, Any] | None:
            found = self.describe(*node_ids)
            if found is None or found["leader_id"] == other_than or found["high_watermark"] <= above:
                return None
            return found

        return self.wait(f"a leader other than {other_than} with more than {above} committed", led)

    def wait_until_caught_up(self, *node_ids: int, beyond: int = -1) -> dict[str, Any]:
        """The quorum, once all these replicas have fetched what was committed at the beginning of the wait,
        and what lies before an offset. Its high watermark is the part of the real one that all of them have.
        """
        goal = max(beyond, self.wait_for_leader()["high_watermark"])

        def caught_up() -> dict[str, Any] | None:
            found = self.describe()
            if found is None or found["high_watermark"] < goal:
                return None
            ends = {one["id"]: one["log_end_offset"] for one in found["voters"] + found["observers"]}
            common = min(ends.get(one, -1) for one in node_ids)
            return (
                found | {"high_watermark": min(common, found["high_watermark"])} if common >= goal else None
            )

        return self.wait(f"nodes {node_ids} at {goal}", caught_up)

    def logged(self, node_id: int) -> str:
        """Everything that a node has said, in all its lives."""
        path = self._log(node_id)
        return path.read_text(errors="replace") if path.exists() else ""

    def batches(self, node_id: int) -> dict[int, bytes]:
        """The log of a node as it is on disk now: every batch by its first offset.

        A copy is read: opening a log recovers it, which is for its owner to do.
        """
        with tempfile.TemporaryDirectory(dir=self.root) as copy:
            for path in sorted(self.metadata(node_id).iterdir()):
                if path.suffix == ".log" or path.name == "leader-epoch-checkpoint":
                    shutil.copy(path, copy)
            return asyncio.run(_read(copy))

    def committed(self, node_id: int, high_watermark: int) -> dict[int, bytes]:
        """The batches of a node below a high watermark."""
        found = self.batches(node_id)
        return {offset: batch for offset, batch in found.items() if offset < high_watermark}

    def snapshots(self, node_id: int) -> list[Path]:
        return sorted(self.metadata(node_id).glob("*.checkpoint"))

    def _log(self, node_id: int) -> Path:
        return self.root / f"node-{node_id}.log"

    def _logs(self) -> str:
        parts = []
        for path in sorted(self.root.glob("node-*.log")):
            lines = path.read_text(errors="replace").splitlines()[-15:]
            parts.append(f"-- {path.name}\n" + "\n".join(lines))
        return "\n".join(parts)


async def _read(directory: str) -> dict[int, bytes]:
    log = await Log.open(RealFiles(), directory, LogConfig(), now_ms=0)
    found: dict[int, bytes] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        view = log.read(offset, 1 << 20)
        for header in batches.batches(view):
            batches.validate(view, header.position)
            found[header.base_offset] = bytes(view[header.position : header.end])
            offset = header.next_offset
    log.abandon()
    return found


def offsets_of(found: dict[int, bytes]) -> list[int]:
    """The offsets of all records in batches."""
    headers = [batches.read_header(batch) for batch in found.values()]
    return [offset for one in headers for offset in range(one.base_offset, one.next_offset)]


def tree(directory: Path, *, without: Sequence[str] = (".lock",)) -> dict[str, bytes]:
    """Every file under a directory."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name not in without]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


class _Port:
    """A port that nobody listens on, and that no other cluster takes as long as this one has it."""

    def __init__(self) -> None:
        with Ports() as ports:
            self.number = ports.any()
        self._claims = claim([self.number])

    def give_back(self) -> None:
        for one in self._claims:
            one.close()
