"""What members of consumer groups say of themselves, against the naive way to take it in."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from quorate.coordinator.consumer_members import ClassicMember, Member, MemberState
from quorate.coordinator.consumer_records import member_metadata
from quorate.coordinator.consumer_says import as_it_says
from quorate.coordinator.consumer_state import ConsumerGroupState
from quorate.coordinator.effects import Caller
from quorate.protocol.api.groups import ConsumerGroupHeartbeatRequest

texts = st.sampled_from(["a", "b"])
maybe_texts = st.none() | texts
names = st.sets(st.sampled_from("stuv"), max_size=3)
TOPIC_ID = b"\1" * 16


@st.composite
def members(draw: st.DrawFn, member_id: str = "m") -> Member:
    return Member(
        member_id=member_id,
        epoch=3,
        previous_epoch=2,
        state=MemberState.UNREVOKED_PARTITIONS,
        instance_id=draw(maybe_texts),
        rack_id=draw(maybe_texts),
        client_id=draw(texts),
        client_host=draw(texts),
        rebalance_timeout_ms=draw(st.sampled_from([-1, 1, 2])),
        topic_names=frozenset(draw(names)),
        topic_regex=draw(st.sampled_from([None, "", "s.*"])),
        server_assignor=draw(maybe_texts),
        classic=draw(st.none() | st.just(ClassicMember(1, (("range", b"x"),)))),
        assigned={TOPIC_ID: {1: 3}},
        pending_revocation={TOPIC_ID: {2: 2}},
    )


@st.composite
def requests(draw: st.DrawFn) -> ConsumerGroupHeartbeatRequest:
    asked = draw(st.none() | names)
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=3,
        instance_id=draw(maybe_texts),
        rack_id=draw(maybe_texts),
        rebalance_timeout_ms=draw(st.sampled_from([-1, 1, 2])),
        subscribed_topic_names=None if asked is None else list(asked),
        subscribed_topic_regex=draw(st.sampled_from([None, "", "s.*"])),
        server_assignor=draw(maybe_texts),
    )


def naively(member: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Member:
    said = {
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "rebalance_timeout_ms": None if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        "topic_names": None
        if request.subscribed_topic_names is None
        else frozenset(request.subscribed_topic_names),
        "topic_regex": request.subscribed_topic_regex,
        "server_assignor": request.server_assignor,
    }
    given_fields = {name: value for name, value in said.items() if value is not None}
    who = {"client_id": caller.client_id, "client_host": caller.client_host}
    return replace(member, classic=None, **who, **given_fields)  # type: ignore[arg-type]


@given(members(), requests(), texts, texts)
def test_a_member_is_what_it_says_and_was(
    member: Member, request: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str
) -> None:
    caller = Caller(1, client_id, client_host)
    says = as_it_says(member, request, caller)
    assert says == naively(member, request, caller)
    assert (says is member) == (says == member)


@given(st.lists(members(), max_size=5), st.sets(st.integers(0, 4)), st.none() | members("new"))
def test_the_topics_of_a_group_are_those_of_who_stays_and_who_comes(
    found: list[Member], going: set[int], comes: Member | None
) -> None:
    state = ConsumerGroupState("g")
    for number, member in enumerate(found):
        state.apply(member_metadata("g", replace(member, member_id=str(number), instance_id=None)))
    there = list(state.members.values())
    gone = [member for number, member in enumerate(there) if number in going]
    stays = [member for member in there if member not in gone]
    expected = frozenset().union(*(one.topic_names for one in [*stays, *([comes] if comes else [])]))
    assert state.subscribed_topics(without=gone, plus=comes) == expected
