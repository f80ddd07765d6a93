"""A member of a group, of somebody else's client, as a process of its own, which can be stopped and killed.

    python member_program.py SERVERS GROUP TOPIC KIND SESSION_MS [INSTANCE]

    is -1 0,2               what is its own, or - if that is nothing; few clients say at which generation
    got 17                  a record, by its value; it is committed after it was printed
    committed 0:12 2:9      what the coordinator has acknowledged, by partition
    failed ERROR            a commit that was refused

It commits whenever it has read, and waits for it. It ends in order when it is asked to.
"""

import signal
import sys
import threading
from typing import Any

from group_members import COMMIT_ERRORS, COMMITTING, Committing


def settings_of(kind: str, session_ms: str, *names: str) -> dict[str, Any]:
    settings: dict[str, Any] = {"enable_auto_commit": False}
    if not kind.endswith(", consumer"):  # with that protocol the broker says it
        settings["session_timeout_ms"] = int(session_ms)
    if names:
        settings["group_instance_id"] = names[0]
    return settings


def commit(member: Committing) -> None:
    try:
        acknowledged = member.commit()
    except COMMIT_ERRORS as error:
        print("failed", repr(error))
    else:
        if acknowledged:
            print("committed", *(f"{at}:{offset}" for (_, at), offset in sorted(acknowledged.items())))


def take_part(servers: str, group: str, topic: str, kind: str, session_ms: str, *names: str) -> None:
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    member = COMMITTING[kind](**settings_of(kind, session_ms, *names))
    member.open(servers, group, topic)
    said = None
    while not is_over.is_set():
        values = member.read()
        for value in values:
            print("got", (value or b"").decode().split()[0])
        if values:
            commit(member)
        owned = ",".join(str(partition) for _, partition in sorted(member.owned())) or "-"
        if owned != said:
            print("is -1", owned)
            said = owned
        sys.stdout.flush()
    member.close()


if __name__ == "__main__":
    take_part(*sys.argv[1:])
