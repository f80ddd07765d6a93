"""The same clusters of processes in either mode, for tests that hold for both.

    @pytest.fixture(scope="module", params=BOTH_MODES)
    def cluster(request, tmp_path_factory):
        with cluster_of(request.param, tmp_path_factory.mktemp("cluster"), **SETTINGS) as running:
            yield running

In ZooKeeper mode there are no controllers but the broker that is elected, and a ZooKeeper, alone or an
ensemble, runs beside the brokers. What `wait_for_leader` tells is then who that broker is.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from node.broker_processes import BrokerProcesses
from node.cluster import LISTENERS
from node.processes import DEADLINE_S, HOST, quorate
from quorate.net.client import ConnectionLost
from quorate.protocol.api.admin import DescribeClusterRequest, DescribeClusterResponse
from quorate.protocol.errors import ApiError
from zookeeper.zookeeper_servers import Ensemble, ZooKeeperServer, free_ports, jars

BOTH_MODES = ["kraft", pytest.param("zookeeper", marks=pytest.mark.zookeeper)]
_SESSION = "broker_session_timeout_ms"


def cluster_of(mode: str, root: Path, **settings: Any) -> BrokerProcesses:
    """Three controllers and three brokers, or three brokers and a ZooKeeper, unless it is said otherwise."""
    if mode == "kraft":
        return BrokerProcesses(root, **settings)
    check_java()
    settings.pop("controllers", None)
    return ZooKeeperProcesses(root, **settings)


def check_java() -> None:
    """Skips where no ZooKeeper can be had."""
    from apache_oracle import missing

    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    jars()


class ZooKeeperProcesses(BrokerProcesses):
    """Brokers 101, 102, 103... of ZooKeeper mode. `zookeepers` is how many servers their ZooKeeper has; with
    `connect` they use another one."""

    mode = "zookeeper"

    def __init__(
        self,
        root: Path,
        *,
        brokers: int = 3,
        zookeepers: int = 1,
        connect: str | None = None,
        listeners: Mapping[str, str] = LISTENERS,
        **settings: str,
    ) -> None:
        session_ms = settings.pop(_SESSION, "6000")
        own = {
            "zookeeper_session_timeout_ms": session_ms,
            "controlled_shutdown_retry_backoff_ms": "200",
            **settings,
        }
        super().__init__(root, controllers=0, brokers=brokers, listeners=listeners, **own)
        self.zookeeper: ZooKeeperServer | Ensemble | None = None
        self._connect = connect
        if connect is None and zookeepers > 1:
            self.zookeeper = Ensemble(root / "zookeeper", zookeepers)
        elif connect is None:
            self.zookeeper = ZooKeeperServer(root / "zookeeper", *free_ports(1))

    @property
    def connect(self) -> str:
        if self._connect is not None:
            return self._connect
        if isinstance(self.zookeeper, Ensemble):
            return self.zookeeper.addresses
        assert self.zookeeper is not None
        return self.zookeeper.address

    @property
    def cluster_id(self) -> str:
        """As the first broker has written it down."""
        text = (self.directory(self.broker_ids[0]) / "meta.properties").read_text()
        return text.partition("cluster.id=")[2].split()[0]

    def __enter__(self) -> Self:
        if self.zookeeper is not None:
            self.zookeeper.start()
        try:
            if isinstance(self.zookeeper, ZooKeeperServer):
                self.zookeeper.wait()
            return super().__enter__()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *reason: object) -> None:
        super().__exit__(*reason)
        if self.zookeeper is not None:
            self.zookeeper.kill()

    # Files

    def prepare(self) -> None:
        """Nobody formats anything."""
        for one in self.node_ids:
            self.configure_node(one)

    def configure_node(self, node_id: int, **changes: str | None) -> None:
        names = list(self.listeners)
        ports = {name: self.client_port(node_id, name) for name in names}
        settings: dict[str, Any] = {
            "process_roles": None,
            "node_id": None,
            "controller_listener_names": None,
            "metadata_log_dir": None,
            "broker_id": str(node_id),
            "zookeeper_connect": self.connect,
            "listeners": ",".join(f"{name}://{HOST}:{ports[name]}" for name in names),
            "advertised_listeners": ",".join(
                f"{name}://{host}:{ports[name]}" for name, host in self.listeners.items()
            ),
            "listener_security_protocol_map": ",".join(f"{name}:PLAINTEXT" for name in names),
            "inter_broker_listener_name": names[0],
            "log_dirs": str(self.directory(node_id)),
        }
        self.configure(node_id, **(settings | changes))

    def empty(self, node_id: int) -> None:
        assert node_id not in self._running
        shutil.rmtree(self.directory(node_id))

    def run_twin(self, broker_id: int, **changes: str) -> subprocess.CompletedProcess[str]:
        path = self.root / f"twin-{broker_id}.properties"
        text = self.configuration(broker_id).read_text()
        text = text.replace(str(self.directory(broker_id)), str(self.root / f"twin-{broker_id}"))
        text = text.replace(f":{self.client_port(broker_id)}", ":0")
        lines = [text, *(f"{key.replace('_', '.')}={value}" for key, value in changes.items())]
        path.write_text("\n".join(lines) + "\n")
        return subprocess.run(
            quorate("node", str(path)), capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )

    # Questions

    @property
    def controller_id(self) -> int:
        """Who is the controller, as the first broker says that answers; -1 if nobody is."""
        for one in self.running_brokers:
            with contextlib.suppress(ApiError, ConnectionLost):
                found = self.ask_broker(
                    one, DescribeClusterRequest(include_cluster_authorized_operations=False)
                )
                assert isinstance(found, DescribeClusterResponse)
                return found.controller_id
        return -1

    @property
    def governors(self) -> list[int]:
        return [self.controller_id]

    def wait_for_leader(
        self, *_node_ids: int, other_than: int | None = None, above: int = -1
    ) -> dict[str, Any]:
        def led() -> dict[str, Any] | None:
            found = self.controller_id
            return None if found in (-1, other_than) else {"leader_id": found, "high_watermark": above + 1}

        return self.wait(f"a controller other than {other_than}", led)
