"""Reads a range of offsets of one partition, whatever happens to its leaders meanwhile.

What comes out are the batches as the broker stores them, part by part and in order. The next part is asked
for before this one is given out, so that it is under way while this one is decoded.

Offsets that the log no longer has, at its beginning, in its middle or at its end, are an error that names
them, or are passed over if the options say so. A topic that is compacted has holes by nature.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, cast

from quorate.client.admin import Admin, Resource, ResourceKind
from quorate.client.cluster import LeaderOf
from quorate.client.errors import code_of
from quorate.client.fetched import Fetched, fetched
from quorate.client.offsets import EARLIEST, LATEST, list_offsets
from quorate.protocol.api.produce_fetch import FetchRequest, FetchResponse
from quorate.protocol.batch import BatchHeader, batches
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Response
from quorate.protocol.types import ZERO_UUID, Buffer
from quorate.spark.topic_client import Client
from quorate.spark.topic_offsets import DataLossError, TopicChangedError, TopicRange, check_id
from quorate.spark.topic_options import TopicOptions

__all__ = ["Part", "RangeReader"]

# The last version that names topics; later ones know them by id only.
_LAST_VERSION_BY_NAME: Final = 12
_MAX_WAIT_MS: Final = 500
# A new leader learns only after a moment how far its log is committed; what is lost, it never finds.
_MISSING_WAIT_MS: Final = 10_000
_MISSING_PAUSE_MS: Final = 200
_PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


class Part(NamedTuple):
    """What one fetch brought, and all batches that stand in it, for whoever they are."""

    fetched: Fetched
    stored: Sequence[BatchHeader]


class RangeReader:
    """Reads one range, once."""

    def __init__(self, client: Client, whole: TopicRange, options: TopicOptions) -> None:
        self._client = client
        self._cluster = client.cluster
        self._range = whole
        self._options = options
        # A broker may keep a fetch waiting, and what is asked after it on the same connection.
        self._connections = client.cluster.open_connections()
        self._is_compacted: bool | None = None
        # Where the log begins, if that is after the beginning of the range.
        self.log_start_offset = 0
        # Whether records of aborted transactions are left out.
        self.hides_aborted = bool(options.isolation)

    def parts(self) -> Iterator[Part]:
        """The parts of the range, until its end is reached or the log has no more of it."""
        end_offset = self._range.end_offset
        position = self._range.start_offset
        asked: asyncio.Task[_PartitionData | None] | None = None
        try:
            self._client.run(self._check_topic())
            while position < end_offset:
                data = self._client.wait(asked or self._client.start(self._fetch(position)))
                asked = None
                if data is None:
                    return
                # A batch can begin before the log does: what was deleted of it is still in its bytes.
                position = max(position, self.log_start_offset)
                content = cast("Buffer", data.records)
                stored = list(batches(content))
                next_offset = stored[-1].next_offset
                if next_offset < end_offset:
                    asked = self._client.start(self._fetch(next_offset))
                    self._client.turn()
                self._check_holes(position, stored)
                yield Part(self._fetched(position, content, data), stored)
                position = next_offset
        finally:
            self._client.run(self._end(asked))

    def is_compacted(self) -> bool:
        """Whether holes are what the topic is for; also if nobody may tell us."""
        if self._is_compacted is None:
            self._is_compacted = self._client.run(self._ask_policy())
        return self._is_compacted

    # How

    def _fetched(self, position: int, content: Buffer, data: _PartitionData) -> Fetched:
        aborted = (data.aborted_transactions or ()) if self._options.isolation else ()
        try:
            return fetched(
                self._range.at,
                position,
                content,
                aborted=[(one.producer_id, one.first_offset) for one in aborted],
                high_watermark=data.high_watermark,
                last_stable_offset=data.last_stable_offset,
                log_start_offset=data.log_start_offset,
            )
        except ApiError as error:
            raise ApiError(error.code, f"{self._range}, from {position}: {error.message}") from None

    def _check_holes(self, position: int, stored: Sequence[BatchHeader]) -> None:
        """Between batches there is nothing, unless the topic is compacted or something was lost."""
        for one in stored:
            if one.base_offset > position and self._options.fail_on_data_loss and not self.is_compacted():
                self._lose(position, one.base_offset, "nothing stands there, and the topic is not compacted")
            position = one.next_offset

    def _lose(self, start_offset: int, end_offset: int, why: str) -> None:
        if self._options.fail_on_data_loss:
            lost = f"offsets {start_offset} to {end_offset - 1} of {self._range.at} are lost"
            raise DataLossError(f"{lost}: {why}")

    async def _fetch(self, position: int) -> _PartitionData | None:
        """What stands at a position or after it; None if the rest of the range is not there any more."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + min(self._options.deadline_ms, _MISSING_WAIT_MS) / 1000
        while True:
            try:
                data = await self._ask(position)
                if data.records and _holds_batch(cast("Buffer", data.records)):
                    return data
                reason = "the log ends before them"  # or its new leader does not yet know how far it goes
            except ApiError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                begin, end = await self._limits()
                if position < begin:
                    stop = min(begin, self._range.end_offset)
                    self._lose(position, stop, f"the log begins at {begin} by now")
                    self.log_start_offset = position = begin
                    if begin >= self._range.end_offset:
                        return None
                    continue
                reason = f"the log ends at {end}"
            if loop.time() >= give_up_at:
                self._lose(position, self._range.end_offset, reason)
                return None
            await asyncio.sleep(_MISSING_PAUSE_MS / 1000)

    async def _ask(self, position: int) -> _PartitionData:
        at = self._range.at
        known = self._cluster.metadata.topics.get(at.topic)
        topic_id = ZERO_UUID if known is None else known.id
        limit_bytes = self._options.fetch_bytes_max
        asked = FetchRequest.Topic.Partition(
            partition=at.partition, fetch_offset=position, partition_max_bytes=limit_bytes
        )
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=limit_bytes,
            isolation_level=self._options.isolation,
            topics=[FetchRequest.Topic(topic=at.topic, topic_id=topic_id, partitions=[asked])],
        )
        try:
            response = await self._cluster.request(
                LeaderOf(*at),
                request,
                version_cap=_LAST_VERSION_BY_NAME if topic_id == ZERO_UUID else None,
                error_of=lambda said: check_id(self._cluster, at.topic, str(topic_id), _error_of(said)),
                connections=self._connections,
            )
        except TopicChangedError as error:
            raise DataLossError(f"{self._range}: {error}") from None
        return cast("FetchResponse", response).responses[0].partitions[0]

    async def _end(self, asked: asyncio.Task[_PartitionData | None] | None) -> None:
        if asked is not None:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        await self._cluster.close_connections(self._connections)

    async def _limits(self) -> tuple[int, int]:
        at = self._range.at
        begin = await list_offsets(self._cluster, {at: EARLIEST})
        end = await list_offsets(self._cluster, {at: LATEST}, isolation_level=self._options.isolation)
        return begin[at].offset, end[at].offset

    async def _check_topic(self) -> None:
        """A topic that was created anew has other records at the same offsets."""
        known = await self._cluster.topic(self._range.topic)
        if str(known.id) != self._range.topic_id:
            await self._cluster.refresh(self._range.topic)
            known = await self._cluster.topic(self._range.topic)
        if str(known.id) != self._range.topic_id:
            raise DataLossError(
                f"{self._range}: the topic with id {self._range.topic_id} was deleted; the one of that name"
                f" has id {known.id}"
            )

    async def _ask_policy(self) -> bool:
        topic = Resource(ResourceKind.TOPIC, self._range.topic)
        try:
            configs = await Admin(self._cluster).describe_configs(topic, ["cleanup.policy"])
        except ApiError:
            return True
        policy = configs["cleanup.policy"].value if "cleanup.policy" in configs else "compact"
        return "compact" in (policy or "")


def _holds_batch(content: Buffer) -> bool:
    return next(iter(batches(content)), None) is not None


def _error_of(response: Response) -> ErrorCode:
    said = cast("FetchResponse", response)
    if said.error_code:
        return code_of(said.error_code)
    if not said.responses or not said.responses[0].partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return code_of(said.responses[0].partitions[0].error_code)
