"""What nodes need, imported and compiled once: in the parent, for all the nodes that it forks.

Whatever a node makes for itself after the fork it has for itself, in memory and in time. So the parent loads
also what nodes load late, and compiles the messages that nodes exchange when they start.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Final

from quorate.protocol import codec
from quorate.protocol.api import request_class, response_class
from quorate.protocol.api.connection import RequestHeader, ResponseHeader
from quorate.protocol.frame import request_header_version, response_header_version

__all__ = ["warm_up"]

_LATE: Final = (
    "encodings.idna",
    "encodings.utf_16_le",
    "h11",
    "numpy.ma",
    "quorate.client.admin",
    "quorate.client.producer",
    "quorate.node.process",
    "uvloop",
)
"""Modules that a node imports only when it needs them."""

_KEYS: Final = (0, 1, 3, 18, 19, 52, 53, 54, 56, 62, 63, 70, 73)
"""What nodes ask each other in their first seconds, and clients of them: by the key of the request."""


def warm_up() -> None:
    for name in _LATE:
        with contextlib.suppress(ImportError):  # uvloop is not everywhere
            importlib.import_module(name)
    for key in _KEYS:
        _compile(key)


def _compile(key: int) -> None:
    """The newest version of a request and its response, as `protocol.frame` asks for them."""
    request, response = request_class(key), response_class(key)
    version = request.__versions__[-1]
    asked = (RequestHeader, request_header_version(key, version)), (request, version)
    answered = (ResponseHeader, response_header_version(key, version)), (response, version)
    codec.encoder_of(asked)
    codec.decoder_of(asked, b"")
    codec.part_encoder_of(answered)
    codec.decoder_of(answered, b"")
