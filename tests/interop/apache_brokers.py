"""Apache brokers beside nodes of ours: their files, and the Java machines that run them."""

import signal
import subprocess
from collections.abc import Mapping, Set
from typing import Any, Self

from apache_programs import ApachePrograms

from node.processes import CLUSTER_ID, HOST, Processes
from quorate.protocol.types import Uuid

HEAP = "256m"
STOP_TIMEOUT_SECONDS = 60
SETTINGS = {
    "process_roles": "broker",
    "listener_security_protocol_map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "metadata_log_dir": None,
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "share_coordinator_state_topic_replication_factor": "1",
    "share_coordinator_state_topic_min_isr": "1",
    "group_initial_rebalance_delay_ms": "0",
}


class ApacheBrokers:
    """Brokers by their ids. What they print stands among the logs of the cluster."""

    def __init__(self, programs: ApachePrograms, cluster: Processes) -> None:
        self._programs = programs
        self._cluster = cluster
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(*self._running)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{self._cluster.port(one)}" for one in self._running)

    @property
    def running(self) -> Set[int]:
        return self._running.keys()

    def configure(self, broker_id: int, /, **changes: str | None) -> None:
        settings: Mapping[str, Any] = SETTINGS | {
            "listeners": f"PLAINTEXT://{HOST}:{self._cluster.port(broker_id)}",
            "log_dirs": str(self._cluster.directory(broker_id)),
        }
        self._cluster.configure(broker_id, **(settings | changes))

    def format(self, broker_id: int) -> None:
        """The one file that a broker needs."""
        directory = self._cluster.directory(broker_id)
        directory.mkdir()
        directory_id = Uuid(f"broker {broker_id:9}".encode())
        lines = ["version=1", f"cluster.id={CLUSTER_ID}", f"node.id={broker_id}"]
        lines.append(f"directory.id={directory_id}")
        (directory / "meta.properties").write_text("\n".join(lines) + "\n")

    def start(self, *broker_ids: int) -> None:
        for one in broker_ids:
            assert one not in self._running, f"broker {one} is running"
            command = self._programs.command("kafka.Kafka", str(self._cluster.configuration(one)), heap=HEAP)
            log = self._cluster.root / f"node-{one}.log"
            with log.open("ab") as output:
                self._running[one] = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
                )

    def kill(self, *broker_ids: int) -> None:
        """As `kill -9` does."""
        for process in [self._running.pop(one) for one in broker_ids]:
            process.kill()
            process.wait()

    def ask_to_end(self, broker_id: int) -> subprocess.Popen[bytes]:
        process = self._running.pop(broker_id)
        process.send_signal(signal.SIGTERM)
        return process

    def terminate(self, broker_id: int) -> int:
        """Asks a broker to end, and waits until it has; returns its exit code."""
        process = self.ask_to_end(broker_id)
        try:
            return process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"broker {broker_id} does not end\n{self._cluster._logs()}") from None
