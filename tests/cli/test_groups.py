"""`quorate groups`, as a user sees it, against a node."""

import asyncio
import socket
from typing import Any

import pytest
from group_town import DEADLINE_S, RECORDS, Town, town
from typer.testing import CliRunner

from node.one_node import HOST
from quorate.cli.main import app
from quorate.client.group_consumer import GroupProtocol
from quorate.coordinator.group_places import place_hash

__all__ = ["town"]

both = pytest.mark.parametrize("protocol", list(GroupProtocol))


def test_groups_are_listed_with_their_kind_and_state(town: Town) -> None:
    town.commit("listed", p0=1)
    leave = town.member("listed-consumer", GroupProtocol.CONSUMER)
    try:
        found = {one["group"]: one for one in town.read("list")}
        assert found["listed"] == {
            "group": "listed",
            "protocol_type": "",
            "state": "Empty",
            "kind": "classic",
        }
        assert found["listed-consumer"]["kind"] == "consumer"
        assert found["listed-consumer"]["state"] == "Stable"
        stable = {one["group"] for one in town.read("list", "--state", "Stable")}
        assert "listed-consumer" in stable
        assert "listed" not in stable
        kinds = {one["kind"] for one in town.read("list", "--kind", "consumer")}
        assert kinds == {"consumer"}
        lines = town.run("list").stdout.splitlines()
        assert lines[0].split() == ["GROUP", "KIND", "STATE", "TYPE"]
        assert ["listed", "classic", "Empty", "-"] in [line.split() for line in lines]
        assert stable == {one["group"] for one in town.read("list", "--state", "stable")}
        assert town.run("list", "--state", "Dead").stdout == "there are no such groups\n"
    finally:
        leave()


@both
def test_a_group_is_described_with_its_members(town: Town, protocol: GroupProtocol) -> None:
    group = f"described-{protocol.value}"
    leave = town.member(group, protocol)
    try:
        found = town.read("describe", group)
        assert (found["group"], found["kind"], found["state"]) == (group, protocol.value, "Stable")
        assert found["coordinator"] == 1
        (member,) = found["members"]
        assert member["partitions"] == [{"topic": "orders", "partition": one} for one in (0, 1)]
        lines = town.run("describe", group).stdout.splitlines()
        assert lines[0].startswith(f"group {group} is Stable: {protocol.value}, 1 members")
        assert lines[1].split() == ["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"]
        assert lines[2].split()[-1] == "orders:0-1"
    finally:
        leave()


def test_lag_is_what_is_left_to_read(town: Town) -> None:
    town.commit("behind", p0=3)
    assert town.read("lag", "behind") == [
        {"topic": "orders", "partition": 0, "committed": 3, "end_offset": RECORDS, "lag": RECORDS - 3}
    ]
    lines = [line.split() for line in town.run("lag", "behind").stdout.splitlines()]
    assert lines == [
        ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG"],
        ["orders", "0", "3", "10", "7"],
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [10, 10]),
        (("--to-offset", "4"), [4, 4]),
        (("--to-offset", "99"), [10, 10]),
        (("--shift-by", "-2"), [1, 6]),
        (("--shift-by", "-5"), [0, 3]),
        (("--to-datetime", "2023-11-14T22:13:20.006+00:00"), [6, 6]),
        (("--topic", "orders:1", "--to-earliest"), [0]),
        (("--topic", "orders", "--to-earliest"), [0, 0]),
    ],
)
def test_offsets_are_shown_first_and_reset_when_told(
    town: Town, words: tuple[str, ...], expected: list[int]
) -> None:
    group = "reset " + " ".join(words)
    town.commit(group, p0=3, p1=8)
    shown = town.read("reset-offsets", group, *words)
    assert [one["to"] for one in shown] == expected
    assert [one["committed"] for one in town.read("lag", group)] == [3, 8]
    assert "nothing was changed: say --execute to do it" in town.run("reset-offsets", group, *words).stdout
    assert town.read("reset-offsets", group, *words, "--execute") == shown
    after = {one["partition"]: one["committed"] for one in town.read("lag", group)}
    assert after == {0: 3, 1: 8} | {one["partition"]: one["to"] for one in shown}


def test_a_group_that_does_not_exist_may_be_given_a_place_to_begin(town: Town) -> None:
    assert town.read("reset-offsets", "new", "--topic", "orders", "--to-latest", "--execute") == [
        {"topic": "orders", "partition": one, "from": None, "to": RECORDS} for one in (0, 1)
    ]
    assert [one["lag"] for one in town.read("lag", "new")] == [0, 0]


