"""What comes out of a step of the group coordinator: values, for its host to carry out.

The host appends the records in one batch. If that works it gives them to the state's `apply`, and the answers
leave once the batch is committed; what goes without records leaves at once. If the append is refused nothing
was applied: the host asks the state's `append_refused` what to do instead. If the leadership is lost, the
whole state is dropped, and with it every answer that still waits.

A request is known by its ticket until it is answered. Some are answered long after they came: a join waits
for the other members, a sync for the leader's assignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quorate.protocol.message import Message
from quorate.protocol.message import Record as Declared

__all__ = ["Answer", "Effects", "LogRecord", "Ticket"]

Ticket = int
"""The host's name of a request that waits for its answer."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of `__consumer_offsets`; without a value it says that the key is no more."""

    key: Declared
    value: Declared | None


@dataclass(frozen=True, slots=True)
class Answer:
    """Who is answered, and what."""

    ticket: Ticket
    response: Message


@dataclass(frozen=True, slots=True)
class Effects:
    """What has to be done: append, then apply, then answer."""

    records: Sequence[LogRecord] = ()
    answers: Sequence[Answer] = ()
    events: Sequence[object] = ()  # see `coordinator.events`

    def __add__(self, other: Effects) -> Effects:
        return Effects(
            [*self.records, *other.records], [*self.answers, *other.answers], [*self.events, *other.events]
        )
