"""One request after the other to the active controller: which is on its way, and when the next one leaves.

At most one is on its way; an answer to another is one that was given up, and counts for nothing. After a
success the next follows when its sender says so, or at once if there was news meanwhile. After a failure it
follows when the backoff is over, whatever the news.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Protocol

from quorate.protocol.api.brokers import BrokerHeartbeatRequest, BrokerRegistrationRequest
from quorate.protocol.errors import ErrorCode
from quorate.values import dataclass

__all__ = ["Asking", "Chance", "Flight", "Patience", "explain_failure"]

_DOUBLINGS_MAX: Final = 30  # more make no difference, and could overflow

Asked = BrokerRegistrationRequest | BrokerHeartbeatRequest


class Chance(Protocol):
    """Where random numbers come from: a `random.Random`, seeded by whoever runs this."""

    def uniform(self, a: float, b: float, /) -> float: ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait: for an answer, and after failures, give or take a fifth.

    >>> from random import Random
    >>> [round(Patience(4500, 50, 1000).backoff_ms(failures, Random(7))) for failures in (0, 1, 2, 3, 20)]
    [0, 46, 93, 186, 930]
    """

    answer_ms: float
    backoff_ms_first: float
    backoff_ms_max: float

    def backoff_ms(self, failures: int, chance: Chance) -> float:
        """Twice as long after each failure in a row."""
        if not failures:
            return 0.0
        doublings = min(failures - 1, _DOUBLINGS_MAX)
        return min(self.backoff_ms_first * 2.0**doublings, self.backoff_ms_max) * chance.uniform(0.8, 1.2)


@dataclass(frozen=True, slots=True)
class Flight:
    """A request on its way, and as whom it was sent."""

    number: int
    request: Asked
    epoch: int
    deadline_ms: float

    @property
    def name(self) -> str:
        return "Registration" if isinstance(self.request, BrokerRegistrationRequest) else "Heartbeat"


class Asking:
    """The state of the conversation."""

    def __init__(self, patience: Patience, chance: Chance) -> None:
        self.patience = patience
        self.flight: Flight | None = None
        self.failures = 0  # in a row
        self.due_ms = math.inf  # when the next request leaves, if none is on its way
        self._chance = chance
        self._number = 0
        self._has_news = False  # that the request on its way does not carry

    @property
    def deadline_ms(self) -> float:
        """When the next request leaves, or the one on its way is given up."""
        return self.due_ms if self.flight is None else self.flight.deadline_ms

    def is_due(self, now_ms: float) -> bool:
        return self.flight is None and now_ms >= self.due_ms

    def send(self, request: Asked, epoch: int, now_ms: float) -> Flight:
        assert self.flight is None
        self._number += 1
        self._has_news = False
        self.due_ms = math.inf
        self.flight = Flight(self._number, request, epoch, now_ms + self.patience.answer_ms)
        return self.flight

    def take(self, number: int) -> Flight | None:
        """The request of this number, which is answered; None if it was given up before."""
        if self.flight is None or self.flight.number != number:
            return None
        flight, self.flight = self.flight, None
        return flight

    def take_overdue(self, now_ms: float) -> Flight | None:
        """The request that is given up now."""
        flight = self.flight
        return None if flight is None or now_ms < flight.deadline_ms else self.take(flight.number)

    def hurry(self, now_ms: float) -> None:
        """There is news: it leaves now, or as soon as an answer to the request on its way is here."""
        if self.flight is None:
            self.due_ms = now_ms
        else:
            self._has_news = True

    def succeed(self, pause_ms: float, now_ms: float) -> None:
        self.failures = 0
        self.due_ms = now_ms if self._has_news else now_ms + pause_ms

    def fail(self, now_ms: float, *, is_misdirected: bool) -> float:
        """How long the next request waits. Who is told that another is in charge asks that one at once, but
        does not go round and round."""
        self.failures += 1
        delay_ms = self.patience.backoff_ms(self.failures - is_misdirected, self._chance)
        self.due_ms = now_ms + delay_ms
        return delay_ms

    def end(self) -> None:
        self.flight = None
        self.due_ms = math.inf


def explain_failure(code: int) -> tuple[str, str]:
    """The name of an error, and what it means to a broker that asked."""
    try:
        name = ErrorCode(code).name
    except ValueError:
        name = f"error {code}"
    return name, _MEANINGS.get(code, "the log of the controller may say why")


_MEANINGS: Final[Mapping[int, str]] = {
    ErrorCode.NOT_CONTROLLER: "whoever was asked is not the active controller",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: (
        "another process lives under this id, or did a moment ago. The id is free once that one has been shut"
        " down, or has been silent for broker.session.timeout.ms; if both shall run, give one another node.id"
    ),
    ErrorCode.INCONSISTENT_CLUSTER_ID: (
        "these controllers belong to another cluster: either the log directories were formatted for that one,"
        " or the wrong controllers are configured"
    ),
    ErrorCode.INVALID_REGISTRATION: (
        "the controller objects to the listeners, log directories or features of this broker; its log says"
        " to which"
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "the cluster uses a feature at a level that this broker does not know; the log of the controller says"
        " which"
    ),
    ErrorCode.STALE_BROKER_EPOCH: (
        "the controller knows this id with another epoch or not at all; the metadata log will tell"
    ),
    ErrorCode.REQUEST_TIMED_OUT: "the controller was too busy to look at it",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this broker may not do CLUSTER_ACTION on the cluster",
}
