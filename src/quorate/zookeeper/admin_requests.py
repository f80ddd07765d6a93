"""What clients ask of the controller: topics, partitions, elections, reassignments; and what brokers do:
producer ids.

What may be done is decided as in KRaft mode. The records of the decision are not written to a log but to
znodes, and everything else follows from these.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from quorate.controller.decision import Asker, Situation
from quorate.controller.partitions_of_topics import decide_create_partitions
from quorate.controller.producer_ids import BLOCK_SIZE
from quorate.controller.reassignment import describe_reassignments
from quorate.controller.topics import decide_create_topics, decide_delete_topics
from quorate.metadata.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from quorate.protocol.api.brokers import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
)
from quorate.protocol.api.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from quorate.protocol.api.zookeeper_era import ControlledShutdownRequest
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Request, Response
from quorate.protocol.types import Uuid
from quorate.zookeeper import paths, znodes
from quorate.zookeeper.broker_changes import shut_down
from quorate.zookeeper.controller import Controller
from quorate.zookeeper.errors import BadVersion, MalformedZnode, NodeExists, ZooKeeperError
from quorate.zookeeper.isr_changes import alter_partitions
from quorate.zookeeper.jute import Content, Get, Set
from quorate.zookeeper.preferred import elect_leaders
from quorate.zookeeper.reassignments import cancel, go_on, move, write_topic
from quorate.zookeeper.situation import image_of, situation_of
from quorate.zookeeper.znodes import PartitionAssignment, ProducerIdBlock, TopicNode

__all__ = ["ANSWERED", "answer"]

_INT64_MAX: Final = (1 << 63) - 1

_logger = logging.getLogger("quorate.zookeeper")


async def answer(controller: Controller, request: Request, asker: Asker) -> Response:
    """The controller's answer, when it is its turn. Raises `ApiError` for the request as a whole."""
    work = ANSWERED[type(request)]
    response: Response = await controller.ask(lambda: work(controller, request, asker))
    return response


def _situation(controller: Controller, topics: list[str], asker: Asker) -> Situation:
    office = controller.office
    image = image_of(office, topics)
    return situation_of(image, office.settings.controller, office.random, office.wall_ms(), asker)


# Topics


async def _create_topics(
    controller: Controller, request: CreateTopicsRequest, asker: Asker
) -> CreateTopicsResponse:
    decision = decide_create_topics(_situation(controller, [], asker), request)
    reply = decision.reply
    assert isinstance(reply, CreateTopicsResponse)
    names: dict[Uuid, str] = {}
    nodes: dict[str, TopicNode] = {}
    configs: dict[str, dict[str, str]] = {}
    for record in decision.records:
        if isinstance(record, TopicRecord):
            names[record.topic_id] = record.name
            nodes[record.name], configs[record.name] = TopicNode(record.topic_id), {}
        elif isinstance(record, ConfigRecord) and record.value is not None:
            configs[record.resource_name][record.name] = record.value
        elif isinstance(record, PartitionRecord):
            assignment = PartitionAssignment(tuple(record.replicas))
            nodes[names[record.topic_id]].partitions[record.partition_id] = assignment
    created = []
    for name, node in nodes.items():
        try:
            await _write_new_topic(controller, name, node, configs[name])
            created.append(name)
        except NodeExists:
            result = next(one for one in reply.topics if one.name == name)
            result.error_code = ErrorCode.TOPIC_ALREADY_EXISTS
            result.error_message = f"topic {name} exists already"
    await controller.watch_topics(created)
    await controller.begin_partitions(created)
    return reply


async def _write_new_topic(
    controller: Controller, name: str, node: TopicNode, config: Mapping[str, str]
) -> None:
    """Its configuration first: once the topic is there, it has one. What is left of an earlier topic of the
    name, whose deletion or creation was cut short, is written over."""
    office = controller.office
    path = paths.config(f"{paths.CONFIG_TOPICS}/{name}")
    (made,) = await office.fence.write_all([office.create(path, znodes.config(config))])
    if isinstance(made, NodeExists):
        await office.fence.write(Set(path, znodes.config(config)))
    elif isinstance(made, ZooKeeperError):
        raise made
    await office.fence.write(office.create(paths.topic(name), node.encode()))


async def _create_partitions(
    controller: Controller, request: CreatePartitionsRequest, asker: Asker
) -> CreatePartitionsResponse:
    office = controller.office
    context = office.context
    names = [one.name for one in request.topics]
    for name in names:
        if name in office.deleting:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} is being deleted")
    decision = decide_create_partitions(_situation(controller, names, asker), request)
    grown: dict[str, None] = {}
    for record in decision.records:
        if isinstance(record, PartitionRecord):
            name = context.names[record.topic_id]
            context.assign((name, record.partition_id), PartitionAssignment(tuple(record.replicas)))
            grown[name] = None
    for name in grown:
        await write_topic(office, context.topics[name])
    await controller.begin_partitions(list(grown))
    assert isinstance(decision.reply, CreatePartitionsResponse)
    return decision.reply


