"""Draws docs/up.svg: what `quorate up` shows of a cluster, one of whose brokers was just killed.

    python -m tools.draw_up

The cluster is real: three controllers and three brokers, a topic, SIGKILL for a broker. What is drawn is what
the command draws in a terminal of this width.
"""

from __future__ import annotations

import asyncio
import io
import re
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from quorate.cli.up_screen import Screen
from quorate.cli.up_status import Status
from quorate.client.admin import Admin, NewTopic
from quorate.client.cluster import Cluster
from quorate.testing.control import Launched, launch
from quorate.testing.profiles import DEVELOPMENT

PICTURE = Path(__file__).parent.parent / "docs" / "up.svg"
DATA = Path("/tmp/my-cluster")
TITLE = "quorate up --controllers 3 --brokers 3 --data /tmp/my-cluster"
COLUMNS = 100
DEADLINE_S = 60
KILLED = 2


def main() -> None:
    assert not DATA.exists(), f"{DATA} is in the way"
    wanted = {"controllers": 3, "brokers": 3, "port": 9092, "settings": dict(DEVELOPMENT)}
    console = Console(
        record=True, width=COLUMNS, force_terminal=True, color_system="truecolor", file=io.StringIO()
    )
    launched = launch(DATA, wanted)
    try:
        screen = Screen(console, launched, time.monotonic(), is_kept=True)
        _watch(screen, lambda status: status.is_ready)
        asyncio.run(_create_topic(launched.state()["bootstrap_servers"]))
        _watch(screen, lambda status: all(one.leads for one in status.brokers))
        launched.order("kill", KILLED)
        _watch(screen, lambda status: _is_fenced(status, KILLED))
        _settle(screen, launched)
        console.print(screen.look()[1])
    finally:
        launched.end()
    PICTURE.write_text(_plain(console.export_svg(title=TITLE, theme=MONOKAI, unique_id="up")))
    print(f"{PICTURE}: look at it, and take {DATA} away")


async def _create_topic(bootstrap_servers: str) -> None:
    async with Cluster(bootstrap_servers) as cluster:
        await Admin(cluster).create_topics(NewTopic("orders", partitions=12, replication_factor=3))


def _watch(screen: Screen, condition: Callable[[Status], bool]) -> None:
    """As somebody does who sits before it, until something is so."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition(screen.look()[0]):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.1)


def _is_fenced(status: Status, broker_id: int) -> bool:
    return any(one.id == broker_id and "fenced" in one.state for one in status.brokers)


def _settle(screen: Screen, launched: Launched) -> None:
    """Until what follows has been seen."""
    for _ in range(5):
        launched.state()
        screen.look()
        time.sleep(0.2)


def _plain(svg: str) -> str:
    """Without fonts from elsewhere: a picture that asks nobody for anything."""
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")


if __name__ == "__main__":
    main()
