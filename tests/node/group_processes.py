"""Members of groups as processes: started, stopped, killed, and read.

with Members(cluster, "readers", "orders", kind="classic") as members:
    members.start("a")
    members.wait("a has all", lambda: members["a"].owned == {0, 1})

`kind` is how they take part: a protocol, or what another program has for it.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Self

from node.broker_processes import BrokerProcesses
from node.processes import DEADLINE_S
from quorate.client.cluster import Cluster, ClusterSettings
from quorate.client.group_admin import Group, Groups

PROGRAM = Path(__file__).parent / "group_program.py"
PATIENT = ClusterSettings(deadline_ms=60_000)
QUICK = {
    "broker_session_timeout_ms": "3000",
    "broker_heartbeat_interval_ms": "300",
    "replica_lag_time_max_ms": "1200",
    "replica_fetch_wait_max_ms": "200",
    "replica_fetch_backoff_ms": "100",
    "leader_imbalance_check_interval_seconds": "1",
    "offsets_topic_num_partitions": "6",
    "offsets_topic_replication_factor": "3",
    "group_initial_rebalance_delay_ms": "0",
    "group_min_session_timeout_ms": "1000",
    "group_consumer_heartbeat_interval_ms": "200",
    "group_consumer_min_heartbeat_interval_ms": "200",
    "group_consumer_session_timeout_ms": "6000",
    "group_consumer_min_session_timeout_ms": "1000",
}
"""Settings of brokers that notice within seconds that somebody is gone."""


def described(cluster: BrokerProcesses, group: str) -> Group:
    async def ask() -> Group:
        async with Cluster(cluster.bootstrap, settings=PATIENT) as client:
            return await Groups(client).describe(group)

    return asyncio.run(ask())


class MemberProcess:
    """One member, in one life."""

    def __init__(self, path: Path, process: subprocess.Popen[bytes]) -> None:
        self._path = path
        self.process = process

    @property
    def lines(self) -> list[list[str]]:
        whole = self._path.read_text().rpartition("\n")[0]
        return [line.split() for line in whole.splitlines()]

    @property
    def states(self) -> list[tuple[int, str, frozenset[int]]]:
        """Generation, id and partitions, whenever one of them has changed."""
        return [
            (int(words[1]), words[2] if len(words) > 3 else "", _numbers(words[-1]))
            for words in self.lines
            if words[0] == "is"
        ]

    @property
    def owned(self) -> frozenset[int]:
        states = self.states
        return states[-1][2] if states else frozenset()

    @property
    def possessions(self) -> list[frozenset[int]]:
        """What it had, one after the other."""
        return [_numbers(words[1]) for words in self.lines if words[0] == "has"]

    @property
    def generation(self) -> int:
        return self.states[-1][0]

    @property
    def seen(self) -> list[int]:
        return [int(words[1]) for words in self.lines if words[0] == "got"]

    @property
    def acknowledged(self) -> dict[int, int]:
        """The newest offset of each partition of which it knows that it is committed."""
        found: dict[int, int] = {}
        for words in self.lines:
            if words[0] == "committed":
                found |= {int(at): int(offset) for at, _, offset in (one.partition(":") for one in words[1:])}
        return found


def _numbers(text: str) -> frozenset[int]:
    return frozenset() if text == "-" else frozenset(map(int, text.split(",")))


class Members:
    """The members of one group, by names. Leaving the block ends them."""

    def __init__(
        self,
        cluster: BrokerProcesses,
        group: str,
        topic: str,
        *,
        kind: str,
        session_ms: int = 6000,
        program: Path = PROGRAM,
    ) -> None:
        self._cluster = cluster
        self.group = group
        self._words = [str(program), cluster.bootstrap, group, topic, kind, str(session_ms)]
        self._alive: dict[str, MemberProcess] = {}
        self.lives: list[MemberProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._alive.values():
            one.process.kill()
            one.process.wait()

    def __getitem__(self, name: str) -> MemberProcess:
        return self._alive[name]

    def start(self, name: str, *instance: str) -> MemberProcess:
        path = self._cluster.root / f"member-{self.group}-{name}-{len(self.lives)}.txt"
        with path.open("wb") as output, path.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *self._words, *instance],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
            )
        self._alive[name] = MemberProcess(path, process)
        self.lives.append(self._alive[name])
        return self._alive[name]

    def end(self, name: str) -> MemberProcess:
        """Asks a member to end, and waits until it has."""
        one = self._alive.pop(name)
        one.process.terminate()
        assert one.process.wait(DEADLINE_S) == 0
        return one

    def kill(self, name: str) -> MemberProcess:
        one = self._alive.pop(name)
        one.process.kill()
        one.process.wait()
        return one

    def signal(self, name: str, number: signal.Signals) -> None:
        self._alive[name].process.send_signal(number)

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        """Until something is so, as long as all members live."""

        def holds() -> object:
            gone = [name for name, one in self._alive.items() if one.process.poll() is not None]
            assert not gone, f"{gone} ended: " + self._logs()
            return condition()

        try:
            self._cluster.wait(what, holds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._logs()}") from None

    def share(self, partitions: int) -> bool:
        """Whether everything is somebody's, nothing is two people's, and nobody has nothing."""
        owned = [at for one in self._alive.values() for at in one.owned]
        is_whole = len(owned) == len(set(owned)) == partitions
        return is_whole and all(one.owned for one in self._alive.values())

    def _logs(self) -> str:
        return "\n".join(
            f"-- {one._path.name}\n{one._path.with_suffix('.log').read_text()[-1500:]}\n{one.lines[-5:]}"
            for one in self.lives
        )