def test_a_group_is_deleted_with_its_offsets(town: Town) -> None:
    town.commit("deleted", p0=1)
    done = town.run("delete", "deleted")
    assert (done.exit_code, done.stdout) == (0, "group deleted is deleted\n")
    assert "deleted" not in [one["group"] for one in town.read("list")]


def test_a_group_whose_name_is_empty_is_a_group(town: Town) -> None:
    town.commit("", p0=3)
    assert town.read("describe", "")["state"] == "Empty"
    assert [one["lag"] for one in town.read("lag", "")] == [RECORDS - 3]
    assert [one["to"] for one in town.read("reset-offsets", "", "--shift-by", "-1", "--execute")] == [2]
    assert [one["committed"] for one in town.read("lag", "")] == [2]
    assert town.run("delete", "").exit_code == 0
    assert "" not in [one["group"] for one in town.read("list")]


@both
def test_what_is_in_use_is_neither_reset_nor_deleted(town: Town, protocol: GroupProtocol) -> None:
    group = f"busy-{protocol.value}"
    leave = town.member(group, protocol)
    try:
        done = town.run("reset-offsets", group, "--to-earliest", "--topic", "orders", "--execute")
        assert done.exit_code == 1
        assert done.stderr.startswith(f"quorate: group {group} is Stable: stop its members first")
        done = town.run("delete", group)
        assert (done.exit_code, done.stderr) == (
            1,
            f"quorate: group '{group}': the group has members: stop them first\n",
        )
    finally:
        leave()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("list", "--state", "Bogus"), "'Bogus': allowed is Assigning, CompletingRebalance, Dead, Empty,"),
        (("list", "--state", "Empty", "--state", ""), "--state '': allowed is"),
        (("list", "--kind", "bogus"), "--kind 'bogus': allowed is classic, consumer, share, streams"),
        (("describe", "none"), "group 'none': there is no such group"),
        (("describe", "it's none"), 'group "it\'s none": there is no such group'),
        (("describe", ""), "group '': there is no such group"),
        (("lag", "none"), "group 'none': there is no such group"),
        (("delete", "none"), "group 'none': there is no such group"),
        (("reset-offsets", "none"), "say one of --to-earliest"),
        (("reset-offsets", "none", "--to-earliest", "--to-latest"), "say one of --to-earliest"),
        (
            ("reset-offsets", "none", "--to-earliest"),
            "no group 'none'; to give it a place to begin, name topics",
        ),
        (("reset-offsets", "none", "--to-earliest", "--execute"), "there is no group 'none'"),
        (("reset-offsets", "none", "--to-datetime", "soon"), "not a time as in"),
        (("reset-offsets", "none", "--to-datetime", "0001-01-01T00:00:00+00:00"), "before 1970"),
        (("reset-offsets", "none", "--to-datetime", "0001-01-01T00:00:00"), "before 1970"),
        (("reset-offsets", "none", "--to-datetime", "1969-12-31T23:59:59.998+00:00"), "before 1970"),
        (
            ("reset-offsets", "none", "--topic", "orders:x", "--to-latest"),
            "--topic 'orders:x': not a topic, or",
        ),
        (
            ("reset-offsets", "none", "--topic", "orders:", "--to-latest"),
            "--topic 'orders:': not a topic, or",
        ),
        (("reset-offsets", "none", "--topic", "orders:-1", "--to-latest"), "the number of a partition"),
        (("reset-offsets", "none", "--topic", "orders:" + "9" * 5000, "--to-latest"), "as in orders:7"),
        (("reset-offsets", "none", "--topic", "orders:7", "--to-latest"), "orders has no partition 7"),
    ],
)
def test_what_cannot_be_done_is_said_and_is_exit_code_1(
    town: Town, words: tuple[str, ...], reason: str
) -> None:
    done = town.run(*words)
    assert done.exit_code == 1
    assert done.stderr.startswith("quorate: ")
    assert reason in done.stderr
    assert done.stdout == ""


def test_a_group_that_has_committed_nothing_has_nothing_to_reset(town: Town) -> None:
    town.member("idle")()
    done = town.run("reset-offsets", "idle", "--to-earliest", "--execute")
    assert done.exit_code == 0
    assert done.stdout.startswith("there is nothing to reset: the group has committed nothing")


