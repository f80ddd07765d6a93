"""Groups that go over from one protocol to the other while they are at work, told as conversations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from classic_payloads import assignment_payload
from consumer_story import OK, ClassicConsumer, Consumer, ConsumerStory

from quorate.coordinator.classic import State
from quorate.coordinator.consumer_events import GroupConverted
from quorate.protocol.api.groups import JoinGroupRequest, SyncGroupRequest
from quorate.protocol.errors import ErrorCode


def classic_group(story: ConsumerStory, *members: ClassicConsumer, topics: tuple[str, ...] = ("t",)) -> None:
    """A stable classic group, in which everybody has an equal share of every topic."""
    for member in members:
        member.joins(*topics)
    story.passes(6_000)
    group = story.classic_group
    assert group is not None
    for member in members:
        member.generation = group.generation
        if member.instance is not None:
            member.id = group.members.by_instance[member.instance]
    leader = next(member for member in members if member.id == group.leader)
    shares = {
        member.id: {topic: set(range(number, story.sizes[topic], len(members))) for topic in topics}
        for number, member in enumerate(members)
    }
    leader.syncs(
        assignments=[
            SyncGroupRequest.Assignment(member_id=member_id, assignment=assignment_payload(share))
            for member_id, share in shares.items()
        ]
    )
    for member in members:
        member.syncs()
        assert member.held == shares[member.id]
    assert group.state is State.STABLE


# Up


def test_an_empty_classic_group_is_replaced() -> None:
    story = ConsumerStory({"t": 2})
    a = story.classic("a")
    classic_group(story, a)
    a.leaves()
    b = story.member("b").joins("t")
    assert (b.error, b.has) == (OK, {"t": {0, 1}})
    assert story.classic_group is None
    assert story.written[0].value is None


def test_a_classic_group_is_upgraded_by_the_first_who_speaks_the_new_protocol() -> None:
    story = ConsumerStory({"t": 4})
    a, b = story.classic("a"), story.classic("b")
    classic_group(story, a, b)
    c = story.member("c").joins("t")
    assert (c.error, c.epoch, c.has) == (OK, 2, {}), "the others still have everything"
    assert story.classic_group is None
    assert {member.member_id for member in story.state.members.values()} == {a.id, b.id, "c"}
    assert [event.to for event in story.events if isinstance(event, GroupConverted)] == ["consumer"]
    described = {member.member_id: member.member_type for member in story.describe().members}
    assert described == {a.id: 0, b.id: 0, "c": 1}
    # The old members are told to join again, and go their own way to their targets.
    assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    assert a.joins().error_code == OK
    assert a.syncs().error_code == OK
    assert b.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    assert b.joins().error_code == OK
    assert b.syncs().error_code == OK
    c.beats()
    held = [(name, p) for m in (a.held, b.held, c.has) for name, ps in m.items() for p in ps]
    assert sorted(held) == [("t", 0), ("t", 1), ("t", 2), ("t", 3)]
    assert (a.beats(), b.beats(), c.beats().error) == (OK, OK, OK)
    assert story.state.phase == "Stable"


def test_the_upgraded_group_is_in_the_log() -> None:
    story = ConsumerStory({"t": 4})
    a = story.classic("a")
    classic_group(story, a)
    story.member("c").joins("t")
    story.fails_over()
    assert story.classic_group is None
    assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    member = story.state.members[a.id]
    assert member.classic is not None
    assert member.classic.session_timeout_ms == 45_000
    assert story.state.classic_protocol_counts == {"range": 1}


def test_whoever_waits_in_the_classic_group_is_sent_back_to_join() -> None:
    story = ConsumerStory({"t": 2})
    a, b = story.classic("a"), story.classic("b")
    classic_group(story, a)
    b.joins("t")
    assert b.waits, "until a joins again"
    story.member("c").joins("t")
    refused = [answer.error_code for answer in story.answered.values()]
    assert ErrorCode.REBALANCE_IN_PROGRESS in refused
    assert b.joins("t").error_code == OK


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_an_upgrade_may_be_forbidden(policy: str) -> None:
    story = ConsumerStory({"t": 2}, group_consumer_migration_policy=policy)
    a = story.classic("a")
    classic_group(story, a)
    c = story.member("c").joins("t")
    assert c.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert a.beats() is OK
    assert story.written == []


def test_a_group_of_others_is_not_upgraded() -> None:
    story = ConsumerStory({"t": 2})
    a = story.classic("a")
    request = {"protocol_type": "connect"}
    a.id = a.asks_to_join(**request).member_id
    assert a.asks_to_join(**request) is None
    story.passes(3_000)
    assert story.member("c").joins("t").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_whose_assignments_cannot_be_read_is_not_upgraded() -> None:
    story = ConsumerStory({"t": 2})
    a = story.classic("a")
    classic_group(story, a)
    group = story.classic_group
    assert group is not None
    malformed = "the embedded consumer protocol is malformed"
    for assignment, why in (
        (b"\0", malformed),
        (assignment_payload({"t": {0}}, user_data=b"mine"), "an unsupported custom assignor is in use."),
        (b"\xff\xff", malformed),
    ):
        group.members[a.id].assignment = assignment
        refused = story.member("c").joins("t")
        assert refused.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert why in refused.message
        assert story.classic_group is group


def test_a_group_that_is_too_large_is_not_upgraded() -> None:
    story = ConsumerStory({"t": 2}, group_consumer_max_size=1)
    a, b = story.classic("a"), story.classic("b")
    classic_group(story, a, b)
    assert story.member("c").joins("t").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_refused_upgrade_leaves_the_classic_group_as_it_was() -> None:
    story = ConsumerStory({"t": 2})
    a = story.classic("a")
    classic_group(story, a)
    story.refuses = True
    story.member("c").joins("t")
    story.refuses = False
    assert story.group is None
    assert a.beats() is OK
    assert story.member("c").joins("t").error is OK


def test_a_bad_request_does_not_upgrade() -> None:
    story = ConsumerStory({"t": 2})
    a = story.classic("a")
    classic_group(story, a)
    assert story.member("c").joins("t", server_assignor="no").error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert story.member("c").joins(regex="(").error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert story.member("c").sends(member_epoch=3).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert (a.beats(), story.group) == (OK, None)


def test_a_static_classic_member_is_replaced_by_itself_with_the_new_protocol() -> None:
    story = ConsumerStory({"t": 2})
    a, b = story.classic("a", instance="i"), story.classic("b")
    classic_group(story, a, b)
    had = a.held
    c = story.member("c", instance="i").joins("t")
    assert (c.error, c.has) == (OK, had), "it takes over what its former self had"
    assert set(story.state.members) == {"c", b.id}
    assert a.beats() is ErrorCode.FENCED_INSTANCE_ID


# Classic members among others


def mixed(story: ConsumerStory) -> tuple[ClassicConsumer, Consumer]:
    a = story.classic("a")
    classic_group(story, a)
    c = story.member("c").joins("t")
    a.beats()
    a.joins()
    a.syncs()
    c.beats()
    assert story.state.phase == "Stable"
    return a, c


def test_a_classic_member_joins_a_group_of_the_new_protocol() -> None:
    story = ConsumerStory({"t": 2})
    c = story.member("c").joins("t")
    a = story.classic("a")
    joined = a.joins("t")
    assert (joined.error_code, joined.generation_id, joined.leader, joined.members) == (OK, 3, "", [])
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert a.syncs().error_code == OK
    assert a.held == {}
    assert a.beats() is OK, "what it waits for is in another's hands: joining again would not help"
    c.beats()
    c.gives_back()
    assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS, "it is free now"
    a.joins()
    a.syncs()
    assert len(a.held["t"]) == 1
    assert a.beats() is OK


def test_a_cooperative_member_gives_back_what_it_must_and_keeps_the_rest() -> None:
    story = ConsumerStory({"t": 4})
    a = story.classic("a", eager=False)
    classic_group(story, a)
    had = a.held["t"]
    story.member("c").joins("t")
    assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    joined = a.joins()
    assert joined.generation_id == 1, "still at its old epoch, until it has given back"
    a.syncs()
    assert len(a.held["t"]) == 2
    assert a.held["t"] < had
    assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    assert a.joins().generation_id == 2
    assert a.syncs().error_code == OK
    assert a.beats() is OK


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"generation_id": 7}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "c", "generation_id": 2}, ErrorCode.UNKNOWN_MEMBER_ID),  # it speaks the other protocol
    ],
)
def test_whoever_is_no_classic_member_is_told_so(fields: dict[str, object], code: ErrorCode) -> None:
    story = ConsumerStory({"t": 2})
    a, _ = mixed(story)
    assert a.beats(**fields) is code
    assert a.syncs(**fields).error_code == code


def test_a_sync_names_the_protocol_that_was_told() -> None:
    story = ConsumerStory({"t": 2})
    a, _ = mixed(story)
    assert a.syncs(protocol_name="sticky").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert a.syncs(protocol_type="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_sync_to_a_group_that_has_moved_on() -> None:
    story = ConsumerStory({"t": 2})
    a, _ = mixed(story)
    story.member("d").joins("t")
    assert a.syncs().error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    "fields",
    [
        {"protocol_type": "connect"},
        {"protocols": []},
        {"protocols": [JoinGroupRequest.Protocol(name="sticky", metadata=b"")]},
    ],
)
def test_a_classic_member_must_be_a_consumer_that_all_understand(fields: dict[str, object]) -> None:
    story = ConsumerStory({"t": 2})
    mixed(story)
    newcomer = story.classic("n")
    newcomer.names = ["t"]
    assert newcomer.asks_to_join(**fields).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\1\0\0\0\x09"])
def test_what_a_classic_member_says_is_read_once_it_has_an_id(metadata: bytes) -> None:
    story = ConsumerStory({"t": 2})
    mixed(story)
    newcomer = story.classic("n")
    says = {"protocols": [JoinGroupRequest.Protocol(name="range", metadata=metadata)]}
    given = newcomer.asks_to_join(**says)
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    newcomer.id = given.member_id
    refused = newcomer.asks_to_join(**says)
    assert (refused.error_code, refused.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")


def test_a_classic_member_is_not_sent_to_join_again_for_a_target_that_must_wait() -> None:
    story = ConsumerStory({"t": 2}, group_consumer_assignment_interval_ms=1_000)
    a, _ = mixed(story)
    story.passes(1_000)
    story.member("d").joins("t")
    assert a.syncs().error_code == ErrorCode.REBALANCE_IN_PROGRESS, "there is a new target"
    a.joins()
    joined_at = a.generation
    story.member("e").joins("t")
    assert story.state.epoch > story.state.target_epoch == joined_at
    assert a.syncs().error_code == OK
    story.passes(999)
    assert a.beats() is OK
    story.passes(1)
    assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    assert a.joins().generation_id == story.state.epoch


def test_classic_members_may_be_unwelcome() -> None:
    story = ConsumerStory({"t": 2}, group_consumer_migration_policy="disabled")
    story.member("c").joins("t")
    assert story.classic("a").joins("t").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_takes_no_classic_member_either() -> None:
    story = ConsumerStory({"t": 2}, group_consumer_max_size=1)
    story.member("c").joins("t")
    assert story.classic("a").joins("t").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_classic_member_is_put_out_after_the_session_that_it_asked_for() -> None:
    story = ConsumerStory({"t": 2})
    c = story.member("c").joins("t")
    a = story.classic("a", session_ms=10_000, rebalance_ms=60_000)
    a.joins("t")
    a.syncs()
    story.passes(9_000)
    a.beats()
    story.passes(9_999)
    assert a.id in story.state.members
    c.beats()
    story.passes(1)
    assert a.id not in story.state.members


def test_a_classic_member_that_does_not_join_again_in_time_is_put_out() -> None:
    story = ConsumerStory({"t": 2})
    c = story.member("c").joins("t")
    a = story.classic("a", rebalance_ms=20_000)
    a.joins("t")
    a.syncs()
    story.member("d").joins("t")
    for _ in range(4):
        assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS
        c.beats()
        story.passes(5_000)
    assert a.id not in story.state.members


def test_a_classic_member_that_does_not_sync_in_time_is_put_out() -> None:
    story = ConsumerStory({"t": 2})
    story.member("c").joins("t")
    a = story.classic("a", rebalance_ms=20_000)
    a.joins("t")
    story.passes(20_000)
    assert a.id not in story.state.members


def test_leaving_with_the_classic_protocol() -> None:
    story = ConsumerStory({"t": 2})
    a, c = mixed(story)
    assert [answer.error_code for answer in a.leaves()] == [OK]
    assert set(story.state.members) == {"c"}
    assert c.beats().has == {"t": {0, 1}}
    assert [answer.error_code for answer in a.leaves()] == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_an_administrator_removes_a_static_member_by_its_name() -> None:
    story = ConsumerStory({"t": 2})
    story.member("c", instance="i").joins("t")
    administrator = story.classic("admin", instance="i")
    assert [answer.error_code for answer in administrator.leaves()] == [OK]
    assert story.state.is_empty


# Down


def test_the_group_is_classic_again_when_the_last_of_the_new_protocol_leaves() -> None:
    story = ConsumerStory({"t": 2})
    a, c = mixed(story)
    epoch = story.state.epoch
    c.leaves()
    assert story.group is None
    group = story.classic_group
    assert group is not None
    assert (group.generation, group.state, group.protocol) == (epoch, State.PREPARING, "range")
    assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    assert a.joins().generation_id == epoch + 1
    assert [event.to for event in story.events if isinstance(event, GroupConverted)] == [
        "consumer",
        "classic",
    ]


def test_or_is_put_out() -> None:
    story = ConsumerStory({"t": 2})
    a, _ = mixed(story)
    for _ in range(9):
        story.passes(5_000)
        if story.group is None:
            break
        a.beats()
    assert story.group is None
    assert story.classic_group is not None


def test_the_downgraded_group_is_in_the_log() -> None:
    story = ConsumerStory({"t": 2})
    a, c = mixed(story)
    c.leaves()
    story.fails_over()
    group = story.classic_group
    assert story.group is None
    assert group is not None
    assert (group.state, list(group.members.by_id)) == (State.STABLE, [a.id])


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_a_downgrade_may_be_forbidden(policy: str) -> None:
    story = ConsumerStory({"t": 2}, group_consumer_migration_policy="bidirectional")
    a, c = mixed(story)
    story.settings = replace(story.settings, group_consumer_migration_policy=policy)
    story.fails_over()
    c.leaves()
    assert set(story.state.members) == {a.id}
    assert a.beats() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_without_anybody_stays_what_it_is() -> None:
    story = ConsumerStory({"t": 2})
    story.member("c").joins("t").leaves()
    assert story.group is not None


def test_a_refused_downgrade_leaves_the_group_as_it_was() -> None:
    story = ConsumerStory({"t": 2})
    a, c = mixed(story)
    story.refuses = True
    c.leaves()
    story.refuses = False
    assert set(story.state.members) == {a.id, "c"}
    assert story.classic_group is None


def test_the_last_of_the_new_protocol_comes_back_with_the_old_one() -> None:
    story = ConsumerStory({"t": 2})
    a = story.classic("a")
    classic_group(story, a)
    c = story.member("c", instance="i").joins("t")
    a.joins()
    a.syncs()
    had = c.beats().has
    c.leaves(-2)
    back = story.classic("c", instance="i")
    assert back.joins("t").error_code == OK
    group = story.classic_group
    assert group is not None
    assert group.state is State.STABLE, "nobody wants anything else: nothing to rebalance for"
    assert back.syncs().error_code == OK
    assert back.held == had
    assert a.beats() is OK
