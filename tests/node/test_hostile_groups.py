"""What somebody who means no good may ask of groups, over raw connections to a real node: it is told what is
wrong, and the node goes on, in little more memory than before."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from node.broker_processes import BrokerProcesses
from node.one_request import MIB, Peer
from quorate.protocol.api.admin import UpdateFeaturesRequest
from quorate.protocol.api.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from quorate.protocol.errors import ErrorCode

pytestmark = pytest.mark.processes

NODE = 1
SETTINGS = {
    "offsets_topic_num_partitions": "3",
    "offsets_topic_replication_factor": "1",
    "group_initial_rebalance_delay_ms": "0",
}
GROWTH_BYTES_MAX = 40 * MIB
"""Of the node's memory, by all that is asked here together."""
INT_MAX = (1 << 31) - 1

NONE = ErrorCode.NONE


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path_factory.mktemp("cluster"), combined=1, **SETTINGS) as running:
        running.create_topic("orders", [NODE])
        running.create_topic("a" * 200, [NODE])  # on which an expression may go astray
        with Peer(running) as peer:
            find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            running.wait(
                "somebody coordinates groups",
                lambda: peer.ask(find, 4).coordinators[0].error_code == NONE,
            )
            running.wait(
                "groups are served",
                lambda: all(commit(peer, f"warm-{number}") == NONE for number in range(10)),
            )
        yield running


@pytest.fixture
def peer(cluster: BrokerProcesses) -> Iterator[Peer]:
    with Peer(cluster) as connection:
        yield connection


# Requests


def join_request(group: str, member: str = "", **about: Any) -> JoinGroupRequest:
    metadata = about.pop("metadata", b"")
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=about.pop("session_timeout_ms", 30_000),
        rebalance_timeout_ms=about.pop("rebalance_timeout_ms", 30_000),
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=metadata)],
        **about,
    )


def join(peer: Peer, group: str, member: str = "", version: int = 9, **about: Any) -> Any:
    return peer.ask(join_request(group, member, **about), version)


def joined(peer: Peer, group: str, **about: Any) -> Any:
    """A member of a generation of its own."""
    found = join(peer, group, **about)
    if found.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        found = join(peer, group, found.member_id, **about)
    assert found.error_code == NONE
    return found


def sync(peer: Peer, group: str, member: str, generation: int, instance: str | None = None) -> int:
    request = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequest.Assignment(member_id=member, assignment=b"all")],
    )
    return int(peer.ask(request, 5).error_code)


def beat(peer: Peer, group: str, member: str, generation: int, instance: str | None = None) -> int:
    request = HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
    )
    return int(peer.ask(request, 4).error_code)


def leave(peer: Peer, group: str, member: str) -> Any:
    request = LeaveGroupRequest(group_id=group, members=[LeaveGroupRequest.MemberIdentity(member_id=member)])
    return peer.ask(request, 5)


def commit(
    peer: Peer, group: str, member: str = "", generation: int = -1, version: int = 9, **about: Any
) -> int:
    topic = OffsetCommitRequest.Topic
    partition = topic.Partition(
        partition_index=0, committed_offset=7, committed_metadata=about.pop("metadata", "")
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[topic(name="orders", partitions=[partition])],
        **about,
    )
    return int(peer.ask(request, version).topics[0].partitions[0].error_code)


def hear_of(peer: Peer, group: str, member: str = "m", epoch: int = 0, **about: Any) -> Any:
    """A heartbeat of the consumer protocol. Whoever comes says everything."""
    says: dict[str, Any] = {}
    if epoch == 0:
        says = {"rebalance_timeout_ms": 30_000, "topic_partitions": []}
        if "subscribed_topic_regex" not in about:
            says["subscribed_topic_names"] = ["orders"]
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, **(says | about)
    )
    return peer.ask(request, 1)


def find_coordinators(peer: Peer, names: Sequence[str]) -> set[int]:
    found = peer.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=list(names)), 4)
    return {one.error_code for one in found.coordinators}


# What is asked