def test_names_are_shown_on_one_line_and_are_exact_as_json(town: Town) -> None:
    group = "bills\n2026-01-01 ERROR all is lost\x1b[31m  [ x  y ]"
    shown = r"bills\n2026-01-01 ERROR all is lost\x1b[31m  [ x  y ]"
    town.member(group)()
    assert group in [one["group"] for one in town.read("list")]
    assert any(line.startswith(f"{shown}  ") for line in town.run("list").stdout.splitlines())
    assert town.read("describe", group)["group"] == group
    (line,) = town.run("describe", group).stdout.splitlines()
    assert line.startswith(f"group {shown} is Empty")
    found = told_of(town, group, "RebalanceEnded", times=2)
    assert {one["group_id"] for one in found if "group_id" in one} == {group}
    lines = town.run("why", group).stdout.splitlines()
    assert len(lines) == len(found)
    assert all("\x1b" not in line for line in lines)
    (line,) = town.run("delete", group).stdout.splitlines()
    assert line == f"group {shown} is deleted"


def test_why_says_how_many_like_it_were_not_told(town: Town) -> None:
    refused = {
        "group_id": "full",
        "member_id": "m",
        "client_id": "c",
        "client_host": "/h",
        "error": "GROUP_MAX_SIZE_REACHED",
        "reason": "it is full",
        "untold": 41,
    }
    town.publish({"version": 1, "node": 8, "sequence": 1, "time_ms": 1, "kind": "MemberRefused", **refused})
    told_of(town, "full", "MemberRefused")
    line = town.run("why", "full").stdout.splitlines()[0]
    assert line.endswith(
        "Refused to let a member join group full: it is full error=GROUP_MAX_SIZE_REACHED member=m client=c"
        " host=/h untold=41"
    )


def test_what_anybody_wrote_into_the_topic_is_shown_on_one_line(town: Town) -> None:
    odd = "\x1b[2J\nforged"
    expired = {"group_id": "odd", "offsets": 3, "retention_ms": 5}
    counts = {"groups": 4, "members": 5, "offsets": 6, "open_transactions": 0}
    loaded = {"group_id": "odd", "partition": 0, **counts}
    town.publish(
        {"node": 8, "time_ms": 1, "kind": "OffsetsExpired", **expired, "untold": odd},
        {"node": odd, "time_ms": 2, "kind": "GroupsLoaded", **loaded},
        {"node": 8, "time_ms": 3, "kind": odd, "group_id": "odd"},
        {"node": 8, "time_ms": 4, "kind": [odd], "group_id": "odd"},
        {"node": 8, "time_ms": "4", "kind": "OffsetsExpired", **expired},
        {"node": 8, "time_ms": 10**30, "kind": "OffsetsExpired", **expired},
        {"node": 8, "time_ms": 4, "kind": "OffsetsExpired", "group_ids": 7},
        {"node": 8, "time_ms": 5, "kind": "Last", "group_id": "odd"},
    )
    told_of(town, "odd", "Last")
    lines = [line.partition("  ")[2] for line in town.run("why", "odd").stdout.splitlines()]
    assert lines[:4] == [
        "Expired 3 offsets of group odd retention_ms=5",
        r"Loaded 4 groups partition=0 members=5 offsets=6 open_transactions=0 broker=\x1b[2J\nforged",
        r"\x1b[2J\nforged",
        "Last",
    ]


def test_nobody_answers_and_that_is_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.cli.groups.PATIENCE_MS", 1000)
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    done = CliRunner().invoke(app, ["groups", "list", "--bootstrap-server", f"{HOST}:{port}"])
    assert done.exit_code == 2
    assert done.stderr.startswith("quorate: ")


def told_of(town: Town, group: str, kind: str, times: int = 1) -> list[dict[str, Any]]:
    """What is told of a group once it has been told so often of such an event."""
    found: list[dict[str, Any]] = []

    def is_told() -> bool:
        found[:] = town.read("why", group)
        return sum(one["kind"] == kind for one in found) >= times

    async def until_told() -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not await asyncio.to_thread(is_told):
                await asyncio.sleep(0.1)

    asyncio.run(until_told())
    return found


