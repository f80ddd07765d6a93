"""Every row of the page about differences names a test that holds Quorate to it."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "differences.md").read_text()
ROWS = [
    line.strip("|").split("|")
    for line in PAGE.splitlines()
    if line.startswith("| ") and line.count("|") == 6 and "| described |" not in line
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip())
def test_a_row_names_a_test_that_exists(row: list[str]) -> None:
    named = re.fullmatch(r" `([\w/]+\.py)(?:::(\w+))?` ", row[4])
    assert named is not None, row
    path, name = named[1], named[2]
    assert (TESTS / path).exists(), path
    if name is not None:
        assert re.search(rf"^ *def {name}\(", (TESTS / path).read_text(), re.MULTILINE), name


def test_there_are_rows() -> None:
    assert len(ROWS) > 30
    assert all(cell.strip() for row in ROWS for cell in row)
