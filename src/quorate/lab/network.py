"""The network of a world: machines with addresses, listeners, connections, and what can be done to them.

`NodeLoop.create_server` and `create_connection` end here. To open a connection costs a round trip; to a
closed port it is refused after one; when nothing gets through, the first segment is repeated after 1, 3,
7... seconds, and a connection attempt that nobody limits ends after two minutes. See `lab.tcp` for what
happens inside a connection.
"""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from collections.abc import Callable
from typing import Any

from quorate.lab.clockwork import Clockwork
from quorate.lab.node_loop import NodeLoop
from quorate.lab.tcp import Arrival, Pipe, Segment, Socket, reset_error, timeout_error
from quorate.lab.transport import StreamTransport
from quorate.lab.wires import Link, Wires
from quorate.values import dataclass

__all__ = ["Network"]

_Factory = Callable[[], asyncio.BaseProtocol]

SYN_RETRY_NS = 1_000_000_000
SYN_ATTEMPTS = 7
_EPHEMERAL_PORT = 32768
_LOOPBACK_ADDRESS = "127.0.0.1"
_LOOPBACK_NAMES = ("localhost", _LOOPBACK_ADDRESS)
_EVERY_ADDRESS = (None, "", "0.0.0.0", "::")
_PIPES_PRUNED_AT = 256