@both
def test_why_tells_what_made_a_group_rebalance(town: Town, protocol: GroupProtocol) -> None:
    """The same is in the log of the node, among its metrics, and in `__cluster_events`."""
    group = f"why-{protocol.value}"
    leave = town.member(group, protocol)
    leave()
    over = "RebalanceEnded" if protocol is GroupProtocol.CLASSIC else "ConsumerRebalanceEnded"
    found = told_of(town, group, over, times=2)
    assert any(one["kind"] == "MemberRemoved" for one in found)
    kinds = [one["kind"] for one in found]
    began = "RebalanceStarted" if protocol is GroupProtocol.CLASSIC else "GroupEpochBumped"
    assert kinds[0] == began
    assert found[0]["trigger"] == "a member joined"
    assert [one["time_ms"] for one in found] == sorted(one["time_ms"] for one in found)
    ended, emptied = [one for one in found if one["kind"] == over]
    assert (ended["members"], emptied["members"]) == (1, 0)
    assert ended["duration_ms"] >= 0
    lines = town.run("why", group).stdout.splitlines()
    assert len(lines) == len(found)
    assert "a member joined" in lines[0]
    (stabilized,) = [line for line in lines if "Stabilized" in line]
    assert f" duration_ms={ended['duration_ms']} " in stabilized
    assert len(town.run("why", group, "--last", "1").stdout.splitlines()) == 1
    _, metrics = town.do(town.node.http("/metrics"))
    assert f'quorate_events_total{{check="",kind="{began}"}}' in metrics
    label = f'group_rebalance_total{{protocol="{protocol.value}"}}'
    (line,) = [line for line in metrics.splitlines() if label in line]
    assert float(line.split()[-1]) >= 1
    assert town.run("why", "nobody").stdout == "nothing has been noted about group nobody\n"


@both
def test_why_tells_who_was_fenced(town: Town, protocol: GroupProtocol) -> None:
    group = f"fenced-{protocol.value}"
    town.member(group, protocol, instance_id="i")()  # it may come back, so its place is kept
    leave = town.member(group, protocol, instance_id="i")
    try:
        (fenced,) = [one for one in told_of(town, group, "MemberFenced") if one["kind"] == "MemberFenced"]
        (member,) = town.read("describe", group)["members"]
        assert fenced["instance_id"] == "i"
        assert fenced["member_id"] == member["id"] != fenced["fenced_member_id"]
        (line,) = [line for line in town.run("why", group).stdout.splitlines() if "is fenced" in line]
        assert f"member {member['id']} replaces {fenced['fenced_member_id']}" in line
    finally:
        leave()


def test_why_tells_that_another_broker_coordinates_the_group(town: Town) -> None:
    group = "moved"
    here = place_hash(group) % 2
    town.commit(group, p0=1)  # so that this broker coordinates it

    def event(time_ms: int, kind: str, **fields: Any) -> dict[str, Any]:
        return {"version": 1, "node": 8, "sequence": time_ms, "time_ms": time_ms, "kind": kind, **fields}

    counts = {"groups": 4, "members": 5, "offsets": 6, "open_transactions": 0}
    refused = {"records": 2, "error": "NOT_ENOUGH_REPLICAS", "answer": "COORDINATOR_NOT_AVAILABLE"}
    town.publish(
        event(1, "GroupsLoaded", partition=here, **counts),  # before anything is known of the group
        event(2, "GroupEpochBumped", group_id=group, epoch=3, trigger="a member joined", members=0),
        event(3, "GroupAppendRefused", group_ids=["other", group], **refused),
        event(4, "GroupAppendRefused", group_ids=["other"], **refused),
        event(5, "GroupsUnloaded", partition=here, groups=4, waiting=0),
        event(6, "GroupsUnloaded", partition=1 - here, groups=9, waiting=0),
        event(7, "GroupsLoaded", partition=here, **counts) | {"node": 9},
    )
    found = told_of(town, group, "GroupsLoaded", times=2)
    assert [one["time_ms"] for one in found[:4]] == [2, 3, 5, 7]
    assert {(one["node"], one["partition"]) for one in found[4:]} == {(1, here)}, "as it was indeed"
    lines = [line.partition("  ")[2] for line in town.run("why", group).stdout.splitlines()[:4]]
    assert lines[1:] == [
        "The log refused 2 records of group other, moved error=NOT_ENOUGH_REPLICAS"
        " answer=COORDINATOR_NOT_AVAILABLE",
        f"Unloaded 4 groups partition={here} waiting=0 broker=8",
        f"Loaded 4 groups partition={here} members=5 offsets=6 open_transactions=0 broker=9",
    ]