async def _delete_topics(
    controller: Controller, request: DeleteTopicsRequest, asker: Asker
) -> DeleteTopicsResponse:
    office = controller.office
    names = [one.name or office.context.names.get(one.topic_id, "") for one in request.topics]
    situation = _situation(controller, [*names, *request.topic_names], asker)
    for name in office.deleting:  # to clients they are gone
        if (known := situation.image.topics.by_name.get(name)) is not None:
            situation.image.topics.remove(known.id)
    decision = decide_delete_topics(situation, request)
    marked = [
        office.context.names[record.topic_id]
        for record in decision.records
        if isinstance(record, RemoveTopicRecord)
    ]
    for result in await office.fence.write_all(
        [office.create(paths.topic_deletion(name), None) for name in marked]
    ):
        if isinstance(result, ZooKeeperError) and not isinstance(result, NodeExists):
            raise result
    controller.deletions.mark(marked)
    await controller.deletions.resume()
    assert isinstance(decision.reply, DeleteTopicsResponse)
    return decision.reply


# Elections and reassignments


async def _elect_leaders(controller: Controller, request: ElectLeadersRequest, _: Asker) -> Response:
    return await elect_leaders(controller.office, request)


async def _reassign(
    controller: Controller, request: AlterPartitionReassignmentsRequest, _: Asker
) -> AlterPartitionReassignmentsResponse:
    office = controller.office
    topic_result = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
    responses = []
    for topic in request.topics:
        results = []
        for one in topic.partitions:
            key = topic.name, one.partition_index
            code, message = ErrorCode.NONE, None
            try:
                if one.replicas is None:
                    await cancel(office, key)
                else:
                    await move(office, key, one.replicas, image_of(office, []))
            except ApiError as error:
                code, message = error.code, error.message
            results.append(
                topic_result.ReassignablePartitionResponse(
                    partition_index=one.partition_index, error_code=code, error_message=message
                )
            )
        responses.append(topic_result(name=topic.name, partitions=results))
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=responses,
    )


async def _list_reassignments(
    controller: Controller, request: ListPartitionReassignmentsRequest, _: Asker
) -> ListPartitionReassignmentsResponse:
    office = controller.office
    moving = dict.fromkeys(topic for topic, _ in office.context.moving)
    return describe_reassignments(image_of(office, moving), request)


# What brokers ask


async def _alter_partition(controller: Controller, request: AlterPartitionRequest, asker: Asker) -> Response:
    response, changed = await alter_partitions(controller.office, request, asker.api_version)
    moving = [key for key in changed if key in controller.office.context.moving]
    if moving:
        controller.put(
            f"arrivals {moving[0]} {len(moving)}", lambda: go_on(controller.office, moving)
        )  # the leader need not wait for it
    return response


async def _shut_down(controller: Controller, request: ControlledShutdownRequest, _: Asker) -> Response:
    return await shut_down(controller.office, request)


async def _allocate_producer_ids(
    controller: Controller, request: AllocateProducerIdsRequest, _: Asker
) -> AllocateProducerIdsResponse:
    """The block after the newest one. Its node is written on condition of its version, so no two are given
    the same; a block whose answer is lost is lost as well."""
    office = controller.office
    member = office.context.members.get(request.broker_id)
    if member is None or member.epoch != request.broker_epoch:
        registered = "is not registered" if member is None else f"is registered at {member.epoch}"
        reason = f"broker {request.broker_id} sent epoch {request.broker_epoch}, but it {registered}"
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, reason)
    while True:
        found: Content = await office.session.ask(Get(paths.PRODUCER_IDS))
        try:
            first = ProducerIdBlock.read(paths.PRODUCER_IDS, found.data).last + 1 if found.data else 0
        except MalformedZnode as error:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        if first > _INT64_MAX - BLOCK_SIZE:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"all producer ids up to {first} are used up")
        block = ProducerIdBlock(request.broker_id, first, first + BLOCK_SIZE - 1)
        try:
            await office.fence.write(Set(paths.PRODUCER_IDS, block.encode(), found.stat.version))
        except BadVersion:
            continue
        return AllocateProducerIdsResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            producer_id_start=first,
            producer_id_len=BLOCK_SIZE,
        )


ANSWERED: Final[Mapping[type[Request], Callable[[Controller, Any, Asker], Awaitable[Response]]]] = {
    CreateTopicsRequest: _create_topics,
    CreatePartitionsRequest: _create_partitions,
    DeleteTopicsRequest: _delete_topics,
    ElectLeadersRequest: _elect_leaders,
    AlterPartitionReassignmentsRequest: _reassign,
    ListPartitionReassignmentsRequest: _list_reassignments,
    AlterPartitionRequest: _alter_partition,
    ControlledShutdownRequest: _shut_down,
    AllocateProducerIdsRequest: _allocate_producer_ids,
}
