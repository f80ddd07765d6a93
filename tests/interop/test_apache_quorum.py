"""Apache Kafka's controller and tools as witnesses: they read what we write, ask what we run, and the other
way round; and both vote in one quorum."""

import os
import re
import shutil
from contextlib import contextmanager

import pytest
from apache_oracle import missing
from apache_programs import ApachePrograms

from node.processes import CLUSTER_ID, HOST, Processes, offsets_of
from quorate.metadata import records as metadata
from quorate.metadata.log_format import decode_record
from quorate.protocol import batch as batches
from quorate.raft.voters import VoterSet
from quorate.storage.bootstrap import read_bootstrap
from quorate.storage.files import RealFiles
from quorate.storage.snapshots import SnapshotReader, list_snapshots, snapshot_path

pytestmark = pytest.mark.interop

QUORUM_TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"
STORAGE_TOOL = "kafka.tools.StorageTool"
COMPLAINTS = re.compile(
    r"mismatch|found \d|corrupt|invalid|isvalid: false|exception|error|warn|non-consecutive|could not|skip",
    re.IGNORECASE,
)
SNAPSHOTS_OFTEN = {"metadata_log_max_record_bytes_between_snapshots": "1000"}


@pytest.fixture(scope="session")
def programs():
    """Apache's programs of the pinned release."""
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return ApachePrograms()


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """Three of ours that have run for a while: the first was stopped, which completes its indexes, and the
    others were killed; the log, snapshots and all."""
    with Processes(tmp_path_factory.mktemp("ours"), **SNAPSHOTS_OFTEN) as cluster:
        cluster.format_static(3)
        cluster.start(1, 2, 3)
        cluster.wait_until_caught_up(1, 2, 3, beyond=100)  # enough for entries in its indexes
        cluster.wait("a snapshot", lambda: cluster.snapshots(1))
        assert cluster.terminate(1) == 0
        cluster.kill(2, 3)
        yield cluster


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory):
    """One of ours in a quorum that can change: its voters are in the log and in its snapshots."""
    with Processes(tmp_path_factory.mktemp("dynamic"), **SNAPSHOTS_OFTEN) as cluster:
        cluster.configure(1, controller_quorum_bootstrap_servers=f"{HOST}:{cluster.port(1)}")
        cluster.format(1, "--standalone")
        cluster.start(1)
        cluster.wait("a snapshot besides the first", lambda: len(cluster.snapshots(1)) > 1)
        cluster.kill(1)
        yield cluster


@pytest.fixture(scope="module")
def theirs(programs, tmp_path_factory):
    """A directory of node 1 that an Apache controller has written, and stopped."""
    with Processes(tmp_path_factory.mktemp("theirs")) as cluster:
        configure_single(cluster, metadata_log_max_snapshot_interval_ms="500")
        apache_format(programs, cluster, 1)
        with apache_node(programs, cluster, 1):
            cluster.wait(
                "a snapshot with the controller's registration", lambda: len(cluster.snapshots(1)) > 3
            )
        yield cluster


# Apache reads what we write


def test_dump_log_reads_our_log(programs, ours):
    dumped = programs.dump_log(ours.metadata(1) / "00000000000000000000.log")
    assert not COMPLAINTS.search(without_flags(dumped)), dumped
    assert offsets_dumped(dumped) == offsets_of(ours.batches(1))
    assert '"LeaderChange' in dumped or "LeaderChange: " in dumped
    assert '{"name":"metadata.version","featureLevel":30}' in dumped
    assert '"type":"NO_OP_RECORD"' in dumped


def test_dump_log_finds_our_indexes_sane(programs, ours):
    for name in ("00000000000000000000.index", "00000000000000000000.timeindex"):
        path = str(ours.metadata(1) / name)
        dumped = programs.run(
            "org.apache.kafka.tools.DumpLogSegments", "--files", path, "--index-sanity-check"
        )
        assert "passed sanity check" in dumped
        assert not COMPLAINTS.search(dumped), dumped
        dumped = programs.run(
            "org.apache.kafka.tools.DumpLogSegments", "--files", path, "--verify-index-only"
        )
        assert not COMPLAINTS.search(dumped), dumped


