"""Which listeners of a node speak TLS, and with which keys: from Kafka's configuration.

`listener.security.protocol.map` says what a listener speaks, PLAINTEXT or SSL; one that it does not name
speaks SSL if that is its name. Keys are in PEM, `ssl.keystore.type=PEM`: as texts, or in a file that has the
key and the certificates. All listeners of a node have the same, and so do its own connections to others.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

from quorate.net.tls import TlsError, TlsSettings, client_context, server_context
from quorate.net.tls_keys import TlsKeyError, tls_settings
from quorate.node.config import ConfigError, NodeConfig

__all__ = ["Tls", "protocol_of"]

PLAINTEXT, SSL = "PLAINTEXT", "SSL"
_SERVED: Final = (PLAINTEXT, SSL)
_NOT_SERVED: Final = ("SASL_PLAINTEXT", "SASL_SSL")
_CODES: Final = {PLAINTEXT: 0, SSL: 1}


def protocol_of(config: NodeConfig, listener: str) -> str:
    """What a listener speaks."""
    for entry in config["listener.security.protocol.map"]:
        name, _, protocol = str(entry).partition(":")
        if name.strip().upper() == listener.upper():
            if protocol.strip().upper() not in _SERVED:
                raise ConfigError(
                    f"{config.path}: listener.security.protocol.map={entry}: allowed is PLAINTEXT or SSL"
                )
            return protocol.strip().upper()
    if listener.upper() in _NOT_SERVED:
        raise ConfigError(f"{config.path}: listeners={listener}: allowed is what speaks PLAINTEXT or SSL")
    return SSL if listener.upper() == SSL else PLAINTEXT


class Tls:
    """The contexts of a node; they are made where they are needed, and a node without SSL needs none."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._server: ssl.SSLContext | None = None
        self._client: ssl.SSLContext | None = None

    def for_listener(self, name: str) -> ssl.SSLContext | None:
        """What a listener of ours is served with; None if it is not secured."""
        if protocol_of(self._config, name) == PLAINTEXT:
            return None
        if self._server is None:
            self._server = self._made(server_context)
        return self._server

    def to_listener(self, name: str) -> ssl.SSLContext | None:
        """What connections to listeners of this name are made with."""
        if protocol_of(self._config, name) == PLAINTEXT:
            return None
        if self._client is None:
            self._client = self._made(client_context)
        return self._client

    def to_controllers(self) -> ssl.SSLContext | None:
        return self.to_listener(self._config.controller_names[0])

    def to_brokers(self, name: str | None = None) -> ssl.SSLContext | None:
        """Among brokers; a node that is none has to be told which listener that is."""
        if name is None and "broker" in self._config.roles:
            name = self._config.inter_broker_listener
        return None if not name else self.to_listener(name)

    def code_of(self, name: str) -> int:
        """The number of what a listener speaks, as registrations have it."""
        return _CODES[protocol_of(self._config, name)]

    def _made(self, make: Callable[[TlsSettings], ssl.SSLContext]) -> ssl.SSLContext:
        try:
            return make(tls_settings(self._config.properties))
        except TlsKeyError as error:
            raise ConfigError(f"{self._config.path}: {error}") from error
        except TlsError as error:
            raise ConfigError(f"{self._config.path}: ssl: {error}") from error
