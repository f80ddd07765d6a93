"""The log of groups moves between Apache's node and ours, with the whole directory it is in: who opens it
tells the same of every group as who wrote it, and members go on as if nothing had moved."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from apache_oracle import missing
from apache_programs import ApachePrograms
from consumer_talks import ConsumerTable
from moving_groups import DELETED, STORIES, TOPICS, TRANSACTIONS, Who, commit_in_transactions, go_on, told

from node.processes import CLUSTER_ID, HOST, Processes
from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster
from quorate.net.client import ConnectionLost
from quorate.protocol.api.admin import DescribeClusterRequest
from quorate.protocol.errors import ApiError, ErrorCode

pytestmark = pytest.mark.interop

APACHE, QUORATE = "Apache", "Quorate"
NODE, CLIENTS = 1, 2  # whose ports: the node's own, and that for clients
STAYING = {name: f"{name}, staying" for name in STORIES}  # the groups of stories that go on where they began
GROUPS = (*STORIES, *STAYING.values(), TRANSACTIONS)
SETTINGS = {
    "auto_create_topics_enable": "false",
    "group_consumer_assignment_interval_ms": "0",
    "group_initial_rebalance_delay_ms": "0",
    "offsets_topic_num_partitions": "3",
    "offsets_topic_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "1",
    "transaction_state_log_replication_factor": "1",
}


@pytest.fixture(scope="module")
def programs() -> ApachePrograms:
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return ApachePrograms()


class Home:
    """The directory of one node that is broker and controller, and whose program runs there."""

    def __init__(self, processes: Processes, programs: ApachePrograms, founder: str) -> None:
        self._processes = processes
        self._programs = programs
        self.port = processes.port(CLIENTS)
        self.servers = f"{HOST}:{self.port}"
        config = processes.configure(
            NODE,
            process_roles="broker,controller",
            controller_quorum_voters=f"{NODE}@{HOST}:{processes.port(NODE)}",
            listeners=f"PLAINTEXT://{self.servers},CONTROLLER://{HOST}:{processes.port(NODE)}",
            listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            metadata_log_dir=None,
            log_dirs=str(processes.directory(NODE)),
        )
        if founder == APACHE:
            programs.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config))
        else:
            processes.format(NODE)

    @contextmanager
    def run_by(self, who: str) -> Iterator[None]:
        """Until it was asked to end, and did."""
        if who == APACHE:
            log = self._processes.root / f"node-{NODE}-apache.log"
            with self._programs.node(self._processes.configuration(NODE), log):
                self._processes.wait("Apache's node serves", self._serves)
                yield
            assert not re.findall(r"^.* (?:ERROR|FATAL) .*$", log.read_text(), re.MULTILINE)
        else:
            self._processes.start(NODE)
            self._processes.wait("our node serves", self._serves)
            yield
            assert self._processes.terminate(NODE) == 0

    def _serves(self) -> bool:
        try:
            self._processes.ask(CLIENTS, DescribeClusterRequest(include_cluster_authorized_operations=False))
        except (ApiError, ConnectionLost):
            return False
        return True


async def make_topics(servers: str) -> None:
    async with Cluster(servers) as cluster:
        for name, partitions in TOPICS.items():
            await Admin(cluster).create_topics(NewTopic(name, partitions=partitions, replication_factor=1))


Tables = Callable[[str], Awaitable[ConsumerTable]]


@asynccontextmanager
async def tables_of(home: Home) -> AsyncIterator[Tables]:
    """A table for each group, with whoever coordinates it now."""
    made: dict[str, ConsumerTable] = {}

    async def at(group: str) -> ConsumerTable:
        if group not in made:
            made[group] = ConsumerTable(HOST, home.port, group)
            await made[group].prepare()
        return made[group]

    try:
        yield at
    finally:
        for table in made.values():
            await table.close()


async def begin(home: Home) -> tuple[dict[str, list[Who]], dict[str, list[str]]]:
    """Who takes part in the stories that will go on elsewhere, and what is heard in those that go on here."""
    members, heard = {}, {}
    await make_topics(home.servers)
    async with tables_of(home) as at, tables_of(home) as at_another:
        for name, story in STORIES.items():
            members[name] = await story.begins(await at(name))
            staying = await story.begins(await at(STAYING[name]))
            heard[name] = await go_on(name, await at_another(STAYING[name]), staying)
    return members, heard


async def go_on_here(home: Home, members: dict[str, list[Who]]) -> dict[str, list[str]]:
    async with tables_of(home) as at:
        return {name: await go_on(name, await at(name), some) for name, some in members.items()}


async def told_by(home: Home) -> dict[str, Any]:
    """What is told of all groups."""
    async with tables_of(home) as at:
        return {
            f"{group}: {what}": answer for group in GROUPS for what, answer in await told(await at(group))
        }


@pytest.mark.parametrize(("first", "second"), [(APACHE, QUORATE), (QUORATE, APACHE)])
def test_groups_move_with_their_log_and_come_back(
    programs: ApachePrograms, tmp_path: Path, first: str, second: str
) -> None:
    with Processes(tmp_path, **SETTINGS) as processes:
        home = Home(processes, programs, first)
        with home.run_by(first):
            members, expected = asyncio.run(begin(home))
            if first == APACHE:
                commit_in_transactions(home.servers)
            written = asyncio.run(told_by(home))
        with home.run_by(second):
            found = asyncio.run(told_by(home))
            heard = asyncio.run(go_on_here(home, members))
            changed = asyncio.run(told_by(home))
        with home.run_by(first):
            found_again = asyncio.run(told_by(home))
    check_alike(f"written by {first}, found by {second}", written, found)
    assert heard == expected
    check_alike(f"written by {second}, found by {first}", changed, found_again)
    check_the_groups(written, has_transactions=first == APACHE)


def check_alike(what: str, written: dict[str, Any], found: dict[str, Any]) -> None:
    different = {one: (written[one], found[one]) for one in written if written[one] != found[one]}
    assert not different, what


def check_the_groups(written: dict[str, Any], *, has_transactions: bool) -> None:
    """That they are what was to be moved."""
    states = {name: "".join(one["group_state"] for one in written[f"{name}: listed"]) for name in STORIES}
    others = {"left": "Empty", "offsets": "Empty", "handover": "Reconciling"}
    assert states == dict.fromkeys(STORIES, "Stable") | dict.fromkeys(DELETED, "") | others
    if has_transactions:
        ((topic,),) = (group["topics"] for group in written[f"{TRANSACTIONS}: offsets that are certain"])
        assert {one["partition_index"]: one["error_code"] for one in topic["partitions"]} == {
            0: ErrorCode.NONE,
            3: ErrorCode.UNSTABLE_OFFSET_COMMIT,
        }
