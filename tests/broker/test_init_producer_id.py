"""Ids of producers: from blocks, ahead of need, and never twice."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest
from serving import Serving, in_loop, turns

from quorate.broker.handlers import producer_ids
from quorate.broker.serving import Operation
from quorate.net.client import ConnectionLost
from quorate.protocol.api.transactions import InitProducerIdRequest
from quorate.protocol.errors import ApiError, ErrorCode

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def init(
    transactional_id: str | None = None, producer_id: int = -1, epoch: int = -1
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=1000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


async def an_id(serving: Serving, version: int = 5) -> int:
    response = await serving.ask(init(), version)
    assert (response.error_code, response.producer_epoch) == (0, 0)
    return int(response.producer_id)


async def code_of(serving: Serving, request: InitProducerIdRequest, version: int = 5) -> ErrorCode:
    response = await serving.ask(request, version)
    assert response.error_code
    assert (response.producer_id, response.producer_epoch) == (-1, -1)
    return ErrorCode(response.error_code)


@in_loop
async def test_every_version_gives_ids(tmp_path: Path):
    serving = Serving(tmp_path)
    serving.control_plane.blocks = [range(1000, 2000)]
    assert [await an_id(serving, version) for version in range(7)] == list(range(1000, 1007))
    assert serving.control_plane.allocations == 1
    assert await serving.ask(init(None, 1003, 5), 5), "who comes back gets another"
    await serving.close()


@in_loop
async def test_the_next_block_is_there_before_it_is_needed(tmp_path: Path):
    serving = Serving(tmp_path)
    plane = serving.control_plane
    plane.blocks = [range(10), range(500, 510), range(900, 910)]
    found = []
    for _ in range(9):
        assert plane.allocations == (1 if found else 0)
        found.append(await an_id(serving))
    await turns()
    assert plane.allocations == 2
    for _ in range(11):
        answer = serving.begin(init(), 5)
        assert not inspect.isawaitable(answer)
        found.append(answer.producer_id)
        await turns()
    assert found == [*range(10), *range(500, 510)]
    assert plane.allocations == 3
    await serving.close()


@in_loop
async def test_those_who_come_too_early_wait_together(tmp_path: Path):
    serving = Serving(tmp_path)
    plane = serving.control_plane
    plane.may_allocate.clear()
    plane.blocks = [range(10)]
    waiting = [serving.park(init(), 5) for _ in range(3)]
    await turns()
    assert plane.allocations == 1
    plane.may_allocate.set()
    assert sorted([(await one).producer_id for one in waiting]) == [0, 1, 2]
    await serving.close()


@in_loop
async def test_a_block_that_is_not_enough_for_all_who_wait(tmp_path: Path):
    serving = Serving(tmp_path)
    plane = serving.control_plane
    plane.may_allocate.clear()
    plane.blocks = [range(2), ApiError(ErrorCode.NOT_CONTROLLER)]
    waiting = [serving.park(init(), 5) for _ in range(3)]
    await turns()
    plane.may_allocate.set()
    codes = sorted([(await one).error_code for one in waiting])
    assert codes == [0, 0, LOADING]
    await serving.close()


@in_loop
async def test_it_is_not_waited_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(producer_ids, "WAIT_MS_MAX", 5)
    serving = Serving(tmp_path)
    serving.control_plane.may_allocate.clear()
    assert await code_of(serving, init()) is LOADING
    lost = serving.park(init(), 5)
    await turns()
    lost.cancel()
    await turns()
    # whoever asked, the block is for all
    serving.control_plane.blocks = [range(10)]
    serving.control_plane.may_allocate.set()
    await turns()
    assert await an_id(serving) == 0
    assert serving.control_plane.allocations == 1
    await serving.close()


@pytest.mark.parametrize("error", [ApiError(ErrorCode.NOT_CONTROLLER), ConnectionLost("nobody is there")])
@in_loop
async def test_a_controller_that_is_not_there(tmp_path: Path, error: Exception):
    serving = Serving(tmp_path)
    plane = serving.control_plane
    plane.blocks = [error, error, range(10)]
    assert await code_of(serving, init()) is LOADING
    assert await code_of(serving, init()) is LOADING
    assert plane.allocations == 1, "it is not asked again at once"
    serving.now_ms += producer_ids.RETRY_MS
    assert await code_of(serving, init()) is LOADING
    serving.now_ms += producer_ids.RETRY_MS
    assert await an_id(serving) == 0
    await serving.close()


@in_loop
async def test_what_is_refused(tmp_path: Path):
    serving = Serving(tmp_path)
    serving.control_plane.blocks = [range(10)]
    refused: list[tuple[Any, ErrorCode]] = [
        (init("mine"), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (init(""), ErrorCode.INVALID_REQUEST),
        (init(None, 5, -1), ErrorCode.INVALID_REQUEST),
        (init(None, -1, 5), ErrorCode.INVALID_REQUEST),
    ]
    for request, expected in refused:
        assert await code_of(serving, request) is expected
    serving.denied.add((Operation.IDEMPOTENT_WRITE, "kafka-cluster"))
    assert await an_id(serving) == 0, "who may write anywhere may be idempotent"
    serving.denied.add((Operation.WRITE, "*"))
    assert await code_of(serving, init()) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    await serving.close()


@in_loop
async def test_closing_ends_what_is_asked(tmp_path: Path):
    serving = Serving(tmp_path)
    serving.control_plane.may_allocate.clear()
    ids = serving.id_handler.ids
    asking = ids.prefetch()
    assert asking is not None
    await turns()
    ids.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    ids.close()
    await serving.close()
