"""What is kept up about targets is what one finds by going through them all."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from quorate.coordinator.consumer_targets import Targets
from quorate.protocol.types import Uuid

TOPICS = [Uuid(bytes(15) + bytes([number])) for number in range(1, 4)]
target = st.dictionaries(
    st.sampled_from(TOPICS), st.frozensets(st.integers(-1, 6), min_size=1, max_size=4), max_size=2
)
changes = st.lists(st.tuples(st.sampled_from("abc"), st.none() | target), max_size=20)


@given(changes)
def test_whatever_changes(happened: list[tuple[str, dict[Uuid, frozenset[int]] | None]]) -> None:
    targets, model = Targets(), {}
    for member_id, wanted in happened:
        if wanted is None:
            targets.drop(member_id)
            model.pop(member_id, None)
        else:
            targets.put(member_id, wanted)
            model[member_id] = wanted
        claims = Counter((at, p) for one in model.values() for at, some in one.items() for p in some)
        assert targets.by_member == model
        sizes = {name: sum(map(len, one.values())) for name, one in model.items()}
        by_size = {size: sorted(name for name in sizes if sizes[name] == size) for size in sizes.values()}
        assert targets.by_size == by_size
        assert {(at, p): n for at, some in targets.claimed.items() for p, n in some.items()} == claims
        assert targets.is_disputed == any(number > 1 for number in claims.values())
        for topic_id in TOPICS:
            for count in (0, 3, 7):
                is_below = all(0 <= p < count for at, p in claims if at == topic_id)
                assert is_below or not targets.are_below(topic_id, count)


def test_a_topic_of_which_nobody_has_anything_is_forgotten() -> None:
    targets = Targets()
    targets.put("a", {TOPICS[0]: frozenset({9})})
    assert not targets.are_below(TOPICS[0], 3)
    targets.put("a", {})
    assert not targets.claimed
    assert targets.are_below(TOPICS[0], 3)
    assert targets.by_size == {0: ["a"]}
