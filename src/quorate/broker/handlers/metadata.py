"""What clients ask first: which brokers are there, which topics, and who leads their partitions.

Everything is answered from this broker's image of the cluster, for the listener that the client came in by.
Who asks for a topic by name hears of it once this broker has carried out that it was created.
Topics that a client may not see look as if they did not exist, or are left out where all are asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, cast

from quorate.broker.handlers.own_view import OwnView
from quorate.broker.handlers.partition_rows import Described, Part, described_page, described_partitions
from quorate.broker.handlers.topic_creation import INTERNAL_TOPICS, TopicCreation
from quorate.broker.listeners import Reachable
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.controller.endpoint_types import EndpointType, refused_endpoint_type
from quorate.controller.topic_names import check_name
from quorate.metadata.topics import Topic
from quorate.net.many import FEW
from quorate.net.routes import Answer, RequestContext, Route
from quorate.net.slices import Work, in_slices
from quorate.protocol.api.admin import DescribeClusterRequest, DescribeClusterResponse
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.topics import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.items import EncodedItems
from quorate.protocol.types import ZERO_UUID, Uuid

__all__ = ["CLUSTER_NAME", "Metadata", "authorized_operations"]

CLUSTER_NAME: Final = "kafka-cluster"  # as a resource, every cluster is called so
PAGE_PARTITIONS_MAX: Final = 2000  # max.request.partition.size.limit
_TOPIC_BYTES: Final = 16  # of an answer: what is said at least of a topic that is asked for
_NOT_ASKED: Final = -0x80000000
_NO_CONTROLLER: Final = -1
_BY_ID_SINCE: Final = 12

# What can be done to a resource, as bits are set for it.
_OPERATIONS: Final = {
    ResourceKind.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceKind.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceKind.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}

_Topic = MetadataResponse.Topic
_TopicPage = DescribeTopicPartitionsResponse.Topic


def authorized_operations(broker: Broker, context: RequestContext, kind: int, name: str) -> int:
    """What an asker may do to a resource, as bits."""
    allowed = [one for one in _OPERATIONS[kind] if broker.authorize(context, one, kind, name)]
    return sum(1 << one for one in allowed)


class Metadata:
    """`routes` are Metadata, DescribeTopicPartitions and DescribeCluster."""

    def __init__(self, broker: Broker, creation: TopicCreation, own_view: OwnView) -> None:
        self._broker = broker
        self._creation = creation
        self._own_view = own_view

    def routes(self) -> list[Route]:
        return [
            Route(MetadataRequest, self.metadata),
            Route(DescribeTopicPartitionsRequest, self.describe_topic_partitions),
            Route(DescribeClusterRequest, self.describe_cluster),
        ]

    # Metadata

    def metadata(
        self, context: RequestContext, header: RequestHeader, request: MetadataRequest
    ) -> Answer | Awaitable[Answer]:
        version = header.request_api_version
        refused = _refusal(request, version)
        if refused is not None:
            return refused
        return in_slices(self._metadata(context, version, request))

    def _metadata(
        self, context: RequestContext, version: int, request: MetadataRequest
    ) -> Work[MetadataResponse]:
        others: list[_Topic] | EncodedItems = []
        if request.topics is None or (version == 0 and not request.topics):
            found = self._all(context)
        else:
            found, others = yield from self._asked(context, version, request, request.topics)
            if self._own_view.is_any_coming(found):
                yield self._own_view.catches_up()
                # The cluster is described as it is then.
                found, others = yield from self._asked(context, version, request, request.topics)
        reachable = Reachable(self._broker.image, context.listener)
        found, gone = self._still_there(found)
        topics = self._described(context, request, reachable, found, version)
        by_id = {one.topic_id for one in request.topics or ()} if gone else set()
        topics += [
            _failed(ErrorCode.UNKNOWN_TOPIC_ID, None, one.id)
            if one.id in by_id
            else _failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, one.name)
            for one in gone
        ]
        if isinstance(others, EncodedItems):
            for one in topics:
                others.add(one)
            topics = cast("list[_Topic]", others.taken())
        else:
            topics += others
        return MetadataResponse(
            brokers=self._brokers(reachable),
            cluster_id=self._broker.settings.cluster_id,
            controller_id=self._controller_id(reachable),
            topics=topics,
            cluster_authorized_operations=self._cluster_operations(
                context, request.include_cluster_authorized_operations
            ),
        )

    def _still_there(self, topics: Sequence[Topic]) -> tuple[list[Topic], list[Topic]]:
        """Those of some topics that there still are, and the others. Where they were looked for in several
        slices, one can have been deleted since, and its place in the image can be another's by now."""
        by_id = self._broker.image.topics.by_id
        there = [by_id[one.id] for one in topics if one.id in by_id]
        return there, [one for one in topics if one.id not in by_id]

    def _all(self, context: RequestContext) -> list[Topic]:
        partitions = self._broker.image.partitions
        return [
            topic
            for topic in self._broker.image.topics
            if self._may_describe(context, topic.name) and partitions.count_of(topic.slot)
        ]

    def _asked(
        self,
        context: RequestContext,
        version: int,
        request: MetadataRequest,
        asked: Sequence[MetadataRequest.Topic],
    ) -> Work[tuple[list[Topic], list[_Topic] | EncodedItems]]:
        """The topics that there are, and what there is to say about the others."""
        others: list[_Topic] = []
        if len(asked) <= FEW:
            return (yield from self._named(context, request, asked, others.append)), others
        context.expect(_TOPIC_BYTES * len(asked))
        encoded = EncodedItems(_Topic, MetadataResponse, version)
        return (yield from self._named(context, request, asked, encoded.add)), encoded

    def _named(
        self,
        context: RequestContext,
        request: MetadataRequest,
        asked: Iterable[MetadataRequest.Topic],
        say: Callable[[_Topic], object],
    ) -> Work[list[Topic]]:
        """The topics that there are. What there is to say about the others is said."""
        image = self._broker.image
        found: dict[str, Topic] = {}
        unknown: dict[str, None] = {}
        for one in _distinct(asked):
            yield None
            if isinstance(one, Uuid):
                topic = image.topics.by_id.get(one)
                if topic is None:
                    say(_failed(ErrorCode.UNKNOWN_TOPIC_ID, None, one))
                elif not self._may_describe(context, topic.name):
                    say(_failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, one))
                else:
                    found[topic.name] = topic
                continue
            topic = image.topics.by_name.get(one)
            if not self._may_describe(context, one):
                say(_failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, one, is_internal=False))
            elif topic is None or not image.partitions.count_of(topic.slot):
                unknown[one] = None
            else:
                found[one] = topic
        yield from self._absent(context, request, unknown, say)
        return list(found.values())

    def _absent(
        self,
        context: RequestContext,
        request: MetadataRequest,
        names: Iterable[str],
        say: Callable[[_Topic], object],
    ) -> Work[None]:
        """Says what there is to say of topics that do not exist; they are created if everybody wants that."""
        is_creating = request.allow_auto_topic_creation and self._broker.settings.auto_create_topics_enable
        creatable = []
        for name in names:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if is_creating and not self._may_create(context, name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not _is_legal(name):
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif is_creating:
                creatable.append(name)
            say(_failed(code, name))
            yield None
        if creatable:
            self._creation.begin(creatable, context)

    def _described(
        self,
        context: RequestContext,
        request: MetadataRequest,
        reachable: Reachable,
        topics: Sequence[Topic],
        version: int,
    ) -> list[_Topic]:
        described = described_partitions(self._broker.image, reachable, topics, version)
        asks_operations = request.include_topic_authorized_operations
        return [
            _Topic(
                error_code=ErrorCode.NONE,
                name=topic.name,
                topic_id=topic.id,
                is_internal=topic.name in INTERNAL_TOPICS,
                partitions=cast("Any", partitions),
                topic_authorized_operations=self._operations(context, topic.name)
                if asks_operations
                else _NOT_ASKED,
            )
            for topic, partitions in zip(topics, described, strict=True)
        ]

    def _brokers(self, reachable: Reachable) -> list[MetadataResponse.Broker]:
        """Those that are alive; or this one, if none is and so neither is this, as one that is about to go.
        librdkafka takes an empty list for the truth, forgets the last broker, and never comes back."""
        brokers = self._broker.image.brokers
        own_id = self._broker.settings.broker_id
        shown = reachable.alive or ([own_id] if own_id in reachable.endpoints else [])
        return [
            MetadataResponse.Broker(
                node_id=one,
                host=reachable.endpoints[one].host,
                port=reachable.endpoints[one].port,
                rack=brokers[one].rack,
            )
            for one in shown
        ]

    def _controller_id(self, reachable: Reachable) -> int:
        """Whom clients take for the controller: the broker that is it; or any, where what only the controller
        can do is forwarded."""
        controller_id = self._broker.controller_id
        if controller_id is not None:
            return found if (found := controller_id()) in reachable.alive else _NO_CONTROLLER
        return self._broker.random.choice(reachable.alive) if reachable.alive else _NO_CONTROLLER

    # DescribeTopicPartitions

    def describe_topic_partitions(
        self, context: RequestContext, _header: RequestHeader, request: DescribeTopicPartitionsRequest
    ) -> Answer | Awaitable[Answer]:
        """A page: topics by their names, from where the cursor is, as many partitions as may be."""
        context.expect(_TOPIC_BYTES * len(request.topics))
        return in_slices(self._described_page(context, request))

    def _described_page(
        self, context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> Work[DescribeTopicPartitionsResponse]:
        names = [one.name for one in request.topics]
        cursor = request.cursor
        is_all = not names
        if is_all:
            names = list(self._broker.image.topics.by_name)
        first_name = "" if cursor is None else cursor.topic_name
        wanted = sorted({name for name in names if name >= first_name})
        if cursor is not None and (cursor.partition_index < 0 or not (is_all or first_name in wanted)):
            return _refused_page(request)
        visible = {name: self._may_describe(context, name) for name in wanted}
        hidden = [] if is_all else [name for name in wanted if not visible[name]]
        first_id = 0 if cursor is None else cursor.partition_index
        limit = max(0, min(request.response_partition_limit, PAGE_PARTITIONS_MAX))
        topics, next_cursor = yield from self._page(
            context, list(filter(visible.get, wanted)), (first_name, first_id), limit, is_all=is_all
        )
        return DescribeTopicPartitionsResponse(
            throttle_time_ms=0,
            topics=topics
            + [
                _described_topic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, is_internal=False)
                for name in hidden
            ],
            next_cursor=next_cursor,
        )

    def _page(
        self,
        context: RequestContext,
        names: Sequence[str],
        start: tuple[str, int],
        limit: int,
        *,
        is_all: bool,
    ) -> Work[tuple[list[_TopicPage], DescribeTopicPartitionsResponse.Cursor | None]]:
        """Topics, and where the next page begins."""
        image, left = self._broker.image, limit
        parts: list[Part] = []
        said: list[Part | _TopicPage] = []
        next_cursor = None
        for name in names:
            yield None
            if left == 0:
                next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=0)
                break
            topic = image.topics.by_name.get(name)
            if topic is None:
                if not is_all:
                    said.append(self._absent_page(context, name))
                continue
            first = start[1] if name == start[0] else 0
            count = image.partitions.count_of(topic.slot)
            part = Part(topic, min(first, count), min(first + left, count))
            parts.append(part)
            said.append(part)
            if part.end < count:
                next_cursor = DescribeTopicPartitionsResponse.Cursor(
                    topic_name=name, partition_index=part.end
                )
                break
            left -= part.end - part.first
        _, gone = self._still_there([one.topic for one in parts])
        parts = [one for one in parts if one.topic not in gone]
        described = iter(described_page(image, Reachable(image, context.listener), parts))
        topics = []
        for one in said:
            if not isinstance(one, Part):
                topics.append(one)
            elif one.topic not in gone:
                topics.append(self._topic_page(context, one.topic, next(described)))
            elif not is_all:
                topics.append(self._absent_page(context, one.topic.name))
        return topics, next_cursor

    def _absent_page(self, context: RequestContext, name: str) -> _TopicPage:
        absent = _described_topic(_absence(name), name)
        absent.topic_authorized_operations = self._operations(context, name)
        return absent

    def _topic_page(self, context: RequestContext, topic: Topic, partitions: Described) -> _TopicPage:
        return _TopicPage(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=cast("Any", partitions),
            topic_authorized_operations=self._operations(context, topic.name),
        )

    # DescribeCluster

    def describe_cluster(
        self, context: RequestContext, header: RequestHeader, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        refused = refused_endpoint_type(request, header.request_api_version, EndpointType.BROKER)
        if refused is not None:
            return refused
        response = DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            endpoint_type=EndpointType.BROKER,
            cluster_id=self._broker.settings.cluster_id,
            brokers=[],
        )
        image = self._broker.image
        reachable = Reachable(image, context.listener)
        shown = list(reachable.endpoints) if request.include_fenced_brokers else reachable.alive
        response.controller_id = self._controller_id(reachable)
        response.brokers = [
            DescribeClusterResponse.Broker(
                broker_id=one,
                host=reachable.endpoints[one].host,
                port=reachable.endpoints[one].port,
                rack=image.brokers[one].rack,
                is_fenced=image.brokers[one].is_fenced,
            )
            for one in shown
        ]
        response.cluster_authorized_operations = self._cluster_operations(
            context, request.include_cluster_authorized_operations
        )
        return response

    # Who may

    def _may_describe(self, context: RequestContext, topic: str) -> bool:
        return self._broker.authorize(context, Operation.DESCRIBE, ResourceKind.TOPIC, topic)

    def _may_create(self, context: RequestContext, topic: str) -> bool:
        may = self._broker.authorize
        return may(context, Operation.CREATE, ResourceKind.CLUSTER, CLUSTER_NAME) or may(
            context, Operation.CREATE, ResourceKind.TOPIC, topic
        )

    def _operations(self, context: RequestContext, topic: str) -> int:
        return authorized_operations(self._broker, context, ResourceKind.TOPIC, topic)

    def _cluster_operations(self, context: RequestContext, is_asked: bool) -> int:
        if not is_asked:
            return _NOT_ASKED
        if not self._broker.authorize(context, Operation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME):
            return 0
        return authorized_operations(self._broker, context, ResourceKind.CLUSTER, CLUSTER_NAME)


