"""Topics get more partitions; never fewer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from quorate.controller.assignment import check_assignment
from quorate.controller.decision import Decision, Situation, check_count
from quorate.controller.placement import NewPartitions, place, usable_brokers
from quorate.controller.topics import check_partitions, open_account
from quorate.controller.wording import cut, shown
from quorate.metadata.topics import Topic
from quorate.protocol.api.topics import CreatePartitionsRequest, CreatePartitionsResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Record

__all__ = ["decide_create_partitions"]

_STRICT_SINCE: Final = 3

_Asked = CreatePartitionsRequest.Topic
_Result = CreatePartitionsResponse.TopicResult


def decide_create_partitions(situation: Situation, request: CreatePartitionsRequest) -> Decision:
    """Each topic succeeds or fails by itself; what succeeds stands in one batch."""
    growth = _Growth(situation)
    repeated = Counter(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}
    check_partitions(sum(growth.count(topic) for name, topic in topics.items() if repeated[name] == 1))
    results = []
    for name, topic in topics.items():
        try:
            if repeated[name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"topic {shown(name)} stands in the request twice")
            growth.grow(topic)
            results.append(_Result(name=name, error_code=ErrorCode.NONE))
        except ApiError as error:
            results.append(_Result(name=name, error_code=error.code, error_message=cut(error.message)))
    check_count(growth.records)
    reply = CreatePartitionsResponse(throttle_time_ms=growth.account.throttle_time_ms, results=results)
    return Decision(reply=reply, records=() if request.validate_only else growth.records, is_atomic=True)


class _Growth:
    """One request, and what it comes to so far."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.image = situation.image
        self.account = open_account(situation, _STRICT_SINCE)
        self.new_partitions = NewPartitions(situation.image)
        self.usable = usable_brokers(situation.image)
        self.records: list[Record] = []

    def count(self, asked: _Asked) -> int:
        """How many partitions a topic would get."""
        topic = self.image.topics.by_name.get(asked.name)
        return 0 if topic is None else max(0, asked.count - self.image.partitions.count_of(topic.slot))

    def grow(self, asked: _Asked) -> None:
        topic = self.image.topics.by_name.get(asked.name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {shown(asked.name)}")
        first = self.image.partitions.count_of(topic.slot)
        added = asked.count - first
        if added <= 0:
            reason = (
                f"topic {shown(topic.name)} has {first} partitions already, and {asked.count} are not more"
            )
            raise ApiError(ErrorCode.INVALID_PARTITIONS, reason)
        if asked.assignments is not None and len(asked.assignments) != added:
            reason = (
                f"{added} partitions would be added, but {len(asked.assignments)} are assigned to brokers"
            )
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        self.account.charge(added)
        records = []
        for partition_id, replicas in enumerate(self._replicas(topic, asked, added), first):
            record = self.new_partitions.record(topic.id, partition_id, replicas)
            if record is None:
                reason = f"all brokers of partition {partition_id} are fenced or shutting down: {replicas}"
                raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
            records.append(record)
        self.records += records

    def _replicas(self, topic: Topic, asked: _Asked, added: int) -> Sequence[list[int]]:
        existing = self.image.partitions.get(topic.slot, 0)
        assert existing is not None, f"topic {topic.name} has no partitions"
        # One that is being moved has its old replicas besides the new ones.
        wanted = len(existing.replicas) - len(existing.removing)
        if asked.assignments is None:
            return place(self.usable, added, wanted, self.situation.random)
        for one in asked.assignments:
            check_assignment(self.image, one.broker_ids, wanted)
        return [list(one.broker_ids) for one in asked.assignments]
