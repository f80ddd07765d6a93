"""Which listeners of a node speak TLS, and with which keys: from Kafka's configuration.

`listener.security.protocol.map` says what a listener speaks, PLAINTEXT or SSL; one that it does not name
speaks SSL if that is its name. Keys are in PEM, `ssl.keystore.type=PEM`: as texts, or in a file that has the
key and the certificates. All listeners of a node have the same, and so do its own connections to others.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

from quorate.net.tls import ClientAuth, Pem, TlsError, TlsSettings, client_context, server_context
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
            return make(_settings(self._config))
        except TlsError as error:
            raise ConfigError(f"{self._config.path}: ssl: {error}") from error


def _settings(config: NodeConfig) -> TlsSettings:
    given = config.properties.get
    auth = given("ssl.client.auth", ClientAuth.NONE).strip().lower()
    if auth not in (ClientAuth.NONE, ClientAuth.REQUESTED, ClientAuth.REQUIRED):
        raise ConfigError(f"{config.path}: ssl.client.auth={auth}: allowed is none, requested or required")
    return TlsSettings(
        key=_key(config),
        key_password=given("ssl.key.password") or None,
        trusted=_trusted(config),
        client_auth=auth,
        checks_host_names=given("ssl.endpoint.identification.algorithm", "https").strip() != "",
    )


def _key(config: NodeConfig) -> Pem | None:
    given = config.properties.get
    chain, key = given("ssl.keystore.certificate.chain"), given("ssl.keystore.key")
    if chain or key:
        _check_type(config, "ssl.keystore.type")
        if not chain or not key:
            missing = "ssl.keystore.key" if chain else "ssl.keystore.certificate.chain"
            raise ConfigError(f"{config.path}: {missing} is missing: PEM, one goes with the other")
        return Pem(text=f"{_lines(key)}\n{_lines(chain)}\n")
    return _file(config, "ssl.keystore")


def _trusted(config: NodeConfig) -> Pem | None:
    text = config.properties.get("ssl.truststore.certificates")
    if text:
        _check_type(config, "ssl.truststore.type")
        return Pem(text=_lines(text) + "\n")
    return _file(config, "ssl.truststore")


def _file(config: NodeConfig, prefix: str) -> Pem | None:
    path = config.properties.get(f"{prefix}.location", "").strip()
    if not path:
        return None
    _check_type(config, f"{prefix}.type")
    return Pem.file(path)


def _check_type(config: NodeConfig, key: str) -> None:
    kind = config.properties.get(key, "JKS").strip()
    if kind.upper() != "PEM":
        raise ConfigError(f"{config.path}: {key}={kind}: allowed is PEM")


def _lines(text: str) -> str:
    """A text as it stands in a file of properties, where ends of lines may be written as such."""
    return text.strip().replace("\\n", "\n")
