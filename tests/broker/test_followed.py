"""What a follower says in its session: a leader that believes it knows what is followed, and nothing else."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from serving import topic_id

from quorate.broker.followed import Followed, FollowedPartitions
from quorate.broker.partition import TopicPartition
from quorate.client.fetch_session import FetchSession
from quorate.protocol.api.produce_fetch import FetchResponse

BYTES_MAX = 1000


class Replica:
    """As much of a partition as is told."""

    def __init__(self, index: int) -> None:
        self.key = TopicPartition("t", topic_id("t"), index)
        self.leader_epoch = 0
        self.log = SimpleNamespace(
            end_offset=0, start_offset=0, epochs=SimpleNamespace(latest_epoch=None), config=None
        )


class Scene:
    """A follower and what its leader remembers."""

    def __init__(self, count: int) -> None:
        self.replicas: list[Any] = [Replica(index) for index in range(count)]
        self.all = FollowedPartitions(BYTES_MAX)
        self.session = FetchSession()
        self.followed: set[int] = set()
        self.held: dict[int, float] = {}
        self.now_ms = 0.0
        self.known: dict[int, tuple[int, int, int]] = {}  # to the leader
        self.listed: list[int] = []

    def follow(self, index: int) -> None:
        self.forget(index)
        self.all.add(self.replicas[index])
        self.followed.add(index)

    def forget(self, index: int) -> None:
        self.all.remove(self.replicas[index])
        self.followed.discard(index)
        self.held.pop(index, None)

    def one(self, index: int) -> Followed | None:
        return self.all.asked(topic_id("t"), index)

    def ask(self) -> list[int]:
        """What is listed in the next request; the leader takes it in."""
        self.all.resume(self.now_ms)
        self.held = {index: until for index, until in self.held.items() if until > self.now_ms}
        part = self.all.next(self.session)
        if part.session_epoch == 0:
            self.known = {}
        listed = {
            one.partition: (one.current_leader_epoch, one.fetch_offset, one.log_start_offset)
            for topic in part.topics
            for one in topic.partitions
        }
        self.known |= listed
        gone = [index for topic in part.forgotten for index in topic.partitions]
        assert not set(gone) & set(listed)
        for index in gone:
            del self.known[index]
        self.session.answered(FetchResponse(session_id=7, responses=[]))
        return sorted(listed)

    @property
    def expected(self) -> dict[int, tuple[int, int, int]]:
        return {
            index: (one.leader_epoch, one.log.end_offset, one.log.start_offset)
            for index, one in enumerate(self.replicas)
            if index in self.followed and index not in self.held
        }


def test_a_request_lists_what_has_changed():
    scene = Scene(3)
    for index in range(3):
        scene.follow(index)
    assert scene.ask() == [0, 1, 2]
    assert scene.ask() == []
    scene.replicas[1].log.end_offset = 5
    one = scene.one(1)
    assert one is not None
    scene.all.take_in(one, is_in_sync=True)
    assert scene.ask() == [1]
    assert scene.ask() == []


def test_those_that_are_not_in_sync_are_known():
    scene = Scene(3)
    for index in range(3):
        scene.follow(index)
    scene.ask()
    for index in range(2):
        one = scene.one(index)
        assert one is not None
        scene.all.take_in(one, is_in_sync=index == 1)
    assert {one.partition.key.partition_id for one in scene.all.behind()} == {0, 2}


def test_when_nothing_is_left_to_ask_for():
    scene = Scene(1)
    assert not scene.all.has_any
    scene.follow(0)
    assert scene.all.has_any
    scene.ask()
    one = scene.one(0)
    assert one is not None
    scene.all.hold(one, 50.0)
    assert (scene.all.has_any, scene.all.resume_at_ms) == (False, 50.0)
    scene.all.resume(49.9)
    assert not scene.all.has_any
    scene.all.resume(50.0)
    assert (scene.all.has_any, scene.all.resume_at_ms) == (True, None)


@pytest.mark.parametrize("seed", range(30))
def test_the_leader_knows_what_is_followed(seed: int):
    random, scene = Random(seed), Scene(5)
    for _ in range(200):
        index = random.randrange(5)
        replica, one = scene.replicas[index], scene.one(index)
        match random.randrange(9):
            case 0:
                replica.leader_epoch += 1
                scene.follow(index)
            case 1:
                scene.forget(index)
            case 2 if one is not None and one in scene.all and index not in scene.held:
                until_ms = scene.now_ms + random.randrange(1, 4)
                scene.all.hold(one, until_ms)
                scene.held[index] = until_ms
            case 3 if one is not None:
                scene.all.tell_anew(one)
            case 4 if one is not None:
                replica.log.end_offset += 1
                scene.all.moved(replica)
            case 5 if one is not None and one in scene.all:
                replica.log.end_offset += 1
                scene.all.take_in(one, is_in_sync=random.random() < 0.5)
            case 6:
                scene.now_ms += 1
            case 7 if random.random() < 0.2:
                scene.session.lost()
            case _:
                scene.ask()
                if scene.all.has_more_to_say:
                    scene.ask()
                    assert not scene.all.has_more_to_say
                assert scene.known == scene.expected