def test_dump_log_reads_our_snapshots(programs, ours):
    dumped = programs.dump_log(ours.snapshots(1)[-1], ours.directory(1) / "bootstrap.checkpoint")
    assert not COMPLAINTS.search(without_flags(dumped)), dumped
    assert dumped.count("SnapshotHeader") == dumped.count("SnapshotFooter") == 2
    assert dumped.count('{"name":"metadata.version","featureLevel":30}') == 2


def test_dump_log_reads_our_voters(programs, dynamic):
    log = dynamic.metadata(1) / "00000000000000000000.log"
    dumped = programs.dump_log(log, *dynamic.snapshots(1))
    assert not COMPLAINTS.search(without_flags(dumped)), dumped
    assert dumped.count("KRaftVersion") >= 2
    voters = f'"endpoints":[{{"name":"CONTROLLER","host":"{HOST}","port":{dynamic.port(1)}}}]'
    assert dumped.count(voters) >= len(dynamic.snapshots(1))


# Apache asks what we run


def test_the_quorum_tool_describes_our_quorum(programs, tmp_path):
    with Processes(tmp_path, controller_quorum_fetch_timeout_ms="10000") as cluster:
        cluster.format_static(3)
        cluster.start(1, 2, 3)
        quorum = cluster.wait_until_caught_up(1, 2, 3)
        servers = ",".join(f"{HOST}:{cluster.port(one)}" for one in (1, 2, 3))
        arguments = "--bootstrap-controller", servers, "describe"
        status = programs.run(QUORUM_TOOL, *arguments, "--status")
        replication = programs.run(QUORUM_TOOL, *arguments, "--replication")
    said = dict(re.findall(r"^(\w+): +(.*)$", status, re.MULTILINE))
    assert said["ClusterId"] == CLUSTER_ID
    assert said["LeaderId"] == str(quorum["leader_id"])
    assert said["LeaderEpoch"] == str(quorum["leader_epoch"])
    assert int(said["HighWatermark"]) >= quorum["high_watermark"]
    for one in (1, 2, 3):
        assert f'"endpoints": ["CONTROLLER://{HOST}:{cluster.port(one)}"]' in said["CurrentVoters"]
    rows = [line.split() for line in replication.splitlines() if line[:1].isdigit()]
    expected = {str(one): "Leader" if one == quorum["leader_id"] else "Follower" for one in (1, 2, 3)}
    assert {row[0]: row[-1] for row in rows} == expected


def test_the_quorum_tool_changes_our_voters(programs, tmp_path):
    with Processes(tmp_path) as cluster:
        servers = f"{HOST}:{cluster.port(1)}"
        for one, option in ((1, "--standalone"), (2, "--no-initial-controllers")):
            cluster.configure(one, controller_quorum_bootstrap_servers=servers)
            cluster.format(one, option)
        cluster.start(1, 2)
        cluster.wait("an observer that is caught up", lambda: caught_up_observer(cluster))
        arguments = "--bootstrap-controller", servers
        config = str(cluster.configuration(2))
        programs.run(QUORUM_TOOL, *arguments, "--command-config", config, "add-controller")
        quorum = cluster.wait_until_caught_up(1, 2)
        assert [one["id"] for one in quorum["voters"]] == [1, 2]
        directory = quorum["voters"][1]["directory_id"]
        options = "--controller-id", "2", "--controller-directory-id", directory
        programs.run(QUORUM_TOOL, *arguments, "remove-controller", *options)
        assert [one["id"] for one in cluster.wait_for_leader()["voters"]] == [1]


# We read what Apache writes


def test_we_read_a_log_of_apache(theirs):
    stored = theirs.batches(1)
    assert offsets_of(stored) == list(range(len(offsets_of(stored))))
    controls, kinds = [], set()
    for batch in stored.values():
        header = batches.read_header(batch)
        found = batches.records(batch, header)
        if header.is_control:
            controls += [batches.control_type(one) for one in found]
        else:
            kinds |= {type(decode_record(one.value)[0]) for one in found}
    assert set(controls) == {batches.ControlType.LEADER_CHANGE}
    assert {metadata.FeatureLevelRecord, metadata.NoOpRecord, metadata.RegisterControllerRecord} <= kinds


