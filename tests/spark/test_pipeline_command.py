"""`quorate pipeline` and `quorate report` say what is wrong before Spark is started."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from quorate.cli import spark_session
from quorate.cli.main import app
from quorate.spark import java
from quorate.spark.pipeline import Silent, _Run, cause_of
from quorate.spark.session import FOR_MANY_ROWS
from quorate.spark.storage_formats import session_settings
from quorate.spark.warehouse import Contents, Part, Warehouse


def said(*words: str) -> str:
    """What a command that fails prints: one line."""
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code in (1, 2), done.output
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_there_must_be_something_to_read(tmp_path: Path):
    house = str(tmp_path / "house")
    assert "--cluster HOST:PORT,... or --logs DIR" in said("pipeline", "run", "--warehouse", house)
    both = ("--cluster", "127.0.0.1:1", "--logs", str(tmp_path))
    assert "and not both" in said("pipeline", "run", "--warehouse", house, *both)
    assert not Path(house).exists()


def test_a_cluster_that_does_not_answer(tmp_path: Path):
    line = said("pipeline", "run", "--warehouse", str(tmp_path / "house"), "--cluster", "127.0.0.1:1")
    assert line.startswith("quorate: no broker answers at 127.0.0.1:1: is the cluster up?")


def test_directories_without_logs(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    house = str(tmp_path / "house")
    words = ("pipeline", "run", "--warehouse", house, "--logs")
    assert "no log of a cluster is there" in said(*words, str(tmp_path / "empty"))
    assert "no such directory" in said(*words, str(tmp_path / "nowhere"), str(tmp_path / "empty"))


@pytest.mark.parametrize("words", [("pipeline", "query", "SELECT 1"), ("report",)], ids=["query", "report"])
def test_a_warehouse_that_is_none(tmp_path: Path, words: tuple[str, ...]):
    assert "is not there: quorate pipeline run" in said(*words, "--warehouse", str(tmp_path / "house"))
    assert "is not a warehouse" in said(*words, "--warehouse", str(tmp_path))


def test_a_report_of_nothing(tmp_path: Path):
    Warehouse.create(tmp_path / "house")
    assert "has no records yet" in said("report", "--warehouse", str(tmp_path / "house"))


def test_a_report_into_nowhere(tmp_path: Path):
    line = said("report", "--warehouse", str(tmp_path), "--output", str(tmp_path / "no" / "report.html"))
    assert "there is no directory" in line


@pytest.mark.parametrize("words", [("pipeline", "run"), ("pipeline", "query", "SELECT 1"), ("report",)])
def test_spark_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]):
    find = importlib.util.find_spec
    monkeypatch.setattr(spark_session, "find_spec", lambda name: None if name == "pyspark" else find(name))
    line = said(*words, "--warehouse", str(tmp_path / "house"))
    assert line == "quorate: pyspark not installed: pip install 'quorate[spark]'"


def test_java_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(java, "_candidates", lambda _: [])
    monkeypatch.setattr(java, "_bundled_java", lambda: None)
    warehouse = Warehouse.create(tmp_path / "house")
    warehouse.change(lambda _: Contents().with_part("records", Part("one", 1, 1, ("c",))))
    assert "Spark needs Java 17 or newer" in said("report", "--warehouse", str(tmp_path / "house"))


def test_a_session_suits_how_many_rows_there_are(tmp_path: Path):
    warehouse = Warehouse.create(tmp_path / "house")
    assert session_settings(warehouse) == {}
    warehouse.change(lambda _: Contents().with_part("records", Part("one", 5_000_000, 1, ("c",))))
    assert session_settings(warehouse) == FOR_MANY_ROWS


def test_a_format_that_is_not_known(tmp_path: Path):
    words = ("--warehouse", str(tmp_path / "house"), "--logs", str(tmp_path), "--format", "csv")
    assert "allowed is parquet, delta, iceberg" in said("pipeline", "run", *words)


def test_a_warehouse_that_is_in_use(tmp_path: Path):
    from metadata_directories import copy_of, leads

    log = copy_of(tmp_path / "log", (0, [leads(0, 1)]))
    with Warehouse.create(tmp_path / "house").running():
        line = said("pipeline", "run", "--warehouse", str(tmp_path / "house"), "--logs", str(log))
    assert "a pipeline already runs on" in line


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "[X] y\nIdentifier: [id = 1]\nTraceback\n  File a\nquorate.spark.a.ForeignRows: no\n\tat py4j.P",
            "no",
        ),
        ("[X] y\npyspark.errors.E: [CLASS] wrong\nschema: int\n\tat a", "[CLASS] wrong"),
        ("[X] y\npyspark.errors.E: [CLASS] z\nValueError: because\norg.apache.Error: q", "because"),
        (
            "[TABLE_OR_VIEW_NOT_FOUND] The table `x` cannot be found.\nmore",
            "[TABLE_OR_VIEW_NOT_FOUND] The table `x` cannot be found.",
        ),
        (
            "[STREAM_FAILED] Query [id = 1] Traceback\n  File a\npy4j.protocol.Py4JJavaError: An error\n"
            ": org.apache.spark.SparkException: Job aborted\n\tat a\n"
            "Caused by: java.io.IOException: No space left on device\n\tat b\n\t... 34 more",
            "java.io.IOException: No space left on device",
        ),
        ("[X] Traceback\n  File a\nAssertionError\n\tat py4j.P", "AssertionError"),
    ],
)
def test_the_cause_is_found_in_what_spark_says(text: str, cause: str):
    assert cause_of(Exception(text)) == cause


@pytest.mark.parametrize(
    ("error", "starts"),
    [("Python worker exited unexpectedly (crashed)", 2), ("[PATH_NOT_FOUND] there is no such path", 1)],
)
def test_a_stream_that_found_no_worker_is_started_again(monkeypatch, error: str, starts: int) -> None:
    tried: list[str] = []

    def start(_run: _Run, _origin: object, table: str, **_trigger: object) -> Mock:
        tried.append(table)
        if len(tried) == 1:
            raise RuntimeError(error)
        return Mock()

    monkeypatch.setattr(_Run, "start", start)
    run = _Run(Mock(), Mock(), (), Silent())
    with contextlib.suppress(RuntimeError):
        run._read_stream("records", Mock(), "records")
    assert tried == ["records"] * starts
