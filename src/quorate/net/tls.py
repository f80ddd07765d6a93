"""TLS for listeners and for connections, from keys and certificates in PEM.

    server = server_context(TlsSettings(key=Pem.file("broker.pem"), trusted=Pem.file("ca.pem")))
    client = client_context(TlsSettings(trusted=Pem.file("ca.pem")))

What is wrong with them is a `TlsError`, which says what.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from quorate.values import dataclass

__all__ = ["ClientAuth", "Pem", "TlsError", "TlsSettings", "client_context", "server_context"]

HANDSHAKE_S: Final = 10.0  # how long a peer may take for it


class TlsError(Exception):
    """Keys or certificates that cannot be used."""


class ClientAuth:
    """Whether clients of a listener have to show who they are."""

    NONE: Final = "none"
    REQUESTED: Final = "requested"
    REQUIRED: Final = "required"


@dataclass(frozen=True, slots=True, repr=False)
class Pem:
    """Texts that were given as such, or a file."""

    path: str = ""
    text: str = ""

    @classmethod
    def file(cls, path: str) -> Pem:
        return cls(path=path)

    @contextmanager
    def as_file(self) -> Iterator[str]:
        """The path of a file that has them, for what reads nothing else. Nobody else can read it."""
        if self.path:
            yield self.path
            return
        descriptor, path = tempfile.mkstemp(suffix=".pem")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(self.text)
            yield path
        finally:
            Path(path).unlink()


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """`key` has a private key and the certificates that go with it, `trusted` those of authorities; without
    any, those of the system are trusted."""

    key: Pem | None = None
    key_password: str | None = None
    trusted: Pem | None = None
    client_auth: str = ClientAuth.NONE
    checks_host_names: bool = True


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """For a listener."""
    if settings.key is None:
        raise TlsError("a listener needs a key and a certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_up(context, settings)
    context.verify_mode = {
        ClientAuth.NONE: ssl.CERT_NONE,
        ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
        ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
    }[settings.client_auth]
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """For connections to others. With a key, they know who we are."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host_names
    context.verify_mode = ssl.CERT_REQUIRED
    _set_up(context, settings)
    return context


def _set_up(context: ssl.SSLContext, settings: TlsSettings) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.key is not None:
        _load("the key and its certificate", settings.key, lambda path: _load_key(context, path, settings))
    if settings.trusted is not None:
        _load("the trusted certificates", settings.trusted, context.load_verify_locations)
    else:
        context.load_default_certs()


def _load_key(context: ssl.SSLContext, path: str, settings: TlsSettings) -> None:
    # Without a password none must be asked for at the terminal.
    context.load_cert_chain(path, password=settings.key_password or "")


def _load(what: str, pem: Pem, load: Callable[[str], None]) -> None:
    try:
        with pem.as_file() as path:
            load(path)
    except OSError as error:  # which an SSLError is, too
        where = f" of {pem.path}" if pem.path else ""
        raise TlsError(f"{what}{where} cannot be used: {error}") from error
