"""Keys of the group coordinator in the file of a node: ranges, and what cannot be said together."""

import pytest

from node.test_config import parsed
from quorate.controller.config_definitions import GROUP_CONFIGS
from quorate.controller.settings import GROUP_BOUNDS, Bounds, bound_keys
from quorate.coordinator.consumer_rules import GROUP_KEYS, rules_of
from quorate.coordinator.settings import KEYS, GroupSettings
from quorate.node.config import ConfigError
from quorate.node.config_groups import group_settings

INT_MAX = 2**31 - 1


def groups(**changes):
    return group_settings(parsed(**changes))


def refusal(**changes):
    with pytest.raises(ConfigError) as caught:
        parsed(**changes)
    return str(caught.value)


def test_a_file_that_says_nothing_of_groups_has_the_defaults():
    assert groups() == GroupSettings()


@pytest.mark.parametrize(
    ("key", "lowest"),
    [
        ("group_max_size", 1),
        ("group_min_session_timeout_ms", 0),
        ("group_max_session_timeout_ms", 0),
        ("group_initial_rebalance_delay_ms", 0),
        ("group_consumer_max_size", 1),
        ("group_consumer_session_timeout_ms", 1),
        ("group_consumer_min_session_timeout_ms", 1),
        ("group_consumer_max_session_timeout_ms", 1),
        ("group_consumer_heartbeat_interval_ms", 1),
        ("group_consumer_min_heartbeat_interval_ms", 1),
        ("group_consumer_max_heartbeat_interval_ms", 1),
        ("group_consumer_regex_refresh_interval_ms", 10_000),
        ("group_consumer_assignment_interval_ms", 0),
        ("group_consumer_min_assignment_interval_ms", 0),
        ("group_consumer_max_assignment_interval_ms", 0),
        ("offset_metadata_max_bytes", 0),
        ("offsets_retention_minutes", 1),
        ("offsets_commit_timeout_ms", 1),
        ("offsets_topic_num_partitions", 1),
        ("offsets_topic_segment_bytes", 1),
    ],
)
def test_numbers_have_a_range_and_32_bits(key, lowest):
    name = key.replace("_", ".")
    for value in (lowest - 1, INT_MAX + 1):
        assert refusal(**{key: str(value)}) == (
            f"f.properties: {name}={value}: allowed is a number from {lowest} to {INT_MAX}"
        )


def test_how_often_offsets_are_looked_through_has_64_bits():
    assert "interval.ms=0: allowed is a number from 1 to" in refusal(offsets_retention_check_interval_ms="0")
    month = groups(offsets_retention_check_interval_ms="2592000000")
    assert month.offsets_retention_check_interval_ms == 2_592_000_000


def test_the_longest_retention_is_some_thousand_years():
    longest = groups(offsets_retention_minutes=str(INT_MAX))
    assert longest.offsets_retention_ms == INT_MAX * 60_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {
                "group_consumer_min_session_timeout_ms": "50000",
                "group_consumer_session_timeout_ms": "50000",
                "group_consumer_max_session_timeout_ms": "46000",
            },
            "group.consumer.max.session.timeout.ms=46000: allowed is at least"
            " group.consumer.min.session.timeout.ms, 50000",
        ),
        (
            {"group_consumer_session_timeout_ms": "5"},
            "group.consumer.session.timeout.ms=5: allowed is at least"
            " group.consumer.min.session.timeout.ms, 45000",
        ),
        (
            {"group_consumer_session_timeout_ms": "60001"},
            "group.consumer.session.timeout.ms=60001: allowed is at most"
            " group.consumer.max.session.timeout.ms, 60000",
        ),
        (
            {"group_consumer_min_session_timeout_ms": "46000"},
            "group.consumer.session.timeout.ms=45000: allowed is at least"
            " group.consumer.min.session.timeout.ms, 46000",
        ),
        (
            {"group_consumer_heartbeat_interval_ms": "60000"},
            "group.consumer.heartbeat.interval.ms=60000: allowed is at most"
            " group.consumer.max.heartbeat.interval.ms, 15000",
        ),
        (
            {"group_consumer_heartbeat_interval_ms": "4999"},
            "group.consumer.heartbeat.interval.ms=4999: allowed is at least"
            " group.consumer.min.heartbeat.interval.ms, 5000",
        ),
        (
            {
                "group_consumer_heartbeat_interval_ms": "45000",
                "group_consumer_max_heartbeat_interval_ms": "45000",
            },
            "group.consumer.heartbeat.interval.ms=45000: allowed is less than"
            " group.consumer.session.timeout.ms, 45000",
        ),
        (
            {"group_consumer_max_assignment_interval_ms": "500"},
            "group.consumer.assignment.interval.ms=1000: allowed is at most"
            " group.consumer.max.assignment.interval.ms, 500",
        ),
    ],
)
def test_what_groups_have_is_within_the_bounds(changes, message):
    assert refusal(**changes) == f"f.properties: {message}"


