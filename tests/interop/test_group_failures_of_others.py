"""Other people's clients in groups whose members are restarted, and whose coordinators are killed."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import member_program
import pytest
from group_members import COMMITTING
from typer.testing import CliRunner

from node.broker_processes import BrokerProcesses, Load
from node.group_processes import PATIENT, QUICK, Members, described
from quorate.cli.main import app
from quorate.client.cluster import Cluster
from quorate.client.group_admin import Group
from quorate.client.group_offsets import committed_offsets
from quorate.client.metadata import TopicPartition
from quorate.protocol.api.groups import HeartbeatRequest, HeartbeatResponse

pytestmark = pytest.mark.interop

ALL = (101, 102, 103)
PARTITIONS = 3
NAMES = "abc"
SESSION_MS = 30_000  # longer than anything here takes
PROGRAM = Path(member_program.__file__)
SETTINGS = QUICK | {"quorate_events_publish": "true", "group_consumer_session_timeout_ms": f"{SESSION_MS}"}
each_client = pytest.mark.parametrize("kind", COMMITTING)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    """Three brokers and a controller. Every test leaves them running."""
    with BrokerProcesses(tmp_path_factory.mktemp("cluster"), controllers=1, **SETTINGS) as running:
        yield running


def create_topic(cluster: BrokerProcesses, name: str) -> str:
    """Each partition is led by another broker."""
    cluster.create_topic(name, *[ALL[at:] + ALL[:at] for at in range(PARTITIONS)], min_insync_replicas=2)
    cluster.wait_until_led(name, PARTITIONS)
    return name


def committed(cluster: BrokerProcesses, group: str, topic: str) -> dict[int, int]:
    """What a client that has never been there before is told, by partition."""

    async def ask() -> dict[TopicPartition, Any]:
        async with Cluster(cluster.bootstrap, settings=PATIENT) as client:
            return await committed_offsets(client, group)

    return {at.partition: one.offset for at, one in asyncio.run(ask()).items() if at.topic == topic}


def noted(cluster: BrokerProcesses, group: str) -> list[dict[str, Any]]:
    """What `quorate groups why` tells."""
    words = ["groups", "why", group, "--last", "1000", "--json", "--bootstrap-server", cluster.bootstrap]
    done = CliRunner().invoke(app, words)
    return json.loads(done.stdout) if done.exit_code == 0 else []  # until something is published


def all_seen(members: Members) -> set[int]:
    return {number for life in members.lives for number in life.seen}


# Static members


def is_at(cluster: BrokerProcesses, found: Group, generation: int) -> bool:
    """Whether it is the generation, or epoch, of the group: of a classic one only heartbeats tell."""
    if found.epoch is not None:
        return found.epoch == generation
    member = found.members[0]
    beat = HeartbeatRequest(
        group_id=found.group,
        generation_id=generation,
        member_id=member.id,
        group_instance_id=member.instance_id,
    )
    answer = cluster.ask_broker(found.coordinator, beat)
    assert isinstance(answer, HeartbeatResponse)
    return answer.error_code == 0


def settled_at(cluster: BrokerProcesses, group: str) -> int | None:
    """The generation, or epoch, of a group that is stable and has told so."""
    found = described(cluster, group)
    ends = [one for one in noted(cluster, group) if one["kind"].endswith("RebalanceEnded")]
    if found.state.lower() != "stable" or not ends:
        return None
    newest: int = ends[-1].get("generation", ends[-1].get("epoch"))
    return newest if is_at(cluster, found, newest) else None


def rebalances_after(events: list[dict[str, Any]], generation: int) -> list[str]:
    """What has been noted of rebalances that ended this generation, or this epoch."""
    return [
        one["line"]
        for one in events
        if (one["kind"] == "RebalanceStarted" and one["generation"] >= generation)
        or (one["kind"] == "GroupEpochBumped" and one["epoch"] > generation)
    ]


def places(found: Group) -> dict[str | None, list[TopicPartition]]:
    return {one.instance_id: sorted(one.partitions) for one in found.members}


@each_client
def test_static_members_are_restarted_one_by_one_and_nothing_is_rebalanced(
    cluster: BrokerProcesses, kind: str
) -> None:
    """None of these clients leaves the group when a static member of it is closed. With the consumer protocol
    it says that it will be back, and who was killed has no place until its session has ended."""
    group = topic = create_topic(cluster, f"static-{kind.replace(', ', '-')}")
    with Members(cluster, group, topic, kind=kind, session_ms=SESSION_MS, program=PROGRAM) as members:
        with Load(cluster, topic, partitions=PARTITIONS) as load:
            for name in NAMES:
                members.start(name, name)
            members.wait("each has one", lambda: members.share(PARTITIONS))
            generation = cluster.wait("the group has settled", lambda: settled_at(cluster, group))
            before = places(described(cluster, group))
            assert before.keys() == set(NAMES)
            for name in NAMES:
                owned = members[name].owned
                members.kill(name) if name == "b" and not kind.endswith("consumer") else members.end(name)
                again = members.start(name, name)
                members.wait(f"{name} has what it had", lambda again=again, owned=owned: again.owned == owned)
                members.wait(f"{name} reads", lambda again=again: again.seen)
        sent = set(range(load.sent))
        members.wait("all is read", lambda: all_seen(members) >= sent)
        assert members.share(PARTITIONS)
        found = described(cluster, group)
        assert places(found) == before
        assert is_at(cluster, found, generation)
        cluster.wait("all has been noted", lambda: returned(noted(cluster, group)) == Counter(NAMES))
        assert rebalances_after(noted(cluster, group), generation) == []


def returned(events: list[dict[str, Any]]) -> Counter[str]:
    """How often each static member has come back."""
    return Counter(one["instance_id"] for one in events if one["kind"] == "MemberFenced")


# Coordinators


class Promise:
    """What was acknowledged is committed, and what a new client is told never goes back."""

    def __init__(self, cluster: BrokerProcesses, members: Members, topic: str) -> None:
        self._cluster = cluster
        self._members = members
        self._topic = topic
        self._told: dict[int, int] = {}

    def acknowledged(self) -> dict[int, int]:
        """The farthest of each partition, whoever has had it."""
        known = [life.acknowledged for life in self._members.lives]
        return {at: max(one.get(at, 0) for one in known) for at in set().union(*known)}

    def check(self) -> dict[int, int]:
        """What is committed now."""
        owed, before = self.acknowledged(), self._told
        self._told = committed(self._cluster, self._members.group, self._topic)
        for least in (owed, before):
            assert not below(self._told, least), (self._told, least)
        return self._told

    def wait_for_more(self) -> None:
        """Until more is committed of every partition."""
        goals = {at: offset + 1 for at, offset in self.acknowledged().items()}
        self._members.wait("commits go on", lambda: not below(self.check(), goals))


def below(offsets: Mapping[int, int], least: Mapping[int, int]) -> set[int]:
    return {at for at, offset in least.items() if offsets.get(at, -1) < offset}


@each_client
def test_the_coordinator_is_killed_and_no_commit_that_was_acknowledged_is_lost(
    cluster: BrokerProcesses, kind: str
) -> None:
    group = topic = create_topic(cluster, f"moved-{kind.replace(', ', '-')}")
    with Members(cluster, group, topic, kind=kind, session_ms=SESSION_MS, program=PROGRAM) as members:
        promise = Promise(cluster, members, topic)
        with Load(cluster, topic, partitions=PARTITIONS) as load:
            members.start("a")
            members.start("b")
            members.wait("both have some", lambda: members.share(PARTITIONS))
            members.wait("all commit", lambda: len(promise.acknowledged()) == PARTITIONS)
            promise.wait_for_more()
            found = described(cluster, group)
            cluster.kill(found.coordinator)
            promise.check()
            load.wait_for_more(50)
            promise.wait_for_more()
            moved = described(cluster, group)
            assert moved.coordinator != found.coordinator
            assert {one.id for one in moved.members} == {one.id for one in found.members}
            cluster.start(found.coordinator)
            cluster.wait_until_unfenced(found.coordinator)
            cluster.wait_until_in_sync("__consumer_offsets")
            cluster.wait_until_in_sync(topic)
            promise.wait_for_more()
        sent = set(range(load.sent))
        members.wait("all is read", lambda: all_seen(members) >= sent)
        for name in "ab":
            members.end(name)
        assert promise.check() == promise.acknowledged()
