"""Writes what a release leaves on disk, for `tests/node/test_last_release.py`: today's code must open it.

    git clone . /tmp/release && git -C /tmp/release checkout <commit of the release>
    python tools/make_release_fixture.py /tmp/release tests/fixtures/release-<version>.tar.xz

The nodes run the code of that clone, and are driven by its own tests' harness. Three nodes, each broker and
controller, get topics, configurations, quotas and credentials; snapshots of the metadata are made; idempotent
producers write records in every codec, some of them into many segments. Nodes 1 and 2 are stopped in order,
node 3 is killed. Archived are their directories, and `expected.json`: what was acknowledged, and what the
leaders knew.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 4  # in a batch
BATCHES = 3  # of each codec
NODES = (1, 2, 3)
NOT_KEPT = (".lock", "admin.address")
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "stamped": {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "65536"},
    "rolled": {"segment.ms": "1", "retention.ms": "-1"},
    "compacted": {"cleanup.policy": "compact"},
}
BROKER_CONFIG = {"log.cleaner.threads": "2"}  # of node 1
SETTINGS = {
    "metadata_log_max_record_bytes_between_snapshots": "2000",
    "default_replication_factor": "3",
    "replica_high_watermark_checkpoint_interval_ms": "200",
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("release", type=Path, help="a clone of the project at the release")
    arguments.add_argument("archive", type=Path, help="the archive to write")
    given = arguments.parse_args()
    release = given.release.resolve()
    if "QUORATE_RELEASE" not in os.environ:
        # Once more, with the code of the release before ours: in this process and in those of the nodes.
        path = os.pathsep.join(str(release / one) for one in ("src", "tests"))
        again = [sys.executable, __file__, str(release), str(given.archive.resolve())]
        environment = os.environ | {"PYTHONPATH": path, "QUORATE_RELEASE": str(release)}
        raise SystemExit(subprocess.run(again, env=environment, check=False).returncode)
    with tempfile.TemporaryDirectory() as directory:
        expected = _run(Path(directory), release)
        _archive(Path(directory), given.archive, expected)
    print(f"{given.archive}: {given.archive.stat().st_size} bytes")


def _run(directory: Path, release: Path) -> dict[str, Any]:
    import quorate
    from node.cluster import ClusterProcesses

    assert Path(quorate.__file__).is_relative_to(release), quorate.__file__
    with ClusterProcesses(directory, combined=3, **SETTINGS) as cluster:
        _configure(cluster.bootstrap)
        records = [
            record
            for topic in TOPICS
            for codec in CODECS
            for record in _write(cluster.bootstrap, topic, codec)
        ]
        for topic in TOPICS:
            cluster.wait_until_led(topic, 2)
        cluster.wait("snapshots are made", lambda: all(map(cluster.snapshots, NODES)) or None)
        for one in NODES[:2]:
            assert cluster.terminate(one) == 0
        cluster.kill(NODES[-1])
        commit = subprocess.run(
            ["git", "-C", str(release), "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
        )
        return {
            "commit": commit.stdout.strip(),
            "topics": TOPICS,
            "broker_config": BROKER_CONFIG,
            "records": records,
        }


def _configure(servers: str) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewTopic,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([NewTopic(name, 2, 3, config=config) for name, config in TOPICS.items()])
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in BROKER_CONFIG.items()
    ]
    resource = ConfigResource("broker", "1", incremental_configs=entries)
    changed = admin.incremental_alter_configs([resource])
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    secret = admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("ann", info, b"secret", b"salt")]
    )
    for future in (*made.values(), *changed.values(), *secret.values()):
        future.result(60)


def _write(servers: str, topic: str, codec: str) -> list[dict[str, Any]]:
    """Batches of one producer, and where each record went."""
    from confluent_kafka import Producer

    written: list[dict[str, Any]] = []

    def note(error: Any, message: Any) -> None:
        assert error is None, error
        written.append(
            {
                "topic": topic,
                "partition": message.partition(),
                "offset": message.offset(),
                "key": message.key().decode(),
                "value": message.value().decode(),
            }
        )

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 50,
            "client.id": f"{topic}-{codec}",
        }
    )
    for batch in range(BATCHES):
        for partition in range(2):
            for number in range(RECORDS):
                value = f"{topic} {codec} {batch} {number} " + "word " * 20
                producer.produce(topic, value, f"{codec}-{number}", partition, on_delivery=note)
        assert producer.flush(60) == 0
    return written


def _archive(directory: Path, archive: Path, expected: dict[str, Any]) -> None:
    (directory / "expected.json").write_text(json.dumps(expected, indent=1))

    def kept(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if Path(info.name).name in NOT_KEPT:
            return None
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info

    archive.parent.mkdir(exist_ok=True)
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        tar.add(directory / "expected.json", "expected.json", filter=kept)
        for one in NODES:
            name = f"node-{one}"
            tar.add(_directory(directory, one), name, filter=kept)


def _directory(root: Path, node_id: int) -> Path:
    from node.processes import Processes

    return Processes(root).directory(node_id)


if __name__ == "__main__":
    main()
