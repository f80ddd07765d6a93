"""Proposals for in-sync replicas: what becomes of each answer of the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import Serving, a_batch, in_loop, produce, turns

from quorate.broker import isr_proposals
from quorate.broker.control_plane import IsrAnswer
from quorate.broker.isr_proposals import IsrProposals
from quorate.broker.leadership import Proposal
from quorate.broker.partition import Partition, TopicPartition
from quorate.protocol.errors import ApiError, ErrorCode

Answer = dict[TopicPartition, IsrAnswer] | ErrorCode | Exception
Asked = Sequence[tuple[TopicPartition, Proposal]]


class Controller:
    """Answers proposals as the test says; until it does, they wait."""

    def __init__(self) -> None:
        self.asked: list[list[tuple[TopicPartition, Proposal]]] = []
        self._answers: asyncio.Queue[Callable[[Asked], Answer]] = asyncio.Queue()

    def answer(self, *each: ErrorCode | IsrAnswer) -> None:
        """To every proposal of the next requests, one after the other."""
        for one in each:
            made = one if isinstance(one, IsrAnswer) else None
            self.answer_with(
                lambda asked, one=one, made=made: {  # type: ignore[misc]
                    key: made or _said(one, proposal) for key, proposal in asked
                }
            )

    def answer_with(self, how: Callable[[Asked], Answer]) -> None:
        self._answers.put_nowait(how)

    async def propose(self, proposals: Asked) -> dict[TopicPartition, IsrAnswer] | ErrorCode:
        self.asked.append(list(proposals))
        found = (await self._answers.get())(proposals)
        if isinstance(found, Exception):
            raise found
        return found


def _said(code: ErrorCode, proposal: Proposal) -> IsrAnswer:
    if code is not ErrorCode.NONE:
        return IsrAnswer(code)
    return IsrAnswer(code, proposal.isr, proposal.leader_epoch, proposal.partition_epoch + 1)


class Scene:
    def __init__(self, serving: Serving, controller: Controller, proposals: IsrProposals) -> None:
        self.serving = serving
        self.controller = controller
        self.proposals = proposals

    async def led(self, name: str, isr: Sequence[int] = (1, 2), **about: Any) -> Partition:
        """A partition with one record, led by us, with replicas on 1, 2 and 3."""
        await self.serving.topic(name, replicas=(1, 2, 3), isr=isr, **about)
        await self.serving.ask(produce((name, 0, a_batch())), 9)
        return self.serving.partition(name)

    def catch_up(self, partition: Partition, broker_id: int = 3) -> Proposal:
        """A follower has everything, and is proposed."""
        proposal = partition.fetched_by(broker_id, partition.log.end_offset, 0, 100 + broker_id)
        assert proposal is not None
        self.proposals.add(partition, proposal)
        return proposal

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.002)

    async def until_asked(self, times: int) -> None:
        await self.until(lambda: len(self.controller.asked) >= times)
        await turns()


@asynccontextmanager
async def scene(directory: Path) -> Any:
    serving, controller = Serving(directory), Controller()
    proposals = IsrProposals(controller)  # type: ignore[arg-type]
    running = asyncio.create_task(proposals.run())
    try:
        yield Scene(serving, controller, proposals)
        assert not running.done(), running
    finally:
        running.cancel()
        await serving.close()


@in_loop
async def test_what_the_controller_grants_counts_at_once(tmp_path: Path):
    async with scene(tmp_path) as it:
        partition = await it.led("t", isr=(1,), min_insync_replicas=2)
        assert partition.high_watermark == 0, "too few are in sync"
        it.catch_up(partition)
        it.controller.answer(ErrorCode.NONE)
        await it.until(lambda: partition.leading.isr == (1, 3))
        assert partition.leading.proposal is None
        assert (partition.partition_epoch, partition.high_watermark) == (1, 1)


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
@in_loop
async def test_what_is_refused_may_be_proposed_again(tmp_path: Path, code: ErrorCode):
    async with scene(tmp_path) as it:
        partition = await it.led("t")
        it.catch_up(partition)
        it.controller.answer(code)
        await it.until(lambda: partition.leading.proposal is None)
        assert partition.leading.isr == (1, 2)
        it.catch_up(partition)
        await it.until_asked(2)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
@in_loop
async def test_who_knows_better_is_waited_for(tmp_path: Path, code: ErrorCode):
    """Nothing is proposed, and what was still counts, until there is metadata."""
    async with scene(tmp_path) as it:
        partition = await it.led("t")
        proposal = it.catch_up(partition)
        it.controller.answer(code)
        other = await it.led("u")
        await it.until_asked(1)
        it.controller.answer(ErrorCode.NONE)
        it.catch_up(other)
        await it.until(lambda: other.leading.isr == (1, 2, 3))
        assert partition.leading.proposal is proposal
        assert partition.fetched_by(3, 1, 0, 103) is None
        assert [[key.topic for key, _ in asked] for asked in it.controller.asked] == [["t"], ["u"]]
        await it.serving.assign("t", replicas=(1, 2, 3), isr=(1, 2), partition_epoch=5)
        it.catch_up(partition)
        await it.until_asked(3)


@pytest.mark.parametrize(
    "answers",
    [
        (ErrorCode.NOT_CONTROLLER,),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
@in_loop
async def test_what_is_in_doubt_is_sent_again(
    tmp_path: Path, answers: tuple[ErrorCode, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(isr_proposals, "RETRY_S", 0.001)
    async with scene(tmp_path) as it:
        partition = await it.led("t")
        proposal = it.catch_up(partition)
        it.controller.answer(*answers, ErrorCode.NONE)
        await it.until(lambda: partition.leading.isr == (1, 2, 3))
        assert [asked[0][1] for asked in it.controller.asked] == [proposal] * (len(answers) + 1)


@pytest.mark.parametrize(
    "answer",
    [
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.NETWORK_EXCEPTION,
        ApiError(ErrorCode.NOT_CONTROLLER, "nobody leads"),
        {},
    ],
    ids=str,
)
@in_loop
async def test_a_request_that_failed_as_a_whole_is_sent_again(
    tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(isr_proposals, "RETRY_S", 0.001)
    async with scene(tmp_path) as it:
        partition = await it.led("t")
        it.catch_up(partition)
        it.controller.answer_with(lambda _: answer)
        it.controller.answer(ErrorCode.NONE)
        await it.until(lambda: partition.leading.isr == (1, 2, 3))
        assert len(it.controller.asked) == 2


@in_loop
async def test_one_request_at_a_time_with_all_that_has_come_up(tmp_path: Path):
    async with scene(tmp_path) as it:
        partitions = [await it.led(name) for name in "tuv"]
        for partition in partitions:
            it.catch_up(partition)
            await turns()
        assert [[key.topic for key, _ in asked] for asked in it.controller.asked] == [["t"]]
        it.controller.answer(ErrorCode.NONE, ErrorCode.NONE)
        await it.until(lambda: all(one.leading.isr == (1, 2, 3) for one in partitions))
        assert [key.topic for key, _ in it.controller.asked[1]] == ["u", "v"]


@in_loop
async def test_a_request_has_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(isr_proposals, "PROPOSALS_MAX", 2)
    async with scene(tmp_path) as it:
        partitions = [await it.led(name) for name in "tuv"]
        for partition in partitions:
            it.catch_up(partition)
        it.controller.answer(ErrorCode.NONE, ErrorCode.NONE)
        await it.until(lambda: all(one.leading.isr == (1, 2, 3) for one in partitions))
        assert [len(asked) for asked in it.controller.asked] == [2, 1]


@in_loop
async def test_metadata_overtakes_the_answer(tmp_path: Path):
    """What the controller has decided since is newer than what it says here."""
    async with scene(tmp_path) as it:
        partition = await it.led("t")
        it.catch_up(partition)
        await it.until_asked(1)
        await it.serving.assign("t", replicas=(1, 2, 3), isr=(1,), partition_epoch=7)
        it.controller.answer(IsrAnswer(ErrorCode.NONE, (1, 2, 3), 0, 1))
        await turns()
        assert (partition.leading.isr, partition.partition_epoch) == ((1,), 7)


@in_loop
async def test_who_does_not_lead_any_more_proposes_nothing(tmp_path: Path):
    async with scene(tmp_path) as it:
        lost, led = await it.led("t"), await it.led("u")
        it.catch_up(led)
        await it.until_asked(1)
        it.catch_up(lost)
        await it.serving.assign("t", replicas=(1, 2, 3), leader=2, leader_epoch=1)
        it.controller.answer(ErrorCode.NONE)
        await it.until(lambda: led.leading.isr == (1, 2, 3))
        await turns()
        assert len(it.controller.asked) == 1


@in_loop
async def test_an_answer_for_an_epoch_that_is_over_changes_nothing(tmp_path: Path):
    async with scene(tmp_path) as it:
        partition = await it.led("t")
        it.catch_up(partition)
        await it.until_asked(1)
        await it.serving.assign("t", replicas=(1, 2, 3), isr=(1, 2), leader_epoch=4)
        it.controller.answer(IsrAnswer(ErrorCode.NONE, (1, 2, 3), 0, 9))
        await turns()
        assert (partition.leading.isr, partition.partition_epoch) == ((1, 2), 4)
        assert partition.leading.high_watermark == 0, "nobody has fetched in this epoch"
