"""`quorate demo`, told in plain lines: what it claims is so, and its story is there for programs."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.processes import quorate
from quorate.cli.demo_pipeline import why_not
from quorate.cli.demo_traffic import create_topic
from quorate.metadata.records import RegisterBrokerRecord
from quorate.protocol.errors import ApiError
from quorate.testing import Cluster

pytestmark = pytest.mark.processes

DEADLINE_S = 300
BROKERS, CONTROLLERS = [1, 2, 3], [101, 102, 103]


class Told:
    """A demo that has ended, and what it left behind."""

    def __init__(self, directory: Path, status: int, said: str, complaints: str) -> None:
        self.directory, self.status, self.said, self.complaints = directory, status, said, complaints
        self.story: dict[str, Any] = json.loads((directory / "story.json").read_text())

    def steps(self, what: str, role: str) -> list[dict[str, Any]]:
        return [one for one in self.story["steps"] if (one["what"], one.get("role")) == (what, role)]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    directory = tmp_path_factory.mktemp("demo") / "data"
    command = quorate("demo", "--exit", "--no-pipeline", "--data", str(directory))
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    return Told(directory, done.returncode, done.stdout, done.stderr)


def test_everything_that_it_claims_holds(told: Told):
    assert (told.status, told.complaints) == (0, ""), told.said
    claims = told.story["claims"]
    assert [one for one in claims if not one["holds"]] == []
    assert f"All {len(claims)} claims held." in told.said
    for claim in (
        "no acknowledged record was lost",
        "no record is there twice",
        "each partition has its records in the order of sending",
        "no write failed meanwhile",
        "every broker left by controlled shutdown",
        "another controller leads, at a higher epoch",
    ):
        assert claim in [one["claim"] for one in claims]


def test_lines_are_plain_and_fit(told: Told):
    assert "\x1b" not in told.said
    assert [line for line in told.said.splitlines() if len(line) > 80] == []


def test_it_stops_brokers_first(told: Told):
    said = told.said
    first, _, rest = said[said.index("stopping: waiting for ") :].partition(
        "stopping: waiting for controller"
    )
    assert first.startswith("stopping: waiting for broker")
    assert "broker" not in rest
    assert said.endswith("stopped\n")


def test_the_story_says_what_was_done_to_whom(told: Told):
    assert [one["what"] for one in told.story["steps"]] == [
        *("start", "create-topic", "kill", "restart", "elect-preferred"),
        *("roll", "roll", "roll", "elect-preferred", "kill", "restart"),
    ]
    (killed,), (back,) = told.steps("kill", "broker"), told.steps("restart", "broker")
    assert killed["node"] == back["node"]
    assert killed["node"] in BROKERS
    assert killed["leaderships"] > 0
    assert back["epoch"] > killed["epoch"]
    rolled = told.steps("roll", "broker")
    assert [one["node"] for one in rolled] == BROKERS
    assert all(one["leaderships"] > 0 for one in rolled)
    (fallen,), (returned,) = told.steps("kill", "controller"), told.steps("restart", "controller")
    assert fallen["node"] == returned["node"]
    assert {fallen["node"], fallen["successor"]} <= set(CONTROLLERS)
    assert fallen["successor_epoch"] > fallen["epoch"]


def test_steps_follow_each_other_in_time_and_in_the_metadata_log(told: Told):
    for key in ("ms", "metadata_offset"):
        before, after = ("at_ms", "until_ms") if key == "ms" else (f"{key}_before", f"{key}_after")
        steps = told.story["steps"]
        assert all(one[before] <= one[after] for one in steps)
        assert all(one[after] <= other[before] for one, other in itertools.pairwise(steps))
    (killed,) = told.steps("kill", "broker")
    assert killed["at_ms"] < killed["fenced_at_ms"] <= killed["until_ms"]


def test_records_were_written_all_along(told: Told):
    story = told.story
    assert story["failed"] == 0
    assert story["sent"] == story["acknowledged"] == story["found"] == story["read"] > 100
    assert story["ended_ms"] > story["began_ms"]


def test_the_metadata_log_has_the_broker_epochs_of_the_story(told: Told):
    """The epoch of a broker is the offset at which it was registered, so it lies inside its step."""
    command = quorate(
        *("metadata", "dump", "--directory", str(told.directory / "node-101" / "data")),
        *("--type", RegisterBrokerRecord.__name__),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    registered = {}
    for record in map(json.loads, done.stdout.splitlines()):
        registered[record["offset"]] = record["data"]["broker_id"]
    for step in (*told.steps("restart", "broker"), *told.steps("roll", "broker")):
        assert step["metadata_offset_before"] <= step["epoch"] < step["metadata_offset_after"]
        assert registered[step["epoch"]] == step["node"]


def test_a_directory_with_a_cluster_is_left_alone(told: Told):
    command = quorate("demo", "--exit", "--data", str(told.directory))
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"quorate: {told.directory} has a cluster already:"
        " the demo begins with a new one, in a new directory\n"
    )


@contextlib.contextmanager
def demo(directory: Path) -> Iterator["subprocess.Popen[str]"]:
    command = quorate("demo", "--exit", "--no-pipeline", "--data", str(directory))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


def test_what_does_not_hold_is_named_and_is_the_exit_status(tmp_path: Path):
    """Somebody takes the whole cluster away, so the story cannot be told to its end."""
    with demo(tmp_path / "data") as process:
        assert process.stdout is not None
        line = ""
        while "is killed without mercy" not in line:
            line = process.stdout.readline()
            assert line, f"it has ended: {process.communicate(timeout=DEADLINE_S)[1]}"
        cluster = json.loads((tmp_path / "data" / "cluster.json").read_text())
        os.kill(cluster["launcher"], signal.SIGKILL)
        said, complaints = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 1
        for one in cluster["nodes"]:  # brokers that have no controller any more would take minutes to leave
            with contextlib.suppress(ProcessLookupError):
                if one["pid"] is not None:
                    os.kill(one["pid"], signal.SIGKILL)
    assert "quorate: the story was told to its end: NOT SO (" in complaints
    assert "claims held" not in said


def test_a_topic_that_was_created_before_its_controller_was_lost_is_no_failure():
    """The client asks the next controller again, which has it already."""
    with Cluster(brokers=1) as cluster:
        for _ in range(2):
            create_topic(cluster.bootstrap_servers, "t", partitions=2, replicas=1, in_sync_min=1)
        with pytest.raises(ApiError, match="INVALID_REPLICATION_FACTOR"):
            create_topic(cluster.bootstrap_servers, "u", partitions=1, replicas=2, in_sync_min=1)


def test_why_there_is_no_pipeline_is_one_line(monkeypatch: pytest.MonkeyPatch):
    found: dict[str, object] = {"pyspark": None, "quorate.spark.pipeline": None}
    monkeypatch.setattr("quorate.cli.demo_pipeline.find_spec", found.get)
    assert "Spark is not installed" in str(why_not())
    found["pyspark"] = object()
    assert why_not() == "this installation has no pipeline"
    found["quorate.spark.pipeline"] = object()
    assert why_not() is None
