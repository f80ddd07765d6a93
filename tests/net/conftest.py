"""Runs every asynchronous test here on each event loop that there is, with a deadline.

A test fails, too, if an exception reached the loop itself: nothing of ours may raise there.
"""

import asyncio
import inspect
from importlib import import_module
from importlib.util import find_spec

import pytest

LOOPS = ["asyncio", *(["uvloop"] if find_spec("uvloop") else [])]
TEST_SECONDS_MAX = 30


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if inspect.iscoroutinefunction(metafunc.function):
        metafunc.fixturenames.append("loop_name")
        metafunc.parametrize("loop_name", LOOPS)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    values = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    reached_the_loop = []

    async def test() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: reached_the_loop.append(context))
        async with asyncio.timeout(TEST_SECONDS_MAX):
            await pyfuncitem.obj(**values)

    new_event_loop = import_module(pyfuncitem.callspec.params["loop_name"]).new_event_loop
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(test())
    assert reached_the_loop == []
    return True