def test_we_read_snapshots_of_apache(theirs):
    files, directory = RealFiles(), str(theirs.metadata(1))
    found = list_snapshots(files, directory)
    assert found
    for one in found:
        with SnapshotReader(files, snapshot_path(directory, one), one.epoch) as reader:
            reader.verify()
            decoded = [decode_record(value)[0] for value in reader.values()]
            assert reader.head().last_contained_log_timestamp_ms > 0
        assert any(isinstance(record, metadata.FeatureLevelRecord) for record in decoded)
    assert any(isinstance(record, metadata.RegisterControllerRecord) for record in decoded)
    bootstrap = [decode_record(value)[0] for value in read_bootstrap(files, str(theirs.directory(1)))]
    assert [type(record) for record in bootstrap] == [metadata.FeatureLevelRecord] * len(bootstrap)


def test_we_read_voters_of_apache(programs, tmp_path):
    with Processes(tmp_path) as cluster:
        bootstrap = {"controller_quorum_bootstrap_servers": f"{HOST}:{cluster.port(1)}"}
        cluster.configure(
            1, log_dirs=str(cluster.directory(1)), metadata_log_max_snapshot_interval_ms="500", **bootstrap
        )
        apache_format(programs, cluster, 1, "--standalone")
        with apache_node(programs, cluster, 1):
            cluster.wait("snapshots", lambda: len(cluster.snapshots(1)) > 2)
            quorum = cluster.describe(1)
        files, directory = RealFiles(), str(cluster.metadata(1))
        for one in list_snapshots(files, directory):
            with SnapshotReader(files, snapshot_path(directory, one), one.epoch) as reader:
                head = reader.head()
            (voter,) = VoterSet.from_record(head.voters)
            assert (head.kraft_version, voter.key.id) == (1, 1)
            assert str(voter.key.directory) == quorum["voters"][0]["directory_id"]
            assert [(at.host, at.port) for at in voter.endpoints] == [cluster.address(1)]
        # and goes on with it
        before = cluster.batches(1)
        cluster.start(1)
        after = cluster.wait_for_leader(1, above=max(before) + 2)
        assert [one["id"] for one in after["voters"]] == [1]
        assert {offset: batch for offset, batch in cluster.batches(1).items() if offset in before} == before


# One goes on where the other stopped


def test_our_node_goes_on_where_apache_stopped(theirs, tmp_path):
    with Processes(tmp_path) as cluster:
        shutil.copytree(theirs.directory(1), cluster.directory(1))
        configure_single(cluster)
        before = cluster.batches(1)
        cluster.start(1)
        quorum = cluster.wait_for_leader(above=max(before) + 5)
        after = cluster.batches(1)
    assert quorum["leader_epoch"] > batches.read_header(before[max(before)]).partition_leader_epoch
    assert {offset: batch for offset, batch in after.items() if offset <= max(before)} == before


def test_apache_goes_on_where_our_node_stopped_and_we_go_on_after_it(programs, tmp_path):
    with Processes(tmp_path, **SNAPSHOTS_OFTEN) as cluster:
        configure_single(cluster)
        cluster.format(1)
        cluster.start(1)
        cluster.wait("a snapshot", lambda: cluster.snapshots(1))
        ours_end = cluster.wait_for_leader()["high_watermark"]
        assert cluster.terminate(1) == 0
        before = cluster.batches(1)
        with apache_node(programs, cluster, 1):
            led = cluster.wait("Apache's commits", lambda: led_beyond(cluster, 1, max(before) + 5))
            assert led["leader_id"] == 1
        between = cluster.batches(1)
        assert {offset: batch for offset, batch in between.items() if offset < ours_end} == {
            offset: batch for offset, batch in before.items() if offset < ours_end
        }
        cluster.start(1)
        again = cluster.wait_for_leader(above=max(between) + 5)
        assert again["leader_epoch"] > led["leader_epoch"]


# One quorum of both


def test_apache_follows_our_leader(programs, tmp_path):
    with Processes(tmp_path) as cluster:
        configure_mixed(cluster, patient=[3])
        for one in (1, 2):
            cluster.format(one)
        apache_format(programs, cluster, 3)
        cluster.start(1, 2)
        cluster.wait_until_caught_up(1, 2, beyond=3)
        with apache_node(programs, cluster, 3):
            quorum = cluster.wait_until_caught_up(1, 2, 3, beyond=20)
            assert quorum["leader_id"] in (1, 2)
            assert_same_logs(cluster, quorum["high_watermark"])


