"""A controller that is elected, waits to be told, and then writes as if nothing had happened since.

    python zombie_program.py HOST:PORT/chroot BROKER_ID

It prints `elected EPOCH`, waits for a line, and prints what came of a write.
"""

import asyncio
import random
import sys

from quorate.zookeeper.election import elect
from quorate.zookeeper.errors import ControllerMoved, SessionExpired
from quorate.zookeeper.fence import Fence
from quorate.zookeeper.jute import Create
from quorate.zookeeper.servers import Servers
from quorate.zookeeper.session import Session


async def main(connect: str, broker_id: int) -> None:
    def open_session():
        return Session.open(Servers.parse(connect), random=random.Random(), session_timeout_ms=1000)

    session = await open_session()
    fence = await elect(session, broker_id, 0)
    assert fence is not None
    print(f"elected {fence.epoch}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    try:
        await fence.write(Create("/by-the-zombie", b""))
        print("written", flush=True)
    except (ControllerMoved, SessionExpired) as error:
        print(type(error).__name__, flush=True)
    # Nor does another session help it: its epoch is over.
    await session.abandon()
    session = await open_session()
    try:
        await Fence(session, fence.epoch, fence.epoch_version).write(Create("/by-the-zombie", b""))
        print("written", flush=True)
    except ControllerMoved as error:
        print(type(error).__name__, flush=True)
    await session.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
