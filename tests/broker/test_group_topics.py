"""Topics as groups see them: which are different after the cluster has changed, and which are looked at."""

from __future__ import annotations

import pytest
from serving import Serving, in_loop, topic_id

from quorate.broker.group_topics import GroupTopics
from quorate.broker.groups import Groups
from quorate.metadata import records as r
from quorate.metadata.image import ClusterImage
from quorate.metadata.partitions import PartitionTable
from quorate.metadata.touched import Touched

RACKS = {1: "a", 2: "b", 3: None}


def register(image: ClusterImage, broker_id: int, rack: str | None) -> None:
    record = r.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=topic_id(f"run-{broker_id}"),
        broker_epoch=broker_id,
        end_points=[],
        features=[],
        rack=rack,
        fenced=False,
        log_dirs=[],
    )
    image.apply(record, 0)


def put(image: ClusterImage, name: str, partition_id: int, *replicas: int) -> None:
    record = r.PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id(name),
        replicas=list(replicas),
        isr=list(replicas),
        removing_replicas=[],
        adding_replicas=[],
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
    )
    image.apply(record, 0)


def cluster() -> ClusterImage:
    """Two topics of two partitions each, which have unequal numbers of replicas."""
    image = ClusterImage()
    for broker_id, rack in RACKS.items():
        register(image, broker_id, rack)
    for name in ("t", "u"):
        image.apply(r.TopicRecord(name=name, topic_id=topic_id(name)), 0)
        put(image, name, 0, 1, 2)
        put(image, name, 1, 3)
    image.touched = Touched()
    return image


def changed(topics: GroupTopics, image: ClusterImage) -> list[str]:
    assert image.touched is not None
    touched, image.touched = image.touched, Touched()
    return topics.update(touched)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The slots of topics whose partitions were looked at."""
    slots: list[int] = []
    replicas_of = PartitionTable.replicas_of

    def noted(table: PartitionTable, slot: int) -> list[list[int]]:
        slots.append(slot)
        return replicas_of(table, slot)

    monkeypatch.setattr(PartitionTable, "replicas_of", noted)
    return slots


def test_a_topic_has_the_racks_of_its_replicas() -> None:
    topic = GroupTopics(cluster()).by_name("t")
    assert topic is not None
    assert (topic.partition_count, list(topic.racks)) == (2, [("a", "b"), ()])


def test_a_partition_that_was_never_added_does_not_count() -> None:
    image = cluster()
    put(image, "t", 3, 2, 3, 1)  # without one of number 2
    topic = GroupTopics(image).by_name("t")
    assert topic is not None
    assert (topic.partition_count, list(topic.racks)) == (3, [("a", "b"), (), ("a", "b")])


def test_a_topic_is_different_with_more_partitions_or_in_other_racks() -> None:
    image = cluster()
    topics = GroupTopics(image)
    topics.by_name("t")
    topics.by_name("u")
    put(image, "t", 2, 1)
    assert changed(topics, image) == ["t"]
    topics.by_name("t")
    put(image, "u", 1, 1)
    assert changed(topics, image) == ["u"]
    topics.by_name("u")
    register(image, 2, "c")
    assert changed(topics, image) == ["t", "u"]


def test_other_leaders_make_no_difference() -> None:
    image = cluster()
    topics = GroupTopics(image)
    topics.by_name("t")
    image.apply(r.PartitionChangeRecord(partition_id=0, topic_id=topic_id("t"), leader=2, isr=[2]), 0)
    assert changed(topics, image) == []


def test_nothing_is_looked_at_for_a_broker_that_stays_in_its_rack(looks: list[int]) -> None:
    image = cluster()
    topics = GroupTopics(image)
    topics.by_name("t")
    looks.clear()
    image.apply(r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1), 0)
    assert changed(topics, image) == []
    assert looks == []


@in_loop
async def test_nothing_is_looked_at_for_topics_that_no_group_has_asked_for(tmp_path, looks):
    serving = Serving(tmp_path)
    groups = Groups(serving.broker, lambda _: None)
    serving.image.touched = Touched()
    await serving.topic("t")
    groups.follow(serving.image, serving.image.touched)
    groups.follow(serving.image, None)
    assert looks == []
    await serving.close()
