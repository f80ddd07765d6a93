"""Proposals for in-sync replicas on their way to the controller: one request at a time, with the newest
proposal of each partition, until the controller has answered."""

from __future__ import annotations

import asyncio
from typing import Final

from quorate.broker.control_plane import ControlPlane, IsrAnswer
from quorate.broker.leadership import Proposal
from quorate.broker.partition import Partition, TopicPartition
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["IsrProposals"]

RETRY_S: Final = 0.05
PROPOSALS_MAX: Final = 5_000  # in one request

# The controller knows better, and its metadata is on its way: nothing to do but wait for it.
_WAIT_FOR_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
# What was proposed is not possible now; the ISR stays, and may be proposed again.
_REFUSED: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})


class IsrProposals:
    """`run` sends them for as long as the broker runs."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self._pending: dict[TopicPartition, tuple[Partition, Proposal]] = {}
        self._wake = asyncio.Event()

    def add(self, partition: Partition, proposal: Proposal) -> None:
        self._pending[partition.key] = partition, proposal
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                if not await self._send():
                    await asyncio.sleep(RETRY_S)

    async def _send(self) -> bool:
        """Sends what is pending; False if it must be sent again."""
        chosen = [
            (key, partition, proposal)
            for key, (partition, proposal) in self._pending.items()
            if _is_current(partition, proposal)
        ][:PROPOSALS_MAX]
        self._pending = {
            key: (partition, proposal)
            for key, (partition, proposal) in self._pending.items()
            if _is_current(partition, proposal)
        }
        if not chosen:
            return True
        try:
            answers = await self._control_plane.propose([(key, proposal) for key, _, proposal in chosen])
        except ApiError:
            return False
        if isinstance(answers, ErrorCode):
            return False
        is_done = True
        for key, partition, proposal in chosen:
            answer = answers.get(key)
            if answer is None or not _settle(partition, proposal, answer):
                is_done = False
            elif self._pending.get(key, (None, None))[1] is proposal:
                del self._pending[key]
        return is_done


def _is_current(partition: Partition, proposal: Proposal) -> bool:
    leading = partition.leading
    return leading is not None and leading.proposal is proposal


def _settle(partition: Partition, proposal: Proposal, answer: IsrAnswer) -> bool:
    """Takes an answer in. False if the proposal must be sent again."""
    if not _is_current(partition, proposal):
        return True
    assert partition.leading is not None
    if answer.error is ErrorCode.NONE:
        partition.isr_answered(answer.isr, answer.partition_epoch, is_recovering=answer.is_recovering)
        return True
    if answer.error in _REFUSED:
        partition.leading.refused()
        return True
    return answer.error in _WAIT_FOR_METADATA
