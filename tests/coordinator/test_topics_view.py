"""The hash by which a group knows that its topics have changed: the numbers are those of Apache's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.coordinator.topics_view import Topic, Topics, metadata_hash
from quorate.coordinator.xxh3 import xxh3_64
from quorate.protocol.types import Uuid

# Lengths, and what hash4j's XXH3 makes of that many bytes: the library that Kafka uses.
HASHES = [
    (0, 3244421341483603138),
    (1, 5502495245947142431),
    (2, -6349423698422726873),
    (3, 1582743943441612892),
    (4, -2549016526957988167),
    (7, 8458189580353027099),
    (8, -2394039629164210130),
    (9, -3754995788605292611),
    (15, 6079324691992009783),
    (16, 9099606716676871632),
    (17, 2345212530088924167),
    (31, -6253418322204177903),
    (32, 278953543771952198),
    (33, 1844846513307983686),
    (64, -2508381663727503547),
    (65, -381843323958800864),
    (96, -3295001992457868926),
    (97, 6981672134384256435),
    (128, -492175581222641016),
    (129, -506823097681485574),
    (143, -4363155518985508495),
    (144, -2846555931076732770),
    (200, 1368452603177808973),
    (240, -3690920546649497853),
    (241, 809349449570470400),
    (255, -8533440102264939110),
    (256, -1403514104434996620),
    (512, -1170120971253711958),
    (1023, -1093476622474739461),
    (1024, 2575082683865311686),
    (1025, -4566685497618039422),
    (1088, -6815162950983329211),
    (1089, -9069361620296297092),
    (2048, 1870957339171033971),
    (2049, 5784106328234771061),
    (5000, 6169931020318013678),
]


@pytest.mark.parametrize(("length", "expected"), HASHES)
def test_a_hash_is_that_of_other_implementations(length: int, expected: int) -> None:
    assert xxh3_64(bytes((index * 31 + 7) % 256 for index in range(length))) == expected


def test_text_is_hashed_as_java_does() -> None:
    """A byte, a long, the text "foo" and an int, put one after the other into a hash stream of hash4j."""
    text = "foo".encode("utf-16-le") + (3).to_bytes(4, "little")
    data = b"\0" + (0x0102030405060708).to_bytes(8, "little") + text + (3).to_bytes(4, "little")
    assert xxh3_64(data) == -8333550180631456196


ID = Uuid(bytes(range(16)))


def test_a_topics_hash_is_kafkas() -> None:
    """Asked of `Utils.computeTopicHash` and `computeGroupHash` of Kafka 4.3.1."""
    foo = Topic(ID, "foo", 2, [["r2", "r1"], ["r1", "r1"]])
    bar = Topic(Uuid(bytes(15) + b"\1"), "bar", 1)
    assert (foo.hash, bar.hash) == (1968929015518171518, -7407264700876838811)
    assert metadata_hash(["foo", "bar", "gone"], Topics([foo, bar])) == -2898780121078715027


def test_no_topics_have_no_hash() -> None:
    assert metadata_hash(["gone"], Topics()) == 0


@given(st.permutations(["a", "b", "c"]))
def test_the_order_of_names_does_not_matter(names: list[str]) -> None:
    topics = Topics([Topic(Uuid(name.encode() * 16), name, 3) for name in "abc"])
    assert metadata_hash(names, topics) == metadata_hash(["a", "b", "c"], topics)


@pytest.mark.parametrize(
    "other",
    [
        Topic(Uuid(bytes(16)), "t", 2, [["r"], ["r"]]),
        Topic(ID, "u", 2, [["r"], ["r"]]),
        Topic(ID, "t", 3, [["r"], ["r"], []]),
        Topic(ID, "t", 2, [["r"], ["s"]]),
        Topic(ID, "t", 2),
    ],
)
def test_whatever_changes_changes_the_hash(other: Topic) -> None:
    assert other.hash != Topic(ID, "t", 2, [["r"], ["r"]]).hash