def whoever_is_none_of_them_is_told_so(peer: Peer) -> None:
    member = joined(peer, "classic")
    me, generation = member.member_id, member.generation_id
    assert sync(peer, "classic", me, generation) == NONE
    unknown, stale = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION
    for ask in (beat, sync, commit):
        assert ask(peer, "classic", "nobody", generation) == unknown
        assert ask(peer, "classic", me, generation - 1) == stale
        assert ask(peer, "classic", me, INT_MAX) == stale
    assert beat(peer, "classic", "", -INT_MAX) == unknown
    assert beat(peer, "nothing", me, generation) == unknown
    assert join(peer, "classic", "nobody").error_code == unknown
    assert [one.error_code for one in leave(peer, "classic", "nobody").members] == [unknown]
    assert beat(peer, "classic", me, generation) == NONE


def whoever_was_replaced_is_told_so(peer: Peer) -> None:
    first = joined(peer, "static", group_instance_id="i")
    assert sync(peer, "static", first.member_id, first.generation_id, "i") == NONE
    second = joined(peer, "static", group_instance_id="i")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert beat(peer, "static", first.member_id, first.generation_id, "i") == fenced
    assert sync(peer, "static", first.member_id, first.generation_id, "i") == fenced
    said = {"group_instance_id": "i"}
    assert commit(peer, "static", first.member_id, first.generation_id, **said) == fenced
    assert beat(peer, "static", second.member_id, second.generation_id, "i") == NONE


