"""Topics come and go.

A topic is created by its TopicRecord, the records of its configuration and one record for each partition, in
this order. Each topic of a request succeeds or fails by itself; what succeeds stands in one batch. A topic
is deleted by one record: everything that belongs to it goes when that is applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from quorate.controller.assignment import check_assignment
from quorate.controller.configs import topic_config_entries, validate_topic_configs
from quorate.controller.decision import RECORDS_MAX, Decision, Situation, check_count
from quorate.controller.ids import new_id
from quorate.controller.mutation_quota import Account
from quorate.controller.placement import NewPartitions, place, usable_brokers
from quorate.controller.topic_names import METADATA_TOPIC, Collisions, check_name
from quorate.controller.topic_settings import MIN_ISR
from quorate.controller.wording import cut, shown
from quorate.metadata.image import TOPIC
from quorate.metadata.records import (
    ClearElrRecord,
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from quorate.metadata.topics import Topic
from quorate.protocol.api.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Record
from quorate.protocol.types import ZERO_UUID, Uuid

__all__ = ["check_partitions", "decide_create_topics", "decide_delete_topics", "open_account"]

_CREATE_STRICT_SINCE: Final = 6
_DELETE_STRICT_SINCE: Final = 5
_DELETE_MESSAGES_SINCE: Final = 5
_CONFIGS_IN_REPLY_SINCE: Final = 5
_DEFAULT: Final = -1  # for the number of partitions and of replicas: what is configured

_Asked = CreateTopicsRequest.CreatableTopic
_Created = CreateTopicsResponse.CreatableTopicResult
_Deleted = DeleteTopicsResponse.DeletableTopicResult


def decide_create_topics(situation: Situation, request: CreateTopicsRequest) -> Decision:
    return _Creation(situation, request).decide()


def open_account(situation: Situation, strict_since: int) -> Account:
    """What the partitions that a request creates or deletes are charged to."""
    if situation.mutations is None:
        return Account()
    asker = situation.asker
    return situation.mutations.open(
        situation.image.quotas,
        asker.principal,
        asker.client_id,
        situation.now_ms,
        is_strict=asker.api_version >= strict_since,
    )


def check_partitions(count: int) -> None:
    """A request for too many partitions fails as a whole, before any are placed."""
    if count > RECORDS_MAX:
        reason = f"this asks for {count} partitions; one request may have {RECORDS_MAX}: ask for less at once"
        raise ApiError(ErrorCode.POLICY_VIOLATION, reason)


class _Creation:
    """One request, and what it comes to so far."""

    def __init__(self, situation: Situation, request: CreateTopicsRequest) -> None:
        self.situation = situation
        self.image = situation.image
        self.request = request
        self.records: list[Record] = []
        self.account = open_account(situation, _CREATE_STRICT_SINCE)
        self.collisions = Collisions(situation.image.topics.by_name)
        self.new_partitions = NewPartitions(situation.image)
        self.usable = usable_brokers(situation.image)
        self.ids: set[Uuid] = set()
        self.described: dict[tuple[tuple[str, str], ...], list[_Created.CreatableTopicConfigs]] = {}

    def decide(self) -> Decision:
        repeated = Counter(topic.name for topic in self.request.topics)
        topics = {topic.name: topic for topic in self.request.topics}
        check_partitions(sum(self._count(topic) for name, topic in topics.items() if repeated[name] == 1))
        results = []
        for name, topic in topics.items():
            try:
                if repeated[name] > 1:
                    raise ApiError(
                        ErrorCode.INVALID_REQUEST, f"topic {shown(name)} stands in the request twice"
                    )
                results.append(self._create(topic))
            except ApiError as error:
                results.append(_Created(name=name, error_code=error.code, error_message=cut(error.message)))
        check_count(self.records)
        reply = CreateTopicsResponse(throttle_time_ms=self.account.throttle_time_ms, topics=results)
        records = () if self.request.validate_only else self.records
        return Decision(reply=reply, records=records, is_atomic=True)

    def _count(self, topic: _Asked) -> int:
        if topic.assignments:
            return len(topic.assignments)
        wanted = topic.num_partitions
        return self.situation.settings.num_partitions if wanted == _DEFAULT else max(0, wanted)

    def _create(self, topic: _Asked) -> _Created:
        self._check_name(topic.name)
        configs = _configs(topic)
        topic_id = new_id(self.situation.random, self.image.topics.by_id, self.ids)
        partitions = self._assigned(topic, topic_id) if topic.assignments else self._placed(topic, topic_id)
        self.account.charge(len(partitions))
        self.ids.add(topic_id)
        self.records.append(TopicRecord(name=topic.name, topic_id=topic_id))
        self.records += (
            ConfigRecord(resource_type=TOPIC, resource_name=topic.name, name=name, value=value)
            for name, value in configs.items()
        )
        if MIN_ISR in configs and self.image.is_elr_enabled:
            self.records.append(ClearElrRecord(topic_name=topic.name))
        self.records += partitions
        return _Created(
            name=topic.name,
            topic_id=topic_id,
            error_code=ErrorCode.NONE,
            error_message=None,
            num_partitions=len(partitions),
            replication_factor=len(partitions[0].replicas),
            configs=self._describe(configs),
        )

    def _check_name(self, name: str) -> None:
        if name == METADATA_TOPIC:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is the log of the cluster itself")
        if name in self.image.topics.by_name:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {shown(name)} exists already")
        check_name(name)
        other = self.collisions.find(name)
        if other is not None:
            reason = f"topic {shown(name)} collides with {shown(other)}: metrics do not tell . and _ apart"
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)

    def _assigned(self, topic: _Asked, topic_id: Uuid) -> Sequence[PartitionRecord]:
        """The partitions as the request assigns them."""
        if topic.replication_factor != _DEFAULT or topic.num_partitions != _DEFAULT:
            reason = "replicas are assigned by hand: then num_partitions and replication_factor must be -1"
            raise ApiError(ErrorCode.INVALID_REQUEST, reason)
        partitions: dict[int, PartitionRecord] = {}
        replicas: int | None = None
        for one in topic.assignments:
            if one.partition_index in partitions:
                raise _bad_assignment(f"partition {one.partition_index} is assigned twice")
            check_assignment(self.image, one.broker_ids, replicas)
            replicas = len(one.broker_ids)
            record = self.new_partitions.record(topic_id, one.partition_index, list(one.broker_ids))
            if record is None:
                raise _bad_assignment(
                    f"all brokers of partition {one.partition_index} are fenced or shutting down:"
                    f" {one.broker_ids}"
                )
            partitions[one.partition_index] = record
        if any(partition_id not in partitions for partition_id in range(len(partitions))):
            raise _bad_assignment("the partitions must be numbered 0, 1, 2 and so on, without a gap")
        return [partitions[partition_id] for partition_id in range(len(partitions))]

    def _placed(self, topic: _Asked, topic_id: Uuid) -> Sequence[PartitionRecord]:
        """The partitions where we think best."""
        settings = self.situation.settings
        replicas, count = topic.replication_factor, topic.num_partitions
        if replicas == 0 or replicas < _DEFAULT:
            reason = f"a replication factor of {replicas}: it must be 1 or more, or -1 for the default"
            raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
        if count == 0 or count < _DEFAULT:
            reason = f"{count} partitions: there must be 1 or more, or -1 for the default"
            raise ApiError(ErrorCode.INVALID_PARTITIONS, reason)
        count = settings.num_partitions if count == _DEFAULT else count
        replicas = settings.default_replication_factor if replicas == _DEFAULT else replicas
        placed = place(self.usable, count, replicas, self.situation.random)
        partitions = []
        for partition_id, brokers in enumerate(placed):
            record = self.new_partitions.record(topic_id, partition_id, brokers)
            assert record is not None, "whoever is placed first is active"
            partitions.append(record)
        return partitions

    def _describe(self, configs: dict[str, str]) -> list[_Created.CreatableTopicConfigs]:
        """What the reply tells of the configuration; topics with the same one share it."""
        if self.situation.asker.api_version < _CONFIGS_IN_REPLY_SINCE:
            return []
        key = tuple(configs.items())
        if key not in self.described:
            self.described[key] = topic_config_entries(self.image, self.situation.settings, configs)
        return self.described[key]


def _configs(topic: _Asked) -> dict[str, str]:
    given = {one.name: one.value for one in topic.configs}
    configs = {name: value for name, value in given.items() if value is not None}
    if len(configs) < len(given):
        empty = ", ".join(name for name in given if name not in configs)
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"the value of {empty} is null: leave it out for the default"
        )
    validate_topic_configs(configs)
    return configs


def _bad_assignment(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


# Deleting


def decide_delete_topics(situation: Situation, request: DeleteTopicsRequest) -> Decision:
    """Topics are named, or given by their ids; one that is both, or twice, is not deleted."""
    if not situation.settings.delete_topic_enable:
        reason = "topics cannot be deleted: delete.topic.enable is false on the controllers"
        is_known = situation.asker.api_version >= 3
        code = ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST
        raise ApiError(code, reason)
    account = open_account(situation, _DELETE_STRICT_SINCE)
    asked = Counter((one.name, one.topic_id) for one in request.topics)
    asked.update((name, ZERO_UUID) for name in request.topic_names)
    references = Counter(_find(situation, *reference) for reference in asked)
    results: list[_Deleted] = []
    records: list[Record] = []
    for (name, topic_id), times in asked.items():
        topic = _find(situation, name, topic_id)
        result = _Deleted(name=name, topic_id=topic_id, error_code=ErrorCode.NONE)
        if topic is not None:
            if references[topic] > 1 and name is None:
                continue  # it is answered where it is named
            result.name, result.topic_id = topic.name, topic.id
        try:
            _check_reference(name, topic_id, times)
            if topic is None:
                raise _unknown(name, topic_id)
            if references[topic] > 1:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"topic {shown(topic.name)} is given by its id as well"
                )
            account.charge(situation.image.partitions.count_of(topic.slot))
            records.append(RemoveTopicRecord(topic_id=topic.id))
        except ApiError as error:
            result.error_code = error.code
            if situation.asker.api_version >= _DELETE_MESSAGES_SINCE:
                result.error_message = cut(error.message)
        results.append(result)
    check_count(records)
    reply = DeleteTopicsResponse(throttle_time_ms=account.throttle_time_ms, responses=results)
    return Decision(reply=reply, records=records, is_atomic=True)


def _find(situation: Situation, name: str | None, topic_id: Uuid) -> Topic | None:
    topics = situation.image.topics
    if name is not None:
        return topics.by_name.get(name) if topic_id == ZERO_UUID else None
    return topics.by_id.get(topic_id)


def _check_reference(name: str | None, topic_id: Uuid, times: int) -> None:
    problem = None
    if name is None and topic_id == ZERO_UUID:
        problem = "a topic is given neither by its name nor by its id"
    elif name is not None and topic_id != ZERO_UUID:
        problem = f"topic {shown(name)} is given by its name and by an id: choose one"
    elif times > 1:
        problem = f"topic {topic_id if name is None else shown(name)} stands in the request {times} times"
    if problem:
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)


def _unknown(name: str | None, topic_id: Uuid) -> ApiError:
    if name is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id}")
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {shown(name)}")
