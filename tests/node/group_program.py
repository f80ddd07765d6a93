"""A member of a group as a process of its own, which can be stopped and killed. What it does it prints.

    python group_program.py SERVERS GROUP TOPIC PROTOCOL SESSION_MS [INSTANCE]

    is 3 consumer-1 0,2     what is its own, at which generation or epoch, and under which id
    has 0,2                 what has just become its own, or - if that is nothing
    got 17                  a record, by its value; it is committed after it was printed
    failed NAME             something that a user would be told

It ends in order when it is asked to.
"""

import asyncio
import signal
import sys

from quorate.client.cluster import Cluster, ClusterSettings
from quorate.client.errors import Unavailable
from quorate.client.fetcher import FetcherSettings, Reset
from quorate.client.group_consumer import GroupConsumer, GroupConsumerSettings, GroupProtocol
from quorate.client.membership import MembershipSettings
from quorate.client.metadata import TopicPartition
from quorate.protocol.errors import ApiError

POLL_MS = 100
DEADLINE_MS = 60_000


def in_words(owned: frozenset[TopicPartition]) -> str:
    return ",".join(str(at.partition) for at in sorted(owned)) or "-"


def tell(owned: frozenset[TopicPartition]) -> None:
    print("has", in_words(owned))


async def take_part(
    servers: str, group: str, topic: str, protocol: str, session_ms: str, *names: str
) -> None:
    settings = GroupConsumerSettings(
        protocol=GroupProtocol(protocol),
        membership=MembershipSettings(
            session_timeout_ms=int(session_ms),
            heartbeat_interval_ms=200,
            rebalance_timeout_ms=30_000,
            instance_id=names[0] if names else None,
        ),
        fetcher=FetcherSettings(reset=Reset.EARLIEST),
    )
    is_over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, is_over.set)
    patient = ClusterSettings(deadline_ms=DEADLINE_MS)
    async with (
        Cluster(servers, settings=patient) as cluster,
        GroupConsumer(cluster, group, [topic], settings, when_assigned=tell) as consumer,
    ):
        said = None
        while not is_over.is_set():
            try:
                for part in await consumer.fetch(timeout_ms=POLL_MS):
                    for record in part.records():
                        print("got", (record.value or b"").decode().split()[0])
                await consumer.commit()
            except (ApiError, Unavailable) as error:
                print("failed", error.code.name if isinstance(error, ApiError) else type(error).__name__)
            state = consumer.generation, consumer.member_id, in_words(consumer.assignment)
            if state != said:
                print("is", *state)
                said = state
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(take_part(*sys.argv[1:]))
