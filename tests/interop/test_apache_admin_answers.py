"""Every question of administration is answered as an Apache broker answers it: the same codes, the same rows.

Words of messages are each one's own. Where we differ on purpose, it stands in `OURS`, with the reason.
"""

import asyncio
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from admin_questions import QUESTIONS
from apache_oracle import missing
from apache_programs import ApachePrograms
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from repeated_questions import QUESTIONS as REPEATED
from test_client_on_apache import ApacheBroker

from node.cluster import ClusterProcesses
from node.processes import DEADLINE_S, HOST, Processes
from quorate.controller.config_descriptions import DEFAULT
from quorate.controller.config_of_brokers import BROKER_KEYS
from quorate.net.client import ConnectionLost
from quorate.net.connections import Connections
from quorate.protocol.api.admin import DescribeConfigsRequest, DescribeConfigsResponse
from quorate.protocol.api.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Request, Response, Struct

pytestmark = pytest.mark.interop

SETTINGS = {
    "offsets_topic_replication_factor": "1",
    "auto_create_topics_enable": "false",
}
# Fields that are nobody's to compare: words, numbers of processes, times.
NOT_COMPARED = {
    *("error_message", "throttle_time_ms", "topic_id", "cluster_id", "host", "port", "leader_epoch"),
    *(
        "documentation",
        "high_watermark",
        "log_end_offset",
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
    ),
    *("replica_directory_id", "nodes", "producer_id", "last_timestamp"),
    *("log_dir", "partition_size", "usable_bytes"),
}
# What we answer otherwise, and why.
OURS: dict[str, str] = {
    "an unknown operation": "Apache has no code of its own for it: UNKNOWN_SERVER_ERROR",
    "all of a topic twice": "Apache does not answer at all",
    "elect everywhere": "Apache also names the topics of which it has nothing to say",
}
# The same of questions that name something more than once.
OURS_REPEATED: dict[str, str] = {
    "quotas of a user twice": "an entity that names two users is nobody's: Apache takes the last",
}
# In these versions topics have names.
VERSION_CAPS: dict[type[Request], int] = {OffsetCommitRequest: 9, OffsetFetchRequest: 9}
ANSWER_MS = 20_000
TOPICS = {"t": {}, "compacted": {"cleanup.policy": "compact"}}


class Asked:
    """A broker, and a client that keeps its connection."""

    def __init__(self, port: int) -> None:
        self.bootstrap = f"{HOST}:{port}"
        self._address = (HOST, port)

    def ask(self, request: Request) -> Response | None:
        async def send() -> Response | None:
            connections = Connections(rng=random.Random(1), client_id="questions")
            try:
                cap = VERSION_CAPS.get(type(request))
                return await connections.request(self._address, request, cap, timeout_ms=ANSWER_MS)
            except ConnectionLost:
                return None  # which is an answer, too
            finally:
                await connections.close()

        return asyncio.run(send())

    def coordinate(self, group: str) -> None:
        """Waits until somebody coordinates the group, and serves it."""
        stop = time.monotonic() + DEADLINE_S
        while True:
            found = self.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
            assert isinstance(found, FindCoordinatorResponse)
            if found.coordinators[0].error_code == ErrorCode.NONE:
                heard = self.ask(HeartbeatRequest(group_id=group, generation_id=1, member_id="m"))
                assert isinstance(heard, HeartbeatResponse)
                if heard.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                    return
            assert time.monotonic() < stop, found
            time.sleep(0.05)

    def prepare(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        new = [NewTopic(name, 2 if name == "t" else 1, 1, config=config) for name, config in TOPICS.items()]
        for future in admin.create_topics(new).values():
            future.result(DEADLINE_S)
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, "enable.idempotence": True})
        for number in range(3):
            producer.produce("t", f"{number}", partition=0)
        assert producer.flush(DEADLINE_S) == 0


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Asked, Asked]]:
    """Apache's broker, and ours."""
    if reason := missing():
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    root: Path = tmp_path_factory.mktemp("both")
    (root / "theirs").mkdir()
    (root / "ours").mkdir()
    with (
        Processes(root) as ports,
        ClusterProcesses(root / "ours", combined=1, **SETTINGS) as cluster,
    ):
        apache = ApacheBroker(ApachePrograms(), root / "theirs", ports)
        with apache.running():
            theirs, ours = Asked(apache.port), Asked(cluster.client_port(1))
            for one in (theirs, ours):
                one.prepare()
            yield theirs, ours


def content(part: Any) -> Any:
    """What a response says, in plain values; rows in any order."""
    if isinstance(part, Struct):
        fields = (declared.name for declared in part.__fields__)
        return {name: content(getattr(part, name)) for name in fields if name not in NOT_COMPARED}
    if isinstance(part, list | tuple):
        return sorted((content(one) for one in part), key=repr)
    return bytes(part) if isinstance(part, memoryview) else part


