"""Connections as kernels see them: two sockets, and a pipe in each direction, with TCP's manners.

Inside a connection bytes are never lost, doubled or reordered; segments may be split and joined. What goes
wrong is time and knowledge:

- A lost segment delays everything behind it, until a retransmission whose back-off doubles from 200 ms. So
  after a cut has healed, an old connection resumes late; a new one works at once.
- When only one direction is cut, the data of the other one still arrives for a while, but its
  acknowledgements do not come back: after one back-off the sender only repeats itself, and both sides stall.
- Unacknowledged for too long, a sender gives up with ETIMEDOUT. A side with nothing to send never learns.
- A process that is killed has its sockets closed by its kernel: FIN, or RST if it had not read everything. A
  machine that lost power says nothing; after it booted it answers the next segment with RST.

Compared with a kernel this leaves out congestion control, and acknowledges what the *process* read.
"""

from __future__ import annotations

import errno
import random
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from quorate.lab.clockwork import Handle, Owner
from quorate.lab.node_loop import NodeLoop
from quorate.lab.wires import Wires

__all__ = ["Arrival", "Pipe", "Reader", "Segment", "Socket", "reset_error", "timeout_error"]

SEND_BUFFER_BYTES = 256 * 1024
RETRANSMIT_NS = 200_000_000
RETRANSMIT_NS_MAX = 120_000_000_000

Part = tuple[bytes | memoryview, memoryview | None]
"""Bytes on their way, and the changeable buffer they were copied from, which nobody may change until then."""


class Arrival(Enum):
    """What a segment brings."""

    OPEN = auto()
    DATA = auto()
    FIN = auto()


class Reader(Protocol):
    """The transport that belongs to a socket, if its process has one. Called in steps of its loop."""

    def readable(self) -> None: ...

    def writable(self) -> None: ...

    def failed(self) -> None: ...

    @property
    def has_backlog(self) -> bool: ...


class Segment:
    """What travels as one."""

    __slots__ = ("arrival_ns", "handle", "kind", "parts", "sent_ns")

    def __init__(self, kind: Arrival, parts: list[Part]) -> None:
        self.kind = kind
        self.parts = parts
        self.sent_ns = self.arrival_ns = -1
        self.handle: Handle | None = None


class Socket:
    """One end of a connection."""

    def __init__(self, loop: NodeLoop, address: tuple[str, int]) -> None:
        self.loop = loop
        self.machine = loop.machine
        self.address = address
        self.reader: Reader | None = None
        self.on_open: Callable[[], bool] | None = (
            None  # a listener's answer to the first segment: taken or not
        )
        self.closed = False  # by its process, or with it
        self._gone = False  # its kernel knows nothing about it any more
        self._error: OSError | None = None
        self._received: deque[bytes] = deque()
        self._fin_received = False
        self.out: Pipe
        self.incoming: Pipe

    # What the process does

    def send(self, part: Part) -> int:
        """Takes as many bytes as there is room for; an error that nobody has heard of yet is raised here."""
        if self._error is not None:
            error, self._error = self._error, _broken_pipe()
            raise error
        data, original = part
        room = SEND_BUFFER_BYTES - self.out.held_bytes
        if len(data) <= room:
            self.out.send(data, original)
            return len(data)
        if room > 0:
            self.out.send(memoryview(data)[:room], None if original is None else original[:room])
        return max(0, room)

    def read(self, size_max: int) -> bytes | None:
        """Received bytes, b"" when the peer has ended, None when there is nothing yet. Raises what went
        wrong, but only after the bytes that came before it."""
        received = self._received
        if received:
            data = received.popleft()
            if received and len(data) < size_max:
                data = b"".join((data, *received))
                received.clear()
            if len(data) > size_max:
                received.appendleft(data[size_max:])
                data = data[:size_max]
            self.incoming.was_read(len(data))
            return data
        if self._error is not None:
            error, self._error = self._error, _broken_pipe()
            raise error
        return b"" if self._fin_received else None

    def has_news(self) -> bool:
        """Whether a read would say something."""
        return bool(self._received) or self._error is not None or self._fin_received

    def shut_down_writing(self) -> None:
        if not self._gone:
            self.out.transmit(Segment(Arrival.FIN, []))

    def close(self) -> None:
        """The process closed it, or ended: FIN, or RST if it leaves something unread."""
        if self.closed:
            return
        self.closed = True
        self.incoming.disown()
        if self._gone:
            return
        if self._received:
            self._gone = True
            self.out.drop()
            self.out.send_reset()
        elif not self.out.finishing:
            self.out.transmit(Segment(Arrival.FIN, []))

    # What happens to it

    def vanish(self) -> None:
        """Its machine lost power. What it had put on the wire may still arrive."""
        self.closed = self._gone = True
        self.out.drop()
        self.incoming.disown()

    def fail(self, error: OSError) -> None:
        """The connection is broken. A process that is not listening does not hear of it."""
        if self._gone:
            return
        self._gone = True
        self.out.drop()
        if not self.closed:
            self._error = error
            if self.reader is not None:
                self.loop.clockwork.soon(self.loop, self.reader.failed)

    def arrive(self, kind: Arrival, data: list[bytes]) -> None:
        if kind is Arrival.OPEN and self.on_open is not None and not self.closed and self.on_open():
            return
        if self.closed or self._gone or kind is Arrival.OPEN:
            if kind is not Arrival.FIN:  # the usual end of a connection needs no answer
                self._gone = self.closed = True
                self.out.send_reset()
            return
        if kind is Arrival.FIN:
            self._fin_received = True
        else:
            self._received.extend(data)
        if self.reader is not None:
            self.reader.readable()

    def reset_arrives(self) -> None:
        self.fail(_broken_pipe() if self._fin_received else reset_error())


