"""How connections to a cluster are secured: options with the names of Kafka's own settings, after `kafka.`.

Keys and certificates are in PEM. As files they must be where the driver and the executors find them under the
same path; as texts they travel with the options. Without any that are trusted, those of the system are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

from quorate.net.tls import Pem, TlsSettings

__all__ = ["SECURITY", "security_of"]

SECURITY: Final = frozenset(
    {
        "security.protocol",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)
"""The settings that there are, without `kafka.`."""


def security_of(given: Mapping[str, str]) -> TlsSettings | None:
    """What options with names in small letters say; None if connections are not secured.

    >>> security_of({"kafka.security.protocol": "SSL"}).checks_host_names
    True
    """
    protocol = given.get("kafka.security.protocol", "PLAINTEXT")
    if protocol.upper() not in ("PLAINTEXT", "SSL"):
        _bad("security.protocol", protocol, "allowed is PLAINTEXT or SSL")
    if protocol.upper() == "PLAINTEXT":
        return None
    algorithm = given.get("kafka.ssl.endpoint.identification.algorithm", "https")
    return TlsSettings(
        key=_key(given),
        key_password=given.get("kafka.ssl.key.password") or None,
        trusted=_pem(given, "ssl.truststore", given.get("kafka.ssl.truststore.certificates")),
        checks_host_names=algorithm.strip() != "",
    )


def _key(given: Mapping[str, str]) -> Pem | None:
    parts = [given.get(f"kafka.ssl.keystore.{name}") for name in ("key", "certificate.chain")]
    if any(parts) and not all(parts):
        raise ValueError(
            "options kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain go together"
        )
    return _pem(given, "ssl.keystore", "\n".join(part or "" for part in parts) if all(parts) else None)


def _pem(given: Mapping[str, str], prefix: str, text: str | None) -> Pem | None:
    path = given.get(f"kafka.{prefix}.location")
    if not text and not path:
        return None
    kind = given.get(f"kafka.{prefix}.type", "JKS")
    if kind.upper() != "PEM":
        _bad(f"{prefix}.type", kind, "allowed is PEM, and it has to be said")
    return Pem(text=text + "\n") if text else Pem.file(path or "")


def _bad(name: str, value: str, why: str) -> NoReturn:
    raise ValueError(f"option kafka.{name}={value!r}: {why}")
