"""What nodes need, imported and compiled once: in the parent, for all the nodes that it forks.

Whatever a node makes for itself after the fork it has for itself, in memory and in time. So the parent loads
also what nodes load late, and compiles what nodes say to each other when they start, what they write then,
and what clients ask them first.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import sys
from collections.abc import Mapping
from typing import Final

from quorate.metadata import records
from quorate.protocol import codec
from quorate.protocol.api import request_class, response_class
from quorate.protocol.api.connection import RequestHeader, ResponseHeader
from quorate.protocol.frame import request_header_version, response_header_version
from quorate.protocol.message import Record, Struct, write_constructor
from quorate.values import compile_constructors

__all__ = ["settle", "warm_up"]

_LATE: Final = (
    "encodings.idna",
    "encodings.utf_16_le",
    "h11",
    "quorate.client.admin",
    "quorate.client.producer",
    "quorate.node.process",
    "uvloop",
)
"""Modules that a node imports only when it needs them."""

_REQUESTS: Final[Mapping[int, tuple[int, ...]]] = {
    0: (9, 10),
    1: (12,),
    3: (),
    18: (3,),
    19: (),
    22: (4,),
    52: (),
    53: (),
    54: (),
    56: (),
    58: (),
    62: (),
    63: (),
    67: (),
    70: (),
    73: (),
}
"""What nodes ask each other in their first seconds, and clients of them: by the key of the request. Besides
the newest version, those that clients of others ask for."""

_RECORDS: Final[tuple[tuple[type[Record], int], ...]] = (
    (records.BeginTransactionRecord, 0),
    (records.EndTransactionRecord, 0),
    (records.BrokerRegistrationChangeRecord, 0),
    (records.ConfigRecord, 0),
    (records.FeatureLevelRecord, 0),
    (records.NoOpRecord, 0),
    (records.PartitionRecord, 2),
    (records.ProducerIdsRecord, 0),
    (records.RegisterBrokerRecord, 4),
    (records.RegisterControllerRecord, 0),
    (records.TopicRecord, 0),
)
"""What every log of a cluster begins with."""


def warm_up() -> None:
    for name in _LATE:
        with contextlib.suppress(ImportError):  # uvloop is not everywhere
            importlib.import_module(name)
    for key, others in _REQUESTS.items():
        for version in (request_class(key).__versions__[-1], *others):
            _compile(key, version)
    for record, version in _RECORDS:
        codec.encoder_of(((record, version),))
        codec.decoder_of(((record, version),), b"")
        _write_constructors(record)
    compile_constructors()


def settle() -> None:
    """Makes memory such that forked processes write to as little of it as possible: it holds no garbage, what
    it holds is never looked through again, and what is free was joined to larger pieces already."""
    gc.collect()
    gc.freeze()
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # there are other C libraries
            ctypes.CDLL(None).malloc_trim(0)


def _compile(key: int, version: int) -> None:
    """A request and its response, as `protocol.frame` asks for them."""
    request, response = request_class(key), response_class(key)
    asked = (RequestHeader, request_header_version(key, version)), (request, version)
    answered = (ResponseHeader, response_header_version(key, version)), (response, version)
    codec.encoder_of(asked)
    codec.decoder_of(asked, b"")
    codec.part_encoder_of(((response, version),))
    codec.decoder_of(answered, b"")
    for one in (RequestHeader, ResponseHeader, request, response):
        _write_constructors(one)


def _write_constructors(cls: type[Struct]) -> None:
    """Of a message, and of the structs in it."""
    write_constructor(cls)
    for one in vars(cls).values():
        if isinstance(one, type) and issubclass(one, Struct):
            _write_constructors(one)
