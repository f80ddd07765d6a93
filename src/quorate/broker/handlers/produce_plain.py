"""Produce requests that are as plain as nearly all are: one batch, for one partition.

Such a request consists of what was in the one before, up to its batch, and of the batch: a producer says
again and again for how long it would wait, whom it must be acknowledged by, and where the batch belongs. So
what stands before the batch is looked up as it is, and the answer is that of the last time with other offsets
in it, unless it has to wait for followers. The batch itself is looked at, and appended, as any other. What
is not usual, and anything that is to be refused before it is appended, goes the long way (`produce`), and is
told there what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from quorate.broker.handlers.topic_creation import INTERNAL_TOPICS
from quorate.broker.partition import Appended, Partition
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.net.routes import RequestContext
from quorate.net.shortcuts import Said, Undecoded
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.produce_fetch import ProduceRequest, ProduceResponse
from quorate.protocol.frame import encode_request, encode_response
from quorate.protocol.holes import hole_between
from quorate.protocol.types import Buffer

if TYPE_CHECKING:
    from quorate.broker.handlers.produce import Batch, ProduceHandler

__all__ = ["PlainForms", "PlainProduce"]

FORMS_MAX: Final = 4096
"""That a broker remembers: a producer has one for each partition that it sends to."""
SIZES_MAX: Final = 4
"""How many sizes they may have on a connection: what stands before a batch is as long as its topic's name."""
REPLACED_EVERY: Final = 16
"""When there are too many, every so manieth new one takes the place of another: those that do not come again
soon must not cost more than they would without this."""

ALL: Final = -1
_ACKS: Final = frozenset({ALL, 1})
_TOPIC_IDS_SINCE: Final = 13

_ID: Final = slice(4, 8)  # where a request has its correlation id, behind its key and its version
_FORM_AT: Final = 8
_SIZE_BYTES: Final = 4
_END_BYTES: Final = (
    4  # what a request without records ends with: that it has none, and in newer ones, no tags
)
_NO_TAGS: Final = b"\0\0\0"
_INT32: Final = Struct(">i")
_OFFSET: Final = Struct(">q")

TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = TopicAnswer.PartitionProduceResponse


class _Form:
    """What requests to one partition have in common, and their answers."""

    __slots__ = (
        "_is_named",
        "acks",
        "answer",
        "base_offset_at",
        "begins",
        "client_id",
        "is_flexible",
        "partition_id",
        "request",
        "start_offset_at",
        "time_at",
        "topic",
        "topic_id",
        "version",
    )

    def __init__(self, header: RequestHeader, request: ProduceRequest, topic: str) -> None:
        (data,) = request.topic_data
        (part,) = data.partition_data
        self.client_id = header.client_id or ""
        self.version = version = header.request_api_version
        self.acks = request.acks
        self.topic, self.topic_id, self.partition_id = topic, data.topic_id, part.index
        self._is_named = version < _TOPIC_IDS_SINCE
        empty = type(part)(index=part.index, records=b"")
        self.request = ProduceRequest(
            transactional_id=request.transactional_id,
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            topic_data=[type(data)(name=data.name, topic_id=data.topic_id, partition_data=[empty])],
        )
        encoded = bytes(encode_request(self.request, version, 0, header.client_id))
        self.begins = encoded[_SIZE_BYTES + _FORM_AT : -_END_BYTES]
        self.is_flexible = encoded[-_END_BYTES] != 0
        self.answer = self._answered(0, 0, 0)
        self.base_offset_at = self._place_of(self._answered(-1, 0, 0))
        self.time_at = self._place_of(self._answered(0, -1, 0))
        self.start_offset_at = self._place_of(self._answered(0, 0, -1))

    def _answered(self, base_offset: int, append_time_ms: int, start_offset: int) -> bytearray:
        said = PartitionAnswer(
            index=self.partition_id,
            error_code=0,
            base_offset=base_offset,
            log_append_time_ms=append_time_ms,
            log_start_offset=start_offset,
        )
        topic = TopicAnswer(name=self.topic, topic_id=self.topic_id, partition_responses=[said])
        return encode_response(ProduceResponse(responses=[topic]), self.version, 0)

    def _place_of(self, other: bytearray) -> int:
        """Where the field is in which another answer differs; 0 if there is none in this version."""
        hole = hole_between(self.answer, other)
        return 0 if hole is None else hole.start

    def replica(self, broker: Broker) -> Partition | None:
        """Our replica, if a batch may be appended to it."""
        replicas = broker.replicas
        if self._is_named:
            partition = replicas.named(self.topic, self.partition_id)
        else:
            partition = replicas.of_topic(self.topic_id, self.partition_id)
        if partition is None or partition.failure is not None:
            return None
        leading = partition.leading
        if leading is None or (self.acks == ALL and len(leading.isr) < partition.min_isr):
            return None
        return partition

    def waits_for_others(self, partition: Partition) -> bool:
        """Whether a batch is not committed by being appended."""
        return self.acks == ALL and partition.leading is not None and bool(partition.leading.followers)

    def records_in(self, buffer: Buffer, begin: int, end: int) -> memoryview | None:
        """What stands where the records of a request are that begins like this; None if it is not one."""
        at = begin + _FORM_AT + len(self.begins)
        if end - at < _END_BYTES:
            return None
        if not self.is_flexible:
            (size,) = _INT32.unpack_from(buffer, at)
            start, stop = at + _INT32.size, end
        else:
            size, shift, start = 0, 0, at
            while True:
                byte = buffer[start]
                start += 1
                size |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
                if start == end:
                    return None
            size, stop = size - 1, end - len(_NO_TAGS)
            if buffer[stop:end] != _NO_TAGS:
                return None
        return memoryview(buffer)[start:stop] if size == stop - start else None

    def answered(self, correlation_id: Buffer, appended: Appended, partition: Partition) -> bytes:
        """The answer for a batch that was appended."""
        answer = self.answer
        answer[_ID] = correlation_id
        _OFFSET.pack_into(answer, self.base_offset_at, appended.base_offset)
        time_ms = appended.timestamp_ms if partition.config.has_append_time else -1
        _OFFSET.pack_into(answer, self.time_at, time_ms)
        if self.start_offset_at:
            _OFFSET.pack_into(answer, self.start_offset_at, partition.log.start_offset)
        return bytes(answer)


