"""Heartbeats to consumer groups that are known: the answer is that of the whole step, or there is none."""

from typing import Any

import pytest
from group_story import GROUP, Groups

from quorate.coordinator.effects import Caller
from quorate.coordinator.known_members import KnownMember
from quorate.protocol.api.groups import ConsumerGroupHeartbeatRequest
from quorate.protocol.errors import ErrorCode

CALLER = Caller(1, "c", "/h")


def request(member_id: str, epoch: int, **about: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        **{"group_id": GROUP, "member_id": member_id, "member_epoch": epoch, **about}
    )


def joining(**about: Any) -> dict[str, Any]:
    return {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
        **about,
    }


def whole(groups: Groups, asked: ConsumerGroupHeartbeatRequest, caller: Caller = CALLER) -> Any:
    """The answer to the whole step, and how many records it wrote."""
    found: list[Any] = []
    before = len(groups.log)
    shard = groups.shard
    groups.ask(
        1, lambda ticket, moment: shard.consumer_group_heartbeat(ticket, asked, caller, moment), found.append
    )
    return found[0], len(groups.log) - before


def short(groups: Groups, asked: ConsumerGroupHeartbeatRequest, caller: Caller = CALLER) -> Any:
    known = groups.shard.known_consumer_heartbeat(asked, caller)
    return None if known is None or not known.is_taken(groups.moment.now_ms) else known.answer


@pytest.fixture
def groups() -> Groups:
    """With a member `a` that has everything."""
    made = Groups(group_consumer_assignment_interval_ms=0)
    made.has_topics(orders=2)
    answer, _ = whole(made, request("a", 0, **joining()))
    assert answer.assignment is not None
    return made


def epoch_of(groups: Groups) -> int:
    (group,) = groups.shard.consumer_groups
    return group.state.members["a"].epoch


def test_it_says_what_the_whole_step_says(groups: Groups) -> None:
    asked = request("a", epoch_of(groups))
    answer = short(groups, asked)
    assert answer is not None
    assert (answer, 0) == whole(groups, asked)


def test_it_keeps_a_member_alive(groups: Groups) -> None:
    asked = request("a", epoch_of(groups))
    for _ in range(3):
        groups.passes(44_000)
        assert short(groups, asked) is not None
    groups.passes(45_000)
    assert short(groups, asked) is None
    assert whole(groups, asked)[0].error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)


@pytest.mark.parametrize(
    "about",
    [
        {"member_id": "x"},
        {"group_id": "other"},
        {"member_epoch": 0, **joining()},
        {"member_epoch": -1},
        {"member_epoch": 77},
        {"instance_id": "i"},
        {"rack_id": "r"},
        {"rebalance_timeout_ms": 1000},
        {"subscribed_topic_names": ["orders"]},
        {"subscribed_topic_regex": "o.*"},
        {"server_assignor": "range"},
        {"topic_partitions": []},
    ],
)
def test_whoever_says_something_is_heard_in_full(groups: Groups, about: dict[str, Any]) -> None:
    asked = request("a", epoch_of(groups))
    for name, value in about.items():
        setattr(asked, name, value)
    assert short(groups, asked) is None


@pytest.mark.parametrize("caller", [CALLER._replace(client_id="d"), CALLER._replace(client_host="/i")])
def test_whoever_calls_from_elsewhere_is_noted(groups: Groups, caller: Caller) -> None:
    assert short(groups, request("a", epoch_of(groups)), caller) is None


def test_a_group_that_has_moved_on_tells_its_members(groups: Groups) -> None:
    asked = request("a", epoch_of(groups))
    whole(groups, request("b", 0, **joining()))
    assert short(groups, asked) is None
    answer, _ = whole(groups, asked)
    assert answer.assignment is not None


def test_topics_that_have_changed_are_looked_at(groups: Groups) -> None:
    groups.has_topics(orders=4)
    assert short(groups, request("a", epoch_of(groups))) is None


def test_expressions_are_looked_up_again_now_and_then(groups: Groups) -> None:
    about = joining(subscribed_topic_names=None, subscribed_topic_regex="ord.*")
    whole(groups, request("b", 0, **about))
    for _ in range(5):
        groups.passes(1)
        answer, _ = whole(groups, request("a", epoch_of(groups), topic_partitions=[]))
    assert answer.error_code == ErrorCode.NONE
    assert short(groups, request("a", epoch_of(groups))) is None


# What is known is taken until something changes


@pytest.fixture
def known(groups: Groups) -> KnownMember:
    found = groups.shard.known_consumer_heartbeat(request("a", epoch_of(groups)), CALLER)
    assert found is not None
    for _ in range(3):
        groups.passes(44_000)
        assert found.is_taken(groups.moment.now_ms)
    return found


def is_taken(known: KnownMember, groups: Groups) -> bool:
    return known.is_taken(groups.moment.now_ms)


def test_it_is_not_taken_when_the_group_has_moved_on(groups: Groups, known: KnownMember) -> None:
    whole(groups, request("b", 0, **joining()))
    assert not is_taken(known, groups)


def test_it_is_not_taken_when_topics_have_changed(groups: Groups, known: KnownMember) -> None:
    groups.has_topics(orders=4)
    assert not is_taken(known, groups)


def test_it_is_not_taken_when_its_member_has_left(groups: Groups, known: KnownMember) -> None:
    whole(groups, request("a", -1))
    assert not is_taken(known, groups)


def test_it_is_not_taken_when_its_member_has_something_new_to_say(groups: Groups, known: KnownMember) -> None:
    whole(groups, request("a", epoch_of(groups)), CALLER._replace(client_id="d"))
    assert not is_taken(known, groups)


def test_it_is_not_taken_when_the_group_is_configured_otherwise(groups: Groups, known: KnownMember) -> None:
    groups.shard.configure(GROUP, {"consumer.heartbeat.interval.ms": "7000"})
    assert not is_taken(known, groups)
    assert short(groups, request("a", epoch_of(groups))).heartbeat_interval_ms == 7000
    groups.shard.configure(GROUP, {})
    assert is_taken(known, groups)
