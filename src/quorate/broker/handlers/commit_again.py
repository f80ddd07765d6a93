"""Commits of offsets that look like one before, but for the offsets: they are not decoded.

A consumer commits the same partitions all its life. Of such a request a connection knows where the numbers
stand, and everything else must be the same to the byte. So what is left of it are the numbers, which a
coordinator is given together with what it knows already (`coordinator.known_commits`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

from quorate.broker.groups import Groups
from quorate.broker.handlers.group_members import caller_of
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.coordinator.known_commits import KnownCommit
from quorate.metadata.topics import Topics
from quorate.net.routes import RequestContext
from quorate.net.shortcuts import Said, Undecoded, Usual
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.groups import OffsetCommitRequest
from quorate.protocol.frame import encode_request, encode_response
from quorate.protocol.holes import holes_between
from quorate.protocol.types import Buffer

__all__ = ["CommitsAgain"]

FORMS_MAX: Final = 4
"""That a connection remembers: a consumer need not have got on everywhere."""
FORM_BYTES_MAX: Final = 1024
"""Of a request that is remembered."""

_NO_RETENTION: Final = -1
_ID: Final = Struct(">i")
_ID_AT: Final = 4  # where a request has its correlation id, behind its key and its version
_FORM_AT: Final = 8
_SIZE_BYTES: Final = 4
_OFFSET_BYTES: Final = 8
_NUMBERS_BYTES: Final = 12  # of a partition, in versions that have leader epochs

IsKnown = Callable[[RequestContext, Sequence[OffsetCommitRequest.Topic], int], bool]


class _Form:
    """What commits have in common."""

    __slots__ = (
        "_has_epochs",
        "_mask",
        "_numbers",
        "_rest",
        "_size_bytes",
        "commit",
        "found_after",
        "header",
        "usual",
        "version",
    )

    def __init__(
        self, header: RequestHeader, commit: KnownCommit, holes: Sequence[slice], body: bytes
    ) -> None:
        """`body` is a request from behind its correlation id on, `holes` where the numbers of the partitions
        are in it."""
        self.header = header
        self.version = header.request_api_version
        self.commit = commit
        self.found_after: object = None  # the removal of a topic after which all that it names existed
        mask = bytearray(b"\xff" * len(body))
        places, end = [">"], 0
        for hole in holes:
            size = hole.stop - hole.start
            mask[hole] = bytes(size)
            places.append(f"{hole.start - end}x{'qi' if size == _NUMBERS_BYTES else 'q'}")
            end = hole.stop
        self._size_bytes = _FORM_AT + len(body)
        self._has_epochs = holes[0].stop - holes[0].start == _NUMBERS_BYTES
        self._numbers = Struct("".join(places))
        self._mask = int.from_bytes(mask, "big")
        self._rest = int.from_bytes(body, "big") & self._mask
        answer = commit.answer
        self.usual = Usual(answer, encode_response(answer, header.request_api_version, 0))

    def numbers_in(self, frame: Undecoded) -> Sequence[int] | None:
        """The numbers of a request; None if it differs in more than these."""
        buffer, begin, end = frame
        if (
            end - begin != self._size_bytes
            or int.from_bytes(buffer[begin + _FORM_AT : end], "big") & self._mask != self._rest
        ):
            return None
        found = self._numbers.unpack_from(buffer, begin + _FORM_AT)
        return found if self._has_epochs else [number for offset in found for number in (offset, -1)]


def _form_of(context: RequestContext, header: RequestHeader, request: OffsetCommitRequest) -> _Form | None:
    version = header.request_api_version
    commit = KnownCommit(request, caller_of(context, version))
    number = sum(len(topic.partitions) for topic in request.topics)
    zeros, ones = (
        bytes(encode_request(commit.said_with([value] * 2 * number), version, 0, header.client_id))
        for value in (0, -1)
    )
    holes = holes_between(zeros[_SIZE_BYTES + _FORM_AT :], ones[_SIZE_BYTES + _FORM_AT :])
    sizes = {hole.stop - hole.start for hole in holes}
    if len(holes) != number or sizes not in ({_OFFSET_BYTES}, {_NUMBERS_BYTES}):
        return None
    return _Form(header, commit, holes, zeros[_SIZE_BYTES + _FORM_AT :])


class CommitsAgain:
    """A `Shortcut`. `is_known` says whether all topics of a request exist and are the asker's."""

    __slots__ = ("_broker", "_forms", "_groups", "_is_known")

    def __init__(self, broker: Broker, groups: Groups, is_known: IsKnown) -> None:
        self._broker = broker
        self._groups = groups
        self._is_known = is_known
        self._forms: dict[int, _Form] = {}  # by their size

    def learn(
        self, context: RequestContext, header: RequestHeader, request: Any, _answer: object, frame: Undecoded
    ) -> None:
        _, begin, end = frame
        if (
            end - begin > FORM_BYTES_MAX
            or request.retention_time_ms != _NO_RETENTION
            or not any(topic.partitions for topic in request.topics)
        ):
            return
        form = _form_of(context, header, request)
        if form is not None and form.numbers_in(frame) is not None:
            if len(self._forms) >= FORMS_MAX:
                del self._forms[next(iter(self._forms))]
            self._forms[end - begin] = form

    def serve(self, context: RequestContext, frames: Sequence[Undecoded]) -> Sequence[Buffer] | Said | None:
        buffer, begin, end = frames[0]
        form, broker = self._forms.get(end - begin), self._broker
        if form is None or broker.quotas.request.is_set:
            return None
        numbers = form.numbers_in(frames[0])
        if numbers is None:
            return None
        commit = form.commit
        group_id, topics = commit.request.group_id, broker.current_image().topics
        if not (
            broker.authorize(context, Operation.READ, ResourceKind.GROUP, group_id)
            and self._names_its_own(context, form, topics)
        ):
            return None
        hosted = self._groups.active(group_id)
        if hosted is None:
            return None
        answer = hosted.ask_plain(commit, numbers)
        if answer is None:
            return None  # why not is found out the long way
        (correlation_id,) = _ID.unpack_from(buffer, begin + _ID_AT)
        if answer is commit.answer:
            broker.count_committed(commit.count)
            return (form.usual.with_id(correlation_id),)
        header = form.header
        header.correlation_id = correlation_id
        return Said(header, answer, form.usual)

    def _names_its_own(self, context: RequestContext, form: _Form, topics: Topics) -> bool:
        """Whether all topics that it names exist, which they do as long as none was removed, and are the
        asker's."""
        named = form.commit.request.topics
        if form.found_after is topics.removal:
            for one in named:
                if not self._broker.authorize(context, Operation.READ, ResourceKind.TOPIC, one.name):
                    return False
            return True
        if not self._is_known(context, named, form.version):
            return False
        form.found_after = topics.removal
        return True
