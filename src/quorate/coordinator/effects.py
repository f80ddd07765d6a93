"""What comes out of a step of the group coordinator: values, for its host to carry out.

The host carries out one step before it begins the next: it appends the records in one batch and gives them
to the state's `apply`, all without waiting. The answers leave once the batch is committed, unless they are
`is_answered_at_once`; what goes without records leaves at once, unless `reads_uncommitted`. If the append is
refused nothing was applied: the host asks the state's `append_refused` what to do instead. If the leadership
is lost, the whole state is dropped, and with it every answer that still waits.

A request is known by its ticket until it is answered. Some are answered long after they came: a join waits
for the other members, a sync for the leader's assignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from quorate.metadata.event import Event
from quorate.protocol.message import Message
from quorate.protocol.message import Record as Declared

__all__ = ["Answer", "Caller", "Effects", "LogRecord", "Moment", "Producer", "Ticket", "Written"]

Ticket = int
"""The host's name of a request that waits for its answer."""


class Moment(NamedTuple):
    """Now, on two clocks: deadlines must not jump with the wall clock, timestamps in the log must be true."""

    now_ms: float
    """Only goes forward; deadlines are set on it."""
    wall_ms: int
    """Since 1970; what the log keeps."""


class Caller(NamedTuple):
    """Who asks, as far as a coordinator must know."""

    version: int
    """Of the request."""
    client_id: str
    client_host: str
    """As Java writes an address, `/10.0.0.1`: it is stored, and shown to whoever describes the group."""
    asker: object = None
    """By what the host knows whose rights these are."""


class Producer(NamedTuple):
    """Whose transaction records belong to."""

    id: int
    epoch: int


class LogRecord(NamedTuple):
    """One record of `__consumer_offsets`; without a value it says that the key is no more."""

    key: Declared
    value: Declared | None


class Answer(NamedTuple):
    """Who is answered, and what."""

    ticket: Ticket
    response: Message


class Written(Protocol):
    """What must be known of a step that has written something, as long as that is not committed."""

    @property
    def records(self) -> Sequence[LogRecord]: ...
    @property
    def answers(self) -> Sequence[Answer]: ...


class Effects(NamedTuple):
    """What has to be done: append, then apply, then answer."""

    records: Sequence[LogRecord] = ()
    answers: Sequence[Answer] = ()
    events: Sequence[Event] = ()  # see `coordinator.events`
    reads_uncommitted: bool = False
    """The answers tell what was appended before and may not be committed yet: they leave once it is."""
    is_answered_at_once: bool = False
    """The answers do not rest on the records: they leave once these are appended."""
    producer: Producer | None = None
    """If there is one, the records are a transactional batch of that producer, without a sequence."""