def _distinct(asked: Iterable[MetadataRequest.Topic]) -> Iterable[str | Uuid]:
    """Each topic that is asked for once: its id, if it has one, else its name."""
    return dict.fromkeys(
        one.topic_id if one.name is None or one.topic_id != ZERO_UUID else one.name for one in asked
    )


def _is_legal(name: str) -> bool:
    try:
        check_name(name)
    except ApiError:
        return False
    return True


def _absence(name: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if _is_legal(name) else ErrorCode.INVALID_TOPIC_EXCEPTION


def _failed(
    code: ErrorCode, name: str | None, topic_id: Uuid = ZERO_UUID, *, is_internal: bool | None = None
) -> _Topic:
    """A topic that nothing is said of but an error."""
    shown = name in INTERNAL_TOPICS if is_internal is None else is_internal
    return _Topic(error_code=code, name=name, topic_id=topic_id, is_internal=shown, partitions=[])


def _refusal(request: MetadataRequest, version: int) -> MetadataResponse | None:
    """Versions 10 and 11 have ids of topics, but cannot be asked for them."""
    asked = request.topics or ()
    if version >= _BY_ID_SINCE or all(one.name is not None and one.topic_id == ZERO_UUID for one in asked):
        return None
    return MetadataResponse(
        brokers=[],
        topics=[_failed(ErrorCode.INVALID_REQUEST, one.name or "", is_internal=False) for one in asked],
        error_code=ErrorCode.INVALID_REQUEST,
    )


def _described_topic(code: ErrorCode, name: str, *, is_internal: bool | None = None) -> _TopicPage:
    shown = name in INTERNAL_TOPICS if is_internal is None else is_internal
    return _TopicPage(error_code=code, name=name, topic_id=ZERO_UUID, is_internal=shown, partitions=[])


def _refused_page(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """A cursor must point at something that is asked for. There is no error for the whole."""
    return DescribeTopicPartitionsResponse(
        throttle_time_ms=0,
        topics=[
            _described_topic(ErrorCode.INVALID_REQUEST, one.name, is_internal=False) for one in request.topics
        ],
    )
