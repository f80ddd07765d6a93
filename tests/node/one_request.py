"""What one request may cost a node, seen from outside: a raw connection that says what it likes, a bystander
on another connection, and the memory of the process.

    with Watched(cluster, node) as watched:
        with Peer(cluster, node) as peer:
            answer = peer.ask(request, version)
    watched.check(request_bytes, answer_bytes)

The bystander is a member of a classic group who sends a heartbeat every 5 ms. How long it waited at most is
recorded with the test (`record_property`), not judged: the machine may do other things.
"""

import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any, Self

from node.broker_processes import BrokerProcesses
from node.processes import HOST
from quorate.protocol.api.groups import HeartbeatRequest
from quorate.protocol.frame import decode_response, encode_request
from quorate.protocol.message import Request

__all__ = ["MIB", "PROMPTLY_S", "Bystander", "Peer", "Watched"]

MIB = 1 << 20
PROMPTLY_S = 20  # on a machine that does other things, too
BEAT_EVERY_S = 0.005
TIMES = 8  # what a request and its answer may take of memory, as so many times their bytes...
ANYWAY_BYTES = 16 * MIB  # ...and this
_SIZE = struct.Struct(">i")


class Peer:
    """A connection that says what it likes. Whatever is not answered promptly fails the test."""

    def __init__(self, cluster: BrokerProcesses, node_id: int = 1, *, port: int | None = None) -> None:
        self.heard_bytes = 0
        """Of the last answer."""
        address = (HOST, cluster.client_port(node_id) if port is None else port)
        self._socket = socket.create_connection(address, PROMPTLY_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def say(self, request: Request, version: int) -> int:
        """Sends a request; returns how many bytes it has."""
        return self.say_bytes(bytes(encode_request(request, version, 1, "hostile")))

    def say_bytes(self, frame: bytes) -> int:
        """Sends a whole frame, its size at the front."""
        self._socket.sendall(frame)
        return len(frame)

    def hear(self, request: Request, version: int) -> Any:
        return decode_response(request.__key__, version, memoryview(self.hear_bytes()))[1]

    def hear_bytes(self) -> bytes:
        """One answer, without its size."""
        (size,) = _SIZE.unpack(self._read(_SIZE.size))
        self.heard_bytes = size
        return self._read(size)

    def ask(self, request: Request, version: int) -> Any:
        self.say(request, version)
        return self.hear(request, version)

    def is_closed(self) -> bool:
        """Waits until the node says something or closes the connection: whether it closed it."""
        try:
            return not self._socket.recv(1)
        except ConnectionResetError:
            return True

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            assert part, "the connection was closed"
            data += part
        return bytes(data)


class Bystander:
    """Asks for something small every 5 ms, on a connection of its own, until it is left."""

    def __init__(self, cluster: BrokerProcesses, node_id: int = 1) -> None:
        self.answers = 0
        self.waited_ms_max = 0.0
        self._peer = Peer(cluster, node_id)
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Goes on until it was answered once more, or the node is gone."""
        self._is_ending.set()
        self._thread.join()
        self._peer.__exit__()

    def _run(self) -> None:
        request = HeartbeatRequest(group_id="bystanders", generation_id=1, member_id="nobody")
        is_last = False
        while not is_last:
            is_last = self._is_ending.wait(BEAT_EVERY_S)
            began = time.monotonic()
            try:
                self._peer.ask(request, 4)
            except (OSError, AssertionError):
                return  # the node was told to end meanwhile, or does not answer promptly
            else:
                self.answers += 1
            finally:
                self.waited_ms_max = max(self.waited_ms_max, (time.monotonic() - began) * 1000)


class Watched:
    """Notes what a node's memory comes to and what a bystander waits, while the block runs."""

    def __init__(self, cluster: BrokerProcesses, node_id: int = 1) -> None:
        self._status = Path(f"/proc/{cluster.process_id(node_id)}/status")
        self._cluster, self._node_id = cluster, node_id
        self._bystander = Bystander(cluster, node_id)
        self.grown_bytes = 0

    def __enter__(self) -> Self:
        self._status.with_name("clear_refs").write_text("5")  # the peak begins anew
        self._before = self._read("VmRSS:")
        self._said_before = len(self._cluster.logged(self._node_id))
        self._bystander.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._bystander.__exit__()
        if self._status.exists():
            self.grown_bytes = max(0, self._read("VmHWM:") - self._before)

    @property
    def waited_ms(self) -> float:
        """The longest that the bystander had to wait for an answer."""
        return self._bystander.waited_ms_max

    def check(self, request_bytes: int, answer_bytes: int) -> None:
        """The node's memory has grown in proportion, it went on serving, and it fell out of nothing."""
        allowed = TIMES * (request_bytes + answer_bytes) + ANYWAY_BYTES
        assert self.grown_bytes <= allowed, f"{self.grown_bytes:,} bytes more, {allowed:,} are allowed"
        assert self._bystander.answers > 0
        said = self._cluster.logged(self._node_id)[self._said_before :]
        assert "Traceback" not in said, said
        assert "Fencing broker" not in said, said

    def _read(self, name: str) -> int:
        line = next(one for one in self._status.read_text().splitlines() if one.startswith(name))
        return int(line.split()[1]) * 1024
