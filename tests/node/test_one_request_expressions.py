"""What one expression may cost a node, over raw connections to a real node: it is refused, or is looked up in
parts, and everybody else goes on."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from node.broker_processes import BrokerProcesses
from node.one_request import Peer, Watched
from quorate.protocol.api.groups import ConsumerGroupHeartbeatRequest, FindCoordinatorRequest
from quorate.protocol.api.topics import CreateTopicsRequest
from quorate.protocol.errors import ErrorCode

pytestmark = pytest.mark.processes

NODE = 1
SETTINGS = {"offsets_topic_num_partitions": "3", "offsets_topic_replication_factor": "1"}
CHANCE = random.Random(25)
LONG_NAMES = sorted({"".join(CHANCE.choices("ab", k=200)) for _ in range(300)})

EMPTY_GROUPS = "((((((){1000}){1000}){1000}){1000}){1000}){1000}"
MANY_STATES = f"[ab]*([ab][ab]{{249}}{'|[ab][ab]{249}' * 17}|a[ab]{{249}})|orders.*"
SLOW = "(?:a|b|\\b|\\B){999}|orders.*"
"""Some 3 ms for each of the long names, all of which it matches."""

NONE = ErrorCode.NONE
INVALID = ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path_factory.mktemp("cluster"), combined=1, **SETTINGS) as running:
        running.create_topic("orders", [NODE])
        with Peer(running) as peer:
            create(peer, *LONG_NAMES)
            wait_for_a_coordinator(running, peer)
        yield running


@pytest.fixture
def peer(cluster: BrokerProcesses) -> Iterator[Peer]:
    with Peer(cluster) as connection:
        yield connection


def wait_for_a_coordinator(cluster: BrokerProcesses, peer: Peer) -> None:
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    cluster.wait("somebody coordinates groups", lambda: peer.ask(find, 4).coordinators[0].error_code == NONE)
    cluster.wait(
        "groups are served",
        lambda: all(hear_of(peer, f"warm-{number}", "a").error_code == NONE for number in range(10)),
    )


def create(peer: Peer, *names: str) -> None:
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for name in names
    ]
    answer = peer.ask(CreateTopicsRequest(topics=topics, timeout_ms=20_000), 7)
    assert {one.error_code for one in answer.topics} == {NONE}


def heartbeat(group: str, expression: str | None = None, epoch: int = 0) -> ConsumerGroupHeartbeatRequest:
    about: dict[str, Any] = {}
    if epoch == 0:
        about = {"rebalance_timeout_ms": 30_000, "topic_partitions": []}
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=epoch, subscribed_topic_regex=expression, **about
    )


def hear_of(peer: Peer, group: str, expression: str | None = None, epoch: int = 0) -> Any:
    return peer.ask(heartbeat(group, expression, epoch), 1)


class Subscribed:
    """A member of a group of its own, and how many topics it has been told to read."""

    def __init__(self, peer: Peer, group: str, expression: str) -> None:
        self._peer, self._group = peer, group
        self.topics = 0
        self.epoch = 0
        self._hear(expression)

    def is_told_of(self, topics: int) -> Callable[[], bool]:
        def hears() -> bool:
            self._hear()
            return self.topics == topics

        return hears

    def leaves(self) -> None:
        self.epoch = -1
        self._hear()

    def _hear(self, expression: str | None = None) -> None:
        found = hear_of(self._peer, self._group, expression, self.epoch)
        assert found.error_code == NONE, found.error_message
        self.epoch = found.member_epoch
        if found.assignment is not None:
            self.topics = len(found.assignment.topic_partitions)


def test_empty_groups_that_are_repeated_are_refused(
    cluster: BrokerProcesses, peer: Peer, record_property: Callable[[str, object], None]
) -> None:
    with Watched(cluster) as watched:
        sent_bytes = 0
        for number in range(100):
            request = heartbeat(f"nested-{number}", EMPTY_GROUPS)
            sent_bytes += peer.say(request, 1)
            found = peer.hear(request, 1)
    assert found.error_code == INVALID
    assert f"`{EMPTY_GROUPS}` is not a valid regular expression: invalid repeat count" in found.error_message
    record_property("bystander_waited_ms", watched.waited_ms)
    watched.check(sent_bytes, peer.heard_bytes)


def test_what_is_costly_to_compile_is_refused(
    cluster: BrokerProcesses, peer: Peer, record_property: Callable[[str, object], None]
) -> None:
    sent_bytes = 0
    with Watched(cluster) as watched:
        for number, costly in enumerate(
            ("\\pL" * 1_365, "(a){1,1000}" * 370, "(\\pL\\pL\\pL){30}", "\\pL" * 50, "a" * 32_000) * 20
        ):
            request = heartbeat(f"costly-{number}", costly)
            sent_bytes += peer.say(request, 1)
            assert peer.hear(request, 1).error_code == INVALID, costly
            assert peer.heard_bytes <= 2_000
    record_property("bystander_waited_ms", watched.waited_ms)
    watched.check(sent_bytes, 0)


def test_an_expression_of_many_states_is_looked_up_among_long_names(
    cluster: BrokerProcesses, peer: Peer, record_property: Callable[[str, object], None]
) -> None:
    with Watched(cluster) as watched:
        member = Subscribed(peer, "many-states", MANY_STATES)
        cluster.wait("its topics are found", member.is_told_of(1))
    record_property("bystander_waited_ms", watched.waited_ms)
    watched.check(len(MANY_STATES), 0)


def test_several_are_looked_up_while_members_leave_and_topics_are_created(
    cluster: BrokerProcesses, peer: Peer, record_property: Callable[[str, object], None]
) -> None:
    with Watched(cluster) as watched:
        leaving = Subscribed(peer, "slow-1", SLOW)
        same = Subscribed(peer, "slow-2", SLOW)
        other = Subscribed(peer, "slow-3", SLOW.replace("orders", "nothing"))
        leaving.leaves()
        create(peer, "orders-of-today")
        ordinary = Subscribed(peer, "ordinary", "orders-.*")
        cluster.wait("the ordinary one has its own", ordinary.is_told_of(1))
        cluster.wait("one has its topics", same.is_told_of(len(LONG_NAMES) + 2))
        cluster.wait("another has its topics", other.is_told_of(len(LONG_NAMES)))
    record_property("bystander_waited_ms", watched.waited_ms)
    watched.check(2 * len(SLOW), 0)


def test_a_node_that_looks_up_expressions_ends_in_order(cluster: BrokerProcesses) -> None:
    with Peer(cluster) as peer:
        members = [Subscribed(peer, f"last-{number}", f"{SLOW}|{number}") for number in range(10)]
        assert [one.topics for one in members] == [0] * 10
    assert cluster.terminate(NODE) == 0
    assert "Traceback" not in cluster.logged(NODE)
    cluster.start(NODE)
    cluster.wait_until_unfenced(NODE)
    with Peer(cluster) as peer:
        wait_for_a_coordinator(cluster, peer)
