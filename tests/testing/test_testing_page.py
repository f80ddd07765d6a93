"""The examples of docs/testing.md run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run(*command: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, cwd=directory, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.interop
def test_the_examples_with_fixtures_pass(tmp_path: Path):
    tests = [text for text in EXAMPLES if "def test_" in text]
    assert len(tests) == 4
    for number, text in enumerate(tests):
        (tmp_path / f"test_example_{number}.py").write_text(text)
    said = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", ".", directory=tmp_path)
    assert "4 passed" in said


@pytest.mark.processes
def test_the_example_without_pytest_runs(tmp_path: Path):
    (text,) = [text for text in EXAMPLES if "def test_" not in text]
    (tmp_path / "example.py").write_text(text)
    assert "[1, 2, 3]" in run("example.py", directory=tmp_path)