class Network:
    """Everything between the processes of a world."""

    def __init__(self, clockwork: Clockwork, stream: Callable[[str, str], random.Random]) -> None:
        self.wires = Wires(clockwork, stream("network", "wires"))
        self._clockwork = clockwork
        self._stream = stream
        self._draws = stream("network", "handshakes")
        self._addresses: dict[str, str] = {}
        self._machines: dict[str, str] = {}
        self._listeners: dict[tuple[str, int], _Listener] = {}
        self._ports: dict[str, int] = {}
        self._pipes: dict[int, Pipe] = {}
        self._connections = 0
        self._prune_at = _PIPES_PRUNED_AT

    def add_machine(self, machine: str) -> str:
        """Gives a machine an address; its name resolves to it."""
        number = len(self._addresses) + 1
        address = f"10.0.{number // 250}.{number % 250 + 1}"
        self._addresses[machine] = address
        self._machines[machine] = self._machines[address] = machine
        self._ports[machine] = _EPHEMERAL_PORT
        return address

    # Faults

    def cut(self, machine: str, to: str) -> None:
        """Nothing gets from one machine to the other any more; the other direction is not touched."""
        assert machine in self._addresses, machine
        assert to in self._addresses, to
        if machine != to:
            self.wires.cut(machine, to)
            self._path_cut(lambda source, target: (source, target) == (machine, to))

    def heal(self, machine: str, to: str) -> None:
        """Undoes `cut`. Connections that stalled resume at their next retransmission."""
        self.wires.heal(machine, to)
        self._path_healed()

    def heal_all(self) -> None:
        for machine, to in self.wires.cuts():
            self.wires.heal(machine, to)
        self._path_healed()

    def lose_packets(self, machine: str, to: str) -> None:
        """A moment of loss in one direction: what is on the wire arrives a retransmission later."""
        for pipe in self._between(machine, to):
            pipe.lose_what_flies()

    def reset_connections(self, machine: str, other: str) -> None:
        """Something in the middle forgot all connections between two machines: both ends are reset."""
        for pipe in [*self._between(machine, other), *self._between(other, machine)]:
            pipe.source.fail(reset_error())

    def set_latency(self, machine: str, to: str, link: Link | None) -> None:
        self.wires.set_link(machine, to, link)

    def process_died(self, loop: NodeLoop) -> None:
        """The kernel closes what a process had open."""
        for key in [key for key, listener in self._listeners.items() if listener.loop is loop]:
            del self._listeners[key]
        for pipe in list(self._pipes.values()):
            if pipe.source.loop is loop:
                pipe.source.close()

    def machine_down(self, machine: str) -> None:
        """Power is gone: its connections say nothing any more, not even goodbye."""
        self._listeners = {key: each for key, each in self._listeners.items() if key[0] != machine}
        for pipe in list(self._pipes.values()):
            if pipe.source.machine == machine:
                pipe.source.vanish()
        self.wires.machine_down(machine)
        self._path_cut(lambda source, target: source != target and machine in (source, target))

    def machine_up(self, machine: str) -> None:
        self.wires.machine_up(machine)
        self._path_healed()

    def _path_cut(self, is_cut: Callable[[str, str], bool]) -> None:
        for pipe in list(self._pipes.values()):
            source, target = pipe.source.machine, pipe.target.machine
            if is_cut(source, target):
                pipe.path_cut()
            elif is_cut(target, source):
                pipe.acknowledgements_cut()

    def _path_healed(self) -> None:
        for pipe in list(self._pipes.values()):
            pipe.path_healed()

    def _between(self, machine: str, to: str) -> list[Pipe]:
        return [
            pipe
            for pipe in self._pipes.values()
            if (pipe.source.machine, pipe.target.machine) == (machine, to)
        ]

    # Names and listeners

    def addresses(self, loop: NodeLoop, host: str | None, port: int) -> list[tuple[Any, ...]]:
        address = self._addresses[loop.machine] if host is None else self._address(loop, host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    def listen(
        self, loop: NodeLoop, protocol_factory: _Factory, host: str | None, port: int, *, serving: bool
    ) -> asyncio.AbstractServer:
        own = self._addresses[loop.machine]
        address = "0.0.0.0" if host in _EVERY_ADDRESS else self._address(loop, str(host))
        if address not in ("0.0.0.0", own, _LOOPBACK_ADDRESS):
            raise OSError(errno.EADDRNOTAVAIL, f"{address} is not an address of {loop.machine}")
        port = port or self._next_port(loop.machine)
        if (loop.machine, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{loop.machine} has a listener on port {port} already")
        listener = _Listener(self, loop, protocol_factory, (address, port))
        if serving:
            self.open_listener(listener)
        return listener

    def open_listener(self, listener: _Listener) -> None:
        self._listeners[listener.loop.machine, listener.address[1]] = listener

    def close_listener(self, listener: _Listener) -> None:
        key = listener.loop.machine, listener.address[1]
        if self._listeners.get(key) is listener:
            del self._listeners[key]

    def is_listening(self, listener: _Listener) -> bool:
        return self._listeners.get((listener.loop.machine, listener.address[1])) is listener

    def _address(self, loop: NodeLoop, host: str) -> str:
        if host in _LOOPBACK_NAMES:
            return _LOOPBACK_ADDRESS
        machine = self._machines.get(host)
        if machine is None:
            raise socket.gaierror(socket.EAI_NONAME, f"{loop.machine} asked for unknown host {host}")
        return self._addresses[machine]

    def _next_port(self, machine: str) -> int:
        self._ports[machine] += 1
        return self._ports[machine]

    # Opening a connection

    async def connect(
        self, loop: NodeLoop, protocol_factory: _Factory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        address = self._address(loop, host)
        machine = loop.machine if address == _LOOPBACK_ADDRESS else self._machines[address]
        own = _LOOPBACK_ADDRESS if address == _LOOPBACK_ADDRESS else self._addresses[loop.machine]
        attempt = _Attempt(
            loop,
            protocol_factory,
            (own, self._next_port(loop.machine)),
            machine,
            (address, port),
            loop.create_future(),
        )
        self._knock(attempt, 0)
        try:
            await attempt.waiter
        except BaseException:
            if attempt.transport is not None:  # nobody will know of this connection
                attempt.transport.abort()
            raise
        assert attempt.transport is not None
        return attempt.transport, attempt.transport.get_protocol()

    def _knock(self, attempt: _Attempt, count: int) -> None:
        if attempt.answered():
            return
        kernel, now_ns = self._clockwork.kernel, self._clockwork.now_ns
        if count == SYN_ATTEMPTS:
            self._clockwork.soon(attempt.loop, attempt.fail, (timeout_error(),))
            return
        self._clockwork.at(now_ns + (SYN_RETRY_NS << count), kernel, self._knock, (attempt, count + 1))
        if self.wires.is_open(attempt.loop.machine, attempt.machine):
            there_ns = self._latency_ns(attempt.loop.machine, attempt.machine)
            self._clockwork.at(now_ns + there_ns, kernel, self._knocked, (attempt,))

    def _knocked(self, attempt: _Attempt) -> None:
        """The first segment arrives: the kernel of the other machine answers, even if the process is
        paused."""
        if attempt.answered() or not self.wires.is_open(attempt.machine, attempt.loop.machine):
            return
        back_ns = self._clockwork.now_ns + self._latency_ns(attempt.machine, attempt.loop.machine)
        listener = self._listeners.get((attempt.machine, attempt.address[1]))
        if listener is None or listener.address[0] not in ("0.0.0.0", attempt.address[0]):
            refused = ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {attempt.address}")
            self._clockwork.at(back_ns, attempt.loop, attempt.fail, (refused,))
        else:
            self._clockwork.at(back_ns, attempt.loop, self._connected, (attempt, listener))

    def _connected(self, attempt: _Attempt, listener: _Listener) -> None:
        """The answer arrives: the client may write. Its first segment makes the server accept."""
        if attempt.answered():
            return
        try:
            protocol = attempt.protocol_factory()
        except Exception as error:
            attempt.waiter.set_exception(error)
            return
        client = Socket(attempt.loop, attempt.own_address)
        server = Socket(listener.loop, attempt.address)
        server.on_open = lambda: listener.accept(server)
        self._connections += 1
        ends = f"{attempt.own_address[0]}:{attempt.own_address[1]}/{self._connections}"
        client.out = server.incoming = self._pipe(client, server, f"{ends}/there")
        server.out = client.incoming = self._pipe(server, client, f"{ends}/back")
        if not self.is_listening(listener):
            server.closed = True
        client.out.transmit(Segment(Arrival.OPEN, []))
        attempt.transport = StreamTransport(attempt.loop, client, protocol)
        attempt.transport.start(attempt.waiter)

    def _pipe(self, source: Socket, target: Socket, name: str) -> Pipe:
        if len(self._pipes) >= self._prune_at:
            self._pipes = {number: pipe for number, pipe in self._pipes.items() if not pipe.finished}
            self._prune_at = 2 * len(self._pipes) + _PIPES_PRUNED_AT
        number = 2 * self._connections + (name.endswith("back"))
        pipe = Pipe(self.wires, number, source, target, self._stream("connection", name))
        self._pipes[number] = pipe
        return pipe

    def _latency_ns(self, machine: str, to: str) -> int:
        return self.wires.latency_ns(machine, to, 0, self._draws)


@dataclass(slots=True)
class _Attempt:
    loop: NodeLoop
    protocol_factory: _Factory
    own_address: tuple[str, int]
    machine: str
    address: tuple[str, int]
    waiter: asyncio.Future[None]
    transport: StreamTransport | None = None

    def answered(self) -> bool:
        return self.transport is not None or self.waiter.done() or self.loop.dead

    def fail(self, error: OSError) -> None:
        if not self.answered():
            self.waiter.set_exception(error)


@dataclass(frozen=True, slots=True)
class _ListeningSocket:
    """As much of a socket as a server shows: which port it got."""

    address: tuple[str, int]

    def getsockname(self) -> tuple[str, int]:
        return self.address


class _Listener(asyncio.AbstractServer):
    def __init__(
        self, network: Network, loop: NodeLoop, protocol_factory: _Factory, address: tuple[str, int]
    ) -> None:
        self.loop = loop
        self.address = address
        self._network = network
        self._protocol_factory = protocol_factory
        self._closed = False

    @property
    def sockets(self) -> tuple[_ListeningSocket, ...]:
        return () if self._closed else (_ListeningSocket(self.address),)

    def accept(self, end: Socket) -> bool:
        """Called in a step of the server's loop when a client's first segment arrives."""
        if not self._network.is_listening(self):
            return False
        StreamTransport(self.loop, end, self._protocol_factory()).start()
        return True

    def is_serving(self) -> bool:
        return self._network.is_listening(self)

    def get_loop(self) -> NodeLoop:
        return self.loop

    async def start_serving(self) -> None:
        self.loop.gate()
        self._network.open_listener(self)

    async def serve_forever(self) -> None:
        await self.start_serving()
        try:
            await self.loop.create_future()
        finally:
            self.close()

    def close(self) -> None:
        self.loop.gate()
        self._closed = True
        self._network.close_listener(self)

    async def wait_closed(self) -> None:
        """As in Python 3.11: connections that are open do not keep it waiting."""
