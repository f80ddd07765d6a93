"""`quorate topics`, `produce` and `consume`, as a user sees them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.command_lines import Asked, asked_node, rows
from quorate.cli.main import app

SETTINGS = {
    "offsets_topic_num_partitions": "1",
    "offsets_topic_replication_factor": "1",
    "group_initial_rebalance_delay_ms": "0",
}
COMMAND = [sys.executable, "-c", "from quorate.cli.start import main; main()"]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with asked_node(tmp_path_factory.mktemp("topics"), **SETTINGS) as found:
        yield found


def test_a_topic_is_created_described_altered_and_deleted(asked: Asked):
    printed = asked.good("topics", "create", "life", "--partitions", "2", "--config", "retention.ms=1000")
    assert printed == "topic life is created\n"
    found = asked.read("topics", "describe", "life")[0]
    assert found["configs"]["retention.ms"] == {"value": "1000", "set_for": "topic"}
    assert [(one["partition"], one["leader"], one["end_offset"]) for one in found["partitions"]] == [
        (0, 1, 0),
        (1, 1, 0),
    ]
    changes = ("--partitions", "3", "--config", "cleanup.policy=compact", "--delete-config", "retention.ms")
    assert "has 3 partitions" in asked.good("topics", "alter", "life", *changes)
    found = asked.read("topics", "describe", "life")[0]
    assert len(found["partitions"]) == 3
    assert "retention.ms" not in found["configs"]
    assert "cleanup.policy" in found["configs"]
    assert any(one[:3] == ["life", "3", "1"] for one in rows(asked.good("topics", "list")))
    assert asked.good("topics", "delete", "life") == "topic life is deleted\n"
    assert "no such topic" in asked.refused("topics", "describe", "life")


def test_topics_are_listed_for_programs_and_only_the_unhealthy_if_wanted(asked: Asked):
    asked.good("topics", "create", "listed")
    found = {one["topic"]: one for one in asked.read("topics", "list")}
    assert found["listed"]["partitions"] == 1
    assert found["listed"]["leaderless"] == []
    assert asked.read("topics", "list", "--unhealthy") == []
    assert asked.good("topics", "list", "--unhealthy") == "all partitions are well\n"


def test_what_is_there_already_is_refused_unless_that_is_fine(asked: Asked):
    asked.good("topics", "create", "twice")
    assert asked.refused("topics", "create", "twice") == "quorate: topic twice exists already\n"
    assert asked.good("topics", "create", "twice", "--if-not-exists") == "topic twice is there already\n"


def test_a_dry_run_changes_nothing(asked: Asked):
    assert asked.good("topics", "create", "dry", "--dry-run") == "topic dry could be created\n"
    assert "dry" not in {one["topic"] for one in asked.read("topics", "list")}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("create", "a/b"), "a/b"),
        (("create", "few", "--replication-factor", "3"), "replication factor"),
        (("create", "c", "--config", "nonsense"), "KEY=VALUE"),
        (("create", "c", "--config", "no.such.key=1"), "no.such.key"),
        (("create", "c", "--assignment", "x"), "--assignment"),
        (("create", "c", "--assignment", "1", "--partitions", "1"), "--assignment"),
        (("alter", "nowhere", "--partitions", "2"), "nowhere"),
        (("alter", "nowhere"), "say what"),
        (("delete", "nowhere"), "nowhere"),
    ],
)
def test_what_cannot_be_says_why_in_one_line(asked: Asked, words: tuple[str, ...], reason: str):
    assert reason.lower() in asked.refused("topics", *words).lower()


def test_replicas_can_be_chosen(asked: Asked):
    asked.good("topics", "create", "chosen", "--assignment", "1,1")
    assert len(asked.read("topics", "describe", "chosen")[0]["partitions"]) == 2


def test_lines_become_records_and_records_lines(asked: Asked):
    asked.good("topics", "create", "lines", "--partitions", "1")
    asked.good("produce", "lines", stdin="one\ntwo\r\n\nlast")
    assert asked.good("consume", "lines", "--exit-at-end") == "one\ntwo\n\nlast\n"
    assert asked.good("consume", "lines", "--exit-at-end", "--from", "2") == "\nlast\n"
    assert asked.good("consume", "lines", "--exit-at-end", "--from", "-1") == "last\n"
    assert asked.good("consume", "lines", "--exit-at-end", "--from", "end") == ""
    assert asked.good("consume", "lines", "-n", "2") == "one\ntwo\n"
    past, future = "1999-01-01T00:00:00+00:00", "2999-01-01T00:00:00+00:00"
    assert asked.good("consume", "lines", "-n", "1", "--from", past) == "one\n"
    assert asked.good("consume", "lines", "--exit-at-end", "--from", future) == ""


def test_keys_headers_and_tombstones(asked: Asked):
    asked.good("topics", "create", "keyed", "--partitions", "2")
    words = ("--key-separator", "=", "--header", "from=test", "--partition", "1", "--acks", "1")
    asked.good("produce", "keyed", *words, "--compression", "zstd", stdin="k=a=b\ngone=\n")
    read = ("consume", "keyed", "--exit-at-end")
    assert asked.good(*read, "--key-separator", ":") == "k:a=b\ngone:\n"
    assert asked.good(*read, "--partition", "0") == ""
    found = [json.loads(line) for line in asked.good(*read, "--format", "json").splitlines()]
    assert [(one["partition"], one["offset"], one["key"], one["value"]) for one in found] == [
        (1, 0, "k", "a=b"),
        (1, 1, "gone", None),
    ]
    assert found[0]["headers"] == [{"name": "from", "value": "test"}]


def test_what_is_no_text_is_base64_in_json_and_itself_in_plain(asked: Asked, tmp_path: Path):
    asked.good("topics", "create", "bytes", "--partitions", "1")
    (tmp_path / "lines").write_bytes(b"\xff\xfe\n")
    asked.good("produce", "bytes", "--file", str(tmp_path / "lines"))
    shown = json.loads(asked.good("consume", "bytes", "--exit-at-end", "--format", "json"))
    assert shown["value_base64"] == "//4="
    assert asked.run("consume", "bytes", "--exit-at-end").stdout_bytes == b"\xff\xfe\n"


def test_a_group_goes_on_where_it_was(asked: Asked):
    asked.good("topics", "create", "shared", "--partitions", "1")
    asked.good("produce", "shared", stdin="1\n2\n3\n")
    words = ("consume", "shared", "--group", "readers")
    assert asked.good(*words, "-n", "2") == "1\n2\n"
    assert asked.good(*words, "--exit-at-end") == "3\n"
    assert [one["committed"] for one in asked.read("groups", "lag", "readers")] == [3]


@pytest.mark.parametrize(
    ("words", "stdin", "reason"),
    [
        (("produce", "nowhere"), "x\n", "nowhere"),
        (("produce", "refusing", "--key-separator", ":"), "a:b\nx\n", "line 2"),
        (("produce", "refusing", "--partition", "7"), "x\n", "no 7"),
        (("produce", "refusing", "--compression", "rar"), "", "rar"),
        (("produce", "refusing", "--file", "/nonexistent"), "", "/nonexistent"),
        (("produce", "refusing"), "x" * (3 << 20), "a line of more than"),
        (("consume", "nowhere", "--exit-at-end"), "", "nowhere"),
        (("consume", "refusing", "--partition", "7"), "", "no 7"),
        (("consume", "refusing", "--from", "yesterday"), "", "yesterday"),
        (("consume", "refusing", "--group", "g", "--partition", "0"), "", "a group decides"),
    ],
)
def test_what_cannot_be_sent_or_read_says_why(asked: Asked, words: tuple[str, ...], stdin: str, reason: str):
    asked.good("topics", "create", "refusing", "--partitions", "1", "--if-not-exists")
    assert reason in asked.refused(*words, stdin=stdin)


def test_nobody_to_ask():
    words = ["topics", "list", "--bootstrap-server", "127.0.0.1:1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert done.stderr == "quorate: no broker answered at 127.0.0.1:1; is the cluster up?\n"
    done = CliRunner().invoke(app, ["topics", "list", "--bootstrap-server", "nonsense"])
    assert done.exit_code == 2
    assert "expected host:port" in done.stderr


def test_a_controller_is_not_a_broker(asked: Asked):
    done = CliRunner().invoke(app, ["topics", "list", "--bootstrap-server", asked.controller])
    assert done.exit_code == 2
    assert "MetadataRequest" in done.stderr


@pytest.mark.processes
def test_ctrl_c_ends_a_consumer_in_order_and_so_does_whoever_stops_listening(asked: Asked):
    asked.good("topics", "create", "endless", "--partitions", "1")
    asked.good("produce", "endless", stdin="first\n")
    words = [*COMMAND, "consume", "endless", "--group", "c", "--bootstrap-server", asked.bootstrap]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n"
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (0, "")
    assert [one["committed"] for one in asked.read("groups", "lag", "c")] == [1]
    words = [*COMMAND, "consume", "endless", "--bootstrap-server", asked.bootstrap]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n"
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.processes
def test_a_producer_sends_what_comes_without_waiting_for_more(asked: Asked):
    asked.good("topics", "create", "typed", "--partitions", "1")
    words = [*COMMAND, "produce", "typed", "--bootstrap-server", asked.bootstrap]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    os.write(process.stdin.fileno(), b"typed\n")
    assert asked.good("consume", "typed", "-n", "1") == "typed\n"
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"1 records" in said
