"""Configuration files: what is read, what is refused, and with which words."""

import pytest

from quorate.controller.config_of_brokers import BROKER_KEYS
from quorate.controller.settings import ControllerSettings
from quorate.node.config import SETTINGS, ConfigError, parse_config
from quorate.raft.voters import Endpoint

GOOD = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093,2@127.0.0.1:9094",
    "log.dirs": "/data/a,/data/b",
}


def parsed(**changes):
    properties = GOOD | {key.replace("_", "."): value for key, value in changes.items()}
    return parse_config(
        "f.properties", {key: value for key, value in properties.items() if value is not None}
    )


def test_a_good_file():
    config = parsed()
    assert config.node_id == 1
    assert config.metadata_directory == "/data/a"
    assert config.advertised_controller == Endpoint("CONTROLLER", "127.0.0.1", 9093)
    assert [voter.key.id for voter in config.static_voters] == [1, 2]
    assert config.quorum_settings.election_timeout_ms == 1000
    assert config.warnings == ()


def test_the_metadata_directory_has_its_own_key():
    assert parsed(metadata_log_dir="/meta/").metadata_directory == "/meta"


def test_bootstrap_servers_instead_of_voters():
    config = parsed(controller_quorum_voters=None, controller_quorum_bootstrap_servers="[::1]:9,h:10")
    assert config.bootstrap_servers == (Endpoint("CONTROLLER", "::1", 9), Endpoint("CONTROLLER", "h", 10))
    assert len(config.static_voters) == 0


def test_what_topics_have_that_do_not_say_otherwise():
    config = parsed(
        log_retention_hours="2",
        log_roll_ms="5000",
        log_roll_hours="9",
        log_cleanup_policy="compact, delete",
        min_insync_replicas="2",
        unclean_leader_election_enable="TRUE",
        compression_type="zstd",
        message_max_bytes="2000000",
    )
    assert config.warnings == ()
    assert config.controller_settings("cluster").topic_defaults == {
        "cleanup.policy": "compact, delete",
        "compression.type": "zstd",
        "max.message.bytes": "2000000",
        "min.insync.replicas": "2",
        "retention.ms": "7200000",
        "segment.ms": "5000",
        "unclean.leader.election.enable": "TRUE",
    }
    assert parsed().topic_defaults == {}


def test_a_broker_says_how_large_new_topics_are_only_if_its_own_file_does():
    about = {"process_roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:9092"}
    silent = parsed(**about).broker_settings("cluster")
    assert (silent.num_partitions, silent.default_replication_factor) == (-1, -1)
    settings = parsed(**about, num_partitions="1", default_replication_factor="3").broker_settings("cluster")
    assert (settings.num_partitions, settings.default_replication_factor) == (1, 3)


def test_how_long_tokens_live():
    config = parsed(delegation_token_max_lifetime_ms="3000", delegation_token_expiry_time_ms="2000")
    settings = config.controller_settings("cluster")
    assert settings.delegation_token_max_lifetime_ms == 3000
    assert settings.delegation_token_expiry_time_ms == 2000
    assert settings.delegation_token_expiry_check_interval_ms == 3_600_000
    assert config.warnings == ()


def test_the_defaults_of_the_file_are_those_of_the_controller():
    settings = parsed().controller_settings("cluster")
    assert settings == ControllerSettings(node_id=1, cluster_id="cluster", properties=GOOD)


def test_an_unknown_key_is_a_warning():
    assert parsed(kafka_magic="8").warnings == ("f.properties: unknown key kafka.magic",)


def test_a_key_that_changes_nothing_here_is_a_warning():
    assert parsed(num_io_threads="8").warnings == ("f.properties: num.io.threads changes nothing here",)
    assert parsed(queued_max_requests="8").warnings == (
        "f.properties: queued.max.requests changes nothing here",
    )


def test_a_key_that_can_change_while_the_node_runs_is_checked():
    assert parsed(log_cleaner_threads="2").warnings == ()
    with pytest.raises(ConfigError, match=r"log\.cleaner\.threads=many: allowed is a number from 0 on"):
        parsed(log_cleaner_threads="many")


