"""Groups keep their promises while their coordinators and members are killed, stopped and restarted."""

import asyncio
import signal
from collections.abc import Iterator

import pytest

from node.broker_processes import BrokerProcesses, Load
from node.group_processes import PATIENT, QUICK, Members, described
from node.zookeeper_processes import BOTH_MODES, cluster_of
from quorate.client.cluster import Cluster
from quorate.client.group_offsets import Committed, commit_offsets, committed_offsets
from quorate.client.metadata import TopicPartition

pytestmark = pytest.mark.processes

ALL = (101, 102, 103)
GROUPS = [f"group-{number}" for number in range(12)]
both = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(scope="module", params=BOTH_MODES)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcesses]:
    """Three brokers, and three controllers or a ZooKeeper. Every test leaves them running."""
    with cluster_of(request.param, tmp_path_factory.mktemp("cluster"), **QUICK) as running:
        yield running


class Commits:
    """Groups that commit one number after the other, as fast as each is taken."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._at = TopicPartition(topic, 0)
        self.acknowledged = dict.fromkeys(GROUPS, -1)

    async def run(self, is_over: asyncio.Event) -> None:
        async with Cluster(self._bootstrap, settings=PATIENT) as client:
            await asyncio.gather(*(self._commit(client, one, is_over) for one in GROUPS))

    async def _commit(self, client: Cluster, group: str, is_over: asyncio.Event) -> None:
        number = 0
        while not is_over.is_set():
            await commit_offsets(client, group, {self._at: Committed(number)})
            self.acknowledged[group] = number
            number += 1

    async def more(self, count: int) -> None:
        goals = {group: number + count for group, number in self.acknowledged.items()}
        async with asyncio.timeout(60):
            while any(self.acknowledged[group] < goal for group, goal in goals.items()):
                await asyncio.sleep(0.01)

    async def stored(self) -> dict[str, int]:
        async with Cluster(self._bootstrap, settings=PATIENT) as client:
            found = {one: await committed_offsets(client, one) for one in GROUPS}
        return {one: offsets[self._at].offset for one, offsets in found.items()}


def test_no_commit_is_lost_when_coordinators_are_killed(cluster: BrokerProcesses) -> None:
    cluster.create_topic("committed", ALL)

    async def scenario() -> None:
        commits, is_over = Commits(cluster.bootstrap, "committed"), asyncio.Event()
        running = asyncio.create_task(commits.run(is_over))
        await commits.more(20)
        victim = (await asyncio.to_thread(described, cluster, GROUPS[0])).coordinator
        before = dict(commits.acknowledged)
        cluster.kill(victim)
        stored = await commits.stored()
        assert all(stored[one] >= before[one] for one in GROUPS), (before, stored)
        await commits.more(20)
        is_over.set()
        await running
        assert await commits.stored() == commits.acknowledged
        assert (await asyncio.to_thread(described, cluster, GROUPS[0])).coordinator != victim
        cluster.start(victim)
        await asyncio.to_thread(cluster.wait_until_unfenced, victim)
        await asyncio.to_thread(cluster.wait_until_in_sync, "__consumer_offsets")
        assert await commits.stored() == commits.acknowledged

    asyncio.run(scenario())


@both
def test_a_group_moves_with_its_members_when_its_coordinator_is_killed(
    cluster: BrokerProcesses, protocol: str
) -> None:
    topic = group = f"moved-{protocol}"
    cluster.create_topic(topic, *[ALL, ALL[1:] + ALL[:1]], min_insync_replicas=2)
    with (
        Members(cluster, group, topic, kind=protocol, session_ms=30_000) as members,
        Load(cluster, topic, partitions=2) as load,
    ):
        members.start("a")
        members.start("b")
        members.wait("each has one", lambda: members.share(2))
        load.wait_for_more(50)
        states = {name: members[name].states[-1] for name in "ab"}
        victim = described(cluster, group).coordinator
        cluster.kill(victim)
        cluster.wait("somebody else coordinates it", lambda: described(cluster, group).coordinator != victim)
        load.wait_for_more(50)
        so_far = load.count
        members.wait("what was sent is read", lambda: sum(map(len, seen(members))) >= so_far)
        found = described(cluster, group)
        assert sorted(one.id for one in found.members) == sorted(id_ for _, id_, _ in states.values())
        assert {name: members[name].states[-1] for name in "ab"} == states  # nobody had to join again
        cluster.start(victim)
        cluster.wait_until_unfenced(victim)
        cluster.wait_until_in_sync("__consumer_offsets")
        cluster.wait_until_in_sync(topic)


def seen(members: Members) -> list[list[int]]:
    return [one.seen for one in members.lives]


def rebalances(cluster: BrokerProcesses, group: str) -> int:
    """How often coordinators have said that a group gets another assignment."""
    words = (f"Preparing to rebalance group {group} ", f"Group {group} is at epoch ")
    return sum(cluster.logged(one).count(word) for one in ALL for word in words)


@both
def test_static_members_are_restarted_and_nothing_is_rebalanced(
    cluster: BrokerProcesses, protocol: str
) -> None:
    topic = group = f"static-{protocol}"
    cluster.create_topic(topic, *[ALL] * 3)
    with Members(cluster, group, topic, kind=protocol, session_ms=30_000) as members:
        for name in "abc":
            members.start(name, name)
        members.wait("each has one", lambda: members.share(3))
        generation = members["a"].generation
        members.wait(
            "all are of one generation",
            lambda: len({members[name].generation for name in "abc"}) == 1,
        )
        generation, before = members["a"].generation, rebalances(cluster, group)
        assert before >= 1
        for name in "abc":
            owned = members[name].owned
            # Of the new protocol nobody gets the place of one that was killed before its session has ended.
            members.kill(name) if name == "b" and protocol == "classic" else members.end(name)
            again = members.start(name, name)
            members.wait(f"{name} has what it had", lambda again=again, owned=owned: again.owned == owned)
            assert again.generation == generation
        assert rebalances(cluster, group) == before
        assert {members[name].generation for name in "abc"} == {generation}
        assert members.share(3)


@both
def test_a_member_that_is_stopped_loses_its_partitions_and_is_told(
    cluster: BrokerProcesses, protocol: str
) -> None:
    topic = group = f"stopped-{protocol}"
    cluster.create_topic(topic, *[ALL] * 2)
    with Members(cluster, group, topic, kind=protocol, session_ms=3000) as members:
        members.start("a")
        members.start("b")
        members.wait("each has one", lambda: members.share(2))
        members.signal("a", signal.SIGSTOP)
        members.wait("the other has all", lambda: members["b"].owned == {0, 1})
        known = len(members["a"].possessions)
        assert members["a"].owned  # it does not know yet
        members.signal("a", signal.SIGCONT)
        members.wait("they share again", lambda: members.share(2))
        assert members["a"].possessions[known] == frozenset()
        words = "missed" if protocol == "classic" else group
        assert any("was removed from group" in line and words in line for line in lines_of(cluster, group))


def lines_of(cluster: BrokerProcesses, group: str) -> list[str]:
    return [line for one in ALL for line in cluster.logged(one).splitlines() if f"group {group}" in line]


@both
def test_brokers_are_rolled_under_a_group_and_every_record_is_read(
    cluster: BrokerProcesses, protocol: str
) -> None:
    topic = group = f"rolled-{protocol}"
    cluster.create_topic(topic, *[ALL, ALL[1:] + ALL[:1], ALL[2:] + ALL[:2]], min_insync_replicas=2)
    with Members(cluster, group, topic, kind=protocol, session_ms=10_000) as members:
        with Load(cluster, topic, partitions=3) as load:
            members.start("a")
            members.start("b")
            members.wait("both have some", lambda: members.share(3))
            for one in ALL:
                load.wait_for_more(30)
                assert cluster.terminate(one) == 0
                load.wait_for_more(30)
                cluster.start(one)
                cluster.wait_until_unfenced(one)
                cluster.wait_until_in_sync(topic)
                cluster.wait_until_in_sync("__consumer_offsets")
            load.wait_for_more(30)
        sent = {number for some in load.acknowledged.values() for number in some}
        members.wait("all is read", lambda: {number for some in seen(members) for number in some} >= sent)
        load.check()
