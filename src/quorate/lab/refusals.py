"""What the simulator does not simulate: it says so, rather than do something else.

OpenSSL draws its own entropy, signals and subprocesses belong to the real world, and whoever uses raw sockets
would go past the simulated network. Such code is tested on real sockets and processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NoReturn

__all__ = ["RefusingLoop", "refuse", "refuse_options"]

_HARMLESS_OPTIONS = {"family", "proto", "flags", "happy_eyeballs_delay", "interleave", "reuse_port"}


def refuse(name: str) -> NoReturn:
    raise NotImplementedError(f"{name} cannot be simulated; test it on real sockets and processes")


def refuse_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuses options of a call that would change what it does."""
    for option, value in options.items():
        if value is not None and option not in _HARMLESS_OPTIONS:
            refuse(f"{name}({option}=...)")


def _refusal(name: str) -> Any:
    def refused(*_: Any, **__: Any) -> NoReturn:
        refuse(name)

    return refused


class RefusingLoop(asyncio.AbstractEventLoop):
    """The methods of a loop that `NodeLoop` has not."""

    run_forever = _refusal("run_forever")
    run_until_complete = _refusal("run_until_complete")
    stop = _refusal("stop")
    close = _refusal("close")
    add_reader = _refusal("add_reader")
    remove_reader = _refusal("remove_reader")
    add_writer = _refusal("add_writer")
    remove_writer = _refusal("remove_writer")
    sock_recv = _refusal("sock_recv")
    sock_recv_into = _refusal("sock_recv_into")
    sock_recvfrom = _refusal("sock_recvfrom")
    sock_recvfrom_into = _refusal("sock_recvfrom_into")
    sock_sendall = _refusal("sock_sendall")
    sock_sendto = _refusal("sock_sendto")
    sock_connect = _refusal("sock_connect")
    sock_accept = _refusal("sock_accept")
    sock_sendfile = _refusal("sock_sendfile")
    sendfile = _refusal("sendfile")
    start_tls = _refusal("start_tls")
    create_datagram_endpoint = _refusal("create_datagram_endpoint")
    create_unix_connection = _refusal("create_unix_connection")
    create_unix_server = _refusal("create_unix_server")
    connect_accepted_socket = _refusal("connect_accepted_socket")
    connect_read_pipe = _refusal("connect_read_pipe")
    connect_write_pipe = _refusal("connect_write_pipe")
    subprocess_shell = _refusal("subprocess_shell")
    subprocess_exec = _refusal("subprocess_exec")
    add_signal_handler = _refusal("add_signal_handler")
    remove_signal_handler = _refusal("remove_signal_handler")
    getnameinfo = _refusal("getnameinfo")
