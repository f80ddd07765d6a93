"""The index of the documentation knows every page."""

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_every_page_stands_in_the_index():
    linked = set(re.findall(r"\]\(([\w./-]+)\)", (DOCS / "README.md").read_text()))
    pages = {path.name for path in DOCS.glob("*.md")} - {"README.md"}
    assert pages <= linked, "docs/README.md has a table for each job"
