"""A cluster whose brokers have several log directories, some of them on real disks that can be pulled.

A disk is a file with an ext4 in it, mounted. `pull` makes every read and write of it fail with EIO, as when
somebody pulls the plug of a disk; `fill` leaves no room. Both need the right to mount: without it `disks`
skips the test.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.broker_processes import BrokerProcesses
from quorate.protocol.api.admin import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from quorate.protocol.errors import ErrorCode

DISK_BYTES = 48 << 20
_SHUT_DOWN = (2 << 30) | (4 << 16) | (ord("X") << 8) | 125  # FS_IOC_SHUTDOWN of Linux

SETTINGS = {
    "broker_session_timeout_ms": "6000",
    "broker_heartbeat_interval_ms": "300",
    "replica_lag_time_max_ms": "3000",
    "replica_fetch_wait_max_ms": "200",
    "replica_fetch_backoff_ms": "100",
    "replica_high_watermark_checkpoint_interval_ms": "500",
    "auto_leader_rebalance_enable": "false",
}

LogDir = DescribeLogDirsResponse.Result


class Disk:
    """A disk of its own, at a path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._image = path.with_suffix(".img")

    def mount(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as file:
            file.truncate(DISK_BYTES)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        _run("mount", "-o", "loop", str(self._image), str(self.path))

    def unmount(self) -> None:
        _run("umount", "-l", str(self.path))
        self._image.unlink()

    def pull(self) -> None:
        """Nothing can be read or written any more."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUT_DOWN, struct.pack("I", 0))
        finally:
            os.close(descriptor)

    def make_read_only(self) -> None:
        """What ext4 does by itself when it finds an error."""
        _run("mount", "-o", "remount,abort", str(self.path))

    def fill(self) -> None:
        """Leaves no room."""
        with contextlib.suppress(OSError), (self.path / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[Disk]]:
    """Three disks: one for each broker of a cluster."""
    if os.geteuid() or not shutil.which("mkfs.ext4"):
        pytest.skip("disks that fail have to be mounted, which only root can do")
    made: list[Disk] = []
    try:
        for number in (101, 102, 103):
            disk = Disk(tmp_path / f"disk-{number}")
            try:
                disk.mount()
            except subprocess.CalledProcessError as error:
                pytest.skip(f"disks that fail cannot be mounted here: {error.stderr}")
            made.append(disk)
        yield made
    finally:
        for disk in made:
            disk.unmount()


class SeveralDisks(BrokerProcesses):
    """Each broker has a log directory on a disk that stays, with its metadata log, and one on a disk that may
    not. Without such disks both are ordinary."""

    second: dict[int, Path] | None = None

    def configure_node(self, node_id: int, **changes: str | None) -> None:
        if node_id in self.broker_ids:
            changes = {"log_dirs": ",".join(map(str, self.log_directories(node_id))), **changes}
        super().configure_node(node_id, **changes)

    def log_directories(self, broker_id: int) -> list[Path]:
        second = (self.second or {}).get(broker_id, self.root)
        return [self.directory(broker_id), second / f"node-{broker_id}-second"]

    def partition_directory(self, broker_id: int, topic: str, partition: int = 0) -> Path:
        return self.home(broker_id, topic, partition) / f"{topic}-{partition}"

    def home(self, broker_id: int, topic: str, partition: int = 0) -> Path:
        """The log directory that a replica is in, by its name on disk."""
        found = [one for one in self.log_directories(broker_id) if (one / f"{topic}-{partition}").is_dir()]
        assert len(found) == 1, found
        return found[0]

    def described(self, broker_id: int, topic: str | None = None, partitions: int = 1) -> dict[str, LogDir]:
        """What a broker says of its log directories."""
        topics = None
        if topic is not None:
            asked = DescribeLogDirsRequest.DescribableLogDirTopic(
                topic=topic, partitions=list(range(partitions))
            )
            topics = [asked]
        answer = self.ask_broker(broker_id, DescribeLogDirsRequest(topics=topics))
        assert isinstance(answer, DescribeLogDirsResponse)
        assert answer.error_code == ErrorCode.NONE
        return {one.log_dir: one for one in answer.results}

    def replicas_in(self, broker_id: int, path: Path, topic: str, *, is_future: bool = False) -> list[int]:
        """The partitions of a topic with a replica in a directory, as a broker says."""
        found = self.described(broker_id)[str(path)]
        return sorted(
            one.partition_index
            for each in found.topics
            if each.name == topic
            for one in each.partitions
            if one.is_future_key == is_future
        )

    def move(self, broker_id: int, path: Path | str, topic: str, *partitions: int) -> list[ErrorCode]:
        """Asks a broker to move replicas; what it says to each."""
        data = AlterReplicaLogDirsRequest.AlterReplicaLogDir
        wanted = data(
            path=str(path),
            topics=[data.AlterReplicaLogDirTopic(name=topic, partitions=list(partitions or (0,)))],
        )
        answer = self.ask_broker(broker_id, AlterReplicaLogDirsRequest(dirs=[wanted]))
        assert isinstance(answer, AlterReplicaLogDirsResponse)
        return [ErrorCode(one.error_code) for each in answer.results for one in each.partitions]

    def wait_until_moved(self, broker_id: int, path: Path, topic: str, *partitions: int) -> None:
        wanted = sorted(partitions or (0,))
        self.wait(
            f"{topic} {wanted} are in {path} on broker {broker_id}",
            lambda: set(wanted) <= set(self.replicas_in(broker_id, path, topic)),
        )


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
