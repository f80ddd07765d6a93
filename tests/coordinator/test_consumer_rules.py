"""The rules of a group: the configuration, and what the group itself was given."""

import pytest

from quorate.coordinator.consumer_rules import ConsumerRules, corrected, rules_of
from quorate.coordinator.settings import GroupSettings


def test_the_defaults_are_those_of_the_configuration() -> None:
    assert rules_of(GroupSettings()) == ConsumerRules()


@pytest.mark.parametrize(
    ("key", "given", "field", "expected"),
    [
        ("consumer.session.timeout.ms", "50000", "session_timeout_ms", 50_000),
        ("consumer.session.timeout.ms", "10", "session_timeout_ms", 45_000),
        ("consumer.session.timeout.ms", "999999", "session_timeout_ms", 60_000),
        ("consumer.session.timeout.ms", "soon", "session_timeout_ms", 45_000),
        ("consumer.heartbeat.interval.ms", "7000", "heartbeat_interval_ms", 7_000),
        ("consumer.heartbeat.interval.ms", "1", "heartbeat_interval_ms", 5_000),
        ("consumer.assignment.interval.ms", "0", "assignment_interval_ms", 0),
        ("consumer.assignment.interval.ms", "60000", "assignment_interval_ms", 15_000),
        ("share.session.timeout.ms", "1", "session_timeout_ms", 45_000),
    ],
)
def test_a_group_has_values_of_its_own_within_bounds(key: str, given: str, field: str, expected: int) -> None:
    assert getattr(rules_of(GroupSettings(), {key: given}), field) == expected


def test_the_bounds_are_those_of_the_coordinator() -> None:
    settings = GroupSettings(group_consumer_min_session_timeout_ms=1_000)
    given = {"consumer.session.timeout.ms": "10000"}
    assert rules_of(settings, given).session_timeout_ms == 10_000
    assert corrected(settings, given) == {}


def test_what_a_group_has_instead_of_what_it_was_given_is_known() -> None:
    given = {
        "consumer.session.timeout.ms": "10",
        "consumer.heartbeat.interval.ms": " 7000 ",
        "consumer.assignment.interval.ms": "15001",
        "share.session.timeout.ms": "1",
    }
    assert corrected(GroupSettings(), given) == {
        "consumer.session.timeout.ms": 45_000,
        "consumer.assignment.interval.ms": 15_000,
    }


@pytest.mark.parametrize("given", ["045000", "+45000", " 45000 "])
def test_a_number_may_be_written_in_more_than_one_way(given: str) -> None:
    assert corrected(GroupSettings(), {"consumer.session.timeout.ms": given}) == {}


WIDE = GroupSettings(group_consumer_max_heartbeat_interval_ms=80_000)
SHORT = GroupSettings(group_consumer_min_session_timeout_ms=1_000)


@pytest.mark.parametrize(
    ("settings", "session", "heartbeat", "expected"),
    [
        (WIDE, "60000", "59999", (60_000, 59_999)),
        (WIDE, "60000", "60000", (60_000, 5_000)),
        (WIDE, "100000", "70000", (60_000, 5_000)),
        (WIDE, None, "50000", (45_000, 5_000)),
        (SHORT, "6000", "5000", (6_000, 5_000)),
        (SHORT, "6000", "8000", (6_000, 5_000)),
        (SHORT, "4000", "3000", (45_000, 5_000)),
        (SHORT, "4000", None, (45_000, 5_000)),
        (SHORT, "4000", "10000", (45_000, 5_000)),
    ],
)
def test_a_session_is_longer_than_the_interval_of_heartbeats(
    settings: GroupSettings, session: str | None, heartbeat: str | None, expected: tuple[int, int]
) -> None:
    texts = {"consumer.session.timeout.ms": session, "consumer.heartbeat.interval.ms": heartbeat}
    given = {key: text for key, text in texts.items() if text is not None}
    rules = rules_of(settings, given)
    assert (rules.session_timeout_ms, rules.heartbeat_interval_ms) == expected
    used = dict(zip(texts, expected, strict=True))
    assert corrected(settings, given) == {
        key: used[key] for key, text in given.items() if int(text) != used[key]
    }


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        ("bidirectional", True, True),
        ("BIDIRECTIONAL", True, True),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ],
)
def test_the_policy_says_which_way_a_group_may_go(policy: str, up: bool, down: bool) -> None:
    rules = rules_of(GroupSettings(group_consumer_migration_policy=policy))
    assert (rules.may_upgrade, rules.may_downgrade) == (up, down)
