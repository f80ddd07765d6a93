"""Commits that differ from one before in their offsets alone are not decoded, and taken as if they were."""

import inspect
from random import Random

import pytest

from broker.serving import LISTENER, in_loop, topic_id
from broker.test_group_handlers import Coordinating
from quorate.broker.groups import OFFSETS_TOPIC
from quorate.broker.handlers.commit_again import FORM_BYTES_MAX, FORMS_MAX
from quorate.broker.handlers.group_offsets import GroupOffsets
from quorate.coordinator import log_format
from quorate.net.routes import RequestContext
from quorate.net.shortcuts import Said
from quorate.protocol.api.groups import ConsumerGroupHeartbeatRequest, OffsetCommitRequest
from quorate.protocol.batch import batches, records
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ErrorCode
from quorate.protocol.frame import decode_request, decode_response, encode_request, encode_response
from quorate.storage.errors import StorageError

KEY = OffsetCommitRequest.__key__
VERSIONS = list(OffsetCommitRequest.__served__)
READ = 3
CONTEXT = RequestContext(LISTENER, "127.0.0.1", 4711, "test")


class Connection:
    """What a connection does with commits: the short way if there is one, and else the long one."""

    def __init__(self, serving):
        self.serving = serving
        (route,) = [
            one
            for one in GroupOffsets(serving.broker, serving.groups).routes()
            if one.request is OffsetCommitRequest
        ]
        self._handler = route.handler
        self.shortcut = route.shortcut()
        self.shortened = 0

    async def ask(self, frame):
        """The answer, as it leaves."""
        said = self.shortcut.serve(CONTEXT, [(bytearray(frame), 4, len(frame))])
        if said is None:
            return await self.ask_the_long_way(frame)
        self.shortened += 1
        if not isinstance(said, Said):
            (answer,) = said
            return answer
        answer = await said.answer if inspect.isawaitable(said.answer) else said.answer
        header = said.header
        if answer is said.usual.answer:
            return said.usual.with_id(header.correlation_id)
        return bytes(encode_response(answer, header.request_api_version, header.correlation_id))

    async def ask_the_long_way(self, frame):
        header, request = decode_request(frame, 4)
        answer = self._handler(CONTEXT, header, request)
        self.shortcut.learn(CONTEXT, header, request, answer, (frame, 4, len(frame)))
        answer = await answer if inspect.isawaitable(answer) else answer
        return bytes(encode_response(answer, header.request_api_version, header.correlation_id))


def commit(*offsets, version=8, number=7, epoch=-1, metadata="", group="g", client_id="test", **more):
    """A frame of commits of (topic, partition, offset)."""
    topic = OffsetCommitRequest.Topic
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            topic(
                name=name if version < 10 else "",
                topic_id=topic_id(name),
                partitions=[
                    topic.Partition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=epoch if version >= 6 else -1,
                        committed_metadata=metadata,
                    )
                ],
            )
            for name, partition, offset in offsets
        ],
        **more,
    )
    return bytes(encode_request(request, version, number, client_id))


def codes(answer, version=8):
    _, said = decode_response(KEY, version, answer[4:])
    return [one.error_code for topic in said.topics for one in topic.partitions]


def logged(serving):
    """All records of groups, without the ids that coordinators make up."""
    found = []
    for partition_id in (0, 1):
        log = serving.partition(OFFSETS_TOPIC, partition_id).log
        if log.end_offset > log.start_offset:
            data = log.read(log.start_offset, 1 << 20)
            found += [(one.key, one.value) for header in batches(data) for one in records(data, header)]
    return found


async def coordinating(directory):
    serving = Coordinating(directory)
    await serving.begin_to_coordinate()
    return serving


