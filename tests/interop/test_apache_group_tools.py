"""Apache's consumers and its tools for groups, on groups that we coordinate."""

import json
import os
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from apache_oracle import missing
from apache_programs import ApachePrograms
from apache_tools import ApacheTools
from confluent_kafka import Producer
from group_members import Librdkafka, members_of, shared_by, until

from node.broker_processes import BrokerProcesses

pytestmark = pytest.mark.interop

PARTITIONS = 2
RECORDS = 20
SETTINGS = {
    "offsets_topic_num_partitions": "2",
    "offsets_topic_replication_factor": "2",
    "group_initial_rebalance_delay_ms": "0",
    "group_consumer_heartbeat_interval_ms": "200",
    "group_consumer_min_heartbeat_interval_ms": "200",
    "replica_fetch_wait_max_ms": "100",
}
PROTOCOLS = ("classic", "consumer")
both = pytest.mark.parametrize("protocol", PROTOCOLS)
Ask = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    root = tmp_path_factory.mktemp("cluster")
    with BrokerProcesses(root, controllers=1, brokers=2, **SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def tools() -> Iterator[ApacheTools]:
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with ApacheTools.start(ApachePrograms()) as running:
        yield running


_NAMES = count()


@pytest.fixture
def topic(cluster: BrokerProcesses) -> str:
    """With so many records in each partition."""
    name = f"topic-{next(_NAMES)}"
    cluster.create_topic(name, (101, 102), (102, 101))
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    for number in range(RECORDS * PARTITIONS):
        producer.produce(name, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    return name


@pytest.fixture
def groups(cluster: BrokerProcesses, tools: ApacheTools) -> Ask:
    """kafka-consumer-groups."""
    return lambda *words: tools.run("consumer_groups", "--bootstrap-server", cluster.bootstrap, *words)


def consume(cluster: BrokerProcesses, tools: ApacheTools, topic: str, group: str, protocol: str) -> set[str]:
    """What the console consumer reads as a member of a group, and commits."""
    printed = tools.run(
        "console_consumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--group", group, "--from-beginning"),
        *("--max-messages", str(RECORDS * PARTITIONS), "--timeout-ms", "50000"),
        *("--command-property", f"group.protocol={protocol}"),
    )
    return {line for line in printed.splitlines() if line.isdigit()}


def rows(printed: str) -> list[dict[str, str]]:
    """A table that a tool has printed, without what it says besides."""
    lines = [line.split() for line in printed.splitlines()]
    at = next(number for number, line in enumerate(lines) if line[:1] == ["GROUP"])
    head = lines[at]
    return [dict(zip(head, line, strict=False)) for line in lines[at + 1 :] if line]


def offsets(printed: str) -> dict[int, tuple[str, str, str]]:
    return {
        int(one["PARTITION"]): (one["CURRENT-OFFSET"], one["LOG-END-OFFSET"], one["LAG"])
        for one in rows(printed)
    }


ALL = {str(number) for number in range(RECORDS * PARTITIONS)}
READ = dict.fromkeys(range(PARTITIONS), (str(RECORDS), str(RECORDS), "0"))


@both
def test_the_console_consumer_reads_as_a_member_and_is_looked_at(
    cluster: BrokerProcesses, tools: ApacheTools, topic: str, groups: Ask, protocol: str
) -> None:
    group = f"console-{protocol}"
    assert consume(cluster, tools, topic, group, protocol) == ALL
    assert offsets(groups("--describe", "--group", group)) == READ
    (state,) = rows(groups("--describe", "--group", group, "--state"))
    assert state["GROUP"] == group
    assert "Empty" in state.values()
    assert "has no active members" in groups("--describe", "--group", group, "--members")


@both
def test_members_and_their_parts_are_described(
    cluster: BrokerProcesses, topic: str, groups: Ask, protocol: str
) -> None:
    group = f"members-{protocol}"
    settings = {"group_protocol": "consumer"} if protocol == "consumer" else {}
    with members_of(cluster.bootstrap, group, topic) as add:
        members = [add(Librdkafka(client_id=f"client-{one}", **settings)) for one in range(2)]
        until("each has one", shared_by(PARTITIONS, *members), *members)
        until("all is read", lambda: sum(len(one.seen) for one in members) >= len(ALL), *members)
        described = groups("--describe", "--group", group, "--members", "--verbose")
        assert {one["CLIENT-ID"] for one in rows(described)} == {"client-0", "client-1"}
        assert {one["#PARTITIONS"] for one in rows(described)} == {"1"}
        assert f"{topic}" in described
        found = rows(groups("--describe", "--group", group))
        assert {one["CLIENT-ID"] for one in found} == {"client-0", "client-1"}
        (state,) = rows(groups("--describe", "--group", group, "--state", "--verbose"))
        assert "Stable" in state.values()


def test_groups_are_listed_by_state_and_type(
    cluster: BrokerProcesses, tools: ApacheTools, topic: str, groups: Ask
) -> None:
    for protocol in PROTOCOLS:
        consume(cluster, tools, topic, f"listed-{protocol}", protocol)
    listed = groups("--list").split()
    assert {"listed-classic", "listed-consumer"} <= set(listed)
    found = {one["GROUP"]: one for one in rows(groups("--list", "--state", "--type"))}
    assert found["listed-classic"] == {"GROUP": "listed-classic", "TYPE": "Classic", "STATE": "Empty"}
    assert found["listed-consumer"] == {"GROUP": "listed-consumer", "TYPE": "Consumer", "STATE": "Empty"}
    only = {one["GROUP"] for one in rows(groups("--list", "--type", "consumer"))}
    assert "listed-consumer" in only
    assert "listed-classic" not in only
    assert "listed-classic" not in groups("--list", "--state", "Stable")
    every = {one["GROUP"]: one for one in rows(_groups(cluster, tools, "--list"))}
    assert every["listed-classic"] == {"GROUP": "listed-classic", "TYPE": "Classic", "PROTOCOL": "consumer"}
    assert every["listed-consumer"] == {
        "GROUP": "listed-consumer",
        "TYPE": "Consumer",
        "PROTOCOL": "consumer",
    }
    assert "listed-classic" not in _groups(cluster, tools, "--list", "--group-type", "consumer")


def _groups(cluster: BrokerProcesses, tools: ApacheTools, *words: str) -> str:
    return tools.run("groups", "--bootstrap-server", cluster.bootstrap, *words)


def moved(printed: str) -> dict[int, str]:
    return {int(one["PARTITION"]): one["NEW-OFFSET"] for one in rows(printed)}


@both
def test_offsets_are_reset_and_deleted_and_so_is_the_group(
    cluster: BrokerProcesses, tools: ApacheTools, topic: str, groups: Ask, protocol: str
) -> None:
    group = f"reset-{protocol}"
    consume(cluster, tools, topic, group, protocol)
    reset = ("--reset-offsets", "--group", group, "--topic", topic)
    assert moved(groups(*reset, "--to-earliest", "--dry-run")) == {0: "0", 1: "0"}
    assert offsets(groups("--describe", "--group", group)) == READ
    assert moved(groups(*reset, "--shift-by", "-5", "--execute")) == {0: "15", 1: "15"}
    assert offsets(groups("--describe", "--group", group)) == {0: ("15", "20", "5"), 1: ("15", "20", "5")}
    one = ("--reset-offsets", "--group", group, "--topic", f"{topic}:1")
    assert moved(groups(*one, "--to-offset", "7", "--execute")) == {1: "7"}
    exported = groups(*reset, "--to-current", "--export", "--dry-run")
    assert {f"{topic},0,15", f"{topic},1,7"} == set(exported.split()[-2:])
    assert moved(groups(*reset, "--to-datetime", "2001-01-01T00:00:00.000", "--dry-run")) == {0: "0", 1: "0"}
    groups("--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    assert set(offsets(groups("--describe", "--group", group))) == {0}
    assert "successful" in groups("--delete", "--group", group)
    assert group not in groups("--list").split()
    assert f"Group {group} not found" in groups("--describe", "--group", group)


@both
def test_what_is_in_use_is_not_reset_or_deleted(
    cluster: BrokerProcesses, tools: ApacheTools, topic: str, groups: Ask, protocol: str
) -> None:
    group = f"busy-{protocol}"
    settings = {"group_protocol": "consumer"} if protocol == "consumer" else {}
    with members_of(cluster.bootstrap, group, topic) as add:
        member = add(Librdkafka(**settings))
        until("it has all", shared_by(PARTITIONS, member), member)
        until("it has read", lambda: len(member.seen) >= len(ALL), member)
        _, printed = tools.ended(
            "consumer_groups",
            *("--bootstrap-server", cluster.bootstrap, "--group", group, "--topic", topic),
            *("--reset-offsets", "--to-earliest", "--execute"),
        )
        assert "only be reset if the group" in printed
        assert "not empty" in groups("--delete", "--group", group).lower()
        printed = groups("--delete-offsets", "--group", group, "--topic", topic)
        assert "subscribed" in printed.lower()
        assert group in groups("--list").split()


@both
def test_the_verifiable_consumer_tells_what_it_was_given(
    cluster: BrokerProcesses, tools: ApacheTools, topic: str, groups: Ask, protocol: str
) -> None:
    group = f"verifiable-{protocol}"
    printed = tools.run(
        "verifiable_consumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--group-id", group),
        *("--max-messages", str(len(ALL)), "--reset-policy", "earliest", "--group-protocol", protocol),
        *(("--session-timeout", "10000") if protocol == "classic" else ()),
    )
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    names = [one["name"] for one in events]
    assert names[0] == "startup_complete"
    assert names[-1] == "shutdown_complete"
    assigned = [one["partitions"] for one in events if one["name"] == "partitions_assigned"]
    assert sorted(one["partition"] for some in assigned for one in some) == list(range(PARTITIONS))
    assert sum(one["count"] for one in events if one["name"] == "records_consumed") == len(ALL)
    assert all(one["success"] for one in events if one["name"] == "offsets_committed")
    assert offsets(groups("--describe", "--group", group)) == READ
