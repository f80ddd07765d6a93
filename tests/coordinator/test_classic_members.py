"""Who is in a classic group: what is kept up with each change, against what follows from the members."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quorate.coordinator.classic_members import Member, Members, Protocols
from quorate.coordinator.subscriptions import topics_of

NAMES = ("range", "sticky", "mine")
protocols = st.lists(st.tuples(st.sampled_from(NAMES), st.binary(max_size=1)), min_size=1, max_size=4)
subscriptions = st.sampled_from(
    [bytes.fromhex("0003 00000001 0001") + name + bytes.fromhex("ffffffff 00000000") for name in (b"s", b"t")]
    + [b"something else"]
)


def member(member_id: str, spoken: Protocols) -> Member:
    return Member(
        member_id=member_id,
        instance_id=None,
        client_id="client",
        client_host="/host",
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        protocols=spoken,
    )


def votes(members: Members) -> str | None:
    """The protocol that most like best of those that all speak; in a tie the one that was named first."""
    common = [name for name in NAMES if all(name in dict(one.protocols) for one in members)]
    if not common:
        return None
    liked = [next(name for name, _ in one.protocols if name in common) for one in members]
    return max(dict.fromkeys(liked), key=liked.count)


@given(st.lists(protocols, min_size=1, max_size=4), st.lists(st.tuples(st.integers(0, 3), protocols)))
def test_what_all_speak_follows_from_what_each_said_last(
    first: list[Protocols], later: list[tuple[int, Protocols]]
) -> None:
    members = Members()
    for number, spoken in enumerate(first):
        members.add(member(str(number), spoken))
    for number, spoken in later:
        members.update(members[str(number % len(first))], spoken, 2, 2)
    for name in NAMES:
        assert members.can_speak([name]) == all(name in dict(one.protocols) for one in members)
    expected = votes(members)
    if expected is not None:
        assert members.choose_protocol() == expected


@given(st.lists(subscriptions))
def test_the_topics_of_all_are_those_of_each(said: list[bytes]) -> None:
    each = [topics_of([one]) for one in said]
    known = [one for one in each if one is not None]
    assert topics_of(said) == (frozenset().union(*known) if len(known) == len(each) else None)
