"""The conversations in `scenarios/`; how they are read is in `conversation`."""

from pathlib import Path

import pytest
from conversation import ScenarioError, run_scenario

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    difference = ""
    try:
        run_scenario(path)
    except ScenarioError as error:
        difference = str(error)
    if difference:
        pytest.fail(difference, pytrace=False)
