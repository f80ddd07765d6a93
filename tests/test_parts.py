"""The parts of the test suite miss no test."""

import re
from pathlib import Path

TESTS = Path(__file__).parent


def test_tests_that_start_spark_are_where_their_part_looks_for_them():
    marked = [
        path for path in TESTS.rglob("test_*.py") if re.search(r"pytest\.mark\.spark\b", path.read_text())
    ]
    elsewhere = {str(path.relative_to(TESTS)) for path in marked if path.parent != TESTS / "spark"}
    assert elsewhere == {"test_readme.py"}
