"""Brokers with several disks, under load: replicas move between them, and disks fail for real."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.broker_processes import Load
from node.several_disks import SETTINGS, Disk, SeveralDisks, disks
from quorate.protocol.errors import ErrorCode

__all__ = ["disks"]  # a fixture

pytestmark = pytest.mark.processes

ALL = (101, 102, 103)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralDisks]:
    """Ordinary directories. Every test leaves it running."""
    with SeveralDisks(tmp_path_factory.mktemp("cluster"), **SETTINGS) as running:
        yield running


@pytest.fixture
def breakable(tmp_path: Path, disks: list[Disk]) -> Iterator[SeveralDisks]:
    cluster = SeveralDisks(tmp_path / "cluster", **SETTINGS)
    cluster.root.mkdir()
    cluster.second = {one: disk.path for one, disk in zip(ALL, disks, strict=True)}
    with cluster as running:
        yield running


def test_replicas_move_to_and_fro_while_producers_write(cluster: SeveralDisks):
    cluster.create_topic("moved", ALL, ALL[1:] + ALL[:1], min_insync_replicas=2)
    with Load(cluster, "moved", partitions=2, padding=500) as load:
        load.wait_for_more(300)
        for _ in range(2):
            for one in ALL:
                here = cluster.home(one, "moved")
                there = next(path for path in cluster.log_directories(one) if path != here)
                assert cluster.move(one, there, "moved", 0, 1) == [ErrorCode.NONE] * 2
                cluster.wait_until_moved(one, there, "moved", 0, 1)
                load.wait_for_more(100)
        cluster.wait_until_in_sync("moved")
    load.check()
    cluster.wait(
        "all replicas are the same",
        lambda: len({cluster.stored(one, "moved") for one in ALL}) == 1,
    )


def test_a_broker_that_is_killed_in_the_middle_of_a_move_goes_on_with_it(cluster: SeveralDisks):
    cluster.create_topic("interrupted", ALL, min_insync_replicas=2)
    with Load(cluster, "interrupted", padding=1000) as load:
        load.wait_for_more(2000)
        here = cluster.home(102, "interrupted")
        there = next(path for path in cluster.log_directories(102) if path != here)
        assert cluster.move(102, there, "interrupted") == [ErrorCode.NONE]
        cluster.kill(102)
        load.wait_for_more(200)
        cluster.start(102)
        cluster.wait_until_unfenced(102)
        cluster.wait_until_moved(102, there, "interrupted")
        cluster.wait_until_in_sync("interrupted")
    load.check()
    assert cluster.home(102, "interrupted") == there
    assert not list(there.glob("*-future"))


def test_what_cannot_be_moved(cluster: SeveralDisks):
    cluster.create_topic("refused", ALL)
    here = cluster.home(101, "refused")
    cluster.wait_until_moved(101, here, "refused")
    there = next(path for path in cluster.log_directories(101) if path != here)
    assert cluster.move(101, "/nowhere", "refused") == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert cluster.move(101, there, "refused", 7) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert cluster.move(101, there, "unknown") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert cluster.move(101, there, "x" * 249) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert cluster.move(101, here, "refused") == [ErrorCode.NONE]
    cluster.create_topic("elsewhere", (102,))
    assert cluster.move(101, there, "elsewhere") == [ErrorCode.REPLICA_NOT_AVAILABLE]


@pytest.mark.parametrize("how", ["pull", "make_read_only", "fill"])
def test_a_disk_fails_and_the_other_lives_on(breakable: SeveralDisks, disks: list[Disk], how: str):
    cluster = breakable
    cluster.create_topic("failing", ALL, ALL[1:] + ALL[:1], min_insync_replicas=2)
    good, bad = cluster.log_directories(101)
    for partition, path in ((0, bad), (1, good)):
        cluster.wait_until_moved(101, cluster.home(101, "failing", partition), "failing", partition)
        assert cluster.move(101, path, "failing", partition) == [ErrorCode.NONE]
        cluster.wait_until_moved(101, path, "failing", partition)
    assert cluster.leader_of("failing") == 101
    with Load(cluster, "failing", partitions=2, padding=1000) as load:
        load.wait_for_more(200)
        getattr(disks[0], how)()
        cluster.wait_for_leader_of("failing", other_than=101)
        load.wait_for_more(200)
        cluster.wait("it is offline", lambda: cluster.described(101)[str(bad)].error_code)
        found = cluster.described(101)
        assert found[str(bad)].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not found[str(bad)].topics
        assert found[str(good)].error_code == ErrorCode.NONE
        assert cluster.replicas_in(101, good, "failing") == [1]
        assert cluster.move(101, bad, "failing", 1) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert cluster.move(101, good, "failing", 0) == [ErrorCode.KAFKA_STORAGE_ERROR]
        in_sync = {one.partition_index: one.isr_nodes for one in cluster.partitions("failing")}
        assert 101 in in_sync[1], "the other disk is as good as ever"
        # Started again without the disk, the broker serves what it has.
        assert cluster.terminate(101) == 0
        cluster.start(101)
        cluster.wait_until_unfenced(101)
        load.wait_for_more(100)
        cluster.wait("1 is in sync", lambda: 101 in cluster.partitions("failing")[1].isr_nodes)
        assert 101 not in cluster.partitions("failing")[0].isr_nodes
        # With a new disk, it has everything again.
        assert cluster.terminate(101) == 0
        disks[0].unmount()
        disks[0].mount()
        cluster.format(101, "--ignore-formatted")
        cluster.start(101)
        cluster.wait_until_unfenced(101)
        cluster.wait_until_in_sync("failing")
    load.check()
    cluster.wait(
        "all replicas are the same",
        lambda: cluster.stored(101, "failing") == cluster.stored(102, "failing"),
    )
    said = cluster.logged(101)
    assert f"log directory offline path={bad}" in said
    assert "Traceback" not in said


def test_the_last_disk_fails(breakable: SeveralDisks, disks: list[Disk]):
    """One disk, and on it the metadata log as well."""
    cluster = breakable
    path = disks[2].path / "only"
    cluster.terminate(103)
    cluster.configure_node(103, log_dirs=str(path))
    cluster.format(103)
    cluster.start(103)
    cluster.wait_until_unfenced(103)
    cluster.create_topic("last", (103, 101, 102), min_insync_replicas=2)
    with Load(cluster, "last", padding=1000) as load:
        load.wait_for_more(200)
        disks[2].pull()
        assert cluster.wait_for_end(103) == 1
        cluster.wait_for_leader_of("last", other_than=103)
        load.wait_for_more(200)
    load.check()
    last = cluster.logged(103).rstrip().splitlines()[-1]
    assert last.startswith("quorate: ")
    assert str(path) in last
    assert "Traceback" not in cluster.logged(103)


def test_the_disk_with_the_metadata_log_fails(breakable: SeveralDisks, disks: list[Disk]):
    """As Kafka's, the broker ends. What it leads on the other disk it hands over first, if it still can."""
    cluster = breakable
    good, bad = cluster.log_directories(102)
    cluster.terminate(102)
    cluster.configure_node(102, log_dirs=f"{bad},{good}")
    for path in (good, bad):
        shutil.rmtree(path)
    cluster.format(102)
    cluster.start(102)
    cluster.wait_until_unfenced(102)
    cluster.create_topic("metadata", (102, 101, 103), min_insync_replicas=2)
    with Load(cluster, "metadata", padding=1000) as load:
        load.wait_for_more(200)
        disks[1].pull()
        assert cluster.wait_for_end(102) == 1
        cluster.wait_for_leader_of("metadata", other_than=102)
        load.wait_for_more(200)
    load.check()
    assert cluster.logged(102).rstrip().splitlines()[-1].startswith(f"quorate: {bad}")
    assert "Traceback" not in cluster.logged(102)
