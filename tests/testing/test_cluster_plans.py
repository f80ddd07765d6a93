"""Which nodes a cluster on this machine has, and in which directory."""

import socket
from pathlib import Path

import pytest

from quorate.node.config import ConfigError
from quorate.node.config_file import load_config
from quorate.testing.places import has_something_else, holder_of, lock
from quorate.testing.plan import make_plan, obtain_plan, profile_of, read_plan
from quorate.testing.ports import HOST
from quorate.testing.profiles import DEVELOPMENT


@pytest.mark.parametrize(
    ("brokers", "controllers", "roles"),
    [
        (1, 0, {1: "broker,controller"}),
        (4, 0, {1: "broker,controller", 2: "broker,controller", 3: "broker,controller", 4: "broker"}),
        (2, 1, {1: "broker", 2: "broker", 101: "controller"}),
    ],
)
def test_without_controllers_of_their_own_the_first_brokers_are_controllers(
    tmp_path: Path, brokers: int, controllers: int, roles: dict[int, str]
):
    plan = make_plan(tmp_path, brokers=brokers, controllers=controllers)
    assert {one.id: ",".join(one.roles) for one in plan.nodes} == roles
    assert len({address for one in plan.nodes for address in one.listeners.values()}) == sum(
        len(one.roles) for one in plan.nodes
    )
    assert plan.bootstrap_servers.count(",") == brokers - 1


def test_a_directory_that_was_planned_is_the_same_cluster_again(tmp_path: Path):
    plan = make_plan(tmp_path / "new", brokers=2, controllers=1, settings=DEVELOPMENT)
    assert read_plan(tmp_path / "new") == plan
    assert obtain_plan(tmp_path / "new") == plan
    assert obtain_plan(tmp_path / "new", brokers=2, controllers=1) == plan
    assert profile_of(plan) == "development"
    with pytest.raises(
        ConfigError, match="has a cluster of 2 brokers and 1 controllers of its own, not 3 and 0"
    ):
        obtain_plan(tmp_path / "new", brokers=3)
    with pytest.raises(ConfigError, match="whose first port is"):
        obtain_plan(tmp_path / "new", port=1)


def test_the_first_port_is_as_asked_and_others_follow(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port = taken.getsockname()[1]
        taken.listen()
        with pytest.raises(ConfigError, match=f"port {port} is in use"):
            make_plan(tmp_path / "one", port=port)
    plan = make_plan(tmp_path / "two", brokers=2, port=port)
    first, second = (one.port for one in plan.nodes)
    assert first == port
    assert second > first


def test_settings_go_into_the_file_of_every_node(tmp_path: Path):
    plan = make_plan(tmp_path, brokers=3, settings={"num.partitions": "7"})
    assert [load_config(str(one.file))["num.partitions"] for one in plan.nodes] == [7, 7, 7]
    assert load_config(str(plan.nodes[0].file))["default.replication.factor"] == 3


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path):
    (tmp_path / "letter.txt").write_text("Dear")
    assert has_something_else(tmp_path)
    with pytest.raises(ConfigError, match="has something else in it"):
        obtain_plan(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_there_is_no_cluster_without_brokers(tmp_path: Path):
    with pytest.raises(ConfigError, match="0 brokers and 1 controllers"):
        make_plan(tmp_path, brokers=0, controllers=1)


def test_a_directory_has_one_holder(tmp_path: Path):
    assert holder_of(tmp_path) is None
    mine = lock(tmp_path)
    assert mine is not None
    assert lock(tmp_path) is None
    assert holder_of(tmp_path)
    mine.close()
    assert holder_of(tmp_path) is None
