"""Answers are held back until this broker shows what they say, and has done it.

The active controller answers once a change is committed. This broker reads the same log, and may not have
come that far: a client that is told of a new topic, and asks for its metadata at once, would hear that there
is none. So the answer waits for the broker's own image, and until the broker has carried out what that says
(replicas that are not open cannot be asked for), at most for as long as the client is willing to.

The same holds for whoever did not create the topic, and hears of it for the first time: it will write at
once. And for configurations, which this broker goes by only when it has carried out that they changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from quorate.metadata.image import ClusterImage
from quorate.metadata.topics import Topic
from quorate.protocol.api.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from quorate.protocol.errors import ErrorCode
from quorate.protocol.message import Request, Response
from quorate.protocol.types import ZERO_UUID, Uuid
from quorate.values import dataclass

__all__ = ["OwnView"]

Shows = Callable[[ClusterImage], bool]

HOLDING_MS_MAX: Final = 30_000  # however patient the client is
COMING_MS_MAX: Final = 10_000  # for a topic that is there, and may be slow to open


@dataclass(slots=True, eq=False)
class _Held:
    """An answer that is held back: until the image shows it, and that offset has been carried out."""

    shows: Shows
    done: asyncio.Future[None]
    offset: int | None = None  # at which the image showed it


class OwnView:
    """What this broker shows of topics. `applied` has to be called whenever its image has changed, or more of
    it has been carried out. `applied_offset` is where the image is, `carried_out` how far the broker is;
    `is_coming` says of a topic that its creation is still to be carried out."""

    def __init__(
        self,
        current_image: Callable[[], ClusterImage],
        applied_offset: Callable[[], int] = lambda: 0,
        carried_out: Callable[[], int] = lambda: 0,
        is_coming: Callable[[Uuid], bool] = lambda _: False,
    ) -> None:
        self._current_image = current_image
        self._applied_offset = applied_offset
        self._carried_out = carried_out
        self._is_coming = is_coming
        self._held: dict[_Held, None] = {}

    def applied(self) -> None:
        for held in list(self._held):
            if not held.done.done() and self._is_over(held):
                held.done.set_result(None)

    def _is_over(self, held: _Held) -> bool:
        if held.offset is None and held.shows(self._current_image()):
            held.offset = self._applied_offset()
        return held.offset is not None and self._carried_out() >= held.offset

    def ids_of(self, request: Request) -> dict[str, Uuid]:
        """The topics that a request is about to delete by name, as far as they are shown. A topic of the same
        name that is created meanwhile is another one."""
        if not isinstance(request, DeleteTopicsRequest):
            return {}
        by_name = self._current_image().topics.by_name
        names = [*request.topic_names, *(one.name for one in request.topics if one.name is not None)]
        return {name: by_name[name].id for name in names if name in by_name}

    async def shows(
        self, request: Request, response: Response, ids: dict[str, Uuid], timeout_ms: float
    ) -> bool:
        """Waits until the image shows what was answered to a request. Whether it came to that in time."""
        condition = _condition(request, response, ids)
        return condition is None or await self.holds(condition, timeout_ms)

    def is_any_coming(self, topics: Iterable[Topic]) -> bool:
        """Whether the image shows one of these topics before the broker has carried out its creation."""
        return self._carried_out() < self._applied_offset() and any(self._is_coming(one.id) for one in topics)

    async def catches_up(self) -> bool:
        """Waits until the broker has carried out what its image shows now; whether it has come to that."""
        return await self.holds(lambda _: True, COMING_MS_MAX)

    async def holds(self, condition: Shows, timeout_ms: float) -> bool:
        """Waits until the image shows something and the broker has done it; whether it has come to that."""
        held = _Held(condition, asyncio.get_running_loop().create_future())
        if self._is_over(held):
            return True
        self._held[held] = None
        try:
            async with asyncio.timeout(max(0.0, min(timeout_ms, HOLDING_MS_MAX)) / 1000):
                await held.done
        except TimeoutError:
            return False
        finally:
            del self._held[held]
        return True


def _condition(request: Request, response: Response, ids: dict[str, Uuid]) -> Shows | None:
    if isinstance(request, CreateTopicsRequest) and isinstance(response, CreateTopicsResponse):
        return None if request.validate_only else _has_topics(response)
    if isinstance(request, CreatePartitionsRequest) and isinstance(response, CreatePartitionsResponse):
        return None if request.validate_only else _has_partitions(request, response)
    if isinstance(response, DeleteTopicsResponse):
        return _has_not(response, ids)
    return None


def _has_topics(response: CreateTopicsResponse) -> Shows:
    made = [
        (one.name, one.topic_id, max(1, one.num_partitions))
        for one in response.topics
        if one.error_code == ErrorCode.NONE
    ]

    def shows(image: ClusterImage) -> bool:
        by_name = image.topics.by_name
        return all(
            (topic := by_name.get(name)) is not None
            and topic_id in (ZERO_UUID, topic.id)
            and image.partition(topic.id, count - 1) is not None
            for name, topic_id, count in made
        )

    return shows


def _has_partitions(request: CreatePartitionsRequest, response: CreatePartitionsResponse) -> Shows:
    counts = {one.name: one.count for one in request.topics}
    grown = [
        (one.name, counts.get(one.name, 0)) for one in response.results if one.error_code == ErrorCode.NONE
    ]

    def shows(image: ClusterImage) -> bool:
        by_name = image.topics.by_name
        return all(
            (topic := by_name.get(name)) is not None and image.partition(topic.id, count - 1) is not None
            for name, count in grown
        )

    return shows


def _has_not(response: DeleteTopicsResponse, ids: dict[str, Uuid]) -> Shows:
    gone = [
        topic_id
        for one in response.responses
        if one.error_code == ErrorCode.NONE
        and (topic_id := one.topic_id if one.topic_id != ZERO_UUID else ids.get(one.name or "", ZERO_UUID))
        != ZERO_UUID
    ]
    return lambda image: not any(topic_id in image.topics.by_id for topic_id in gone)
