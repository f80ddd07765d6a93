"""`quorate quorum add` and `remove`, on controllers that run."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from node.processes import HOST, Processes
from quorate.cli.main import app

pytestmark = pytest.mark.processes


def good(*words: str) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done.stdout


def caught_up_observers(cluster: Processes) -> list[int]:
    found = cluster.describe(1) or {"observers": []}
    return [one["id"] for one in found["observers"] if one["lag"] <= 0]


def test_a_controller_gets_a_vote_and_loses_it(tmp_path: Path):
    with Processes(tmp_path) as cluster:
        servers = f"{HOST}:{cluster.port(1)}"
        for one, option in ((1, "--standalone"), (2, "--no-initial-controllers")):
            cluster.configure(one, controller_quorum_bootstrap_servers=servers)
            cluster.format(one, option)
        cluster.start(1, 2)
        cluster.wait("an observer that is caught up", lambda: 2 in caught_up_observers(cluster))
        where = "--bootstrap-controller", servers
        assert good("quorum", "add", "--config", str(cluster.configuration(2)), *where).endswith(" votes\n")
        voters = cluster.wait_until_caught_up(1, 2)["voters"]
        assert [one["id"] for one in voters] == [1, 2]
        # whoever leads is found through anybody
        other = "--bootstrap-controller", f"{HOST}:{cluster.port(2)}"
        assert good("quorum", "remove", "2", *other).endswith(" votes no more\n")
        assert [one["id"] for one in cluster.wait_for_leader()["voters"]] == [1]
        cluster.wait("an observer again", lambda: 2 in caught_up_observers(cluster))
        key = f"2@{HOST}:{cluster.port(2)}:{voters[1]['directory_id']}"
        assert good("quorum", "add", key, *where).endswith(" votes\n")
        assert [one["id"] for one in cluster.wait_until_caught_up(1, 2)["voters"]] == [1, 2]
