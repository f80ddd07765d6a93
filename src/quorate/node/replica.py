"""The shell around `raft.Quorum`: one task that makes a step, performs its effects, and makes the next.

Inputs come from everywhere (requests of peers, answers, syncs that are done, the state machine above) and
wait in one queue, so steps never overlap. What waits for the disk or for a peer runs beside it and comes back
as an input; only the election state is waited for, because nothing may leave before it is on disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from quorate.net.client import ConnectionLost
from quorate.net.connections import Connections
from quorate.node.host import Host
from quorate.node.metadata_log import MetadataLog
from quorate.protocol.api.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from quorate.protocol.errors import ApiError, ErrorCode, ProtocolError
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Buffer
from quorate.raft import wire
from quorate.raft.describe import describe_quorum
from quorate.raft.effects import Effects, Leadership, ReadLog, Reply, Send
from quorate.raft.messages import Answer, FetchAnswer, SnapshotAnswer, Vote, VoteAnswer
from quorate.raft.positions import Position
from quorate.raft.quorum import Now, Quorum
from quorate.storage.errors import StorageError

__all__ = ["Replica", "StateMachine"]

# Errors that do not go away by themselves: somebody has the wrong directory or the wrong address.
_MISCONFIGURED: Final = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_VOTER_KEY})

Step = Callable[[Now], Effects]


class StateMachine(Protocol):
    """What is replicated: told of committed records in order, and of who leads."""

    def load(self, snapshot: Position, batches: Sequence[Buffer]) -> None:
        """Forget everything; this is the state up to a snapshot."""

    def apply(self, batch: Buffer) -> None:
        """One more committed batch, control batches included."""

    def lead(self, leadership: Leadership) -> None: ...


class Replica:
    """One replica of the metadata log, running. `run` lasts until it is cancelled, or something is fatal."""

    def __init__(
        self,
        host: Host,
        cluster_id: str,
        log: MetadataLog,
        quorum: Quorum,
        connections: Connections,
        machine: StateMachine,
    ) -> None:
        self.cluster_id = cluster_id
        self.log = log
        self.quorum = quorum
        self.machine = machine
        self.applied_offset = -1  # nothing yet, not even a snapshot
        self._host = host
        self._connections = connections
        self._steps: deque[Step] = deque()
        self._wake = asyncio.Event()
        self._flush_wanted = asyncio.Event()
        self._logger = logging.getLogger(f"quorate.raft.{host.name}")
        self._not_running: set[int] = set()  # peers that refused to be connected to when they were asked last
        self._refused_by: set[tuple[int, ErrorCode]] = set()  # what was said about it is not said again
        self._tasks: asyncio.TaskGroup | None = None

    def now(self) -> Now:
        return Now(asyncio.get_running_loop().time() * 1000, self._host.wall_ms())

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._flush())
            await self._perform(self.quorum.start(self.log.election_state, self.now()))
            due_ms = self.quorum.deadline_ms
            while True:
                await self._wait_until(due_ms)
                while self._steps:
                    await self._perform(self._steps.popleft()(self.now()))
                now, due_ms = self.now(), self.quorum.deadline_ms
                if due_ms <= now.ms:
                    await self._perform(self.quorum.tick(now))
                    due_ms = self.quorum.deadline_ms

    # Inputs

    def step(self, step: Step) -> None:
        """Puts an input at the end of the queue."""
        self._steps.append(step)
        self._wake.set()

    async def ask(self, request: Request, version: int) -> Response:
        """The response to a request of a peer, now or when it is due."""
        try:
            ask = wire.from_request(request, self.cluster_id)
        except ApiError as error:
            return wire.refusal(request, error)
        token: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.step(lambda now: self.quorum.receive(token, ask, now))
        return wire.to_response(request, await token, version)

    def describe(self, request: DescribeQuorumRequest, version: int) -> DescribeQuorumResponse:
        return describe_quorum(self.quorum, request, version, self.now())

    async def append(self, values: Sequence[bytes], epoch: int) -> int:
        """Appends records as the leader of an epoch; returns the offset of the last, not committed yet."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def step(now: Now) -> Effects:
            try:
                offset, effects = self.quorum.append(values, epoch, now)
            except ApiError as error:
                if not done.done():
                    done.set_exception(error)
                return Effects()
            if not done.done():
                done.set_result(offset)
            return effects

        self.step(step)
        return await done

    def may_elect(self) -> bool:
        """Whether a majority of voters may be there, ourselves included: without one nobody is elected."""
        voters = self.quorum.voters.latest
        there = [one for one in voters if one.key.id not in self._not_running]
        return len(there) >= voters.majority

    def resign(self) -> None:
        self.step(self.quorum.resign)

    # Effects

    async def _wait_until(self, due_ms: float) -> None:
        """Until there is something to do, at the latest when something is due."""
        if not self._steps:
            self._wake.clear()
            delay_ms = due_ms - self.now().ms
            try:
                async with asyncio.timeout(max(0.0, delay_ms / 1000) if delay_ms != float("inf") else None):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _perform(self, effects: Effects) -> None:
        """In the order that `raft.effects` demands."""
        if effects.persist is not None:
            voters = self.quorum.voters
            await self.log.persist(effects.persist, voters.latest, voters.kraft_version)
        if effects.truncate is not None:
            self._logger.info("truncate end_offset=%d epoch=%d", effects.truncate, self.quorum.epoch)
            await self.log.truncate(effects.truncate)
        if effects.append:
            self.log.append(effects.append, self._host.wall_ms())
            self._flush_wanted.set()
        if effects.chunk is not None:
            self.log.store_chunk(effects.chunk)
        if effects.install is not None:
            await self._install(effects.install)
        for send in effects.send:
            self._create_task(self._send(send))
        for reply in effects.reply:
            self._reply(reply)
        if effects.committed is not None:
            self._apply(effects.committed)
        if effects.leadership is not None:
            self._lead(effects.leadership)

    def _create_task(self, coroutine: object) -> None:
        assert self._tasks is not None
        self._tasks.create_task(coroutine)  # type: ignore[arg-type]

    async def _flush(self) -> None:
        """Syncs whatever has been appended, again and again; appends go on meanwhile."""
        while True:
            await self._flush_wanted.wait()
            self._flush_wanted.clear()
            end_offset, generation = self.quorum.log.end_offset, self.quorum.log.generation
            await self.log.flush()
            self.step(lambda now, end=end_offset, of=generation: self.quorum.flushed(end, of, now))  # type: ignore[misc]

    async def _send(self, send: Send) -> None:
        answer: Answer | None
        try:
            cls = wire.request_class_of(send.ask)
            request = wire.to_request(send.ask, self.cluster_id, cls.__versions__[-1])
            endpoint = send.to.endpoint
            timeout_ms = self.quorum.settings.request_timeout_ms
            response = await self._connections.request(
                (endpoint.host, endpoint.port), request, timeout_ms=timeout_ms
            )
            answer = wire.from_response(send.ask, response)
            self._warn_of_refusal(send, answer)
            self._not_running.discard(send.to.id)
        except ConnectionLost as error:
            answer = None
            if isinstance(error.__cause__, ConnectionRefusedError):
                self._not_running.add(send.to.id)
            else:
                self._not_running.discard(send.to.id)
        except ProtocolError as error:
            answer = None
            if isinstance(send.ask, Vote) and error.position is None:
                # It could not be encoded: the peer is older than pre-votes.
                answer = VoteAnswer(ErrorCode.UNSUPPORTED_VERSION)
        except ApiError:
            answer = None
        self.step(lambda now: self.quorum.answered(send.number, answer, now))

    def _warn_of_refusal(self, send: Send, answer: Answer) -> None:
        refused = send.to.id, answer.error
        if answer.error in _MISCONFIGURED and refused not in self._refused_by:
            self._refused_by.add(refused)
            at = send.to.endpoint
            reason = f"{type(send.ask).__name__} peer={send.to.id} address={at.host}:{at.port}"
            self._logger.warning("refused %s error=%s", reason, answer.error.name)

    def _reply(self, reply: Reply) -> None:
        token = reply.token
        assert isinstance(token, asyncio.Future)
        if token.done():
            return  # the peer has gone
        token.set_result(self._filled(reply))

    def _filled(self, reply: Reply) -> Answer:
        """The answer with what it needs from disk."""
        answer, read = reply.answer, reply.read
        if read is None:
            return answer
        if isinstance(read, ReadLog):
            assert isinstance(answer, FetchAnswer)
            try:
                return replace(answer, records=self.log.read(read.offset, read.max_bytes))
            except ApiError as error:
                return FetchAnswer(error.code, answer.epoch, answer.leader_id)  # it was deleted just now
        assert isinstance(answer, SnapshotAnswer)
        found = self.log.read_snapshot(read.snapshot, read.byte_position, read.max_bytes)
        if found is None:
            return replace(answer, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        size_bytes, data = found
        if read.byte_position >= size_bytes:
            return replace(answer, error=ErrorCode.POSITION_OUT_OF_RANGE, size_bytes=size_bytes)
        return replace(answer, size_bytes=size_bytes, data=data)

    async def _install(self, snapshot: Position) -> None:
        try:
            voters, kraft_version = await self.log.install(snapshot, self._host.wall_ms())
        except StorageError as error:
            self._logger.warning("snapshot refused snapshot=%s reason=%s", snapshot, error)
            await self._perform(self.quorum.install_failed(self.now()))
            return
        self._logger.info("snapshot installed snapshot=%s", snapshot)
        await self._perform(self.quorum.installed(snapshot, voters, kraft_version, self.now()))

    # The state machine

    def _apply(self, high_watermark: int) -> None:
        """Hands over what is committed and not applied yet: a snapshot first, if the log begins later."""
        snapshot = self.quorum.log.latest_snapshot
        start_offset = self.quorum.log.start_offset
        if self.applied_offset < max(0, start_offset) or self.applied_offset < 0:
            if snapshot is not None and snapshot.offset > 0 and snapshot.offset <= high_watermark:
                self.machine.load(snapshot, self.log.snapshot_batches(snapshot))
                self.applied_offset = snapshot.offset
            else:
                self.applied_offset = start_offset
        while self.applied_offset < high_watermark:
            for batch, next_offset in self.log.batches(self.applied_offset, high_watermark):
                self.machine.apply(batch)
                self.applied_offset = next_offset

    def _lead(self, leadership: Leadership) -> None:
        leader = "nobody" if leadership.leader_id is None else leadership.leader_id
        role = type(self.quorum.role).__name__
        self._logger.info("leadership epoch=%d leader=%s role=%s", leadership.epoch, leader, role)
        self.machine.lead(leadership)