def test_apache_catches_up_through_our_snapshot(programs, tmp_path):
    with Processes(tmp_path, **SNAPSHOTS_OFTEN, metadata_max_retention_bytes="1000") as cluster:
        configure_mixed(cluster, patient=[3])
        for one in (1, 2):
            cluster.format(one)
        apache_format(programs, cluster, 3)
        cluster.start(1, 2)
        cluster.wait(
            "logs that begin later", lambda: all("log starts at" in cluster.logged(one) for one in (1, 2))
        )
        with apache_node(programs, cluster, 3):
            cluster.wait_until_caught_up(1, 2, 3)

            def both_have():
                """Ours is read first: it may cut off its beginning at any time."""
                quorum = cluster.wait_until_caught_up(1, 2, 3)
                ours = cluster.committed(quorum["leader_id"], quorum["high_watermark"])
                theirs = cluster.batches(3)
                return [(theirs[at], ours[at]) for at in sorted(ours.keys() & theirs.keys())]

            common = cluster.wait("a part that both have", both_have)
            assert all(mine == yours for mine, yours in common)
            assert min(cluster.batches(3)) > 0


def test_we_follow_apache_and_take_over_from_it(programs, tmp_path):
    with Processes(tmp_path) as cluster:
        configure_mixed(cluster, patient=[1, 2])
        for one in (1, 2):
            cluster.format(one)
        apache_format(programs, cluster, 3)
        with apache_node(programs, cluster, 3) as apache:
            cluster.start(1, 2)
            quorum = cluster.wait("Apache to lead", lambda: led_beyond(cluster, 3, 20))
            assert quorum["leader_id"] == 3
            cluster.wait_until_caught_up(1, 2, 3)
            assert_same_logs(cluster, quorum["high_watermark"])
            committed = cluster.committed(3, quorum["high_watermark"])
            apache.kill()
            apache.wait()
            after = cluster.wait_for_leader(1, 2, other_than=3, above=quorum["high_watermark"])
        with apache_node(programs, cluster, 3):
            caught_up = cluster.wait_until_caught_up(1, 2, 3, beyond=after["high_watermark"])
            assert_same_logs(cluster, caught_up["high_watermark"])
            kept = cluster.batches(3)
        assert {offset: kept.get(offset) for offset in committed} == committed


def configure_single(cluster, **changes):
    voters = f"1@{HOST}:{cluster.port(1)}"
    cluster.configure(1, controller_quorum_voters=voters, log_dirs=str(cluster.directory(1)), **changes)


def configure_mixed(cluster, *, patient):
    """Three static voters; the patient ones leave the first election to the others. Leaders are given long: a
    Java machine that has just started may be busy with itself for a second."""
    voters = ",".join(f"{one}@{HOST}:{cluster.port(one)}" for one in (1, 2, 3))
    for one in (1, 2, 3):
        changes = {"controller_quorum_election_timeout_ms": "20000"} if one in patient else {}
        cluster.configure(
            one,
            controller_quorum_voters=voters,
            controller_quorum_fetch_timeout_ms="5000",
            log_dirs=str(cluster.directory(one)),
            **changes,
        )


def apache_format(programs, cluster, node_id, *options):
    config = str(cluster.configuration(node_id))
    programs.run(STORAGE_TOOL, "format", "-t", CLUSTER_ID, "-c", config, *options)


@contextmanager
def apache_node(programs, cluster, node_id):
    """An Apache controller; what it prints is shown when a condition does not come true."""
    log = cluster.root / f"node-{node_id}-apache.log"
    with programs.node(cluster.configuration(node_id), log) as process:
        yield process


def led_beyond(cluster, node_id, offset):
    found = cluster.describe(node_id)
    return found if found and found["high_watermark"] > offset else None


def caught_up_observer(cluster):
    found = cluster.describe(1)
    return found and any(one["last_caught_up_timestamp"] > 0 for one in found["observers"])


def assert_same_logs(cluster, high_watermark):
    logs = [cluster.committed(one, high_watermark) for one in (1, 2, 3)]
    assert logs[0] == logs[1] == logs[2]
    assert offsets_of(logs[0])[:high_watermark] == list(range(high_watermark))


def offsets_dumped(dumped):
    return [int(found) for found in re.findall(r"^\| offset: (\d+) ", dumped, re.MULTILINE)]


def without_flags(dumped):
    return dumped.replace("isvalid: true", "")
