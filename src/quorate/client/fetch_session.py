"""A fetch session (KIP-227): a broker remembers what a client fetches, and both say only what has changed.

A session is an id and an epoch that counts the requests. A request with epoch 0 lists every partition and
opens a session, closing the one it names; later ones list the partitions that are new or have moved, and
those to forget. Whenever it is not certain that both ends have counted the same requests, a new session is
opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from quorate.client.metadata import TopicPartition
from quorate.protocol.api.produce_fetch import FetchRequest, FetchResponse
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import ZERO_UUID, Uuid

__all__ = ["FetchSession", "Row", "SessionPart"]

_EPOCH_MAX: Final = 0x7FFFFFFF


class Row(NamedTuple):
    """What is asked of one partition."""

    topic_id: Uuid
    leader_epoch: int
    offset: int
    bytes_max: int
    last_epoch: int = -1  # of what a follower has; consumers do not say
    log_start_offset: int = -1  # of a follower


class SessionPart(NamedTuple):
    """The part of a fetch request that depends on the session."""

    session_id: int
    session_epoch: int
    topics: list[FetchRequest.Topic]
    forgotten: list[FetchRequest.ForgottenTopic]
    knows_ids: bool  # of all topics; if not, a version that names them must be used


class FetchSession:
    """The session with one broker."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._rows: dict[TopicPartition, Row] = {}
        self._knows_ids = True

    def next(self, wanted: Mapping[TopicPartition, Row]) -> SessionPart:
        """How to ask for exactly these partitions."""
        knows_ids = all(row.topic_id != ZERO_UUID for row in wanted.values())
        if knows_ids != self._knows_ids:
            self._epoch = 0  # names and ids do not mix in a session
        self._knows_ids = knows_ids
        known = self._rows if self._epoch else {}
        changed = {at: row for at, row in wanted.items() if known.get(at) != row}
        # A topic that was created again is another one: the session must forget the old.
        gone = {
            at: row for at, row in known.items() if at not in wanted or wanted[at].topic_id != row.topic_id
        }
        self._rows = dict(wanted)
        return self.difference(changed.items(), gone.items())

    @property
    def is_open(self) -> bool:
        """Whether the broker knows what was asked for before; if not, everything must be listed."""
        return self._epoch != 0

    def difference(
        self, changed: Iterable[tuple[TopicPartition, Row]], gone: Iterable[tuple[TopicPartition, Row]]
    ) -> SessionPart:
        """The same for whoever remembers himself what the session was told. No partition may be in both."""
        return SessionPart(self._id, self._epoch, _topics(changed), _forgotten(gone), self._knows_ids)

    def answered(self, response: FetchResponse) -> None:
        """Both ends have counted this request, or the broker says that they have not."""
        if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = self._epoch = 0
        elif response.error_code != ErrorCode.NONE:
            self._epoch = 0
        elif response.session_id == 0:
            self._id = self._epoch = 0  # there is no session: everything is listed every time
        else:
            self._id = response.session_id
            self._epoch = self._epoch + 1 if self._epoch < _EPOCH_MAX else 1

    def lost(self) -> None:
        """There was no answer: whether the broker has counted the request is not known."""
        self._epoch = 0


def _topics(rows: Iterable[tuple[TopicPartition, Row]]) -> list[FetchRequest.Topic]:
    topics: dict[str, FetchRequest.Topic] = {}
    for at, row in rows:
        if at.topic not in topics:
            topics[at.topic] = FetchRequest.Topic(topic=at.topic, topic_id=row.topic_id, partitions=[])
        topics[at.topic].partitions.append(
            FetchRequest.Topic.Partition(
                partition=at.partition,
                current_leader_epoch=row.leader_epoch,
                fetch_offset=row.offset,
                last_fetched_epoch=row.last_epoch,
                log_start_offset=row.log_start_offset,
                partition_max_bytes=row.bytes_max,
            )
        )
    return list(topics.values())


def _forgotten(rows: Iterable[tuple[TopicPartition, Row]]) -> list[FetchRequest.ForgottenTopic]:
    topics: dict[tuple[str, Uuid], FetchRequest.ForgottenTopic] = {}
    for at, row in rows:
        key = at.topic, row.topic_id
        if key not in topics:
            topics[key] = FetchRequest.ForgottenTopic(topic=at.topic, topic_id=row.topic_id, partitions=[])
        topics[key].partitions.append(at.partition)
    return list(topics.values())