async def member_of(serving):
    joined = await serving.joined()
    return {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_the_second_is_short_and_answered_and_written_alike(tmp_path, version):
    heard = []
    for name in ("short", "long"):
        serving = await coordinating(tmp_path / name)
        member = await member_of(serving)
        connection = Connection(serving)
        before = len(logged(serving))
        answers = []
        for number, offset in enumerate((5, -1, 2**62, 6)):
            places = ("orders", 0, offset), ("orders", 2, offset + 1)
            frame = commit(*places, version=version, number=number, epoch=offset % 9, **member)
            ask = connection.ask if name == "short" else connection.ask_the_long_way
            answers.append(await ask(bytearray(frame)))
        assert connection.shortened == (3 if name == "short" else 0)
        heard.append((answers, logged(serving)[before:]))
        await serving.close()
    assert heard[0] == heard[1]


@in_loop
async def test_a_simple_consumer_commits_as_well(tmp_path):
    serving = await coordinating(tmp_path)
    connection = Connection(serving)
    for offset in range(4):
        assert codes(await connection.ask(commit(("orders", 0, offset)))) == [0]
    assert connection.shortened == 3
    assert serving.groups.of("g").shard.committed_offsets.get("g", "orders", 0).offset == 3
    await serving.close()


@in_loop
async def test_a_member_of_a_consumer_group_commits_at_its_epoch(tmp_path):
    serving = await coordinating(tmp_path)
    beat = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    epoch = (await serving.ask(beat, 1)).member_epoch
    connection = Connection(serving)
    for at in (epoch, epoch + 1):
        for offset in (1, 2):
            frame = commit(("orders", 0, offset), version=9, member_id="m", generation_id_or_member_epoch=at)
            found = codes(await connection.ask(frame), 9)
            assert found == [0 if at == epoch else ErrorCode.STALE_MEMBER_EPOCH]
    assert connection.shortened == 1  # what is refused goes the long way
    await serving.close()


@in_loop
async def test_whoever_is_not_a_member_any_more_is_told(tmp_path):
    serving = await coordinating(tmp_path)
    member = await member_of(serving)
    connection = Connection(serving)
    assert codes(await connection.ask(commit(("orders", 0, 1), **member))) == [0]
    serving.now_ms += 60_000
    hosted = serving.groups.of("g")
    hosted.perform(hosted.shard.tick)
    assert codes(await connection.ask(commit(("orders", 0, 2), **member))) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert connection.shortened == 0
    await serving.close()


@in_loop
async def test_a_commit_is_a_sign_of_life(tmp_path):
    serving = await coordinating(tmp_path)
    member = await member_of(serving)
    connection = Connection(serving)
    for offset in range(5):
        assert codes(await connection.ask(commit(("orders", 0, offset), **member))) == [0]
        serving.now_ms += 8_000
        hosted = serving.groups.of("g")
        while hosted.shard.next_deadline_ms <= serving.now_ms:
            hosted.perform(hosted.shard.tick)
    assert connection.shortened == 4
    await serving.close()


@in_loop
async def test_what_differs_in_more_than_numbers_goes_the_long_way(tmp_path):
    serving = await coordinating(tmp_path)
    connection = Connection(serving)
    place = ("orders", 0, 1)
    for frame in (
        commit(place),
        commit(("orders", 1, 1)),
        commit(place, metadata="m"),
        commit(place, group="h"),
        commit(place, client_id="best"),
        commit(place, version=9),
    ):
        await connection.ask(frame)
        assert connection.shortened == 0
    await serving.close()


@in_loop
async def test_long_metadata_and_times_of_expiry_are_not_remembered(tmp_path):
    serving = await coordinating(tmp_path)
    connection = Connection(serving)
    too_long = serving.broker.settings.groups.offset_metadata_max_bytes + 1
    for _ in range(2):
        assert codes(await connection.ask(commit(("orders", 0, 1), metadata="m" * FORM_BYTES_MAX))) == [0]
        found = codes(await connection.ask(commit(("orders", 0, 1), metadata="m" * too_long)))
        assert found == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        await connection.ask(commit(("orders", 0, 1), version=3, retention_time_ms=9))
    assert connection.shortened == 0
    await serving.close()


@in_loop
async def test_metadata_are_judged_as_ever(tmp_path):
    serving = await coordinating(tmp_path)
    connection = Connection(serving)
    for _ in range(2):
        assert codes(await connection.ask(commit(("orders", 0, 1), metadata="m" * 900))) == [0]
    assert connection.shortened == 1
    await serving.close()


@in_loop
async def test_topics_groups_and_permissions_may_be_gone(tmp_path):
    serving = await coordinating(tmp_path)
    connection = Connection(serving)
    frame = commit(("orders", 0, 1))
    await connection.ask(frame)
    serving.denied.add((READ, "orders"))
    assert codes(await connection.ask(frame)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    serving.denied.clear()
    serving.denied.add((READ, "g"))
    assert codes(await connection.ask(frame)) == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    serving.denied.clear()
    serving.broker.quotas.request.is_set = True
    assert connection.shortcut.serve(CONTEXT, [(bytearray(frame), 4, len(frame))]) is None
    serving.broker.quotas.request.is_set = False
    assert connection.shortened == 0
    assert codes(await connection.ask(frame)) == [0]
    assert connection.shortened == 1
    serving.groups.shards.close()
    assert codes(await connection.ask(frame)) == [ErrorCode.NOT_COORDINATOR]
    await serving.close()


@in_loop
async def test_what_is_refused_later_does_not_change_what_is_said_to_others(tmp_path, monkeypatch):
    serving = await coordinating(tmp_path)
    connection = Connection(serving)
    frame = commit(("orders", 0, 1))
    await connection.ask(frame)
    partition = serving.groups.of("g").partition
    monkeypatch.setattr(partition, "min_isr", 2)
    assert codes(await connection.ask(frame)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    monkeypatch.undo()
    assert codes(await connection.ask(frame)) == [0]
    assert connection.shortened == 1

    def fail(*_):
        raise StorageError("there", "no space")

    monkeypatch.setattr(partition.log._log, "append_plain", fail)
    assert codes(await connection.ask(frame)) == [ErrorCode.NOT_COORDINATOR]
    await serving.close()


@in_loop
async def test_so_many_forms_are_remembered(tmp_path):
    serving = await coordinating(tmp_path)
    connection = Connection(serving)
    frames = [commit(("orders", 0, 1), metadata="m" * size) for size in range(FORMS_MAX + 1)]
    for frame in frames:
        await connection.ask(frame)
    for frame in frames[1:]:
        await connection.ask(frame)
    assert connection.shortened == FORMS_MAX
    await connection.ask(frames[0])
    assert connection.shortened == FORMS_MAX
    await serving.close()


def with_tag(frame, client_id=b"test"):
    """The same with a tag in its header that nobody knows, whose data end as a header without it does: from
    there on it looks as we would encode it."""
    header_end = 4 + 8 + 2 + len(client_id)
    assert frame[header_end - len(client_id) : header_end + 1] == client_id + b"\0"
    data = frame[12:header_end] + b"\0"
    tags = bytes([1, 99, len(data)]) + data
    longer = frame[4:header_end] + tags + frame[header_end + 1 :]
    return len(longer).to_bytes(4, "big") + longer


@in_loop
async def test_one_that_only_ends_like_another_is_not_known(tmp_path):
    serving = await coordinating(tmp_path)
    connection = Connection(serving)
    for offset in (5, 6, 7):
        assert codes(await connection.ask(with_tag(commit(("orders", 0, offset))))) == [0]
        assert serving.groups.of("g").shard.committed_offsets.get("g", "orders", 0).offset == offset
    assert connection.shortened == 0
    await serving.close()


@pytest.mark.parametrize("seed", range(15))
@in_loop
async def test_any_bytes_are_taken_as_the_long_way_would(tmp_path, seed):
    random = Random(seed)
    frames = []
    for number in range(50):
        version = random.choice((5, 8, 10))
        places = [
            ("orders", partition, random.randrange(1 << 40)) for partition in range(random.choice((1, 3)))
        ]
        frame = bytearray(commit(*places, version=version, number=number, epoch=random.randrange(-1, 5)))
        if random.random() < 0.2:
            frame = bytearray(with_tag(bytes(frame)) if version == 8 else frame)
        if random.random() < 0.3:
            frame[random.randrange(12, len(frame))] = random.randrange(256)
        frames.append(bytes(frame))
    heard = []
    for name in ("short", "long"):
        serving = await coordinating(tmp_path / name)
        connection = Connection(serving)
        answers = []
        for frame in frames:
            ask = connection.ask if name == "short" else connection.ask_the_long_way
            try:
                answers.append(await ask(bytearray(frame)))
            except Exception as error:
                answers.append(repr(error))
        if name == "short":
            assert connection.shortened > 10
        heard.append((answers, logged(serving)))
        await serving.close()
    assert heard[0] == heard[1]


@pytest.mark.parametrize("codec", list(Codec))
@in_loop
async def test_what_is_written_is_compressed_if_that_is_set(tmp_path, codec):
    found = []
    for name in ("short", "long"):
        serving = Coordinating(tmp_path / name)
        serving.groups.shards.codec = codec
        await serving.begin_to_coordinate()
        connection = Connection(serving)
        ask = connection.ask if name == "short" else connection.ask_the_long_way
        for offset in range(3):
            assert codes(
                await ask(commit(("orders", 0, offset), ("orders", 1, offset), metadata="m" * 99))
            ) == [0, 0]
        assert connection.shortened == (2 if name == "short" else 0)
        log = serving.partition(OFFSETS_TOPIC, serving.groups.partition_of("g")).log
        assert {one.codec for one in batches(log.read(0, 1 << 20))} == {codec}
        found.append(
            (logged(serving), serving.groups.of("g").shard.committed_offsets.get("g", "orders", 1).offset)
        )
        await serving.close()
    assert found[0] == found[1]
    assert found[0][1] == 2


@in_loop
async def test_records_look_as_they_would_if_they_were_encoded(tmp_path):
    serving = await coordinating(tmp_path)
    connection = Connection(serving)
    for offset in (1, 2):
        await connection.ask(commit(("orders", 0, offset), metadata="here"))
    assert connection.shortened == 1
    for key, value in logged(serving):
        assert log_format.encode(log_format.decode(key, value)) == (key, value)
    await serving.close()
