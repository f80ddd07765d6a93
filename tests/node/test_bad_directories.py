"""What a node must refuse: one line that says why, exit code 1, and nothing lost or overwritten."""

import signal
import socket
import subprocess

import pytest

from node.processes import CLUSTER_ID, DEADLINE_S, HOST, Processes, quorate, run_quorate, tree

pytestmark = pytest.mark.processes

OTHER_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture
def cluster(tmp_path):
    with Processes(tmp_path) as processes:
        processes.configure(1, controller_quorum_voters=f"1@{HOST}:{processes.port(1)}")
        yield processes


@pytest.fixture
def used(cluster):
    """A node that has been running, and was killed."""
    cluster.format(1)
    cluster.start(1)
    cluster.wait_for_leader(above=3)
    cluster.kill(1)
    return cluster


def assert_refused(cluster, *words, command=None):
    """The node does not start, says why in one line, and leaves its directory as it was."""
    before = tree(cluster.directory(1))
    done = run_quorate(*(command or ("node", str(cluster.configuration(1)))))
    assert done.returncode == 1, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("quorate: ")
    for word in words:
        assert word in lines[0]
    assert tree(cluster.directory(1)) == before


def test_a_directory_that_was_not_formatted(cluster):
    assert_refused(cluster, str(cluster.directory(1)), "not formatted", "quorate storage format")


def test_formatting_twice(used):
    again = ("storage", "format", "-t", CLUSTER_ID, "-c", str(used.configuration(1)))
    assert_refused(used, str(used.directory(1)), "already formatted", command=again)
    other = ("storage", "format", "--ignore-formatted", "-t", OTHER_CLUSTER, "-c", str(used.configuration(1)))
    assert_refused(used, str(used.directory(1)), CLUSTER_ID, OTHER_CLUSTER, command=other)


def test_formatting_again_on_purpose_changes_nothing(used):
    before = tree(used.directory(1))
    used.format(1, "--ignore-formatted")
    assert tree(used.directory(1)) == before


def test_a_directory_of_another_node(used):
    used.configure(1, node_id="2", controller_quorum_voters=f"2@{HOST}:{used.port(1)}")
    assert_refused(used, "meta.properties", "node.id is 1", "this node is 2")


def test_directories_of_two_clusters(used):
    other = used.root / "data"
    used.configure(1, metadata_log_dir=str(other), controller_quorum_voters=f"1@{HOST}:{used.port(1)}")
    done = run_quorate("storage", "format", "-t", OTHER_CLUSTER, "-c", str(used.configuration(1)))
    assert done.returncode == 0, done.stderr
    used.configure(1, log_dirs=str(other), controller_quorum_voters=f"1@{HOST}:{used.port(1)}")
    assert_refused(used, str(other), OTHER_CLUSTER, CLUSTER_ID)


def test_a_second_log_directory_that_was_not_formatted(used):
    other = used.root / "data"
    used.configure(1, log_dirs=str(other), controller_quorum_voters=f"1@{HOST}:{used.port(1)}")
    assert_refused(used, str(other), "not formatted")


def test_a_directory_of_another_cluster_never_joins(cluster):
    """Whose it is only the others can tell: they refuse, it says so, and neither log changes."""
    voters = ",".join(f"{one}@{HOST}:{cluster.port(one)}" for one in (1, 2, 3))
    for one in (1, 2, 3):
        cluster.configure(one, controller_quorum_voters=voters)
    cluster.format(1)
    cluster.format(2)
    done = run_quorate("storage", "format", "-t", OTHER_CLUSTER, "-c", str(cluster.configuration(3)))
    assert done.returncode == 0, done.stderr
    cluster.start(1, 2, 3)
    cluster.wait_until_caught_up(1, 2, beyond=5)
    cluster.wait("a warning", lambda: "INCONSISTENT_CLUSTER_ID" in cluster.logged(3))
    assert cluster.batches(3) == {}


def test_two_processes_on_one_directory(cluster):
    cluster.format(1)
    cluster.start(1)
    cluster.wait_for_leader(above=3)
    second = cluster.root / "second.properties"
    text = cluster.configuration(1).read_text().replace(f":{cluster.port(1)}", f":{cluster.port(9)}")
    second.write_text(text)
    done = run_quorate("node", str(second))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"quorate: {cluster.directory(1)}/.lock: {cluster.directory(1)} is in use by another process"
    ]
    cluster.wait_for_leader(above=cluster.wait_for_leader()["high_watermark"])


@pytest.mark.parametrize("content", [b"", b"{", b'{"leaderId": "x", "data_version": 0}', b"\xff\x00"])
def test_a_corrupt_election_state(used, content):
    path = used.metadata(1) / "quorum-state"
    path.write_bytes(content)
    assert_refused(used, str(path))


@pytest.mark.parametrize("damage", ["cut short", "a changed byte", "empty"])
def test_a_damaged_snapshot(tmp_path, damage):
    with Processes(tmp_path, metadata_log_max_record_bytes_between_snapshots="1000") as cluster:
        cluster.configure(1, controller_quorum_voters=f"1@{HOST}:{cluster.port(1)}")
        cluster.format(1)
        cluster.start(1)
        cluster.wait("a snapshot", lambda: cluster.snapshots(1))
        cluster.kill(1)
        path = cluster.snapshots(1)[-1]
        data = path.read_bytes()
        if damage == "cut short":
            path.write_bytes(data[:-20])
        elif damage == "empty":
            path.write_bytes(b"")
        else:
            path.write_bytes(data[:-10] + bytes([data[-10] ^ 1]) + data[-9:])
        assert_refused(cluster, str(path), "not a whole snapshot")


def test_a_port_that_is_in_use(cluster):
    cluster.format(1)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(cluster.address(1))
        taken.listen()
        done = run_quorate("node", str(cluster.configuration(1)))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert str(cluster.port(1)) in done.stderr
    assert "in use" in done.stderr


def test_a_directory_that_is_taken_away_from_a_running_node(tmp_path):
    with Processes(tmp_path, metadata_log_max_record_bytes_between_snapshots="1000") as cluster:
        cluster.configure(1, controller_quorum_voters=f"1@{HOST}:{cluster.port(1)}")
        cluster.format(1)
        cluster.start(1)
        cluster.wait("a snapshot", lambda: cluster.snapshots(1))
        cluster.metadata(1).rename(cluster.directory(1) / "elsewhere")
        assert cluster.wait_for_end(1) == 1
        last = cluster.logged(1).splitlines()[-1]
        assert last.startswith("quorate: ")
        assert str(cluster.metadata(1)) in last
        assert "Traceback" not in cluster.logged(1)


def test_an_unknown_key_is_a_warning(cluster):
    config = cluster.configure(
        1, controller_quorum_voters=f"1@{HOST}:{cluster.port(1)}", metadata_log_directory="/nowhere"
    )
    cluster.format(1)
    cluster.start(1)
    cluster.wait_for_leader(above=0)
    assert f"{config}: unknown key metadata.log.directory" in cluster.logged(1)


def test_a_node_that_waits_for_others_can_be_told_to_stop(cluster):
    voters = f"1@{HOST}:{cluster.port(1)},2@{HOST}:{cluster.port(2)}"
    cluster.configure(1, controller_quorum_voters=voters)
    cluster.format(1)
    with subprocess.Popen(
        quorate("node", str(cluster.configuration(1))), stderr=subprocess.PIPE, text=True
    ) as process:
        assert "listening" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