def test_the_same_answers(both: tuple[Asked, Asked], record_property: Any) -> None:
    theirs, ours = both
    different = {}
    for name, question in QUESTIONS.items():
        expected, found = content(theirs.ask(question)), content(ours.ask(question))
        if (expected == found) == (name in OURS):
            different[name] = f"\n  Apache:  {expected}\n  Quorate: {found}"
    assert not different, "".join(f"\n{name}: {texts}" for name, texts in different.items())
    record_property("figure", f"answered as Apache answers: {len(QUESTIONS) - len(OURS)} questions")


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in QUESTIONS if name.startswith(("a feature", "move ", "quotas "))),
        *("a quota of nothing", "a quota of an unknown kind", "a quota without a name", "an unknown quota"),
        *("a quota of less than nothing", "a broken quota", "the controllers", "no such endpoints"),
        *("another broker's config", "nobody's config", "a static key that has no effect here"),
        *("a key of SASL for all", "the same for all", "describe another broker"),
        *("a group's bad value", "a group's other bad value"),
    ],
)
def test_the_same_words(both: tuple[Asked, Asked], name: str) -> None:
    """Of what tools show. We may say more."""
    theirs, ours = (messages_of(one.ask(QUESTIONS[name])) for one in both)
    assert [len(theirs), *map(bool, theirs)] == [len(ours), *map(bool, ours)]
    for expected, found in zip(theirs, ours, strict=True):
        assert found.startswith(expected)


def messages_of(part: Any) -> list[str]:
    """All messages of a response, in its order; one that is null is empty."""
    if isinstance(part, list | tuple):
        return [message for one in part for message in messages_of(one)]
    if not isinstance(part, Struct):
        return []
    own = [part.error_message] if hasattr(part, "error_message") else []
    rest = [getattr(part, declared.name) for declared in part.__fields__]
    return [*(one or "" for one in own), *messages_of(rest)]


def keys_of(asked: Asked, kind: int, name: str) -> dict[str, Any]:
    wanted = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=None)
    answer = asked.ask(DescribeConfigsRequest(resources=[wanted], include_synonyms=True))
    assert isinstance(answer, DescribeConfigsResponse)
    (result,) = answer.results
    assert result.error_code == ErrorCode.NONE
    return {one.name: one for one in result.configs}


def test_configurations_of_a_topic_are_described_alike(both: tuple[Asked, Asked]) -> None:
    theirs, ours = (keys_of(one, 2, "compacted") for one in both)
    assert ours.keys() == theirs.keys()
    different = {
        name: (content(one), content(ours[name]))
        for name, one in theirs.items()
        if content(one) != content(ours[name])
    }
    assert not different, different


def test_configurations_of_a_broker_are_described_alike(both: tuple[Asked, Asked]) -> None:
    """Types, secrecy and synonyms of keys that both have; and what can change while a broker runs."""
    theirs, ours = (keys_of(one, 4, "1") for one in both)
    assert not [name for name in ours.keys() - theirs.keys() if ours[name].config_source == DEFAULT]
    # Of these one has a value, and the other has none.
    shared = sorted((theirs.keys() & ours.keys()) - {"inter.broker.listener.name", "log.dir"})
    assert len(shared) > 150

    def about(one: Any) -> Any:
        names = dict.fromkeys(synonym.name for synonym in one.synonyms)
        return one.config_type, one.is_sensitive, list(names)

    different = {
        name: (about(theirs[name]), about(ours[name]))
        for name in shared
        if about(theirs[name]) != about(ours[name])
    }
    assert not different, different
    dynamic = {name for name in shared if not theirs[name].read_only}
    assert {name for name in shared if not ours[name].read_only} <= dynamic
    # What Apache changes while it runs and we do not is refused, and said so.
    assert {name for name in dynamic if ours[name].read_only} == {
        name for name in dynamic if not BROKER_KEYS[name].is_dynamic
    }


def test_what_is_asked_twice_is_answered_alike(both: tuple[Asked, Asked], record_property: Any) -> None:
    theirs, ours = both
    for one in both:
        one.coordinate("g")
    different = {}
    for name, question in REPEATED.items():
        expected, found = content(theirs.ask(question)), content(ours.ask(question))
        if (expected == found) == (name in OURS_REPEATED):
            different[name] = f"\n  Apache:  {expected}\n  Quorate: {found}"
    assert not different, "".join(f"\n{name}: {texts}" for name, texts in different.items())
    record_property("figure", f"answered as Apache answers: {len(REPEATED) - len(OURS_REPEATED)} questions")
