"""What the request that is being served takes of the node's memory, beside its bytes: the objects that it is
decoded to, and the answer that is being built.

Both are claimed before they are made. If there is no room, nothing is made: the request is put back, waits
for its turn as others do who wait for memory, and is then begun anew with that much set aside for it. What
could not fit if nobody else held anything is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quorate.net.budget import Budget
from quorate.net.routes import AnswerTooLargeError, NoRoomError
from quorate.protocol.bounds import FREE_BYTES, allow

__all__ = ["Claims"]

# An answer is held twice: as what it is made of, and as its bytes.
_TIMES_OF_ANSWERS: Final = 2


class Claims:
    """Of one connection. `held_bytes` is what it has been granted."""

    __slots__ = ("_account", "_answer_bytes_max", "_budget", "_decoded_bytes", "held_bytes", "wanted_bytes")

    def __init__(self, budget: Budget, answer_bytes_max: int, account: Callable[[], None]) -> None:
        self._budget = budget
        self._answer_bytes_max = answer_bytes_max
        self._account = account
        self._decoded_bytes = 0
        self.held_bytes = 0
        self.wanted_bytes = 0
        """What a request waits for that was put back."""

    def decoding(self, asked_bytes: int, allowed_bytes: int) -> int:
        """A `bounds.Claim`. If there is more than was asked for, more is granted: so it is asked seldom."""
        allow(asked_bytes, allowed_bytes)
        more_bytes = min(2 * asked_bytes, allowed_bytes)
        if self._budget.fits(more_bytes - self.held_bytes):
            asked_bytes = more_bytes
        self._hold(asked_bytes)
        self._decoded_bytes = asked_bytes
        return asked_bytes

    def answering(self, answer_bytes: int) -> None:
        """See `RequestContext.expect`."""
        if answer_bytes > self._answer_bytes_max:
            raise AnswerTooLargeError(
                f"its answer would have some {answer_bytes} bytes, and {self._answer_bytes_max} are allowed"
            )
        if answer_bytes > FREE_BYTES:
            self._hold(self._decoded_bytes + _TIMES_OF_ANSWERS * answer_bytes)

    def _hold(self, size_bytes: int) -> None:
        more_bytes = size_bytes - self.held_bytes
        if more_bytes <= 0:
            return
        if not self._budget.fits(more_bytes):
            raise NoRoomError(size_bytes)
        self.held_bytes = size_bytes
        self._account()

    def put_back(self, wanted_bytes: int, frame_bytes: int) -> bool:
        """The request waits for so much; False if it could wait for ever. Whoever is told that there is not
        enough does not know how much more it would have asked for, and so it waits for twice as much."""
        self.release()
        room_bytes = self._budget.limit_bytes - frame_bytes
        self.wanted_bytes = min(2 * wanted_bytes, room_bytes)
        return wanted_bytes <= room_bytes

    def reserve(self) -> None:
        """There is room for what the request waits for."""
        self.held_bytes, self.wanted_bytes = self.wanted_bytes, 0

    def release(self) -> None:
        """The request has been answered."""
        self.held_bytes = self._decoded_bytes = 0
