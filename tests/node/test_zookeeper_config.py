"""The file of a broker of ZooKeeper mode, and whose its directories are."""

import asyncio
from pathlib import Path

import pytest

from quorate.node.config import ConfigError, NodeConfig, parse_config
from quorate.node.format import format_storage
from quorate.node.host import real_host
from quorate.node.zookeeper_directories import KnownIds, known_ids, mark_directories
from quorate.node.zookeeper_node import zookeeper_settings

GOOD = {
    "zookeeper.connect": "a:2181,b:2182/kafka",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": "/data/a,/data/b",
}
CLUSTER = "q8K3yH5ASs2mFvAaEvJ0QA"


def parsed(**changes: str | None) -> NodeConfig:
    properties = GOOD | {key.replace("_", "."): value for key, value in changes.items()}
    return parse_config(
        "f.properties", {key: value for key, value in properties.items() if value is not None}
    )


def test_a_file_without_roles_is_of_zookeeper():
    config = parsed(broker_id="7")
    assert config.is_of_zookeeper
    assert config.roles == ("broker",)
    assert config.node_id == 7
    assert config.warnings == ()
    settings = zookeeper_settings(config)
    assert settings.connect == "a:2181,b:2182/kafka"
    assert settings.session_timeout_ms == 18_000
    assert settings.connection_timeout_ms is None
    assert settings.broker_id == 7


def test_a_file_with_roles_is_not():
    config = parsed(
        process_roles="broker",
        node_id="1",
        controller_quorum_voters="9@h:1",
        listeners="PLAINTEXT://127.0.0.1:9092",
    )
    assert not config.is_of_zookeeper


def test_a_number_may_come_later():
    config = parsed()
    assert config.node_id == -1
    assert config.with_node_id(1001).node_id == 1001
    assert config.with_node_id(1001).broker_settings("c").broker_id == 1001


def test_node_id_is_another_word_for_broker_id():
    assert parsed(node_id="5").node_id == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"zookeeper_connect": "a:x"}, "zookeeper.connect=a:x: allowed is host:port,.../path"),
        ({"zookeeper_connect": "a:1//b"}, "zookeeper.connect=a:1//b: allowed is"),
        ({"broker_id": "-2"}, "broker.id=-2: allowed is a number from 0 on, or -1"),
        ({"broker_id": "1", "node_id": "2"}, "broker.id=1: node.id=2"),
        ({"broker_id": "1001"}, "broker.id=1001: allowed is up to reserved.broker.max.id, 1000"),
        ({"broker_id_generation_enable": "false"}, "broker.id is missing"),
        ({"log_dirs": None}, "log.dirs is missing"),
        ({"listeners": None}, "listeners has none for the broker"),
        ({"control_plane_listener_name": "INNER"}, "control.plane.listener.name=INNER: allowed is one of"),
        ({"control_plane_listener_name": "PLAINTEXT"}, "that is not inter.broker.listener.name"),
        ({"inter_broker_protocol_version": "4.0"}, "inter.broker.protocol.version=4.0: allowed is 3.4 to"),
        ({"quorate_zookeeper_digest": "me"}, "quorate.zookeeper.digest=me: allowed is user:password"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, str | None], message: str):
    with pytest.raises(ConfigError) as refused:
        parsed(**changes)
    assert message in str(refused.value)


def test_a_number_above_the_reserved_ones_if_none_are_generated():
    assert parsed(broker_id="1001", broker_id_generation_enable="false").node_id == 1001


def test_directories_become_the_brokers_own(tmp_path: Path):
    host, paths = real_host("tests"), [tmp_path / "a", tmp_path / "b"]
    config = parsed(log_dirs=",".join(map(str, paths)))
    assert known_ids(host, config) == KnownIds(None, None)
    asyncio.run(mark_directories(host, config, CLUSTER, 1001))
    for path in paths:
        lines = set((path / "meta.properties").read_text().splitlines())
        assert {"version=0", "broker.id=1001", f"cluster.id={CLUSTER}"} <= lines
        assert not any(line.startswith(("node.id", "directory.id")) for line in lines)
    assert known_ids(host, config) == KnownIds(CLUSTER, 1001)
    (tmp_path / "b" / "meta.properties").unlink()  # a new disk
    assert known_ids(host, config) == KnownIds(CLUSTER, 1001)


def test_nobody_else_formats_them(tmp_path: Path):
    config = parsed(log_dirs=str(tmp_path / "a"))
    with pytest.raises(ConfigError, match="a broker formats its directories itself"):
        asyncio.run(format_storage(real_host("tests"), config, CLUSTER))
    assert not (tmp_path / "a").exists()


def test_directories_of_others_are_refused(tmp_path: Path):
    host = real_host("tests")
    paths = [tmp_path / "a", tmp_path / "b"]
    config = parsed(log_dirs=",".join(map(str, paths)))
    asyncio.run(mark_directories(host, parsed(log_dirs=str(paths[0])), CLUSTER, 1))
    with pytest.raises(ConfigError, match=r"broker\.id=2: .*/a is of broker 1"):
        known_ids(host, parsed(log_dirs=str(paths[0]), broker_id="2"))
    asyncio.run(mark_directories(host, parsed(log_dirs=str(paths[1])), CLUSTER, 2))
    with pytest.raises(ConfigError, match=r"log\.dirs are of several brokers or clusters"):
        known_ids(host, config)
    (paths[0] / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER}\nnode.id=1\n")
    with pytest.raises(ConfigError, match="is formatted for KRaft"):
        known_ids(host, config)