class Pipe:
    """One direction of a connection: what is on the wire, and what waits because the wire is cut."""

    def __init__(
        self, wires: Wires, number: int, source: Socket, target: Socket, draws: random.Random
    ) -> None:
        self.number = number
        self.source = source
        self.target = target
        self.held_bytes = 0  # in the send buffer: not known to be read by the other side
        self.finishing = False  # FIN is on its way or has arrived
        self.finished = False  # nothing will come out of it any more
        self._wires = wires
        self._clockwork = wires.clockwork
        self._draws = draws
        self._flying: deque[Segment] = deque()
        self._waiting: deque[Segment] = deque()
        self._last_arrival_ns = 0
        self._read_unheard_bytes = 0
        self._stalled_since_ns: int | None = None
        self._grace_until_ns = 0
        self._timeout: Handle | None = None
        self._retry: Handle | None = None

    def send(self, data: bytes | memoryview, original: memoryview | None) -> None:
        """Sends bytes, sometimes in two pieces."""
        size = len(data)
        self.held_bytes += size
        probability = self._wires.split_probability
        if probability and size > 1 and self._draws.random() < probability:
            at = self._draws.choice((1, self._draws.randrange(1, size), size - 1))
            view = memoryview(data)
            first, second = (None, None) if original is None else (original[:at], original[at:])
            self.transmit(Segment(Arrival.DATA, [(view[:at], first)]))
            self.transmit(Segment(Arrival.DATA, [(view[at:], second)]))
            return
        flying = self._flying
        if flying and self._stalled_since_ns is None:  # joined with what was sent at the same instant
            last = flying[-1]
            if (
                last.kind is Arrival.DATA
                and last.sent_ns == self._clockwork.now_ns
                and self._draws.random() < self._wires.join_probability
            ):
                last.parts.append((data, original))
                return
        self.transmit(Segment(Arrival.DATA, [(data, original)]))

    def transmit(self, segment: Segment) -> None:
        """Puts a segment on the wire, or behind those that wait."""
        if segment.kind is Arrival.FIN:
            self.finishing = True
        if self.finished:
            return
        wires, source, target = self._wires, self.source.machine, self.target.machine
        if self._stalled_since_ns is None and wires.troubled:
            if wires.is_cut(source, target):
                self._stall(grace_ns=-1)
            elif wires.is_cut(target, source):
                self._stall(grace_ns=RETRANSMIT_NS)
        if self._stalled_since_ns is not None and (
            self._waiting or self._clockwork.now_ns > self._grace_until_ns or wires.is_cut(source, target)
        ):
            self._waiting.append(segment)
        else:
            self._fly(segment)

    def send_reset(self) -> None:
        """Tells the other side that there is no connection. Nobody repeats it if it is lost."""
        self.finished = True
        source, target = self.source.machine, self.target.machine
        if not self._wires.is_cut(source, target):
            owner: Owner = self._clockwork.kernel if self.target.closed else self.target.loop
            self._clockwork.at(self._arrival_ns(0), owner, self.target.reset_arrives)

    def was_read(self, size: int) -> None:
        """The receiver took bytes. The sender hears of it only if it waits for room: otherwise it costs a
        step for nothing."""
        if self._stalled_since_ns is not None:
            self._read_unheard_bytes += size
        elif self.source.reader is not None and self.source.reader.has_backlog:
            back_ns = self._wires.latency_ns(self.target.machine, self.source.machine, 0, self._draws)
            at_ns = self._clockwork.now_ns + back_ns
            self._clockwork.at(at_ns, self.source.loop, self._room_returns, (size,))
        else:
            self.held_bytes -= size

    def path_cut(self) -> None:
        """The wire in our direction is cut: what is on it must be sent again."""
        if self._flying:
            for segment in self._flying:
                assert segment.handle is not None
                segment.handle.cancel()
            self._waiting.extendleft(reversed(self._flying))
            self._flying.clear()
            self._last_arrival_ns = self._clockwork.now_ns
            self._stall(grace_ns=-1)

    def acknowledgements_cut(self) -> None:
        """The wire back is cut: what is on ours arrives, but we do not hear of it."""
        if self._flying:
            self._stall(grace_ns=RETRANSMIT_NS)

    def path_healed(self) -> None:
        """Resumes at the next retransmission, which is the later, the longer the outage was."""
        if self._stalled_since_ns is None or self._retry is not None:
            return
        if not self._wires.is_open(self.source.machine, self.target.machine):
            return
        attempt_ns, backoff_ns = self._stalled_since_ns + RETRANSMIT_NS, RETRANSMIT_NS
        while attempt_ns < self._clockwork.now_ns:
            backoff_ns = min(2 * backoff_ns, RETRANSMIT_NS_MAX)
            attempt_ns += backoff_ns
        self._retry = self._clockwork.at(attempt_ns, self._clockwork.kernel, self._retransmit)

    def lose_what_flies(self) -> None:
        """A moment of loss: everything behind the lost segment waits for its retransmission."""
        self.path_cut()
        self.path_healed()

    def disown(self) -> None:
        """The receiving process is gone or does not care: its kernel answers from now on."""
        for segment in self._flying:  # a paused process may have put off some: all are planned anew, in order
            assert segment.handle is not None
            segment.handle.cancel()
            segment.handle = self._clockwork.at(
                segment.arrival_ns, self._clockwork.kernel, self._arrive, (segment,)
            )

    def drop(self) -> None:
        """Forgets what was not sent yet; nothing is sent any more."""
        self.finished = True
        self._waiting.clear()
        self._recover()

    def _fly(self, segment: Segment) -> None:
        size = 0
        for data, _ in segment.parts:
            size += len(data)
        segment.sent_ns = self._clockwork.now_ns
        owner: Owner = self._clockwork.kernel if self.target.closed else self.target.loop
        segment.arrival_ns = self._arrival_ns(size)
        segment.handle = self._clockwork.at(segment.arrival_ns, owner, self._arrive, (segment,))
        self._flying.append(segment)

    def _arrival_ns(self, size: int) -> int:
        latency_ns = self._wires.latency_ns(self.source.machine, self.target.machine, size, self._draws)
        self._last_arrival_ns = max(self._clockwork.now_ns + latency_ns, self._last_arrival_ns + 1)
        return self._last_arrival_ns

    def _arrive(self, segment: Segment) -> None:
        first = self._flying.popleft()
        assert first is segment, "segments of a connection arrive in the order in which they were sent"
        data = []
        for sent, original in segment.parts:
            data.append(bytes(sent))
            if original is not None and original != sent:
                problem = "a buffer was changed after write() and before its bytes had arrived"
                self.source.loop.call_exception_handler({"message": problem})
        if segment.kind is Arrival.FIN:
            self.finished = True
            self._recover()
        self.target.arrive(segment.kind, data)

    def _stall(self, grace_ns: int) -> None:
        now_ns = self._clockwork.now_ns
        if self._stalled_since_ns is None:
            self._stalled_since_ns = now_ns
            self._grace_until_ns = now_ns + grace_ns
            self._timeout = self._clockwork.at(
                now_ns + self._wires.user_timeout_ns, self._clockwork.kernel, self._give_up
            )

    def _recover(self) -> None:
        self._stalled_since_ns = None
        for handle in (self._timeout, self._retry):
            if handle is not None:
                handle.cancel()
        self._timeout = self._retry = None

    def _give_up(self) -> None:
        self._timeout = None
        self.source.fail(timeout_error())

    def _retransmit(self) -> None:
        self._retry = None
        if not self._wires.is_open(self.source.machine, self.target.machine):
            return
        self._recover()
        while self._waiting:
            self._fly(self._waiting.popleft())
        if self._read_unheard_bytes:
            heard, self._read_unheard_bytes = self._read_unheard_bytes, 0
            self._clockwork.soon(self.source.loop, self._room_returns, (heard,))

    def _room_returns(self, size: int) -> None:
        self.held_bytes -= size
        if self.source.reader is not None and self.source.reader.has_backlog:
            self.source.reader.writable()


def reset_error() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


def timeout_error() -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, "Connection timed out")


def _broken_pipe() -> BrokenPipeError:
    return BrokenPipeError(errno.EPIPE, "Broken pipe")
