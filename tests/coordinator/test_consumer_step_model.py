"""A step of a member towards its target, against one that goes through all partitions one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quorate.coordinator.consumer_members import Member, MemberState
from quorate.coordinator.consumer_reconciliation import Reconciliation, reconcile
from quorate.protocol.types import Uuid

TOPICS = [Uuid(bytes(15) + bytes([number])) for number in (1, 2)]
Pairs = set[tuple[Uuid, int]]
pairs = st.sets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 3)))
OLD_EPOCH, TARGET_EPOCH = 3, 5


def by_topic(some: Pairs) -> dict[Uuid, frozenset[int]]:
    return {
        topic_id: frozenset(p for at, p in some if at == topic_id)
        for topic_id in TOPICS
        if any(at == topic_id for at, _ in some)
    }


def held(some: Pairs, epoch: int) -> dict[Uuid, dict[int, int]]:
    return {topic_id: dict.fromkeys(found, epoch) for topic_id, found in by_topic(some).items()}


@given(pairs, pairs, st.sets(st.sampled_from(TOPICS)), pairs, st.none() | pairs)
def test_what_is_kept_given_back_and_added(
    assigned: Pairs, target: Pairs, subscribed: set[Uuid], others: Pairs, owned: Pairs | None
) -> None:
    others -= assigned
    step = Reconciliation(
        target_epoch=TARGET_EPOCH,
        target=by_topic(target),
        subscribed=subscribed,
        owner_of=lambda *one: "other" if one in others else "m" if one in assigned else None,
        owned=None if owned is None else by_topic(owned),
        subscription_changed=False,
    )
    member = Member(member_id="m", epoch=OLD_EPOCH, assigned=held(assigned, OLD_EPOCH))
    after = reconcile(member, step)

    wanted = {one for one in target if one[0] in subscribed}
    keep, revoke, missing = assigned & wanted, assigned - wanted, wanted - assigned
    if revoke and (owned is None or revoke & owned):
        assert (after.epoch, after.state) == (OLD_EPOCH, MemberState.UNREVOKED_PARTITIONS)
        assert (after.assigned, after.pending_revocation) == (held(keep, OLD_EPOCH), held(revoke, OLD_EPOCH))
        return
    waits = bool(missing & others)
    expected = held(missing - others, TARGET_EPOCH)
    for topic_id, kept in held(keep, OLD_EPOCH).items():
        expected[topic_id] = {**kept, **expected.get(topic_id, {})}
    assert after.epoch == TARGET_EPOCH
    assert after.state is (MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE)
    assert (after.assigned, after.pending_revocation) == (expected, {})
