"""Topics that come into being because somebody asked for them.

The asker is told at once that the topic is not there, and asks again; meanwhile the active controller makes
it, in the asker's name. A name is on its way once, however many ask for it. For a topic that cannot be made
clients ask several times per second: the log says why when that begins, when the reason is another one, and
every ten minutes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import field
from math import inf
from typing import Final

from quorate.broker.handlers.forwarding import Forwarder
from quorate.broker.settings import BrokerSettings
from quorate.net.routes import RequestContext
from quorate.protocol.api.topics import CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.values import dataclass

__all__ = ["INTERNAL_TOPICS", "InternalTopic", "TopicCreation"]

NAMES_MAX: Final = 10_000  # on their way at a time; more are not asked for
REFUSED_MAX: Final = 10_000  # of which it is remembered why they could not be made
SAID_AGAIN_S: Final = 600
_TIMEOUT_MS: Final = 30_000
_SEGMENT_BYTES: Final = str(100 << 20)


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic that the cluster itself writes to. The defaults are Kafka's."""

    partitions: int = 50
    replicas: int = 3
    configs: Mapping[str, str] = field(default_factory=dict)


INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def _internal_topics(settings: BrokerSettings) -> Mapping[str, InternalTopic]:
    """What each of them is made with."""
    return {
        "__consumer_offsets": InternalTopic(
            settings.offsets_topic_partitions,
            settings.offsets_topic_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.offsets_topic_segment_bytes),
            },
        ),
        "__transaction_state": InternalTopic(
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "2",
                "segment.bytes": _SEGMENT_BYTES,
                "unclean.leader.election.enable": "false",
            }
        ),
        "__share_group_state": InternalTopic(
            configs={
                "cleanup.policy": "delete",
                "compression.type": "uncompressed",
                "min.insync.replicas": "2",
                "retention.ms": "-1",
                "segment.bytes": _SEGMENT_BYTES,
            }
        ),
    }


class TopicCreation:
    """Creates topics on demand. `close` gives up what is under way."""

    def __init__(
        self,
        settings: BrokerSettings,
        forwarder: Forwarder,
    ) -> None:
        self._settings = settings
        self._forwarder = forwarder
        self._internal = _internal_topics(settings)
        self._names: set[str] = set()  # on their way
        self._refused: dict[
            str, tuple[str, float]
        ] = {}  # why, as the log says, for those that could not be made last time
        self._tasks: set[asyncio.Task[None]] = set()
        self._logger = logging.getLogger(f"quorate.broker.{settings.broker_id}")

    def begin(self, names: Collection[str], context: RequestContext) -> None:
        """Asks for topics with good names, unless they are on their way. Nobody waits for it."""
        room = NAMES_MAX - len(self._names)
        fresh = [name for name in dict.fromkeys(names) if name not in self._names][: max(room, 0)]
        if not fresh:
            return
        self._names.update(fresh)
        task = asyncio.get_running_loop().create_task(self._create(fresh, context))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _create(self, names: list[str], context: RequestContext) -> None:
        request = CreateTopicsRequest(topics=[self._topic(name) for name in names], timeout_ms=_TIMEOUT_MS)
        try:
            response = await self._forwarder.forward(
                request, self._version(), context.principal, context.client_id, context.client_host
            )
            assert isinstance(response, CreateTopicsResponse)
            for one in response.topics:
                self._report(one)
        except ApiError as error:
            fresh = [name for name in names if self._is_news(name, str(error))]
            if fresh:
                self._logger.warning("topics not created topics=%s reason=%s", ",".join(fresh), error)
        finally:
            self._names.difference_update(names)

    def _topic(self, name: str) -> CreateTopicsRequest.CreatableTopic:
        topic = CreateTopicsRequest.CreatableTopic
        settings, internal = self._settings, self._internal.get(name)
        if internal is None:
            internal = InternalTopic(settings.num_partitions, settings.default_replication_factor)
        return topic(
            name=name,
            num_partitions=internal.partitions,
            replication_factor=internal.replicas,
            assignments=[],
            configs=[
                topic.CreatableTopicConfig(name=key, value=one) for key, one in internal.configs.items()
            ],
        )

    def _version(self) -> int:
        ours, known = CreateTopicsRequest.__served__, self._forwarder.controller_versions
        theirs = None if known is None else known.get(CreateTopicsRequest.__key__)
        return ours[-1] if theirs is None else min(ours[-1], theirs.stop - 1)

    def _report(self, result: CreateTopicsResponse.CreatableTopicResult) -> None:
        name, code = result.name, result.error_code
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self._refused.pop(name, None)
            if code == ErrorCode.NONE:
                self._logger.info("topic created on demand topic=%s", name)
            return
        known = ErrorCode(code).name if code in ErrorCode.__members__.values() else f"error {code}"
        if self._is_news(name, f"{known} {result.error_message}"):
            self._logger.warning(
                "topic not created topic=%s error=%s reason=%s", name, known, result.error_message
            )

    def _is_news(self, name: str, reason: str) -> bool:
        """Whether the log has not said this of a topic yet, not as the last thing, or not for a while."""
        now = asyncio.get_running_loop().time()
        before, said_at = self._refused.get(name, ("", -inf))
        if before == reason and now - said_at < SAID_AGAIN_S:
            return False
        if len(self._refused) >= REFUSED_MAX:
            self._refused.clear()
        self._refused[name] = reason, now
        return True
