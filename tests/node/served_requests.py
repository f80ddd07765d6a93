"""What a listener serves, and what becomes of the costliest requests of every kind there.

kinds = served(cluster)
for cls in kinds: ...
    serve(cluster, way, words)
"""

from pathlib import Path
from typing import NamedTuple

from costliest import Way, costliest
from node.broker_processes import BrokerProcesses
from node.one_request import Peer, Watched
from quorate.broker.handlers.forwarding import FORWARDED
from quorate.protocol.api import request_class
from quorate.protocol.api.connection import ApiVersionsRequest
from quorate.protocol.api.groups import FindCoordinatorRequest, OffsetCommitRequest
from quorate.protocol.api.produce_fetch import FetchRequest, ProduceRequest
from quorate.protocol.api.topics import MetadataRequest
from quorate.protocol.bounds import TIMES, TIMES_OF_NODES
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Request
from sensible import Sensible

__all__ = ["NODE", "SETTINGS", "TOPIC", "Served", "cpu_s", "prepare", "serve", "served"]

NODE = 1
TOPIC = "t"
SETTINGS = {
    "auto_create_topics_enable": "false",
    "offsets_topic_num_partitions": "3",
    "offsets_topic_replication_factor": "1",
    "group_initial_rebalance_delay_ms": "0",
}


class Served(NamedTuple):
    """What became of a request."""

    answer_bytes: int | None
    """None if the connection was closed."""
    waited_ms: float
    """How long the bystander waited."""


def prepare(cluster: BrokerProcesses) -> bytes:
    """A topic, and groups that are served; the id of the topic."""
    cluster.create_topic(TOPIC, [NODE])
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    with Peer(cluster) as peer:
        cluster.wait(
            "somebody coordinates groups",
            lambda: peer.ask(find, 4).coordinators[0].error_code == ErrorCode.NONE,
        )
        found = peer.ask(MetadataRequest(topics=[MetadataRequest.Topic(name=TOPIC)]), 12)
    return bytes(found.topics[0].topic_id)


def served(cluster: BrokerProcesses, port: int | None = None) -> dict[type[Request], range]:
    """The requests that a listener serves, and in which versions."""
    with Peer(cluster, port=port) as peer:
        answer = peer.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    return {
        request_class(one.api_key): range(one.min_version, one.max_version + 1) for one in answer.api_keys
    }


def serve(
    cluster: BrokerProcesses,
    cls: type[Request],
    version: int,
    way: Way,
    size_bytes: int,
    words: Sensible,
    port: int | None = None,
) -> Served:
    """Asks, and checks what it has cost. What nodes say to each other may become larger; what is forwarded is
    asked and answered twice where a node has both roles, and between them."""
    raw = costliest(cls, version, way, size_bytes, words)
    with Watched(cluster, NODE) as watched, Peer(cluster, port=port) as peer:
        peer.say_bytes(len(raw).to_bytes(4, "big") + raw)
        try:
            answer_bytes = len(peer.hear_bytes())
        except (AssertionError, ConnectionResetError):
            answer_bytes = None
        except TimeoutError:
            raise AssertionError(f"{cls.__name__} v{version}, {way}: no answer") from None
    times = TIMES_OF_NODES // TIMES if cls.__of_nodes__ else 3 if cls in FORWARDED else _TIMES_OF.get(cls, 1)
    try:
        watched.check(times * len(raw), times * (answer_bytes or 0))
    except AssertionError as error:
        said = "closed" if answer_bytes is None else f"{answer_bytes} bytes of answer"
        raise AssertionError(f"{cls.__name__} v{version}, {way}, {len(raw)} bytes, {said}: {error}") from None
    return Served(answer_bytes, watched.waited_ms)


def cpu_s(cluster: BrokerProcesses) -> float:
    """The processor's time that the node has used so far."""
    fields = Path(f"/proc/{cluster.process_id(NODE)}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


_TICKS_PER_S = 100
# What was found for each partition is kept until all of them are answered.
_TIMES_OF = {FetchRequest: 2, OffsetCommitRequest: 2, ProduceRequest: 2}
