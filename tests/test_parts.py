"""The parts of the test suite miss no test, and say at the end what failed."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import settings
from tools import run_parts

TESTS = Path(__file__).parent


def test_tests_that_start_spark_are_where_their_part_looks_for_them():
    marked = [
        path for path in TESTS.rglob("test_*.py") if re.search(r"pytest\.mark\.spark\b", path.read_text())
    ]
    elsewhere = {str(path.relative_to(TESTS)) for path in marked if path.parent != TESTS / "spark"}
    assert elsewhere == {"test_readme.py"}


def test_what_failed_is_told_again_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    bad = tmp_path / "test_bad.py"
    bad.write_text(
        "def test_good(record_property):\n    record_property('figure', '7 of 7')\n\n\n"
        "def test_bad():\n    assert 1 + 1 == 3\n"
    )
    monkeypatch.setattr(run_parts, "PARTS", {"one": (str(bad), f"--rootdir={tmp_path}", "-Werror")})
    monkeypatch.setattr(run_parts, "THEN", {})
    assert run_parts.main(["one"]) == 1
    output = capfd.readouterr().out
    assert "1 failed, 1 passed" in output
    _, _, end = output.partition("\ntest_bad::test_bad\n")
    assert "E       assert (1 + 1) == 3" in end
    assert "\nFAILED test_bad::test_bad: assert (1 + 1) == 3\n" in end
    assert re.search(r"^one +\d+\.\d\d  FAILED \(1\)\nall +\d+\.\d\d\n$", end, re.MULTILINE)


def test_property_tests_draw_the_same_examples_unless_new_ones_are_asked_for():
    asked = os.environ.get("QUORATE_DRAWS", "same")
    assert settings.default is not None
    assert settings.default.derandomize == (asked == "same")
    recipes = dict(
        re.findall(r"^(\w+): .*\n((?:\t.*\n)+)", (TESTS.parent / "Makefile").read_text(), re.MULTILINE)
    )
    assert {name for name, recipe in recipes.items() if "QUORATE_DRAWS=new" in recipe} == {"fuzz", "soak"}
