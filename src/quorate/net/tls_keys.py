"""Kafka's settings for TLS, `ssl.*`, for whoever has them as texts by name: a node's file, options of Spark.

Keys and certificates are in PEM, as texts or in a file. `ssl.keystore.type` and `ssl.truststore.type` have to
say so, since Kafka's default is another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quorate.net.tls import ClientAuth, Pem, TlsSettings

__all__ = ["TLS_KEYS", "TlsKeyError", "tls_settings"]

_CHAIN: Final = "ssl.keystore.certificate.chain"
_KEY: Final = "ssl.keystore.key"
_CERTIFICATES: Final = "ssl.truststore.certificates"
_CHECK: Final = "ssl.endpoint.identification.algorithm"
_AUTH: Final = "ssl.client.auth"

TLS_KEYS: Final = frozenset(
    {
        _AUTH,
        _CHECK,
        "ssl.key.password",
        _CHAIN,
        _KEY,
        "ssl.keystore.location",
        "ssl.keystore.type",
        _CERTIFICATES,
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)


class TlsKeyError(Exception):
    """A setting that cannot be used. Without a value it is one that is missing."""

    def __init__(self, key: str, value: str | None, reason: str) -> None:
        super().__init__(f"{key}={value}: {reason}" if value is not None else f"{key} is missing: {reason}")
        self.key, self.value, self.reason = key, value, reason


def tls_settings(given: Mapping[str, str]) -> TlsSettings:
    """What the settings say.

    >>> tls_settings({}).checks_host_names
    True
    """
    auth = given.get(_AUTH, ClientAuth.NONE).strip().lower()
    if auth not in (ClientAuth.NONE, ClientAuth.REQUESTED, ClientAuth.REQUIRED):
        raise TlsKeyError(_AUTH, auth, "allowed is none, requested or required")
    return TlsSettings(
        key=_pem(given, "ssl.keystore", _key(given)),
        key_password=given.get("ssl.key.password") or None,
        trusted=_pem(given, "ssl.truststore", _lines(given.get(_CERTIFICATES, ""))),
        client_auth=auth,
        checks_host_names=given.get(_CHECK, "https").strip() != "",
    )


def _key(given: Mapping[str, str]) -> str:
    """The key and its certificates as texts, if they are given so."""
    key, chain = given.get(_KEY, ""), given.get(_CHAIN, "")
    if bool(key) != bool(chain):
        raise TlsKeyError(_KEY if chain else _CHAIN, None, f"{_KEY} and {_CHAIN} go together")
    return f"{_lines(key)}\n{_lines(chain)}" if key else ""


def _pem(given: Mapping[str, str], prefix: str, text: str) -> Pem | None:
    path = given.get(f"{prefix}.location", "").strip()
    if not text and not path:
        return None
    kind = given.get(f"{prefix}.type", "JKS").strip()
    if kind.upper() != "PEM":
        raise TlsKeyError(f"{prefix}.type", kind, "allowed is PEM")
    return Pem(text=f"{text}\n") if text else Pem.file(path)


def _lines(text: str) -> str:
    """A text as it stands in a file of properties, where ends of lines may be written as such."""
    return text.strip().replace("\\n", "\n")
