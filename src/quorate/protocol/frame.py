"""Frames: a size, a header and a body, as they follow each other on a connection.

Which header goes with a body: flexible bodies have flexible headers (request v2, response v1), others have
the plain ones (v1, v0). Two exceptions. The response to ApiVersions always has header v0, because a client
that asked in a version we do not know must be able to read the answer. ControlledShutdown v0 is older than
client ids, and has request header v0.

Header and body are decoded by one compiled function.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sized
from functools import cache
from typing import Final

from quorate.protocol import decoder, encoder
from quorate.protocol.api import request_class, response_class
from quorate.protocol.api.brokers import EnvelopeRequest
from quorate.protocol.api.connection import RequestHeader, ResponseHeader
from quorate.protocol.bounds import TIMES, TIMES_OF_NODES, Claim, allow
from quorate.protocol.codec import (
    Sequence,
    bounded_decoder_of,
    decode_prefix,
    decoder_of,
    encoder_of,
    explain_decoding,
    explain_encoding,
    part_encoder_of,
)
from quorate.protocol.decoder import Decoder
from quorate.protocol.errors import ProtocolError
from quorate.protocol.layout import layout
from quorate.protocol.message import Message, Request, Response
from quorate.protocol.types import Buffer

__all__ = [
    "decode_request",
    "decode_request_header",
    "decode_response",
    "encode_request",
    "encode_response",
    "encode_response_parts",
    "open_envelope",
    "read_request",
    "request_header_version",
    "response_header_version",
]

SIZE: Final = struct.Struct(">i")
_CONTROLLED_SHUTDOWN: Final = 7
_API_VERSIONS: Final = 18
_NO_SIZE: Final = bytes(4)


def request_header_version(key: int, version: int) -> int:
    """The version of the header that a request of this key and version has."""
    if key == _CONTROLLED_SHUTDOWN and version == 0:
        return 0
    return 2 if version in request_class(key).__flexible__ else 1


def response_header_version(key: int, version: int) -> int:
    """The version of the header that the response to this key and version has."""
    if key == _API_VERSIONS:
        return 0
    return 1 if version in response_class(key).__flexible__ else 0


def decode_request(
    buffer: Buffer, position: int = 0, end: int | None = None
) -> tuple[RequestHeader, Request]:
    """The header and the request in `buffer[position:end]`, a frame without its size.

    A key or version that nobody knows is a `ProtocolError` with code UNSUPPORTED_VERSION.
    """
    stop = len(buffer) if end is None else end
    sequence = _request_sequence(*_key_and_version(bytes(buffer[position : position + 4])))
    try:
        header, request = decoder_of(sequence, buffer)(buffer, position, stop)
    except decoder.FAILURES as error:
        raise explain_decoding(sequence, buffer, position, stop) from error
    return header, request


def read_request(
    route_id: int, buffer: bytes | bytearray, position: int, end: int, claim: Claim = allow
) -> tuple[RequestHeader, Request]:
    """The same for requests that anybody may have sent: they are bounded (see `bounds`), and what takes much
    memory is claimed before it is made. `route_id` are their first four bytes, the key and the version, read
    as one unsigned integer. Whatever follows a request is ignored, as in Kafka.

    Clients depend on that: librdkafka sends three bytes too many when it asks for the metadata of all topics
    (its issue 5049).
    """
    decode, sequence, times = _request_decoder(route_id)
    try:
        header, request, _ = decode(buffer, position, end, claim)
    except decoder.FAILURES as error:
        raise explain_decoding(sequence, buffer, position, end, to_end=False, times=times) from error
    return header, request


def decode_request_header(
    buffer: Buffer, position: int = 0, end: int | None = None
) -> tuple[RequestHeader, int]:
    """The header of a request, and where the body begins, even if its version is too new for us."""
    stop = len(buffer) if end is None else end
    key, version = _key_and_version(bytes(buffer[position : position + 4]))
    return decode_prefix(RequestHeader, request_header_version(key, version), buffer, position, stop)


def decode_response(
    key: int, version: int, buffer: Buffer, position: int = 0, end: int | None = None
) -> tuple[ResponseHeader, Response]:
    """The header and the response in `buffer[position:end]`, a frame without its size."""
    stop = len(buffer) if end is None else end
    sequence = _response_sequence(key, version)
    try:
        header, response = decoder_of(sequence, buffer)(buffer, position, stop)
    except decoder.FAILURES as error:
        raise explain_decoding(sequence, buffer, position, stop) from error
    return header, response


def encode_request(request: Request, version: int, correlation_id: int, client_id: str | None) -> bytearray:
    """A frame, size included."""
    header = RequestHeader(
        request_api_key=request.__key__,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    sequence = _request_sequence(request.__key__, version)
    if sequence[0][1] == 0:
        header.client_id = ""
    out = bytearray(_NO_SIZE)
    try:
        encoder_of(sequence)(header, request, out)
    except encoder.FAILURES as error:
        raise explain_encoding(sequence, (header, request)) from error
    SIZE.pack_into(out, 0, len(out) - 4)
    return out


def encode_response(response: Response, version: int, correlation_id: int) -> bytearray:
    """A frame, size included."""
    sequence = _response_sequence(response.__key__, version)
    header = ResponseHeader(correlation_id=correlation_id)
    out = bytearray(_NO_SIZE)
    try:
        encoder_of(sequence)(header, response, out)
    except encoder.FAILURES as error:
        raise explain_encoding(sequence, (header, response)) from error
    SIZE.pack_into(out, 0, len(out) - 4)
    return out


def encode_response_parts(response: Response, version: int, correlation_id: int) -> list[Sized]:
    """A frame, size included, as a list of parts: large record sets stand in it as they are."""
    encoder_and_head = _response_encoders.get((response.__class__, version))
    if encoder_and_head is None:
        encoder_and_head = _new_response_encoder(response, version)
    encode, head = encoder_and_head
    out = bytearray(head(0, correlation_id))
    parts: list[Sized] = []
    try:
        parts.append(encode(response, out, parts))
    except encoder.FAILURES as error:
        raise explain_encoding(((response.__class__, version),), (response,)) from error
    SIZE.pack_into(out, 0, (len(out) if len(parts) == 1 else sum(map(len, parts))) - 4)
    return parts


def open_envelope(envelope: EnvelopeRequest) -> tuple[RequestHeader, Request]:
    """The request inside an Envelope. An Envelope in an Envelope is refused before it is decoded."""
    data = bytes(envelope.request_data)
    if _key_and_version(data[:4])[0] == EnvelopeRequest.__key__:
        reason = "an Envelope inside an Envelope"
        raise ProtocolError("EnvelopeRequest", 0, "request_data", 0, reason)
    return read_request(int.from_bytes(data[:4], "big"), data, 0, len(data))


# The encoder of a response, and what packs what stands before it: the size and the header.
_response_encoders: dict[tuple[type[Response], int], tuple[encoder.Encoder, Callable[..., bytes]]] = {}
_HEADS: Final = {0: struct.Struct(">ii").pack, 1: struct.Struct(">iix").pack}


def _new_response_encoder(response: Response, version: int) -> tuple[encoder.Encoder, Callable[..., bytes]]:
    cls = response.__class__
    head = _HEADS[response_header_version(response.__key__, version)]
    made = _response_encoders[cls, version] = part_encoder_of(((cls, version),)), head
    return made


def _key_and_version(begin: bytes) -> tuple[int, int]:
    if len(begin) < 4:
        reason = f"a request of {len(begin)} bytes"
        raise ProtocolError("RequestHeader", None, "request_api_key", len(begin), reason)
    key, version = struct.unpack(">hh", begin)
    return key, version


@cache
def _request_sequence(key: int, version: int) -> tuple[tuple[type[Message], int], tuple[type[Request], int]]:
    cls = request_class(key)
    layout(cls, version)  # refuses an unknown version
    return (RequestHeader, request_header_version(key, version)), (cls, version)


@cache
def _request_decoder(route_id: int) -> tuple[Decoder, Sequence, int]:
    """The decoder of a request, what it decodes, and how many times its bytes the objects may take."""
    sequence = _request_sequence(*_key_and_version(route_id.to_bytes(4, "big")))
    times = TIMES_OF_NODES if sequence[1][0].__of_nodes__ else TIMES
    return bounded_decoder_of(sequence, times), sequence, times


@cache
def _response_sequence(key: int, version: int) -> Sequence:
    cls = response_class(key)
    layout(cls, version)
    return (ResponseHeader, response_header_version(key, version)), (cls, version)
