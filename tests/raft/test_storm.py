"""Random histories: see `storm`.

A seed that fails here is repeated with `python tests/raft/storm.py SEED`.
"""

import os

import pytest
import storm

GROUPS = 20
SEEDS_PER_GROUP = int(os.environ.get("QUORATE_STORMS", "240")) // GROUPS


@pytest.mark.parametrize("group", range(GROUPS))
def test_storms(group: int) -> None:
    for seed in range(group * SEEDS_PER_GROUP, (group + 1) * SEEDS_PER_GROUP):
        storm.run(seed)


def test_storms_are_the_same_every_time() -> None:
    """Otherwise nobody could look at one again."""

    def history(seed: int) -> list[object]:
        one = storm.run(seed, steps=500)
        return [one.ms, one.laws.leaders, one.laws.committed, one.laws.votes, one.laws.snapshots]

    assert history(5) == history(5)


def test_something_happens_in_storms() -> None:
    """Otherwise they would prove nothing."""
    storms = [storm.run(seed) for seed in range(20)]
    assert sum(len(one.laws.commits) for one in storms) > 50, "leaders that committed something"
    assert sum(max(one.laws.committed, default=0) for one in storms) > 500, "committed records"
    assert sum(len(one.laws.snapshots) for one in storms) > 20
    assert sum(node.life > 1 for one in storms for node in one.nodes.values()) > 20, "restarts"
    answers = [answer for one in storms for node in one.nodes.values() for _, answer in node.told]
    assert sum(answer.error.name == "NONE" for answer in answers) > 5, "changes of voters"
