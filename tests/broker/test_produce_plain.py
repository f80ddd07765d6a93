"""Plain produce requests are served without being decoded, and as if they were."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from serving import LISTENER, START_MS, Serving, a_batch, in_loop, produce, turns

from quorate.broker.handlers.produce import ProduceHandler
from quorate.broker.handlers.produce_plain import FORMS_MAX, REPLACED_EVERY, PlainForms, PlainProduce
from quorate.broker.quotas import Quotas
from quorate.broker.serving import Operation
from quorate.net.eventual import pending
from quorate.net.routes import RequestContext
from quorate.net.shortcuts import Said
from quorate.protocol.api.produce_fetch import ProduceRequest, ProduceResponse
from quorate.protocol.errors import ErrorCode
from quorate.protocol.frame import decode_request, decode_response, encode_request, encode_response
from quorate.storage.errors import StorageError

ALL = -1
VERSIONS = list(ProduceRequest.__served__)
NEWEST = VERSIONS[-1]
CONTEXT = RequestContext(LISTENER, "127.0.0.1", 4711, "test")


def handler_of(serving: Serving) -> ProduceHandler:
    found = serving.handlers[ProduceRequest]
    assert isinstance(found, ProduceHandler)
    return found


class Connection:
    """What a connection does with its requests: the short way if there is one, and else the long one."""

    def __init__(self, serving: Serving) -> None:
        self._handler = handler_of(serving)
        self.shortcut = self._handler.shortcut()
        self.shortened = 0
        self.said: list[Said] = []  # what is not answered yet

    def ask(self, *frames: bytes) -> list[bytes]:
        """The answers to requests that have come together."""
        waiting = [bytearray(frame) for frame in frames]
        answers: list[bytes] = []
        while waiting:
            short = self.shortcut.serve(CONTEXT, [(one, 4, len(one)) for one in waiting])
            if isinstance(short, Said):
                self.shortened += 1
                self.said.append(short)
                answers.append(b"is waited for")
                del waiting[0]
            elif short:
                self.shortened += len(short)
                answers += map(bytes, short)
                del waiting[: len(short)]
            else:
                answers.append(self.ask_the_long_way(waiting.pop(0)))
        return answers

    def ask_the_long_way(self, frame: bytearray) -> bytes:
        header, request = decode_request(frame, 4)
        assert isinstance(request, ProduceRequest)
        answer: Any = self._handler(CONTEXT, header, request)
        self.shortcut.learn(CONTEXT, header, request, answer, (frame, 4, len(frame)))
        if not isinstance(answer, ProduceResponse):
            return b"is waited for"
        return bytes(encode_response(answer, header.request_api_version, header.correlation_id))


def framed(request: ProduceRequest, version: int = NEWEST, number: int = 7, client_id: str = "test") -> bytes:
    return bytes(encode_request(request, version, number, client_id))


def plain(topic: str = "t", partition_id: int = 0, count: int = 1, acks: int = 1, **about: Any) -> Any:
    return produce((topic, partition_id, a_batch(count, **about)), acks=acks)


def logged(serving: Serving, topic: str = "t", partition_id: int = 0) -> bytes:
    log = serving.partition(topic, partition_id).log
    return bytes(log.read(log.start_offset, 1 << 20)) if log.end_offset > log.start_offset else b""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, ALL])
@in_loop
async def test_the_second_of_a_kind_is_served_shortly_and_answered_alike(
    tmp_path: Path, version: int, acks: int
):
    served = []
    for name in ("short", "long"):
        serving = Serving(tmp_path / name)
        await serving.topic("t")
        connection = Connection(serving)
        frames = [framed(plain(count=count, acks=acks), version, count) for count in (1, 2, 90, 3)]
        if name == "short":
            answers = [connection.ask(frame)[0] for frame in frames]
            assert connection.shortened == 3
        else:
            answers = [connection.ask_the_long_way(bytearray(frame)) for frame in frames]
        served.append((answers, logged(serving)))
        await serving.close()
    assert served[0] == served[1]


@in_loop
async def test_what_comes_together_for_several_partitions_is_appended_in_order(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", partitions=2)
    connection = Connection(serving)
    connection.ask(framed(plain(partition_id=0)), framed(plain(partition_id=1)))
    frames = [framed(plain(partition_id=at % 2, count=2), number=at) for at in range(6)]
    answers = connection.ask(*frames)
    assert connection.shortened == 6
    for at, answer in enumerate(answers):
        header, said = decode_response(0, NEWEST, answer[4:])
        (partition,) = said.responses[0].partition_responses
        assert (header.correlation_id, partition.index, partition.base_offset) == (
            at,
            at % 2,
            1 + at // 2 * 2,
        )
    await serving.close()


def _changed(data: bytearray, at: int, value: int) -> bytearray:
    data[at] = value
    return data


UNUSUAL = {
    "two partitions": lambda: produce(("t", 0, a_batch()), ("t", 1, a_batch())),
    "two topics": lambda: produce(("t", 0, a_batch()), ("u", 0, a_batch())),
    "acks=0": lambda: plain(acks=0),
    "acks=2": lambda: plain(acks=2),
    "nothing": lambda: produce(("t", 0, None)),
    "an empty batch": lambda: produce(("t", 0, b"")),
    "two batches": lambda: produce(("t", 0, a_batch() + a_batch())),
    "a transaction": lambda: plain(is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
    "an old format": lambda: produce(("t", 0, _changed(a_batch(), 16, 1))),
    "another topic": lambda: plain("u"),
    "a partition that is not": lambda: plain(partition_id=9),
    "a topic that is not": lambda: plain("nowhere"),
    "an internal topic": lambda: plain("__consumer_offsets"),
}


@pytest.mark.parametrize("name", UNUSUAL)
@in_loop
async def test_what_is_unusual_goes_the_long_way(tmp_path: Path, name: str):
    serving = Serving(tmp_path)
    for topic in ("t", "u"):
        await serving.topic(topic, partitions=2)
    connection = Connection(serving)
    connection.ask(framed(plain()))
    request = UNUSUAL[name]()
    for _ in range(2):
        try:
            connection.ask(framed(request))
        except Exception:
            assert name in ("acks=0", "acks=2")
    assert connection.shortened == (name == "another topic")  # which is usual from the second time on
    await serving.close()


@in_loop
async def test_a_damaged_batch_is_refused_in_the_same_words(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    connection = Connection(serving)
    connection.ask(framed(plain()))
    damaged = a_batch()
    damaged[-1] ^= 1
    frame = framed(produce(("t", 0, damaged)))
    (short,) = connection.ask(frame)
    assert connection.shortened == 1
    assert short == connection.ask_the_long_way(bytearray(frame))
    await serving.close()


@in_loop
async def test_a_duplicate_is_answered_where_it_is(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    connection = Connection(serving)
    numbered = [
        framed(plain(count=2, producer_id=7, producer_epoch=0, base_sequence=sequence)) for sequence in (0, 2)
    ]
    first = connection.ask(*numbered)
    assert connection.ask(*numbered) == first
    assert connection.shortened == 3
    assert serving.partition("t").log.end_offset == 4
    await serving.close()


@in_loop
async def test_whoever_does_not_lead_is_not_short(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    connection = Connection(serving)
    frame = framed(plain(acks=ALL))
    connection.ask(frame)
    await serving.assign("t", replicas=(1, 2), leader=2, leader_epoch=2)
    (answer,) = connection.ask(frame)
    assert decode_response(0, NEWEST, answer[4:])[1].responses[0].partition_responses[0].error_code
    assert connection.shortened == 0
    await serving.close()


@pytest.mark.parametrize("version", [8, NEWEST])
@in_loop
async def test_what_others_must_have_too_is_answered_when_they_do(tmp_path: Path, version: int):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2))
    connection = Connection(serving)
    frames = [bytearray(framed(plain(acks=ALL, count=2), version, number)) for number in range(3)]
    assert connection.ask(*frames) == [b"is waited for"] * 3
    assert connection.shortened == 2
    for frame in frames:
        frame[:] = bytes(len(frame))  # others come into the same memory
    running = [pending(said.answer) for said in connection.said]  # type: ignore[arg-type]
    assert not any(one.done() for one in running)
    serving.partition("t").fetched_by(2, 4, 0, 102)
    await turns()
    assert [one.done() for one in running] == [True, False]
    serving.partition("t").fetched_by(2, 6, 0, 102)
    await turns()
    offsets = []
    for said, one in zip(connection.said, running, strict=True):
        answer: Any = one.result()
        (partition,) = answer.responses[0].partition_responses
        offsets.append((said.header.correlation_id, partition.error_code, partition.base_offset))
    assert offsets == [(1, 0, 2), (2, 0, 4)]
    await serving.close()


@in_loop
async def test_too_few_in_sync_go_the_long_way(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", replicas=(1, 2), min_insync_replicas=2)
    connection = Connection(serving)
    frame = framed(plain(acks=ALL))
    connection.ask(frame)
    await serving.assign("t", replicas=(1, 2), isr=(1,), leader_epoch=1)
    (answer,) = connection.ask(frame)
    (said,) = decode_response(0, NEWEST, answer[4:])[1].responses[0].partition_responses
    assert (connection.shortened, said.error_code) == (0, ErrorCode.NOT_ENOUGH_REPLICAS)
    await serving.close()


@in_loop
async def test_quotas_and_permissions_count(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    connection = Connection(serving)
    connection.ask(framed(plain()))
    serving.denied.add((Operation.WRITE, "t"))
    connection.ask(framed(plain()))
    assert connection.shortened == 0
    serving.denied.clear()
    quotas = Quotas()
    quotas.produce.is_set = True
    usual, serving.broker.quotas = serving.broker.quotas, quotas
    assert connection.shortcut.serve(CONTEXT, [(bytearray(framed(plain())), 4, len(framed(plain())))]) is None
    serving.broker.quotas = usual
    connection.ask(framed(plain()))
    assert connection.shortened == 1
    await serving.close()


@in_loop
async def test_another_client_id_is_another_form(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t")
    connection = Connection(serving)
    connection.ask(framed(plain()))
    frame = bytearray(framed(plain(), client_id="best"))
    assert connection.shortcut.serve(CONTEXT, [(frame, 4, len(frame))]) is None
    # Even if another connection has learnt it: this one has not said yet who it is.
    other = Connection(serving)
    other.ask(framed(plain(), client_id="best"))
    assert connection.shortcut.serve(CONTEXT, [(frame, 4, len(frame))]) is None
    await serving.close()


@in_loop
async def test_a_failing_disk_takes_the_replica_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    serving = Serving(tmp_path)
    await serving.topic("t")
    connection = Connection(serving)
    connection.ask(framed(plain()))
    partition = serving.partition("t")

    def fail(*_: Any) -> None:
        raise StorageError("there", "no space")

    monkeypatch.setattr(partition.log._log, "append_stamped", fail)
    (answer,) = connection.ask(framed(plain()))
    assert connection.shortened == 1
    assert decode_response(0, NEWEST, answer[4:])[1].responses[0].partition_responses[0].error_code == 56
    assert partition.failure is not None
    await serving.close()


@in_loop
async def test_append_times_are_answered(tmp_path: Path):
    serving = Serving(tmp_path)
    await serving.topic("t", message_timestamp_type="LogAppendTime")
    connection = Connection(serving)
    connection.ask(framed(plain()))
    serving.wall_ms = START_MS + 5
    (answer,) = connection.ask(framed(plain()))
    (said,) = decode_response(0, NEWEST, answer[4:])[1].responses[0].partition_responses
    assert (connection.shortened, said.log_append_time_ms) == (1, START_MS + 5)
    await serving.close()


@pytest.mark.parametrize("seed", range(20))
@in_loop
async def test_any_bytes_are_served_as_the_long_way_would(tmp_path: Path, seed: int):
    """Two brokers hear the same, one with shortcuts and one without: requests as producers send them, some of
    them with a byte changed somewhere."""
    random = Random(seed)
    frames = []
    for number in range(60):
        version, partition_id = random.choice((8, 9, 13)), random.randrange(2)
        request = plain(
            partition_id=partition_id, count=random.choice((1, 3, 70)), acks=random.choice((1, ALL))
        )
        frame = bytearray(framed(request, version, number))
        if random.random() < 0.4:
            frame[random.randrange(12, len(frame))] = random.randrange(256)
        frames.append(bytes(frame))
    heard = []
    for name in ("short", "long"):
        serving = Serving(tmp_path / name)
        await serving.topic("t", partitions=2)
        connection = Connection(serving)
        answers = []
        for frame in frames:
            try:
                if name == "short":
                    answers += connection.ask(frame)
                else:
                    answers.append(connection.ask_the_long_way(bytearray(frame)))
            except Exception as error:
                answers.append(repr(error).encode())
        if name == "short":
            assert connection.shortened > 10
        heard.append((answers, logged(serving, "t", 0), logged(serving, "t", 1)))
        await serving.close()
    assert heard[0] == heard[1]


class Form:
    def __init__(self, begins: bytes) -> None:
        self.begins = begins


def test_forms_are_limited_and_new_ones_take_the_place_of_others_slowly():
    forms = PlainForms()
    for number in range(FORMS_MAX + REPLACED_EVERY):
        forms.add(Form(number.to_bytes(4, "big")))  # type: ignore[arg-type]
    assert forms.get((0).to_bytes(4, "big")) is None
    assert forms.get((1).to_bytes(4, "big")) is not None
    assert forms.get(FORMS_MAX.to_bytes(4, "big")) is None
    assert forms.get((FORMS_MAX + REPLACED_EVERY - 1).to_bytes(4, "big")) is not None


def test_a_shortcut_is_made_for_each_connection(tmp_path: Path):
    @in_loop
    async def scenario() -> None:
        handler = handler_of(Serving(tmp_path))
        assert isinstance(handler.shortcut(), PlainProduce)
        assert handler.shortcut() is not handler.shortcut()

    scenario()
