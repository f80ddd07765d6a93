"""A controller: one replica of the metadata log, the listener that its peers talk to, and its duties.

Its duties, besides voting: as leader, it brings the records of `bootstrap.checkpoint` into an empty log, and
writes a record that says nothing when the log has been idle, so that everyone can see that it still leads. As
leader or not, it writes snapshots of what is committed and removes what they make superfluous.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from quorate.metadata.log_format import encode_record
from quorate.metadata.records import NoOpRecord
from quorate.net.connections import Connections
from quorate.net.routes import Features, RequestContext, Route, RouteTable
from quorate.net.server import Server
from quorate.node.config import NodeConfig
from quorate.node.host import Host
from quorate.node.journal import Journal
from quorate.node.metadata_log import MetadataLog
from quorate.node.replica import Replica
from quorate.protocol.api.admin import DescribeClusterRequest, DescribeClusterResponse
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.produce_fetch import FetchRequest
from quorate.protocol.api.quorum import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request, Response
from quorate.raft.quorum import Quorum
from quorate.raft.state import Leader
from quorate.raft.voters import ReplicaKey

__all__ = ["ControllerNode"]

_QUORUM_REQUESTS: Final[tuple[type[Request], ...]] = (
    VoteRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
)
_CONTROLLERS: Final = 2  # the endpoint type of DescribeCluster
_RETENTION_CHECK_MS: Final = 60_000
_SNAPSHOT_CHECK_S: Final = 0.5


class ControllerNode:
    """A running controller. `run` returns after `stop`, or raises what ended it."""

    def __init__(self, host: Host, config: NodeConfig) -> None:
        self._host = host
        self._config = config
        self._logger = logging.getLogger(f"quorate.node.{host.name}")
        self._stopping = asyncio.Event()
        self.is_listening = asyncio.Event()
        self.journal = Journal()
        self.replica: Replica | None = None

    async def run(self) -> None:
        config, host = self._config, self._host
        for warning in config.warnings:
            self._logger.warning("%s", warning)
        log = await MetadataLog.open(host.files, config, host.wall_ms())
        try:
            await self._run_with(log)
        finally:
            await log.close()

    async def _run_with(self, log: MetadataLog) -> None:
        config, host = self._config, self._host
        endpoint = config.advertised_controller
        quorum = Quorum(
            ReplicaKey(config.node_id, log.directory_id),
            (endpoint,),
            log=log.positions,
            voters=log.voters,
            bootstrap=config.bootstrap_servers,
            settings=config.quorum_settings,
            random=host.random,
        )
        connections = Connections(
            rng=host.random,
            client_id=f"quorate-controller-{config.node_id}",
            limits=config.limits,
            connect_timeout_ms=quorum.settings.request_timeout_ms,
        )
        replica = self.replica = Replica(host, log.cluster_id, log, quorum, connections, self.journal)
        server = Server(endpoint.name, self._routes(replica), limits=config.limits)
        listener = config.controller_listener
        await server.start(listener.host or None, listener.port)
        self._logger.info("listening listener=%s port=%d", listener.name, server.port)
        self.is_listening.set()
        try:
            await self._run_until_stopped(replica)
        finally:
            await server.close(timeout_ms=1000)
            await connections.close()

    async def _run_until_stopped(self, replica: Replica) -> None:
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(replica.run()),
                tasks.create_task(self._lead(replica)),
                tasks.create_task(self._keep_snapshots(replica)),
            ]
            await self._stopping.wait()
            await self._hand_over(replica)
            for task in running:
                task.cancel()

    def stop(self) -> None:
        """Asks the node to end; a leader first sees to it that there is another."""
        self._stopping.set()

    async def _hand_over(self, replica: Replica) -> None:
        if isinstance(replica.quorum.role, Leader) and len(replica.quorum.voters.latest) > 1:
            replica.resign()
            deadline = asyncio.get_running_loop().time() + 5.0
            while replica.quorum.leader_id in (-1, self._config.node_id):
                if asyncio.get_running_loop().time() >= deadline:
                    break
                await asyncio.sleep(0.02)

    # Requests

    def _routes(self, replica: Replica) -> RouteTable:
        async def ask(_context: RequestContext, _header: RequestHeader, request: Request) -> Response:
            return await replica.ask(request)

        def describe(
            _context: RequestContext, _header: RequestHeader, request: DescribeQuorumRequest
        ) -> DescribeQuorumResponse:
            return replica.describe(request)

        routes = [Route(request, ask) for request in _QUORUM_REQUESTS]
        routes.append(Route(DescribeQuorumRequest, describe))
        routes.append(Route(DescribeClusterRequest, self._describe_cluster))
        # what the reference calls levels: see docs/compatibility.md
        supported = {"kraft.version": range(2), "metadata.version": range(7, 31), "group.version": range(2)}
        return RouteTable(routes, Features(supported=supported))

    def _describe_cluster(
        self, _context: RequestContext, _header: RequestHeader, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        assert self.replica is not None
        quorum = self.replica.quorum
        response = DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            endpoint_type=_CONTROLLERS,
            cluster_id=self.replica.cluster_id,
            controller_id=quorum.leader_id,
            brokers=[],
        )
        if request.endpoint_type != _CONTROLLERS:
            response.error_code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            response.error_message = "this is a controller: ask for endpoint type 2"
            return response
        response.brokers = [
            DescribeClusterResponse.Broker(broker_id=voter.key.id, host=one.host, port=one.port)
            for voter in quorum.voters.latest
            for one in voter.endpoints[:1]
        ]
        return response

    # Duties

    async def _lead(self, replica: Replica) -> None:
        idle_s = self._config["metadata.max.idle.interval.ms"] / 1000
        nothing = encode_record(NoOpRecord(), 0)
        last_end_offset = -1
        bootstrapped_epoch = -1  # what was appended in it may not be committed yet
        while True:
            await asyncio.sleep(max(idle_s, 0.01))
            is_idle = replica.quorum.log.end_offset == last_end_offset
            last_end_offset = replica.quorum.log.end_offset
            leadership = self.journal.leadership
            if leadership.leader_id != self._config.node_id or not isinstance(replica.quorum.role, Leader):
                continue
            values = [nothing] if is_idle else []
            is_new = not self.journal.values and bootstrapped_epoch != leadership.epoch
            if is_new and replica.log.bootstrap_records:
                bootstrapped_epoch = leadership.epoch
                values = list(replica.log.bootstrap_records)
            if not values:
                continue
            try:
                last_end_offset = await replica.append(values, leadership.epoch) + 1
            except ApiError as error:
                self._logger.info("not appended epoch=%d reason=%s", leadership.epoch, error)

    async def _keep_snapshots(self, replica: Replica) -> None:
        interval_ms = self._config["metadata.log.max.snapshot.interval.ms"]
        bytes_max = self._config["metadata.log.max.record.bytes.between.snapshots"]
        loop = asyncio.get_running_loop()
        last, last_cleaned = loop.time(), loop.time()
        while True:
            await asyncio.sleep(_SNAPSHOT_CHECK_S)
            elapsed_ms = (loop.time() - last) * 1000
            is_due = self.journal.bytes_since_snapshot >= bytes_max
            is_due = is_due or (0 < interval_ms <= elapsed_ms and self.journal.bytes_since_snapshot > 0)
            if is_due:
                last = loop.time()
                await self.write_snapshot(replica)
            if is_due or (loop.time() - last_cleaned) * 1000 >= _RETENTION_CHECK_MS:
                last_cleaned = loop.time()
                await self.clean(replica)

    async def write_snapshot(self, replica: Replica) -> None:
        """A snapshot of what has been applied."""
        journal, quorum = self.journal, replica.quorum
        position = journal.position
        if position.offset <= quorum.log.start_offset or position in quorum.log.snapshots:
            return
        voters, kraft_version = quorum.voters.at(position.offset)
        journal.bytes_since_snapshot = 0
        values, timestamp_ms = list(journal.values), journal.last_timestamp_ms
        now_ms = self._host.wall_ms()
        await replica.log.write_snapshot(position, values, timestamp_ms, voters, kraft_version, now_ms)
        if position.offset < quorum.log.start_offset:
            return  # meanwhile a leader's snapshot took the place of the log; this one goes with the next
        quorum.log.add_snapshot(position)
        await self.clean(replica)
        self._logger.info("snapshot written snapshot=%s records=%d", position, len(values))

    async def clean(self, replica: Replica) -> None:
        """Removes snapshots and segments beyond the limits; the newest snapshot always stays."""
        config, quorum, now_ms = self._config, replica.quorum, self._host.wall_ms()
        start = replica.log.start_to_keep(
            bytes_max=config["metadata.max.retention.bytes"],
            age_ms_max=config["metadata.max.retention.ms"],
            now_ms=now_ms,
        )
        if start is not None:
            # The quorum first: it must not send anyone to what is being deleted.
            quorum.log.delete_before(start)
            quorum.voters.trim(start.offset)
            await replica.log.delete_before(start, now_ms)
            self._logger.info("log starts at=%s", start)
