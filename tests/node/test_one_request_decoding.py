"""What one request may cost a node before anybody looks at what it says."""

from collections.abc import Iterator

import pytest

from costliest import Way, costliest, with_tags
from node.broker_processes import BrokerProcesses
from node.one_request import Peer, Watched
from quorate.protocol.api.connection import ApiVersionsRequest
from quorate.protocol.api.groups import DescribeGroupsRequest
from quorate.protocol.api.produce_fetch import ListOffsetsRequest
from quorate.protocol.api.topics import MetadataRequest

pytestmark = pytest.mark.processes

NODE = 1
LARGE_BYTES = 4_000_000
GROUPS, TOPICS = Way(("groups",), ("groups",)), Way(("topics",), ("topics",))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path_factory.mktemp("cluster"), combined=1) as running:
        yield running


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (with_tags(ApiVersionsRequest, 3, 400_000), "400000 tagged fields; at most 10000"),
        (costliest(DescribeGroupsRequest, 0, GROUPS, LARGE_BYTES), "bytes of memory"),
        (costliest(ListOffsetsRequest, 8, TOPICS, LARGE_BYTES), "bytes of memory"),
        (costliest(MetadataRequest, 1, TOPICS, 5 * LARGE_BYTES), "items; at most 1000000"),
        (costliest(ListOffsetsRequest, 8, TOPICS, 1_000_000)[:-1] + b"\xff", "malformed request"),
    ],
    ids=["tags", "names", "structs", "items", "wrong at its end"],
)
def test_a_request_that_would_become_too_much_is_refused(
    cluster: BrokerProcesses, raw: bytes, reason: str, record_property
) -> None:
    with Peer(cluster, NODE) as before:
        before.ask(ApiVersionsRequest(), 0)
    logged_before = len(cluster.logged(NODE))
    with Watched(cluster, NODE) as watched, Peer(cluster, NODE) as peer:
        peer.say_bytes(len(raw).to_bytes(4, "big") + raw)
        assert peer.is_closed()
    record_property("bystander_waited_ms", watched.waited_ms)
    watched.check(len(raw), 0)
    assert reason in cluster.logged(NODE)[logged_before:]
