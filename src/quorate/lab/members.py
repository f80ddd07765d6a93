"""Brokers and an administrator, as the controllers see them: simulated clients that live under faults.

A broker registers, sends heartbeats, is unfenced, reports in-sync replicas for the partitions that it leads,
now and then leaves in order, and comes back; when it is told that its epoch is stale it begins anew. What it
claims to have read of the metadata log is what is committed, or a little less. The administrator creates,
moves and deletes topics, and forgets brokers that are away.

Neither cares whether a request succeeds. But a reply that says that something happened is a promise: `Run`
checks that it was committed by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from quorate.controller.settings import SUPPORTED_FEATURES
from quorate.metadata.image import ClusterImage
from quorate.net.client import ConnectionLost
from quorate.net.connections import Connections
from quorate.node.host import Host
from quorate.protocol.api.brokers import (
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    UnregisterBrokerRequest,
)
from quorate.protocol.api.topics import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Uuid

__all__ = ["Run", "administrate_topics", "be_a_broker"]

HEARTBEAT_S: Final = 0.5
RETRY_S: Final = 0.2
TIMEOUT_MS: Final = 2000
TOPICS_MAX: Final = 8


class Run(Protocol):
    """What the members know of the run that they are part of."""

    cluster_id: str
    fold: ClusterImage
    """Everything that is committed."""

    @property
    def committed_end(self) -> int: ...
    @property
    def controllers(self) -> list[tuple[str, int]]: ...
    def expect(self, is_so: bool, what: str) -> None: ...


class _Channel:
    """Requests to whoever is the active controller; found by asking around."""

    def __init__(self, host: Host, run: Run) -> None:
        self._connections = Connections(rng=host.random, connect_timeout_ms=1000)
        self._random = host.random
        self._run = run
        self._at: tuple[str, int] | None = None

    async def ask(self, request: Request, code_of: Callable[[Any], int]) -> Response | None:
        """The response of whoever is in charge; None if nobody was found, or the answer was lost."""
        others = list(self._run.controllers)
        self._random.shuffle(others)
        for at in [self._at, *others] if self._at is not None else others:
            self._at = at
            try:
                response = await self._connections.request(at, request, timeout_ms=TIMEOUT_MS)
            except (ConnectionLost, ApiError):
                self._at = None
                return None
            if code_of(response) != ErrorCode.NOT_CONTROLLER:
                return response
        self._at = None
        return None


def _top(response: Any) -> int:
    return int(response.error_code)


async def be_a_broker(host: Host, run: Run, broker_id: int) -> None:
    """One process after the other with the same id, until the machine stops."""
    channel = _Channel(host, run)
    directory = Uuid(b"directory".ljust(12, b".") + broker_id.to_bytes(4))
    last_epoch = -1
    while True:
        incarnation_id = Uuid(host.random.randbytes(16))
        epoch = await _register(host, run, channel, broker_id, incarnation_id, directory, last_epoch)
        last_epoch = await _serve(host, run, channel, broker_id, epoch)
        await asyncio.sleep(host.random.expovariate(1))


async def _register(
    host: Host,
    run: Run,
    channel: _Channel,
    broker_id: int,
    incarnation_id: Uuid,
    directory: Uuid,
    previous_epoch: int,
) -> int:
    request = BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=run.cluster_id,
        incarnation_id=incarnation_id,
        listeners=[
            BrokerRegistrationRequest.Listener(
                name="PLAINTEXT", host=host.name, port=9092, security_protocol=0
            )
        ],
        features=[
            BrokerRegistrationRequest.Feature(
                name=name, min_supported_version=low, max_supported_version=high
            )
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        rack=f"rack-{broker_id % 2}",
        log_dirs=[directory],
        previous_broker_epoch=previous_epoch,
    )
    while True:
        response = await channel.ask(request, _top)
        if isinstance(response, BrokerRegistrationResponse) and response.error_code == ErrorCode.NONE:
            known = run.fold.brokers.get(broker_id)
            is_committed = known is not None and known.epoch >= response.broker_epoch
            run.expect(is_committed, f"broker {broker_id} was told epoch {response.broker_epoch} too early")
            return response.broker_epoch
        await asyncio.sleep(RETRY_S)


async def _serve(host: Host, run: Run, channel: _Channel, broker_id: int, epoch: int) -> int:
    """Heartbeats until the broker has left, or another has its place: its epoch if it left in order."""
    leaves_after_s = host.random.expovariate(1 / 20)
    is_leaving, offset = False, -1
    while True:
        await asyncio.sleep(host.random.uniform(0.8, 1.2) * HEARTBEAT_S)
        leaves_after_s -= HEARTBEAT_S
        is_leaving = is_leaving or leaves_after_s < 0
        offset = max(offset, run.committed_end - 1 - host.random.randrange(3))
        response = await channel.ask(
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=epoch,
                current_metadata_offset=offset,
                want_fence=False,
                want_shut_down=is_leaving,
            ),
            _top,
        )
        if not isinstance(response, BrokerHeartbeatResponse):
            continue
        if response.error_code == ErrorCode.STALE_BROKER_EPOCH:
            return -1
        if response.error_code == ErrorCode.NONE and response.should_shut_down:
            return epoch
        if response.error_code == ErrorCode.NONE and not response.is_fenced and not is_leaving:
            await _report_in_sync(run, channel, broker_id, epoch)


async def _report_in_sync(run: Run, channel: _Channel, broker_id: int, epoch: int) -> None:
    """As a leader: whoever is back and alive is in sync again."""
    image = run.fold
    for topic in list(image.topics):
        changed = []
        for partition_id, partition in image.partitions_of(topic.id):
            wanted = [
                one
                for one in partition.replicas
                if one in partition.isr or ((known := image.brokers.get(one)) is not None and known.is_active)
            ]
            if partition.leader != broker_id or set(wanted) == set(partition.isr):
                continue
            states = [
                AlterPartitionRequest.TopicData.PartitionData.BrokerState(broker_id=one) for one in wanted
            ]
            changed.append(
                AlterPartitionRequest.TopicData.PartitionData(
                    partition_index=partition_id,
                    leader_epoch=partition.leader_epoch,
                    new_isr_with_epochs=states,
                    leader_recovery_state=0,
                    partition_epoch=partition.partition_epoch,
                )
            )
        if changed:
            request = AlterPartitionRequest(
                broker_id=broker_id,
                broker_epoch=epoch,
                topics=[AlterPartitionRequest.TopicData(topic_id=topic.id, partitions=changed)],
            )
            await channel.ask(request, _top)


# The administrator


async def administrate_topics(host: Host, run: Run) -> None:
    channel = _Channel(host, run)
    number = 0
    while True:
        await asyncio.sleep(host.random.expovariate(1 / 2))
        number += 1
        topics = list(run.fold.topics)
        choice = host.random.random()
        if len(topics) < TOPICS_MAX and choice < 0.5:
            await _create(host, run, channel, f"topic-{number}")
        elif topics and choice < 0.65:
            topic = host.random.choice(topics)
            state = DeleteTopicsRequest.DeleteTopicState(topic_id=topic.id)
            await channel.ask(DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS), lambda _: 0)
        elif topics and choice < 0.95:
            await _move(host, run, channel, host.random.choice(topics).name)
        else:
            await _forget(host, run, channel)


async def _create(host: Host, run: Run, channel: _Channel, name: str) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=1 + host.random.randrange(5),
        replication_factor=1 + host.random.randrange(3),
        assignments=[],
        configs=[],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    response = await channel.ask(request, lambda one: int(one.topics[0].error_code))
    if isinstance(response, CreateTopicsResponse) and response.topics[0].error_code == ErrorCode.NONE:
        # Nobody else deletes it while we are here.
        run.expect(name in run.fold.topics.by_name, f"{name} was reported as created too early")


async def _move(host: Host, run: Run, channel: _Channel, name: str) -> None:
    brokers = sorted(run.fold.brokers)
    host.random.shuffle(brokers)
    replicas = brokers[: 1 + host.random.randrange(3)] if host.random.random() < 0.7 else None
    partition = AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition(
        partition_index=0, replicas=replicas
    )
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=[partition])
    await channel.ask(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), _top)


async def _forget(host: Host, run: Run, channel: _Channel) -> None:
    fenced = [one.id for one in run.fold.brokers.values() if one.is_fenced]
    if fenced:
        request = UnregisterBrokerRequest(broker_id=host.random.choice(fenced))
        await channel.ask(request, _top)
