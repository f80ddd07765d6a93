"""What a fetch has found of its partitions, and how that is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quorate.broker.fetch_sessions import FetchRound, Wanted
from quorate.broker.handlers.whereabouts import LEADER_ERRORS, Leaders
from quorate.broker.partition import Partition
from quorate.broker.replica_selection import NO_PREFERENCE
from quorate.broker.serving import Broker
from quorate.protocol.api.produce_fetch import FetchResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import Uuid
from quorate.storage.epochs import EpochEnd
from quorate.storage.file_ranges import FileRange
from quorate.storage.indexes import AbortedTransaction

__all__ = ["PARTITION_BYTES", "Found", "fetch_answer", "refused"]

PARTITION_BYTES: Final = 40  # of an answer, around the records of a partition, about

_STORAGE_ERRORS_SINCE: Final = 6
_LEADERS_SINCE: Final = 16

TopicAnswer = FetchResponse.FetchableTopicResponse
PartitionAnswer = TopicAnswer.PartitionData


class Found:
    """What there is to say of one partition."""

    __slots__ = (
        "aborted",
        "diverging",
        "error",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "partition",
        "preferred",
        "records",
        "wanted",
    )

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.partition: Partition | None = None
        self.leader_epoch = -1
        self.error: ErrorCode | None = None
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.diverging: EpochEnd | None = None
        self.preferred = NO_PREFERENCE  # the replica to read from instead
        self.records: FileRange | None = None
        self.aborted: list[AbortedTransaction] | None = None

    @property
    def is_said_anyway(self) -> bool:
        """Whether it is more than high watermark and log start, of which only what is new is said."""
        return self.diverging is not None or self.preferred != NO_PREFERENCE


def refused(error: ApiError) -> FetchResponse:
    return FetchResponse(error_code=error.code, session_id=0, responses=[])


def fetch_answer(
    all_found: list[Found],
    wanted_round: FetchRound,
    session_id: int,
    version: int,
    broker: Broker,
    listener: str,
    topic_name: Callable[[str | Uuid], str],
) -> FetchResponse:
    """The answer to a whole fetch. What it says counts as told."""
    leaders: Leaders | None = None  # of what we do not lead
    uses_topic_ids, is_incremental = wanted_round.uses_topic_ids, wanted_round.is_incremental
    responses: list[TopicAnswer] = []
    moved = []
    for found in all_found:
        wanted = found.wanted
        if found.error is not None:
            wanted.tell_error()
            answer = _error_answer(wanted, found.error, version)
            if version >= _LEADERS_SINCE and answer.error_code in LEADER_ERRORS:
                leaders = leaders or Leaders(broker, listener)
                _name_leader(answer, leaders, topic_name(wanted.key[0]))
        else:
            has_news = wanted.tell(found.high_watermark, found.log_start_offset)
            if found.records is not None:
                moved.append(wanted)
            elif is_incremental and not has_news and not found.is_said_anyway:
                continue
            answer = _partition_answer(found)
        if not responses or not _is_of(responses[-1], wanted, uses_topic_ids):
            responses.append(TopicAnswer(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[]))
        responses[-1].partitions.append(answer)
    wanted_round.last(moved)
    return FetchResponse(
        session_id=session_id,
        responses=responses,
        node_endpoints=[] if leaders is None else leaders.endpoints(FetchResponse.NodeEndpoint),
    )


def _error_answer(wanted: Wanted, code: ErrorCode, version: int) -> PartitionAnswer:
    if code is ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERRORS_SINCE:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return PartitionAnswer(
        partition_index=wanted.partition_id,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def _name_leader(answer: PartitionAnswer, leaders: Leaders, topic: str) -> None:
    leader = leaders.of(topic, answer.partition_index)
    if leader is not None:
        answer.current_leader = PartitionAnswer.LeaderIdAndEpoch(
            leader_id=leader.broker_id, leader_epoch=leader.epoch
        )


def _partition_answer(found: Found) -> PartitionAnswer:
    answer = PartitionAnswer(
        partition_index=found.wanted.partition_id,
        error_code=0,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted_transactions=None,
        records=b"" if found.records is None else found.records,
    )
    if found.aborted is not None:
        answer.aborted_transactions = [
            PartitionAnswer.AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
            for one in found.aborted
        ]
    if found.preferred != NO_PREFERENCE:
        answer.preferred_read_replica = found.preferred
    if found.diverging is not None:
        answer.diverging_epoch = PartitionAnswer.EpochEndOffset(
            epoch=found.diverging.epoch, end_offset=found.diverging.end_offset
        )
    return answer


def _is_of(answer: TopicAnswer, wanted: Wanted, uses_topic_ids: bool) -> bool:
    return answer.topic_id == wanted.topic_id if uses_topic_ids else answer.topic == wanted.topic
