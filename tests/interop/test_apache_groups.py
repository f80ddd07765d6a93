"""Groups are coordinated as an Apache broker coordinates them: the same conversations, the same answers."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from group_talks import TALKS, Table
from two_brokers import check_alike, two_brokers

from node.processes import HOST

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Of Apache's broker, and of ours."""
    with two_brokers(tmp_path_factory.mktemp("both"), {"t": 2}) as found:
        yield found


async def hear(port: int, name: str) -> list[str]:
    table = Table(HOST, port, f"group of {name}")
    try:
        await table.begin()
        await TALKS[name](table)
    finally:
        await table.close()
    return table.heard


@pytest.mark.parametrize("name", TALKS)
def test_the_same_conversation(
    ports: tuple[int, int], name: str, record_property: Callable[[str, object], None]
) -> None:
    theirs, ours = ports
    expected, found = asyncio.run(hear(theirs, name)), asyncio.run(hear(ours, name))
    check_alike(name, expected, found)
    record_property("figure", f"groups, as Apache: {name}: {len(found)} answers")
