"""How much one peer may ask of us: nothing that arrives over a connection is without a limit."""

from __future__ import annotations

from quorate.values import dataclass

__all__ = ["Limits"]

_KIB = 1024
_MIB = 1024 * _KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a listener, and of the client's end of a connection."""

    # The largest request: socket.request.max.bytes. A client sends none that is larger.
    request_bytes_max: int = 100 * _MIB
    # The largest response. A server that made a larger one closes the connection instead of sending it; a
    # client closes it when one is announced. The metadata of two million partitions fits.
    response_bytes_max: int = 512 * _MIB
    # Memory that a frame is given on the word of its size alone. The rest follows as its bytes arrive, so
    # that announcing large frames and not sending them costs us little. Producers' usual batches fit.
    frame_bytes_at_once: int = _MIB + 64 * _KIB
    # What one read takes at most, unless a large frame is under way.
    read_buffer_bytes: int = 256 * _KIB

    # Server: requests of one connection that have arrived and not been answered, and their bytes. Above it we
    # stop reading; a single read may exceed it. Client: requests sent and not answered; others wait.
    requests_in_flight_max: int = 64
    request_bytes_in_flight_max: int = 8 * _MIB
    # Requests that one connection may have served before the others get their turn.
    requests_per_turn_max: int = 64

    # Bytes written that the peer has not taken: above the high mark nothing more is served to it (a client
    # sends no more), until they have fallen to the low mark. Answers are joined before they are written, so
    # there may be twice as many bytes, and one response.
    write_buffer_high_bytes: int = _MIB
    write_buffer_low_bytes: int = 256 * _KIB

    # A connection on which nothing moves for this long is closed: connections.max.idle.ms.
    idle_ms_max: int = 600_000
    # The same for a connection that is ending: one side has closed it, and answers are still under way.
    drain_ms_max: int = 30_000

    def __post_init__(self) -> None:
        assert min(getattr(self, name) for name in self.__slots__) > 0, self
        assert self.write_buffer_low_bytes < self.write_buffer_high_bytes, self
        assert self.request_bytes_max <= 0x7FFF_FFFF, "the size of a frame is an int32"
        assert self.response_bytes_max <= 0x7FFF_FFFF, "the size of a frame is an int32"
        assert self.read_buffer_bytes >= 64, "a read buffer has room for a size, and for more than that"
