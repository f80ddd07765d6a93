"""The first lines of the README are true: what they tell a newcomer to do, is done here."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from whole_demo import COMMAND, Demo

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.processes
@pytest.mark.spark
def test_the_first_commands_work(demo: Demo):
    commands = [
        line.removeprefix("$ ") for line in blocks("console")[0].splitlines() if line.startswith("$ ")
    ]
    assert commands == [COMMAND, "make test"]  # the second is what is running now
    assert demo.returncode == 0, demo.output


def test_the_python_example_prints_what_it_says():
    source = blocks("python")[0]
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    expected = [line.split("# ", 1)[1] for line in source.splitlines() if line.startswith("print(")]
    assert done.stdout.splitlines() == expected


def test_every_file_that_the_documentation_links_to_exists():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
