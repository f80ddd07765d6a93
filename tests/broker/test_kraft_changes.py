"""Whatever way the metadata takes, a broker has the replicas that the metadata gives it."""

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import histories
from controller_cluster import Cluster, topic_id
from histories import batches_of, folded, through_snapshot
from quorate.broker import kraft_changes
from quorate.broker.control_plane import Changes
from quorate.broker.kraft_changes import KraftChanges
from quorate.metadata.image import BROKER, CLUSTER_DEFAULT, TOPIC, ClusterImage
from quorate.metadata.records import (
    ConfigRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from quorate.metadata.touched import Touched

ME = 1


class Disk:
    """A broker that does what it is told: its replicas, and the settings that each was last given."""

    def __init__(self):
        self.replicas = {}
        self.settings = {}

    def apply(self, changes: Changes):
        for key in changes.removed:
            del self.replicas[key]  # nothing is taken away that was not given
            del self.settings[key]
        for key, state in changes.assigned:
            place = key.topic_id, key.partition_id
            if place not in self.replicas:
                self.settings[place] = settings_of(changes.image, key.topic)
            self.replicas[place] = key.topic, state
        for place, (topic, _) in self.replicas.items():
            if changes.is_configured_all or topic in changes.configured:
                self.settings[place] = settings_of(changes.image, topic)


def settings_of(image, topic):
    """What the settings of a topic are made from."""
    resources = (TOPIC, topic), (BROKER, str(ME)), CLUSTER_DEFAULT
    return [dict(image.configs.get(one, {})) for one in resources]


def given_to_me(image: ClusterImage):
    """The same from scratch, one partition after the other."""
    return {
        (topic.id, partition_id): (topic.name, state)
        for topic in image.topics
        for partition_id, state in image.partitions_of(topic.id)
        if ME in state.replicas
    }


def check(disk: Disk, image: ClusterImage):
    assert disk.replicas == given_to_me(image)
    for place, (topic, _) in disk.replicas.items():
        assert disk.settings[place] == settings_of(image, topic)


@settings(max_examples=40)
@given(
    histories.histories(steps_max=12),
    st.integers(0, 200),
    st.lists(st.sampled_from([1, 7, 40, 300]), min_size=1, max_size=4),
    st.sets(st.integers(0, 12)),
)
def test_step_by_step_or_from_scratch_it_comes_to_the_same(values, cut, sizes, snapshots_at):
    translated, disk = KraftChanges(ME), Disk()
    image = folded(values[:cut])
    disk.apply(translated.everything(image))
    check(disk, image)
    for number, batch in enumerate(batches_of(values[cut:], sizes, cut)):
        before = image.copy()
        before.touched, image.touched = Touched(), Touched()
        image.apply_batch(batch)
        if number not in snapshots_at or image.is_in_transaction:
            disk.apply(translated.since(image, image.touched))
        elif number % 2:  # the batch itself never gets here
            image = through_snapshot(image)
            disk.apply(translated.between(before, image))
        else:  # it does, but a snapshot comes before it is told
            before, image = image, through_snapshot(image)
            disk.apply(translated.between(before, image))
        check(disk, image)
    again, fresh = KraftChanges(ME), Disk()
    fresh.apply(again.everything(image))
    assert fresh.replicas == disk.replicas


@settings(max_examples=40)
@given(histories.histories(steps_max=12, with_transactions=False), st.integers(0, 400))
def test_a_snapshot_tells_what_many_records_would_have_told(values, cut):
    old, new = folded(values[:cut]), through_snapshot(folded(values))
    translated, disk = KraftChanges(ME), Disk()
    disk.apply(translated.everything(old))
    disk.apply(translated.between(old, new))
    check(disk, new)
    again, other = KraftChanges(ME), Disk()
    other.apply(again.everything(old))
    other.apply(again.everything(new))
    check(other, new)
    assert other.replicas == disk.replicas


class Story:
    """A cluster, and what a broker hears of each step in it."""

    def __init__(self):
        self.cluster = Cluster([1, 2, 3])
        self.translated = KraftChanges(ME)

    def begin(self):
        return self.translated.everything(self.cluster.image)

    def hear(self, *records):
        self.cluster.image.touched = Touched()
        for record in records:
            self.cluster.apply(record)
        return self.translated.since(self.cluster.image, self.cluster.image.touched)


@pytest.fixture
def story():
    story = Story()
    story.cluster.create(1, [[1, 2], [2, 3], [3, 1]])
    story.cluster.create(2, [[2, 3]])
    return story


def config(kind, name, key="retention.ms", value="5"):
    return ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


def places(changes):
    return [(str(key), state.leader) for key, state in changes.assigned]


def test_at_first_everything_of_ours_is_assigned(story):
    changes = story.begin()
    assert places(changes) == [("topic-1-0", 1), ("topic-1-2", 3)]
    assert changes.removed == []
    assert not changes.is_configured_all


def test_nobody_looks_for_garbage_while_many_values_are_made(story, monkeypatch):
    looks = []
    monkeypatch.setattr(kraft_changes, "Partition", lambda **_: looks.append(gc.isenabled()))
    KraftChanges(ME).everything(story.cluster.image)
    assert (set(looks), gc.isenabled()) == ({False}, True)


def test_what_does_not_concern_us_changes_nothing(story):
    story.begin()
    changes = story.hear(PartitionChangeRecord(topic_id=topic_id(2), partition_id=0, leader=3))
    assert (places(changes), changes.removed) == ([], [])


def test_another_leader_or_isr_is_heard_of_once_however_often_it_changed(story):
    story.begin()
    to_us = PartitionChangeRecord(topic_id=topic_id(1), partition_id=2, leader=1)
    changes = story.hear(to_us, to_us)
    assert places(changes) == [("topic-1-2", 1)]
    assert changes.assigned[0].state.leader_epoch == 2


def test_a_deleted_topic_takes_its_replicas_along(story):
    story.begin()
    changes = story.hear(RemoveTopicRecord(topic_id=topic_id(1)))
    assert changes.removed == [(topic_id(1), 0), (topic_id(1), 2)]
    assert changes.assigned == []


def test_a_topic_that_comes_back_under_its_name_is_another(story):
    story.begin()
    story.cluster.image.touched = Touched()
    story.cluster.apply(RemoveTopicRecord(topic_id=topic_id(1)))
    story.cluster.create(7, [[3, 1]], name="topic-1")
    changes = story.translated.since(story.cluster.image, story.cluster.image.touched)
    assert changes.removed == [(topic_id(1), 0), (topic_id(1), 2)]
    assert [(key.topic, key.topic_id) for key, _ in changes.assigned] == [("topic-1", topic_id(7))]


def test_a_topic_that_came_and_went_meanwhile_was_never_there(story):
    story.begin()
    story.cluster.image.touched = Touched()
    story.cluster.create(8, [[1]])
    story.cluster.apply(RemoveTopicRecord(topic_id=topic_id(8)))
    changes = story.translated.since(story.cluster.image, story.cluster.image.touched)
    assert (changes.assigned, changes.removed) == ([], [])


def test_what_was_not_told_yet_is_told_with_the_snapshot_that_overtakes_it(story):
    story.begin()
    image = story.cluster.image
    image.touched = Touched()
    story.cluster.apply(RemoveTopicRecord(topic_id=topic_id(1)))
    story.cluster.create(7, [[3, 1]])
    changes = story.translated.between(image, through_snapshot(image))
    assert changes.removed == [(topic_id(1), 0), (topic_id(1), 2)]
    assert places(changes) == [("topic-7-0", 3)]


def test_a_replica_that_moved_away_is_removed_and_one_that_came_is_assigned(story):
    story.begin()
    away = PartitionChangeRecord(topic_id=topic_id(1), partition_id=0, replicas=[2, 3], isr=[2], leader=2)
    here = PartitionChangeRecord(topic_id=topic_id(2), partition_id=0, replicas=[2, 1], isr=[2], leader=2)
    changes = story.hear(away, here)
    assert changes.removed == [(topic_id(1), 0)]
    assert places(changes) == [("topic-2-0", 2)]
    changes = story.hear(away)
    assert changes.removed == []  # it is said once


def test_settings_of_a_topic_matter_if_it_is_ours(story):
    story.begin()
    assert story.hear(config(TOPIC, "topic-1"), config(TOPIC, "topic-2")).configured == ["topic-1"]
    assert story.hear(TopicRecord(name="new", topic_id=topic_id(9)), config(TOPIC, "new")).configured == []


@pytest.mark.parametrize(
    ("name", "concerns_us"), [("", True), (str(ME), True), ("2", False)], ids=["all", "ours", "another's"]
)
def test_settings_of_brokers_are_defaults_of_all_topics(story, name, concerns_us):
    story.begin()
    changes = story.hear(config(BROKER, name, "log.retention.ms"))
    assert changes.is_configured_all is concerns_us


def test_many_partitions_are_found_by_columns(story):
    story.cluster.create(5, [[1, 2] if one % 3 == 0 else [2, 3] for one in range(300)])
    story.begin()
    image = story.cluster.image
    touched = Touched()
    ids = np.frombuffer(topic_id(5) * 400, "V16")
    touched.note_partitions(ids, np.arange(400, dtype=np.int32))  # some do not exist
    touched.note_partition(topic_id(5), 3)
    touched.note_partition(topic_id(77), 0)  # neither does this topic
    changes = story.translated.since(image, touched)
    assert [key.partition_id for key, _ in changes.assigned] == list(range(0, 300, 3))
    assert all(image.partition(*key[1:]) == state for key, state in changes.assigned)
    assert changes.removed == []
