"""Group coordination: heartbeats, rebalances, commits and failovers, against Apache Kafka and a bare server.

Both sides are nodes with their own defaults, asked by the same members on plain sockets, in turns; the best
round of each counts. `QUORATE_BENCH_GROUPS_PARTS=heartbeats,commits` chooses parts, and
`QUORATE_BENCH_GROUPS_SCALE=0.1` makes it a try.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from bench.broker_baselines import Baseline
from bench.broker_nodes import ApacheCommands, Nodes, QuorateCommands, cpu_seconds, why_no_apache
from bench.broker_sizes import best
from bench.broker_wire import Wire
from bench.group_wire import (
    TOPIC,
    Classic,
    ClassicGroup,
    ConsumerGroup,
    Crowd,
    create_topic,
    ever_further,
    groups_of_one,
    join_alone,
    wait_for_coordinators,
)
from bench.timing import Row
from quorate.net.client import ConnectionLost
from quorate.protocol.api import groups as api
from quorate.protocol.api.quorum import DescribeQuorumRequest
from quorate.protocol.errors import ErrorCode

PARTS_VARIABLE = "QUORATE_BENCH_GROUPS_PARTS"
SCALE_VARIABLE = "QUORATE_BENCH_GROUPS_SCALE"
PARTS = ("heartbeats", "rebalances", "commits", "failover")
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.max.size": "2000",
    "group.consumer.max.size": "2000",
    "group.consumer.assignment.interval.ms": "0",  # what is measured is the work, not the wait for more
    "max.connections.per.ip": "5000",
}
SCALE = float(os.environ.get(SCALE_VARIABLE, "1"))
ROUNDS = 5 if SCALE >= 1 else 1
REBALANCES = 10 if SCALE >= 1 else 1  # in a round
FAILOVERS = 3  # a broker may have been heard of just now, or a heartbeat ago
CONNECTIONS = 50
GROUPS = 1000
LARGE = 500
PARTITIONS = 1000
BARE_AT_MOST = 2.5
FLAT_AT_MOST = 1.25
SOURCE = Path(__file__).parent / "epoll_answers.c"
BUILD = Path(__file__).parent.parent / "build"


def section() -> Iterator[Row | str]:
    parts = os.environ.get(PARTS_VARIABLE, ",".join(PARTS)).split(",")
    reason = why_no_apache()
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as name, contextlib.ExitStack() as nodes:
        root = Path(name)
        sides = {}
        if set(parts) - {"failover"}:
            sides["Quorate"] = nodes.enter_context(Nodes("Quorate", root, QuorateCommands(), 1, SETTINGS))
            if reason is None:
                sides["Apache"] = nodes.enter_context(Nodes("Apache", root, ApacheCommands(), 1, SETTINGS))
            for one in sides.values():
                create_topic(one.port_of(1), PARTITIONS)
                wait_for_coordinators(one.port_of(1), [f"single-{number}" for number in range(GROUPS)])
        if reason is not None:
            yield f"  Apache Kafka is left out: {reason}"
        if "heartbeats" in parts:
            yield from _heartbeats(sides)
        if "commits" in parts:
            yield from _commits(sides)
        if "rebalances" in parts:
            yield from _rebalances(sides)
        nodes.close()
        if "failover" in parts:
            yield from _failover(root, has_apache=reason is None)


def _against(what: str, found: Sequence[tuple[float, ...]], at: int, note: Callable[[float], str]) -> Row:
    """A row of a figure of which less is better: how many times as much Apache needs."""
    ours = found[0][at]
    if len(found) == 1:
        return Row(f"{what}: Quorate alone", 1.0, note=note(ours))
    apache = found[1][at]
    return Row(f"{what}: Apache / ours", apache / ours, at_least=1.0, note=f"{note(ours)} and {note(apache)}")


# Heartbeats


def _heartbeats(sides: dict[str, Nodes]) -> Iterator[Row | str]:
    times = max(5, int(300 * SCALE))
    with contextlib.ExitStack() as stack:
        crowds = {
            name: stack.enter_context(Crowd(one.port_of(1), CONNECTIONS)) for name, one in sides.items()
        }

        def costs(name: str, frames: Sequence[bytes]) -> tuple[float]:
            node = sides[name]
            before = node.cpu_seconds()
            sent = crowds[name].rounds(frames, times)
            return ((node.cpu_seconds() - before) / sent,)

        few = {name: [one.heartbeat() for one in groups_of_one(crowds[name], 10, "few")] for name in sides}
        found = best(ROUNDS, *(partial(costs, name, few[name]) for name in sides))
        yield _against("heartbeats per CPU second, 10 groups", found, 0, _rate)
        yield from _against_bare(sides["Quorate"], crowds["Quorate"], few["Quorate"], times)
        many = {name: [one.heartbeat() for one in groups_of_one(crowds[name], GROUPS)] for name in sides}
        large, new = {}, {}
        for name, one in sides.items():
            crowd = stack.enter_context(Crowd(one.port_of(1), LARGE))
            group = ClassicGroup(crowd, "large", PARTITIONS)
            group.rebalance()
            large[name] = [member.heartbeat() for member in group.members]
            consumers = ConsumerGroup(stack.enter_context(Crowd(one.port_of(1), 100)), "new", PARTITIONS)
            consumers.settle()
            new[name] = consumers.heartbeats()
        found_new = best(ROUNDS, *(partial(costs, name, new[name]) for name in sides))
        yield _against("heartbeats per CPU second, consumer protocol, 100 members", found_new, 0, _rate)
        for what, frames in ((f"{GROUPS:,} groups", many), (f"one group of {LARGE} members", large)):
            more = best(ROUNDS, *(partial(costs, name, frames[name]) for name in sides))
            yield _against(f"heartbeats per CPU second, {what}", more, 0, _rate)
        (base,), *others = best(
            ROUNDS, *(partial(costs, "Quorate", one["Quorate"]) for one in (few, many, large))
        )
        for what, (cost,) in zip((f"{GROUPS:,} groups", f"one group of {LARGE}"), others, strict=True):
            note = f"{cost * 1e6:.1f} and {base * 1e6:.1f} us"
            yield Row(f"cost of a heartbeat, {what} / 10 groups", cost / base, FLAT_AT_MOST, note=note)


def _rate(seconds: float) -> str:
    return f"{1 / seconds:,.0f}/s"


def _against_bare(ours: Nodes, crowd: Crowd, frames: Sequence[bytes], times: int) -> Iterator[Row | str]:
    compiler = shutil.which("cc")
    if compiler is None:
        yield "  a bare server is left out: there is no C compiler (cc)"
        return
    with (
        _Bare(compiler) as bare,
        Crowd(bare.port, CONNECTIONS) as other,
        Baseline("echo", BUILD) as echo,
        Crowd(echo.port, CONNECTIONS) as third,
    ):

        def costs(pid: int, who: Crowd) -> tuple[float]:
            before = cpu_seconds(pid)
            sent = who.rounds(frames, times)
            return ((cpu_seconds(pid) - before) / sent,)

        (mine,), (base,), (python,) = best(
            ROUNDS,
            lambda: costs(ours.pid, crowd),
            lambda: costs(bare.pid, other),
            lambda: costs(echo.pid, third),
        )
        note = f"{mine * 1e6:.1f} and {base * 1e6:.1f} us"
        yield Row("CPU of a heartbeat: ours / a bare epoll server in C", mine / base, BARE_AT_MOST, note=note)
        note = f"{python * 1e6:.1f} us"
        yield Row(
            "  the same of an echo server in Python, on the same loop as ours", python / base, note=note
        )


class _Bare:
    """A server in C that answers without looking."""

    def __init__(self, compiler: str) -> None:
        BUILD.mkdir(exist_ok=True)
        program = BUILD / "epoll-answers"
        if not program.exists() or program.stat().st_mtime < SOURCE.stat().st_mtime:
            subprocess.run([compiler, "-O2", "-o", str(program), str(SOURCE)], check=True)
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(b"")


# Commits


def _commits(sides: dict[str, Nodes]) -> Iterator[Row | str]:
    times = max(500, int(20_000 * SCALE))
    with contextlib.ExitStack() as stack:
        crowds = {
            name: stack.enter_context(Crowd(one.port_of(1), CONNECTIONS)) for name, one in sides.items()
        }
        for what, count in (("one group", 1), (f"{CONNECTIONS} groups", CONNECTIONS)):
            frames = {}
            for name in sides:
                members = groups_of_one(crowds[name], count, f"commits-{count}")
                chosen = [members[at % count] for at in range(CONNECTIONS)]
                frames[name] = [ever_further(one.commit(at)) for at, one in enumerate(chosen)]

            def costs(
                name: str, frames: dict[str, list[Callable[[int], bytes]]] = frames
            ) -> tuple[float, float]:
                node = sides[name]
                before = node.cpu_seconds()
                took = crowds[name].closed_loop(frames[name], times)
                return took / times, (node.cpu_seconds() - before) / times

            found = best(ROUNDS, *(partial(costs, name) for name in sides))
            yield _against(f"commits per second, {CONNECTIONS} connections, {what}", found, 0, _rate)
            yield _against("  and per CPU second", found, 1, _rate)


# Rebalances


def _rebalances(sides: dict[str, Nodes]) -> Iterator[Row | str]:
    for kind, name in ((ClassicGroup, "classic"), (ConsumerGroup, "consumer")):
        took = {}
        for members in (100, LARGE):
            with contextlib.ExitStack() as stack:
                groups = []
                for one in sides.values():
                    crowd = stack.enter_context(Crowd(one.port_of(1), members))
                    groups.append(kind(crowd, f"rebalanced-{name}-{members}", PARTITIONS))
                found = best(ROUNDS, *(partial(_mean, group.rebalance) for group in groups))
            what = f"rebalance of {members} members, {PARTITIONS:,} partitions, {name} protocol"
            yield _against(what, found, 0, lambda seconds: f"{seconds * 1000:.1f} ms")
            took[members] = found[0][0]
        ratio = took[LARGE] / took[100] / (LARGE / 100)
        yield Row(f"  time for each member, {LARGE} members / 100", ratio, at_most=FLAT_AT_MOST)


def _mean(rebalance: Callable[[], float]) -> tuple[float]:
    """Of some, one after the other: a single one is over in a few milliseconds, most of which are those of a
    node that has just been idle."""
    return (sum(rebalance() for _ in range(REBALANCES)) / REBALANCES,)


# Failover


def _failover(root: Path, *, has_apache: bool) -> Iterator[Row | str]:
    rounds = range(FAILOVERS if SCALE >= 1 else 1)
    found = [min(_fail_over(f"Quorate3-{number}", root, QuorateCommands()) for number in rounds)]
    if has_apache:
        found.append(min(_fail_over(f"Apache3-{number}", root, ApacheCommands()) for number in rounds))
    yield _against(
        "from the death of a coordinator to a commit by the next, 3 nodes", found, 0, lambda s: f"{s:.2f} s"
    )


def _fail_over(name: str, root: Path, commands: Any) -> tuple[float]:
    """Kills a node that coordinates a group and does not lead the quorum. Seconds without a coordinator."""
    with Nodes(name, root, commands, 3, SETTINGS) as nodes:
        create_topic(nodes.port_of(1), 1, 3)
        names = [f"single-{number}" for number in range(100)]
        where = wait_for_coordinators(nodes.port_of(1), names)
        leader = _quorum_leader(nodes)
        group = next(one for one, node_id in where.items() if node_id != leader)
        victim, witness = where[group], leader
        with Crowd(nodes.port_of(victim), 1) as crowd:
            member = join_alone(crowd, group)
            crowd.send(0, member.commit(0, 1))
            crowd.receive(0)
        time.sleep(1)  # all replicas have it
        nodes.kill(victim)
        began = time.perf_counter()
        _commit_anywhere(nodes, witness, member)
        return (time.perf_counter() - began,)


def _quorum_leader(nodes: Nodes) -> int:
    topic = DescribeQuorumRequest.TopicData
    asked = topic(topic_name="__cluster_metadata", partitions=[topic.PartitionData(partition_index=0)])
    with Wire(nodes.port_of(1)) as wire:
        answer: Any = wire.ask(DescribeQuorumRequest(topics=[asked]), 2)
    return int(answer.topics[0].partitions[0].leader_id)


def _commit_anywhere(nodes: Nodes, witness: int, member: Classic) -> None:
    """Looks for the coordinator until a commit is taken."""
    deadline = time.monotonic() + 120
    find = api.FindCoordinatorRequest(key_type=0, coordinator_keys=[member.group])
    with Wire(nodes.port_of(witness)) as wire:
        while True:
            assert time.monotonic() < deadline, f"nobody took a commit to {TOPIC}"
            answer: Any = wire.ask(find, 4)
            node_id = answer.coordinators[0].node_id
            with contextlib.suppress(OSError, ConnectionLost):
                if node_id >= 0 and _commit(nodes.port_of(node_id), member):
                    return
            time.sleep(0.01)


def _commit(port: int, member: Classic) -> bool:
    topic = api.OffsetCommitRequest.Topic
    at = topic.Partition(partition_index=0, committed_offset=2, committed_metadata="")
    request = api.OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.id,
        topics=[topic(name=TOPIC, partitions=[at])],
    )
    with Wire(port) as wire:
        answer: Any = wire.ask(request, 8)
    return answer.topics[0].partitions[0].error_code == ErrorCode.NONE