def members_of_the_consumer_protocol_are_told_so_too(peer: Peer) -> None:
    epoch = hear_of(peer, "new", instance_id="i").member_epoch
    assert hear_of(peer, "nothing", epoch=1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert hear_of(peer, "new", "nobody", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    for wrong in (epoch + 1, INT_MAX):
        assert hear_of(peer, "new", epoch=wrong).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert hear_of(peer, "new", epoch=-3).error_code == ErrorCode.INVALID_REQUEST
    taken = hear_of(peer, "new", "other", instance_id="i")
    assert taken.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    other = hear_of(peer, "new", "other", epoch, instance_id="i")
    assert other.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert commit(peer, "new", "m", epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert hear_of(peer, "new", epoch=epoch).error_code == NONE


def names_that_are_none_are_refused(peer: Peer) -> None:
    invalid = ErrorCode.INVALID_GROUP_ID
    assert join(peer, "").error_code == invalid
    assert sync(peer, "", "m", 1) == invalid
    assert beat(peer, "", "m", 1) == invalid
    assert leave(peer, "", "m").error_code == invalid
    for blank in ("", " ", "\t\n"):
        assert hear_of(peer, blank).error_code == ErrorCode.INVALID_REQUEST
        assert hear_of(peer, "new", blank).error_code == ErrorCode.INVALID_REQUEST


def time_outs_are_taken_as_they_may_be(peer: Peer) -> None:
    for wrong in (0, -1, 1, -INT_MAX, INT_MAX):
        refused = join(peer, "hasty", session_timeout_ms=wrong)
        assert refused.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    for number, odd in enumerate((0, -1, INT_MAX)):
        group = f"odd-{number}"
        member = joined(peer, group, rebalance_timeout_ms=odd)
        # Whoever gives itself no time to ask for its part may be put out before it does.
        allowed = {NONE} if odd > 0 else {NONE, ErrorCode.UNKNOWN_MEMBER_ID}
        assert sync(peer, group, member.member_id, member.generation_id) in allowed
        assert beat(peer, group, member.member_id, member.generation_id) in allowed
        found = hear_of(peer, f"odd-new-{number}", rebalance_timeout_ms=odd)
        assert found.error_code == (ErrorCode.INVALID_REQUEST if odd == -1 else NONE)
    for retention_ms in (0, -2, (1 << 63) - 1):
        assert commit(peer, "kept", version=2, retention_time_ms=retention_ms) == NONE


def what_is_too_large_is_refused(peer: Peer) -> None:
    member = joined(peer, "large", metadata=bytes(MIB))
    assert sync(peer, "large", member.member_id, member.generation_id) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert leave(peer, "large", member.member_id).error_code == NONE
    names = [f"{number:0250}" for number in range(MIB // 250)]
    found = hear_of(peer, "large-new", subscribed_topic_names=names)
    assert found.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert hear_of(peer, "large-new", epoch=1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert join(peer, "larger", metadata=bytes(5 * MIB)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert commit(peer, "large", metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit(peer, "large", metadata="x" * 32_000) == ErrorCode.OFFSET_METADATA_TOO_LARGE


def expressions_hold_nobody_up(peer: Peer) -> None:
    for number, wrong in enumerate(
        ("(", "[z-a]", "a**b(", "(?<=a)b", r"(a)\1", "(" * 5000, "((a{1,99}){1,99}){1,99}")
    ):
        found = hear_of(peer, f"wrong-{number}", subscribed_topic_regex=wrong)
        assert found.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION, wrong
    for number, catastrophic in enumerate(("(a+)+b", "(a|a)*b", "(a*)*b", "(.*a){20}b", "(a?){50}a{50}b")):
        group = f"astray-{number}"
        epoch = hear_of(peer, group, subscribed_topic_regex=catastrophic).member_epoch
        assert hear_of(peer, group, epoch=epoch).error_code == NONE


def floods_leave_nothing_behind(cluster: BrokerProcesses, peer: Peer) -> None:
    nameless = join_request("flood")
    for _ in range(10):
        for _ in range(300):
            peer.say(nameless, 9)
        answers = {peer.hear(nameless, 9).error_code for _ in range(300)}
        assert answers == {ErrorCode.MEMBER_ID_REQUIRED}
    for _ in range(10):
        with ExitStack() as closing:
            for _ in range(50):
                fleeting = closing.enter_context(Peer(cluster))
                fleeting.say(join_request("fleeting", rebalance_timeout_ms=1000), 3)
    for first in range(0, 2_000, 100):
        names = [f"{number:032000}" for number in range(first, first + 100)]
        assert find_coordinators(peer, names) == {NONE}


def a_group_is_served(peer: Peer, group: str) -> None:
    member = joined(peer, group)
    me, generation = member.member_id, member.generation_id
    assert sync(peer, group, me, generation) == NONE
    assert beat(peer, group, me, generation) == NONE
    assert commit(peer, group, me, generation) == NONE
    topics = [OffsetFetchRequest.Topic(name="orders", partition_indexes=[0])]
    found = peer.ask(OffsetFetchRequest(group_id=group, topics=topics), 7)
    assert found.topics[0].partitions[0].committed_offset == 7
    epoch = hear_of(peer, f"{group}-new").member_epoch
    assert hear_of(peer, f"{group}-new", epoch=epoch).error_code == NONE


def test_a_node_stands_what_is_asked_of_groups_by_those_who_mean_no_good(
    cluster: BrokerProcesses, peer: Peer
) -> None:
    a_group_is_served(peer, "before")
    before_bytes = cluster.resident_bytes(NODE)
    whoever_is_none_of_them_is_told_so(peer)
    whoever_was_replaced_is_told_so(peer)
    members_of_the_consumer_protocol_are_told_so_too(peer)
    names_that_are_none_are_refused(peer)
    time_outs_are_taken_as_they_may_be(peer)
    what_is_too_large_is_refused(peer)
    expressions_hold_nobody_up(peer)
    floods_leave_nothing_behind(cluster, peer)
    with Peer(cluster) as another:
        a_group_is_served(another, "after")
    grown_bytes = cluster.resident_bytes(NODE) - before_bytes
    assert grown_bytes <= GROWTH_BYTES_MAX
    assert "Traceback" not in cluster.logged(NODE)


def test_the_consumer_protocol_goes_with_its_feature_and_comes_with_it(
    cluster: BrokerProcesses, peer: Peer
) -> None:
    def level_is(level: int) -> None:
        update = UpdateFeaturesRequest.FeatureUpdateKey(
            feature="group.version", max_version_level=level, upgrade_type=1 if level else 2
        )
        answer = peer.ask(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]), 1)
        assert answer.error_code == NONE

    epoch = hear_of(peer, "featured").member_epoch
    assert [hear_of(peer, "featured", epoch=epoch).error_code for _ in range(3)] == [NONE] * 3
    level_is(0)
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    cluster.wait(
        "a heartbeat is refused", lambda: hear_of(peer, "featured", epoch=epoch).error_code == unsupported
    )
    assert hear_of(peer, "another").error_code == unsupported
    shown = ConsumerGroupDescribeRequest(group_ids=["featured"], include_authorized_operations=False)
    assert [one.error_code for one in peer.ask(shown, 1).groups] == [unsupported]
    level_is(1)
    cluster.wait("it is heard again", lambda: hear_of(peer, "featured", epoch=epoch).error_code == NONE)