class PlainForms:
    """The forms that all connections of a broker have learnt."""

    __slots__ = ("_forms", "_left_out", "get")

    def __init__(self) -> None:
        self._forms: dict[bytes, _Form] = {}
        self._left_out = 0
        self.get = self._forms.get

    def add(self, form: _Form) -> None:
        if len(self._forms) >= FORMS_MAX:
            self._left_out += 1
            if self._left_out % REPLACED_EVERY:
                return
            del self._forms[next(iter(self._forms))]
        self._forms[form.begins] = form


class PlainProduce:
    """A `Shortcut` for them."""

    __slots__ = ("_broker", "_forms", "_handler", "_sizes")

    def __init__(self, handler: ProduceHandler, broker: Broker, forms: PlainForms) -> None:
        self._handler = handler
        self._broker = broker
        self._forms = forms
        self._sizes: list[int] = []  # of those that this connection has, the one that was seen last first

    def learn(
        self, _context: RequestContext, header: RequestHeader, request: Any, answer: object, frame: Undecoded
    ) -> None:
        topics = request.topic_data
        if request.acks not in _ACKS or len(topics) != 1 or len(topics[0].partition_data) != 1:
            return
        if isinstance(answer, ProduceResponse) and answer.responses[0].partition_responses[0].error_code:
            return
        name = topics[0].name
        if header.request_api_version >= _TOPIC_IDS_SINCE:
            known = self._broker.image.topics.by_id.get(topics[0].topic_id)
            name = "" if known is None else known.name
        if not name or name in INTERNAL_TOPICS:
            return
        form = _Form(header, request, name)
        buffer, begin, end = frame
        size = len(form.begins)
        if bytes(buffer[begin + _FORM_AT : begin + _FORM_AT + size]) == form.begins and (
            form.records_in(buffer, begin, end) is not None
        ):
            self._forms.add(form)
            if size not in self._sizes:
                self._sizes = [size, *self._sizes[: SIZES_MAX - 1]]

    def serve(self, context: RequestContext, frames: Sequence[Undecoded]) -> Sequence[Buffer] | Said | None:
        handler, broker = self._handler, self._broker
        quotas = broker.quotas
        if quotas.produce.is_set or quotas.request.is_set:
            return None
        taken: list[tuple[_Form, Batch, bytes]] = []
        for buffer, begin, end in frames:
            form = self._form_of(buffer, begin)
            if form is None or form.client_id != context.client_id:
                break
            data, partition = form.records_in(buffer, begin, end), form.replica(broker)
            if (
                data is None
                or partition is None
                or not broker.authorize(context, Operation.WRITE, ResourceKind.TOPIC, form.topic)
            ):
                break
            batch = handler.plain_batch(form.partition_id, data, form.version, partition)
            if batch is None:
                break
            if form.waits_for_others(partition):
                if taken:
                    break
                return self._said_later(context, form, batch, buffer, begin)
            taken.append((form, batch, bytes(buffer[begin + _ID.start : begin + _ID.stop])))
        if not taken:
            return None
        handler.append([batch for _, batch, _ in taken])
        answers = []
        for form, batch, correlation_id in taken:
            partition, appended = batch.partition, batch.appended
            if appended is not None and partition is not None:
                answers.append(form.answered(correlation_id, appended, partition))
            else:
                said = handler.answered(context, form.version, form.request, form.topic, batch)
                number = int.from_bytes(correlation_id, "big", signed=True)
                answers.append(bytes(encode_response(said, form.version, number)))
        return answers

    def _said_later(
        self, context: RequestContext, form: _Form, batch: Batch, buffer: Buffer, begin: int
    ) -> Said:
        """Appends a batch that others must have, too, before it is answered."""
        number = int.from_bytes(buffer[begin + _ID.start : begin + _ID.stop], "big", signed=True)
        header = RequestHeader(
            request_api_key=ProduceRequest.__key__,
            request_api_version=form.version,
            correlation_id=number,
            client_id=form.client_id,
        )
        handler = self._handler
        handler.append([batch])
        batch.forget_data()
        return Said(header, handler.committed(context, form.version, form.request, form.topic, batch))

    def _form_of(self, buffer: Buffer, begin: int) -> _Form | None:
        at = begin + _FORM_AT
        for number, size in enumerate(self._sizes):
            form = self._forms.get(bytes(buffer[at : at + size]))
            if form is not None:
                if number:
                    self._sizes = [size, *self._sizes[:number], *self._sizes[number + 1 :]]
                return form
        return None
