"""In which log directory a replica is: the controller must know, or it cannot tell what a failed disk takes.

Whatever the metadata has wrong (a broker with several directories has chosen one, or a disk was replaced) is
reported: what is newest for each replica, one request at a time, again until the metadata says so as well. A
replica that is believed to be in a directory that is not online can never lead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from quorate.broker.partition import TopicPartition
from quorate.client.errors import code_of
from quorate.metadata.partitions import UNASSIGNED
from quorate.net.connections import Backoff
from quorate.node.controller_channel import ControllerChannel
from quorate.protocol.api.brokers import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid

__all__ = ["DirectoryAssignments"]

GATHERING_S: Final = 0.1  # many come together
ASSIGNMENTS_MAX: Final = 2250  # in one request
TIMEOUT_MS: Final = 60_000

DirectoryData = AssignReplicasToDirsRequest.DirectoryData


class DirectoryAssignments:
    """`run` reports for as long as the broker runs. `is_ours` says whether we still have a replica."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        is_ours: Callable[[TopicPartition], bool],
        channel: ControllerChannel,
        random: Random,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._is_ours = is_ours
        self._channel = channel
        self._random = random
        self._backoff = Backoff(first_ms=100, max_ms=10_000)
        self._pending: dict[TopicPartition, Uuid] = {}
        self._wake = asyncio.Event()
        self._logger = logging.getLogger(f"quorate.broker.{broker_id}")

    def __len__(self) -> int:
        return len(self._pending)

    def note(self, key: TopicPartition, *, actual: Uuid, known: Uuid) -> None:
        """A replica is in one directory, and in another as far as the metadata knows; or in the same."""
        if actual in (known, UNASSIGNED):
            self._pending.pop(key, None)
        else:
            self._pending[key] = actual
            self._wake.set()

    async def run(self) -> None:
        failures, said = 0, ""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(GATHERING_S)
            while self._pending:
                try:
                    await self._report()
                    failures, said = 0, ""
                except ApiError as error:
                    failures += 1
                    if str(error) != said:
                        said = str(error)
                        self._logger.info("directories of replicas not reported reason=%s", error)
                    await asyncio.sleep(self._backoff.delay_ms(failures, self._random) / 1000)

    async def _report(self) -> None:
        """Reports some. `ApiError` if anything of it has to be reported again."""
        self._pending = {key: one for key, one in self._pending.items() if self._is_ours(key)}
        chosen = list(self._pending.items())[:ASSIGNMENTS_MAX]
        if not chosen:
            return
        response = await self._channel.ask(self._request(chosen), timeout_ms=TIMEOUT_MS)
        assert isinstance(response, AssignReplicasToDirsResponse)
        if response.error_code:
            raise ApiError(code_of(response.error_code), "the controller refused all of it")
        codes = {
            (directory.id, topic.topic_id, one.partition_index): code_of(one.error_code)
            for directory in response.directories
            for topic in directory.topics
            for one in topic.partitions
        }
        refused = ErrorCode.NONE
        for key, directory_id in chosen:
            code = codes.get((directory_id, key.topic_id, key.partition_id), ErrorCode.UNKNOWN_SERVER_ERROR)
            if code is not ErrorCode.NONE:
                refused = code
                self._pending[key] = self._pending.pop(key, directory_id)  # others come first
            elif self._pending.get(key) == directory_id:
                del self._pending[key]
        if refused is not ErrorCode.NONE:
            raise ApiError(refused, "the controller refused some of it")

    def _request(self, chosen: Sequence[tuple[TopicPartition, Uuid]]) -> AssignReplicasToDirsRequest:
        directories: dict[Uuid, dict[Uuid, list[int]]] = {}
        for key, directory_id in chosen:
            directories.setdefault(directory_id, {}).setdefault(key.topic_id, []).append(key.partition_id)
        data = DirectoryData.TopicData
        return AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                DirectoryData(
                    id=directory_id,
                    topics=[
                        data(
                            topic_id=topic_id,
                            partitions=[data.PartitionData(partition_index=one) for one in partition_ids],
                        )
                        for topic_id, partition_ids in topics.items()
                    ],
                )
                for directory_id, topics in directories.items()
            ],
        )
