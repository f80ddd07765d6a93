"""`quorate brokers`, `quorum`, `storage info`, `metadata`: looking at a node that runs, and at its files."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.command_lines import Asked, asked_node, rows
from node.one_node import CLUSTER_ID
from quorate.cli.main import app

LOG = "__cluster_metadata-0"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with asked_node(tmp_path_factory.mktemp("inspected")) as found:
        found.good("topics", "create", "orders", "--partitions", "2", "--config", "retention.ms=1000")
        found.good("produce", "orders", "--partition", "0", stdin="a\nb\n")
        yield found


@pytest.fixture(scope="module")
def copied(asked: Asked, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directories of the node, which may not be written to."""
    copy = tmp_path_factory.mktemp("copied") / "data"
    shutil.copytree(asked.node.directory, copy)
    for file in copy.rglob("*"):
        if file.is_file():
            file.chmod(0o444)
    return copy


def run(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, words, input=stdin)


def good(*words: str, stdin: str = "") -> str:
    done = run(*words, stdin=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout


def lines(*words: str) -> list[dict]:
    return [json.loads(line) for line in good("metadata", "dump", *words).splitlines()]


# Brokers and controllers


def test_brokers_as_a_broker_knows_them(asked: Asked):
    assert [
        (one["id"], one["state"], one["replicas"]) for one in asked.read("brokers", "list")["brokers"]
    ] == [(1, "active", 2)]
    assert rows(asked.good("brokers", "list"))[1][:2] == ["1", "active"]


def test_one_broker_its_settings_and_directories(asked: Asked):
    found = asked.read("brokers", "describe", "1")
    assert found["cluster_id"] == CLUSTER_ID
    assert found["configs"]["min.insync.replicas"]["value"] == "1"
    (directory,) = found["log_directories"]
    assert directory["path"] == str(asked.node.directory)
    assert [one["partition"] for one in directory["replicas"]] == ["orders-0", "orders-1"]
    assert "orders-0" in asked.good("brokers", "describe", "1")
    assert asked.refused("brokers", "describe", "9") == "quorate: there is no broker 9; there are 1\n"


def test_the_quorum_through_brokers_and_through_controllers(asked: Asked):
    through_broker = asked.read("quorum", "describe")
    words = ("quorum", "describe", "--bootstrap-controller", asked.controller)
    through_controller = json.loads(good(*words, "--json"))
    for found in (through_broker, through_controller):
        assert (found["leader_id"], [one["id"] for one in found["voters"]]) == (1, [1])
    assert "leader 1, epoch" in good(*words)


def test_voters_that_cannot_change_are_refused(asked: Asked):
    assert "kraft.version" in asked.refused("quorum", "remove", "1")
    assert "kraft.version" in asked.refused("quorum", "add", f"2@127.0.0.1:1:{CLUSTER_ID}")
    assert "9 is not a voter" in asked.refused("quorum", "remove", "9")
    assert "which one?" in asked.refused("quorum", "add")
    assert "nonsense" in asked.refused("quorum", "add", "nonsense")


@pytest.mark.parametrize(
    "words", [("quorum", "describe"), ("metadata", "at"), ("metadata", "dump"), ("metadata", "shell", "ls")]
)
def test_no_controller_answers(words: tuple[str, ...]):
    first, second, *rest = words
    done = run(first, second, "--bootstrap-controller", "127.0.0.1:1", *rest)
    assert done.exit_code == 2
    assert done.stderr == "quorate: no controller answered at 127.0.0.1:1; is the cluster up?\n"


# Directories


def test_what_is_in_a_directory(copied: Path):
    (found,) = json.loads(good("storage", "info", str(copied), "--json"))
    assert found["meta_properties"]["cluster_id"] == CLUSTER_ID
    assert found["meta_properties"]["node_id"] == 1
    assert found["metadata"]["log"]["start_offset"] == 0
    assert found["metadata"]["quorum_state"]["leader_id"] == 1
    ends = {(one["topic"], one["partition"]): one["log"]["end_offset"] for one in found["replicas"]}
    assert ends == {("orders", 0): 2, ("orders", 1): 0}
    printed = good("storage", "info", str(copied))
    assert ["cluster", CLUSTER_ID] in rows(printed)
    assert "orders-0" in printed


def test_a_directory_that_is_none(tmp_path: Path):
    assert run("storage", "info", str(tmp_path / "nothing")).exit_code == 2
    assert "formatted  no" in good("storage", "info", str(tmp_path))
    assert run("storage", "info").exit_code == 1


# The metadata log


def test_the_log_is_the_same_from_files_and_from_the_quorum(asked: Asked, copied: Path):
    from_files = lines("--directory", str(copied))
    assert lines("--segment", str(copied / LOG / f"{0:020d}.log")) == from_files
    live = lines("--bootstrap-controller", asked.controller)
    assert lines("--bootstrap-server", asked.bootstrap)[: len(live)] == live
    assert live[: len(from_files)] == from_files[: len(live)]
    assert [one["offset"] for one in live] == list(range(len(live)))
    assert from_files[0]["type"] == "LeaderChangeMessage"


def test_a_range_and_some_kinds_of_records(copied: Path):
    source = "--directory", str(copied)
    assert [one["offset"] for one in lines(*source, "--from-offset", "3", "--to-offset", "5")] == [3, 4, 5]
    assert [one["offset"] for one in lines(*source, "--to-offset", "0")] == [0]
    (topic,) = lines(*source, "--type", "TopicRecord")
    assert topic["data"]["name"] == "orders"
    assert {one["type"] for one in lines("--snapshot", str(copied / "bootstrap.checkpoint"))} >= {
        "SnapshotHeaderRecord",
        "FeatureLevelRecord",
        "SnapshotFooterRecord",
    }


def test_the_cluster_at_an_offset(copied: Path):
    source = "--directory", str(copied)
    (topic,) = lines(*source, "--type", "TopicRecord")
    before, after = str(topic["offset"] - 1), str(topic["offset"])
    at = "metadata", "at", *source
    assert json.loads(good(*at, "--json", "--offset", before))["topics"] == {}
    assert list(json.loads(good(*at, "/topics", "--offset", after))) == ["orders"]
    assert ["topics", "1"] in rows(good(*at))
    assert json.loads(good(*at, "/topics/orders/partitions/1/"))["leader"] == 1
    done = run(*at, "--offset", "99999999")
    assert (done.exit_code, "the log ends at" in done.stderr) == (1, True)
    assert run(*at, "/nowhere").exit_code == 1
    assert run("metadata", "at", "--directory", str(copied / "orders-0" / "x")).exit_code == 2
    assert run(*at, "--snapshot", "x").exit_code == 1


def test_a_torn_end_is_where_the_log_ends(copied: Path, tmp_path: Path):
    torn = tmp_path / f"{0:020d}.log"
    whole = (copied / LOG / torn.name).read_bytes()
    torn.write_bytes(whole + whole[:70])
    assert lines("--segment", str(torn)) == lines("--directory", str(copied))


def test_walking_about(copied: Path):
    shell = "metadata", "shell", "--directory", str(copied)
    assert {"brokers/", "topics/", "offset"} <= set(good(*shell, "ls", "/").splitlines())
    assert good(*shell, "ls", "/topics") == "orders/\n"
    assert good(*shell, "cat", "/topics/orders/configs/*") == "1000\n"
    assert good(*shell, "find", "/topics", "1") == "/topics/orders/partitions/1\n"
    assert json.loads(good(*shell, "cat", "/brokers/1"))["is_fenced"] is False
    assert run(*shell, "ls", "/nowhere").exit_code == 1
    assert run(*shell, "dance").exit_code == 1


def test_walking_about_line_by_line(copied: Path):
    said = "cd topics/orders\npwd\nls\nnonsense\ncd ..\nls partitions\n\nls */partitions\nexit\nls\n"
    done = run("metadata", "shell", "--directory", str(copied), stdin=said)
    assert done.exit_code == 0
    assert done.stdout.split() == ["/topics/orders", "id", "partitions/", "configs/", "0", "1"]
    assert done.stderr.splitlines() == [
        "nonsense: there is no such command; there are ls, cd, cat, find, pwd, help",
        "partitions: there is nothing of that name",
    ]
