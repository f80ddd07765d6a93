"""Controllers, asked directly: whoever leads them is found through any of them.

    async with Controllers([("127.0.0.1", 9093)]) as controllers:
        quorum = await controllers.describe()
        history = await controllers.read_log()

The log is read as an observer without a name, which no leader counts or remembers: nothing of the cluster is
changed by looking at it. What is not committed is not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import SystemRandom
from ssl import SSLContext
from types import TracebackType
from typing import Final, cast

from quorate.client.errors import Unavailable, code_of
from quorate.metadata.history import History
from quorate.net.client import ConnectionLost
from quorate.net.connections import Address, Connections
from quorate.protocol.api.admin import DescribeClusterRequest, DescribeClusterResponse
from quorate.protocol.api.produce_fetch import FetchRequest
from quorate.protocol.api.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FetchSnapshotRequest,
)
from quorate.protocol.batch import batches, read_header, validate
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Buffer
from quorate.raft import messages
from quorate.raft.positions import Position
from quorate.raft.voters import ReplicaKey
from quorate.raft.wire import METADATA_TOPIC, from_response, to_request

__all__ = ["Controllers", "Described"]

TIMEOUT_MS: Final = 10_000
FETCH_BYTES: Final = 8 << 20
LOG_BYTES_MAX: Final = 2 << 30  # that are kept in memory
_NOBODY: Final = ReplicaKey(-1)
_ROUNDS_MAX: Final = 5  # of looking for the leader

Described = DescribeQuorumResponse.TopicData.PartitionData


class Controllers:
    """The controllers of one cluster. Use it as a context manager, or `close` it."""

    def __init__(self, addresses: Sequence[Address], *, tls: SSLContext | None = None) -> None:
        self._addresses = list(addresses)
        self._connections = Connections(rng=SystemRandom(), client_id="quorate", tls=tls)
        self._leader: Address | None = None
        self.nodes: dict[int, Address] = {}  # where they are, as the leader says

    async def __aenter__(self) -> Controllers:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._connections.close()

    async def describe(self) -> Described:
        """What the leader says of the quorum. `Unavailable` if nobody answers; the last word of those who do
        if none of them leads."""
        partition = DescribeQuorumRequest.TopicData.PartitionData(partition_index=0)
        topic = DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        request = DescribeQuorumRequest(topics=[topic])
        queue, asked, problems = list(self._addresses), set[Address](), list[str]()
        refusal: ApiError | None = None
        while queue:
            address = queue.pop(0)
            if address in asked:
                continue
            asked.add(address)
            try:
                said = cast("DescribeQuorumResponse", await self._ask(address, request))
            except (ConnectionLost, ApiError) as error:
                problems.append(str(error))
                continue
            found = said.topics[0].partitions[0] if said.topics else None
            code = code_of(said.error_code or (found.error_code if found else 0))
            if found is not None and code is ErrorCode.NONE:
                self._learn(said, found.leader_id, address)
                return found
            words = (found.error_message if found else said.error_message) or code.name
            problems.append(f"{address[0]}:{address[1]}: {words}")
            refusal = ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "no controller leads: " + "; ".join(problems))
            queue += [(one.host, one.port) for node in said.nodes for one in node.listeners]
        if refusal is not None:
            raise refusal
        raise Unavailable("; ".join(problems))

    async def ask_leader(self, request: Request) -> Response:
        """The answer of the leader."""
        for _ in range(_ROUNDS_MAX):
            if self._leader is None:
                await self.describe()
            assert self._leader is not None
            response = await self._ask(self._leader, request)
            if code_of(getattr(response, "error_code", 0)) is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return response
            self._leader = None
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "the leader changes again and again")

    # The log

    async def read_log(self) -> History:
        """All that the leader has of the committed log, with the snapshot that it begins with if it does."""
        quorum = await self.describe()
        epoch, end_offset = quorum.leader_epoch, quorum.high_watermark
        log: list[Buffer] = []
        snapshot: list[Buffer] = []
        begun = Position(0, 0)
        offset, last_epoch, size_bytes = 0, 0, 0
        while offset < end_offset:
            answer = await self.fetch_log(epoch, offset, last_epoch)
            if answer.snapshot is not None:
                begun = answer.snapshot
                data = await self._read_snapshot(epoch, begun)
                snapshot, log = _batches(data), []
                offset, last_epoch = begun.offset, begun.epoch
                continue
            found = _batches(answer.records)
            if not found:
                break
            for batch in found:
                header = read_header(batch)
                if header.next_offset > end_offset:
                    break
                log.append(batch)
                size_bytes += len(batch)
                last_epoch = header.partition_leader_epoch
            offset = read_header(found[-1]).next_offset
            if size_bytes > LOG_BYTES_MAX:
                raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"a log of more than {LOG_BYTES_MAX} bytes")
        return History(log, snapshot, begun.offset, begun.epoch)

    async def fetch_log(
        self, epoch: int, offset: int, last_epoch: int, max_bytes: int = FETCH_BYTES
    ) -> messages.FetchAnswer:
        """What the leader of this epoch has from an offset on, or the snapshot that stands for it.

        `last_epoch` is that of the record before; the leader's own will do, since its log goes on from there.
        """
        ask = messages.Fetch(epoch, _NOBODY, offset, last_epoch, max_bytes=max_bytes)
        answer = from_response(ask, await self.ask_leader(_anonymous(to_request(ask, "", 0))))
        assert isinstance(answer, messages.FetchAnswer)
        _raise_error(answer)
        return answer

    async def fetch_snapshot(
        self, epoch: int, snapshot: Position, byte_position: int
    ) -> messages.SnapshotAnswer:
        """The bytes of a snapshot from a position on, as many as the leader gives at once."""
        ask = messages.FetchSnapshot(epoch, _NOBODY, snapshot, byte_position)
        answer = from_response(ask, await self.ask_leader(_anonymous(to_request(ask, "", 0))))
        assert isinstance(answer, messages.SnapshotAnswer)
        _raise_error(answer)
        return answer

    async def cluster_id(self) -> str:
        """Which cluster these are the controllers of."""
        request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
        said = cast("DescribeClusterResponse", await self.ask_leader(request))
        _raise_code(said.error_code, said.error_message)
        return said.cluster_id

    async def _read_snapshot(self, epoch: int, snapshot: Position) -> bytes:
        data = bytearray()
        while True:
            answer = await self.fetch_snapshot(epoch, snapshot, len(data))
            data += answer.data
            if len(data) >= answer.size_bytes or not answer.data:
                return bytes(data)
            if len(data) > LOG_BYTES_MAX:
                raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"more than {LOG_BYTES_MAX} bytes")

    async def _ask(self, address: Address, request: Request) -> Response:
        return await self._connections.request(address, request, timeout_ms=TIMEOUT_MS)

    def _learn(self, said: DescribeQuorumResponse, leader_id: int, address: Address) -> None:
        """Where everybody is. Who answers is the leader, or a broker that has asked it."""
        self.nodes = {
            node.node_id: (node.listeners[0].host, node.listeners[0].port)
            for node in said.nodes
            if node.listeners
        }
        self._leader = self.nodes.get(leader_id, address)


def _anonymous(request: Request) -> Request:
    """Of whatever cluster it is: we were told whom to ask, and not which one."""
    assert isinstance(request, (FetchRequest, FetchSnapshotRequest))
    request.cluster_id = None
    return request


def _raise_code(code: int, message: str | None) -> None:
    found = code_of(code)
    if found is not ErrorCode.NONE:
        raise ApiError(found, message or found.name)


def _raise_error(answer: messages.Answer) -> None:
    if answer.error is not ErrorCode.NONE:
        raise ApiError(answer.error, f"the log of the controllers: {answer.error.name}")


def _batches(data: Buffer) -> list[Buffer]:
    """Whole batches, their checksums checked."""
    view = memoryview(data)
    return [view[one.position : validate(view, one.position).end] for one in batches(data)]