def test_a_broker_of_zookeeper_mode_is_checked_too():
    changes = {
        "process_roles": None,
        "node_id": None,
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "zookeeper_connect": "127.0.0.1:2181",
    }
    assert parsed(**changes).is_of_zookeeper
    assert "allowed is at least" in refusal(**changes, group_consumer_session_timeout_ms="5")


@pytest.mark.parametrize("policy", ["upgrade", "UPGRADE", "Upgrade"])
def test_the_policy_may_be_written_in_capitals(policy):
    assert groups(group_consumer_migration_policy=policy).group_consumer_migration_policy == "upgrade"


@pytest.mark.parametrize(
    ("protocols", "has_consumer_protocol"),
    [("classic", False), ("classic, consumer", True), ("classic,consumer,streams,share", True)],
)
def test_the_rebalance_protocols_say_whether_there_is_the_one_of_consumer_groups(
    protocols, has_consumer_protocol
):
    changes = {"group_coordinator_rebalance_protocols": protocols}
    assert groups(**changes).consumer_protocol is has_consumer_protocol
    assert parsed(**changes).warnings == ()


@pytest.mark.parametrize("protocols", ["", "consumer", "classic,other", "Classic"])
def test_nobody_does_without_the_classic_protocol(protocols):
    assert refusal(group_coordinator_rebalance_protocols=protocols) == (
        f"f.properties: group.coordinator.rebalance.protocols={protocols}: allowed is classic, and any of"
        " consumer, share and streams"
    )


@pytest.mark.parametrize(
    ("key", "value", "wrong"),
    [
        ("group_coordinator_append_linger_ms", "-1", "-2"),
        ("group_coordinator_background_threads", "2", "0"),
        ("group_coordinator_threads", "4", "0"),
        ("offsets_commit_required_acks", "-1", "-2"),
        ("offsets_load_buffer_size", "5242880", "0"),
    ],
)
def test_keys_that_change_nothing_here_are_known_and_checked(key, value, wrong):
    name = key.replace("_", ".")
    assert parsed(**{key: value}).warnings == (f"f.properties: {name} changes nothing here",)
    assert f"{name}={wrong}: allowed is a number from" in refusal(**{key: wrong})


@pytest.mark.parametrize(
    "key", ["group_share_max_size", "group_streams_max_size", "share_coordinator_threads"]
)
def test_keys_of_groups_that_are_not_built_are_not_called_unknown(key):
    name = key.replace("_", ".")
    assert parsed(**{key: "10"}).warnings == (f"f.properties: {name} changes nothing here",)


def test_the_controller_goes_by_the_bounds_of_the_file():
    assert parsed().controller_settings("cluster").group_bounds == GROUP_BOUNDS
    changed = parsed(
        group_consumer_min_session_timeout_ms="1000",
        group_consumer_session_timeout_ms="6000",
        group_consumer_max_session_timeout_ms="7000",
    )
    assert changed.controller_settings("cluster").group_bounds == GROUP_BOUNDS | {
        "consumer.session.timeout.ms": Bounds(1_000, 7_000, 6_000)
    }


def test_controllers_and_coordinators_have_the_same_bounds_for_the_same_keys():
    settings = GroupSettings()
    assert GROUP_KEYS.keys() == GROUP_BOUNDS.keys()
    for key, bounds in GROUP_BOUNDS.items():
        fields = [KEYS[one] for one in (*bound_keys(key), f"group.{key}")]
        assert Bounds(*(getattr(settings, field) for field in fields)) == bounds
        assert GROUP_CONFIGS[key].default == str(bounds.default)


@pytest.mark.parametrize(("key", "rule"), GROUP_KEYS.items())
def test_a_coordinator_goes_by_the_bounds_that_controllers_have(key, rule):
    bounds = GROUP_BOUNDS[key]
    given = (None, bounds.lowest - 1, bounds.lowest, bounds.highest, bounds.highest + 1)
    used = [rules_of(GroupSettings(), None if one is None else {key: str(one)}) for one in given]
    assert [getattr(one, rule) for one in used] == [
        bounds.default,
        bounds.lowest,
        bounds.lowest,
        bounds.highest,
        bounds.highest,
    ]