def test_the_table_of_brokers_keys_has_every_key_with_its_default():
    """`BROKER_KEYS` is what DescribeConfigs tells; this is what counts."""
    assert set(SETTINGS) <= set(BROKER_KEYS)
    for key, setting in SETTINGS.items():
        default = BROKER_KEYS[key].definition.default
        if default is not None and key not in ("listeners", "listener.security.protocol.map"):
            assert setting.read(default) == setting.default, key
        else:
            assert not setting.default or key == "controller.listener.names", key


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"node_id": "x"}, "f.properties: node.id=x: allowed is a number from 0 on"),
        ({"node_id": "-1"}, "node.id=-1: allowed is"),
        ({"node_id": None}, "node.id is missing"),
        ({"node_id": "3"}, "node.id=3: not among the voters 1, 2"),
        ({"process_roles": "observer"}, "process.roles=observer: allowed is broker, controller, or both"),
        ({"process_roles": "controller,controller"}, "process.roles=controller,controller: allowed is"),
        ({"process_roles": None}, "process.roles is missing"),
        ({"listeners": "CONTROLLER:9093"}, "listeners=CONTROLLER:9093: allowed is NAME://host:port"),
        ({"listeners": "C://h:70000"}, "listeners=C://h:70000: allowed is"),
        ({"listeners": "C://h:1,C://h:2"}, "allowed is NAME://host:port, each name once"),
        ({"listeners": "OTHER://h:1"}, "listeners has none of controller.listener.names: CONTROLLER"),
        ({"controller_quorum_voters": "1@0.0.0.0:1"}, "voters=1@0.0.0.0:1: allowed is id@host:port"),
        ({"controller_quorum_voters": "1@h:1,1@h:2"}, "each id once"),
        ({"controller_quorum_voters": "1-h:1"}, "voters=1-h:1: allowed is"),
        (
            {"controller_quorum_voters": None},
            "voters is missing, and controller.quorum.bootstrap.servers too",
        ),
        ({"log_dirs": None}, "metadata.log.dir is missing, and log.dirs too"),
        ({"controller_quorum_fetch_timeout_ms": "1s"}, "fetch.timeout.ms=1s: allowed is milliseconds"),
        ({"controller_quorum_election_timeout_ms": "0"}, "election.timeout.ms=0: allowed is 1 and more"),
        (
            {"metadata_log_segment_bytes": "1"},
            "metadata.log.segment.bytes=1: allowed is a number from 8388608 on",
        ),
        ({"min_insync_replicas": "0"}, "min.insync.replicas=0: allowed is a number from 1 on"),
        ({"min_insync_replicas": "many"}, "min.insync.replicas=many: allowed is a number from 1 on"),
        ({"unclean_leader_election_enable": "perhaps"}, "election.enable=perhaps: allowed is true or false"),
        ({"log_retention_hours": "2.5"}, "hours=2.5: allowed is a number from -1 on in milliseconds"),
        ({"log_retention_hours": "9" * 18}, "allowed is a number from -1 on in milliseconds"),
        ({"log_cleanup_policy": "keep"}, "log.cleanup.policy=keep: allowed is any of compact, delete"),
        ({"cordoned_log_dirs": "/elsewhere"}, "Invalid entry in cordoned.log.dirs: /elsewhere."),
        ({"delegation_token_expiry_time_ms": "0"}, "expiry.time.ms=0: allowed is a number from 1 on"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(changes, message):
    with pytest.raises(ConfigError) as caught:
        parsed(**changes)
    assert message in str(caught.value)
    assert str(caught.value).startswith("f.properties: ")


OF_APACHE = "org.apache.kafka.coordinator.group.assignor."


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("range", ("range",)),
        ("range, uniform", ("range", "uniform")),
        (f"{OF_APACHE}RangeAssignor", ("range",)),
        (f"{OF_APACHE}UniformAssignor, {OF_APACHE}RangeAssignor", ("uniform", "range")),
        (f"uniform,{OF_APACHE}RangeAssignor", ("uniform", "range")),
    ],
)
def test_assignors_have_names_and_classes(names, expected):
    assert parsed(group_consumer_assignors=names)["group.consumer.assignors"] == expected


@pytest.mark.parametrize(
    "names",
    [
        *("", "sticky", "uniform,uniform", "range,other", "RangeAssignor"),
        f"range,{OF_APACHE}RangeAssignor",
        f"{OF_APACHE}SimpleAssignor",
        "uniform,org.example.Assignor",
    ],
)
def test_only_assignors_that_exist_can_be_named(names):
    with pytest.raises(ConfigError) as caught:
        parsed(group_consumer_assignors=names)
    assert str(caught.value) == (
        f"f.properties: group.consumer.assignors={names}: allowed is uniform and range, or Apache's"
        " classes of these, each once; others cannot be loaded"
    )
