"""The page that says which test holds which rule is true: what it names exists, and it names every test."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = set(re.findall(r"`([a-z_]+/[a-z_]+\.py)`", (ROOT / "docs" / "controller-rules.md").read_text()))


def test_what_the_page_names_exists():
    assert [
        one for one in sorted(NAMED) if not any((ROOT / at / one).exists() for at in ("src/quorate", "tests"))
    ] == []


def test_the_page_names_every_test_of_a_rule():
    tests = {f"controller/{path.name}" for path in (ROOT / "tests" / "controller").glob("test_*.py")}
    assert tests - NAMED == {"controller/test_rules_page.py"}
