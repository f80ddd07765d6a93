"""How connections to a cluster are secured: options with the names of Kafka's own settings, after `kafka.`.

Keys and certificates are in PEM. As files they must be where the driver and the executors find them under the
same path; as texts they travel with the options. Without any that are trusted, those of the system are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quorate.net.tls import TlsSettings
from quorate.net.tls_keys import TLS_KEYS, TlsKeyError, tls_settings

__all__ = ["SECURITY", "security_of"]

_PREFIX: Final = "kafka."
_PROTOCOL: Final = "security.protocol"

SECURITY: Final = TLS_KEYS - {"ssl.client.auth"} | {_PROTOCOL}
"""The settings that there are, without `kafka.`."""


def security_of(given: Mapping[str, str]) -> TlsSettings | None:
    """What options with names in small letters say; None if connections are not secured.

    >>> security_of({"kafka.security.protocol": "SSL"}).checks_host_names
    True
    """
    named = {name.removeprefix(_PREFIX): value for name, value in given.items() if name.startswith(_PREFIX)}
    protocol = named.get(_PROTOCOL, "PLAINTEXT")
    if protocol.upper() == "PLAINTEXT":
        return None
    if protocol.upper() != "SSL":
        raise ValueError(f"option {_PREFIX}{_PROTOCOL}={protocol!r}: allowed is PLAINTEXT or SSL")
    try:
        return tls_settings({name: named[name] for name in SECURITY & named.keys()})
    except TlsKeyError as error:
        if error.value is None:
            raise ValueError(f"option {_PREFIX}{error}") from None
        raise ValueError(f"option {_PREFIX}{error.key}={error.value!r}: {error.reason}") from None
