"""Which ZooKeeper is used, where one is installed, and what a cluster of ZooKeeper mode consists of."""

import stat
from pathlib import Path

import pytest

from quorate.node.config import ConfigError
from quorate.node.config_file import load_config
from quorate.testing.plan import make_plan, make_zookeeper_plan, obtain_plan, profile_of, read_plan
from quorate.testing.profiles import DEVELOPMENT
from quorate.testing.zookeeper_distribution import NoDistributionError, find_distribution
from quorate.testing.zookeeper_server import read_servers


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """The home of a Java machine."""
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return tmp_path / "java"


def jar(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def of_maven(repository: Path, group: str, artifact: str, version: str) -> Path:
    return jar(repository / group / artifact / version / f"{artifact}-{version}.jar")


def test_the_home_that_is_named_comes_first(tmp_path: Path, java: Path):
    home = tmp_path / "home"
    jar(home / "lib" / "zookeeper-3.8.4.jar")
    jar(tmp_path / "system" / "zookeeper.jar")
    environment = {"ZOOKEEPER_HOME": str(home), "JAVA_HOME": str(java)}
    found = find_distribution(environment, tmp_path / "system")
    assert found.class_path == f"{home}/lib/*"
    assert found.java == str(java / "bin" / "java")
    assert found.command(Path("/a/zoo.cfg"))[-1] == "/a/zoo.cfg"


def test_then_the_package_of_the_system(tmp_path: Path, java: Path):
    mine = jar(tmp_path / "system" / "zookeeper.jar")
    environment = {"JAVA_HOME": str(java), "QUORATE_MAVEN_REPOSITORY": str(tmp_path / "none")}
    found = find_distribution(environment, tmp_path / "system")
    assert found.class_path == found.found == str(mine)


def test_then_what_maven_has(tmp_path: Path, java: Path):
    repository = tmp_path / "repository"
    for version in ("3.8.4", "3.9.3", "3.10.0"):
        of_maven(repository, "org/apache/zookeeper", "zookeeper", version)
    for version in ("3.8.4", "3.9.3"):  # of the newest one a part is missing
        of_maven(repository, "org/apache/zookeeper", "zookeeper-jute", version)
    of_maven(repository, "org/slf4j", "slf4j-api", "1.7.36")
    of_maven(repository, "org/slf4j", "slf4j-api", "1.7.30")
    of_maven(repository, "org/slf4j", "slf4j-api", "2.0.9")
    of_maven(repository, "org/slf4j", "slf4j-simple", "1.7.30")
    of_maven(repository, "io/dropwizard/metrics", "metrics-core", "4.1.12.1")
    environment = {"JAVA_HOME": str(java), "QUORATE_MAVEN_REPOSITORY": str(repository)}
    with pytest.raises(NoDistributionError, match="snappy-java"):
        find_distribution(environment, tmp_path / "system")
    of_maven(repository, "org/xerial/snappy", "snappy-java", "1.1.10.5")
    found = find_distribution(environment, tmp_path / "system")
    names = [Path(one).name for one in found.class_path.split(":")]
    assert names == [
        "zookeeper-3.9.3.jar",
        "zookeeper-jute-3.9.3.jar",
        "slf4j-api-1.7.30.jar",
        "metrics-core-4.1.12.1.jar",
        "snappy-java-1.1.10.5.jar",
        "slf4j-simple-1.7.30.jar",
    ]


def test_none_is_said_with_what_would_help(tmp_path: Path):
    with pytest.raises(NoDistributionError) as refused:
        find_distribution({"QUORATE_MAVEN_REPOSITORY": str(tmp_path)}, tmp_path / "system")
    for hint in ("apt-get install zookeeper", "mvn dependency:get", "ZOOKEEPER_HOME", "--zookeeper"):
        assert hint in str(refused.value)


def test_a_private_one_has_servers_beside_the_nodes(tmp_path: Path):
    plan = make_zookeeper_plan(tmp_path / "c", brokers=2, zookeepers=3, settings=DEVELOPMENT)
    assert plan.mode == "zookeeper"
    assert [one.name for one in plan.servers] == ["zookeeper-1", "zookeeper-2", "zookeeper-3"]
    assert plan.zookeeper == ",".join(one.address for one in plan.servers)
    for number, server in enumerate(plan.servers, 1):
        text = server.file.read_text()
        assert f"clientPort={server.port}" in text
        assert text.count("server.") == 3
        assert (server.directory / "data" / "myid").read_text() == f"{number}\n"
    for one in plan.nodes:
        config = load_config(str(one.file))
        assert config.is_of_zookeeper
        assert config.node_id == one.id
        assert config["zookeeper.connect"] == plan.zookeeper
        assert config["zookeeper.session.timeout.ms"] == 3000
        assert not config.warnings
        assert not any(key.startswith("controller.quorum") for key in config.properties)
    assert read_plan(tmp_path / "c") == plan
    assert list(read_servers(tmp_path / "c")) == list(plan.servers)
    assert profile_of(plan) == "development"


def test_one_that_runs_is_used_as_it_is(tmp_path: Path):
    plan = make_zookeeper_plan(tmp_path / "c", zookeeper="somewhere:2181/quorate")
    assert plan.servers == ()
    config = load_config(str(plan.nodes[0].file))
    assert config["zookeeper.connect"] == "somewhere:2181/quorate"
    assert config["zookeeper.session.timeout.ms"] == 18_000
    assert obtain_plan(tmp_path / "c", mode="zookeeper", zookeeper="somewhere:2181/quorate") == plan
    with pytest.raises(ConfigError, match="whose ZooKeeper is somewhere:2181/quorate, not elsewhere:1"):
        obtain_plan(tmp_path / "c", zookeeper="elsewhere:1")


def test_a_directory_is_of_one_mode(tmp_path: Path):
    make_plan(tmp_path / "kraft")
    with pytest.raises(ConfigError, match="has a cluster of kraft mode, not zookeeper"):
        obtain_plan(tmp_path / "kraft", mode="zookeeper")
    make_zookeeper_plan(tmp_path / "other")
    with pytest.raises(ConfigError, match="has a cluster of zookeeper mode, not kraft"):
        obtain_plan(tmp_path / "other", mode="kraft")
    assert obtain_plan(tmp_path / "other").mode == "zookeeper"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"controllers": 1}, "in ZooKeeper mode a broker is the controller"),
        ({"brokers": 65}, "65 brokers: from 1 to 64"),
        ({"zookeepers": 10}, "10 servers of ZooKeeper: from 1 to 9"),
        ({"zookeeper": "a:b"}, "zookeeper.connect=a:b: allowed is host:port"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, wanted: dict[str, object], message: str):
    with pytest.raises(ConfigError) as refused:
        obtain_plan(tmp_path / "c", mode="zookeeper", **wanted)  # type: ignore[arg-type]
    assert message in str(refused.value)
