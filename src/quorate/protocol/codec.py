"""Messages to bytes and back.

    >>> from quorate.protocol.api.brokers import BrokerHeartbeatRequest
    >>> beat = BrokerHeartbeatRequest(
    ...     broker_id=1, broker_epoch=7, current_metadata_offset=42, want_fence=False, want_shut_down=False
    ... )
    >>> data = encode(beat, 1)
    >>> data.hex()
    '000000010000000000000007000000000000002a000000'
    >>> decode(BrokerHeartbeatRequest, 1, data) == beat
    True

A codec is compiled when a (class, version) is first used, and kept. Decoding takes any buffer; byte fields
of the result are views of it, so a buffer that is used again must be decoded from a copy.
"""

from __future__ import annotations

from collections.abc import Sized
from functools import cache
from typing import TypeVar

from quorate.protocol import decoder, encoder
from quorate.protocol.decoder import Decoder, compile_decoder
from quorate.protocol.encoder import Encoder, compile_encoder
from quorate.protocol.errors import ProtocolError
from quorate.protocol.interpreter import Reader, Writer
from quorate.protocol.layout import layout
from quorate.protocol.message import Message
from quorate.protocol.types import Buffer

__all__ = [
    "bounded_decoder_of",
    "decode",
    "decode_prefix",
    "decode_tables",
    "decoder_of",
    "encode",
    "encode_into",
    "encode_parts",
    "encoder_of",
    "explain_decoding",
    "explain_encoding",
    "part_encoder_of",
]

M = TypeVar("M", bound=Message)

# What a decoder or an encoder is made for: the (class, version) of each message it handles in turn.
Sequence = tuple[tuple[type[Message], int], ...]


def decode(cls: type[M], version: int, buffer: Buffer, position: int = 0, end: int | None = None) -> M:
    """The message in `buffer[position:end]`, all of it."""
    stop = len(buffer) if end is None else end
    sequence = ((cls, version),)
    try:
        message: M = decoder_of(sequence, buffer)(buffer, position, stop)[0]
    except decoder.FAILURES as error:
        raise explain_decoding(sequence, buffer, position, stop) from error
    return message


def decode_prefix(
    cls: type[M], version: int, buffer: Buffer, position: int = 0, end: int | None = None
) -> tuple[M, int]:
    """The message at `position`, and the position after it."""
    stop = len(buffer) if end is None else end
    sequence = ((cls, version),)
    try:
        message, after = _prefix_decoder(sequence, buffer.__class__ is memoryview)(buffer, position, stop)
    except decoder.FAILURES as error:
        raise explain_decoding(sequence, buffer, position, stop, to_end=False) from error
    return message, after


def decode_tables(cls: type[M], version: int, buffer: Buffer, position: int = 0, end: int | None = None) -> M:
    """Like `decode`, but an array of fixed-size structs becomes a `rows.Table`, columns not objects."""
    stop = len(buffer) if end is None else end
    sequence = ((cls, version),)
    try:
        message: M = _table_decoder(sequence, buffer.__class__ is memoryview)(buffer, position, stop)[0]
    except decoder.FAILURES as error:
        raise explain_decoding(sequence, buffer, position, stop) from error
    return message


def encode(message: Message, version: int) -> bytearray:
    """The bytes of a message."""
    out = bytearray()
    encode_into(out, message, version)
    return out


def encode_into(out: bytearray, message: Message, version: int) -> None:
    """Appends the bytes of a message; appends nothing if that fails."""
    start = len(out)
    sequence = ((message.__class__, version),)
    try:
        encoder_of(sequence)(message, out)
    except encoder.FAILURES as error:
        del out[start:]
        raise explain_encoding(sequence, (message,)) from error


def encode_parts(message: Message, version: int) -> list[Sized]:
    """The bytes of a message as a list of buffers, its large record sets among them as they are.

    A record set need not be a buffer: any sized object becomes a part of its own, for a transport that
    knows what to do with it. The parts belong together: nothing else goes between them.
    """
    parts: list[Sized] = []
    sequence = ((message.__class__, version),)
    try:
        last = part_encoder_of(sequence)(message, bytearray(), parts)
    except encoder.FAILURES as error:
        raise explain_encoding(sequence, (message,)) from error
    parts.append(last)
    return parts


def decoder_of(sequence: Sequence, buffer: Buffer) -> Decoder:
    """The compiled decoder of these messages, one after the other, for the kind of buffer at hand."""
    return _decoder(sequence, buffer.__class__ is memoryview)


def encoder_of(sequence: Sequence) -> Encoder:
    """The compiled encoder of these messages, one after the other."""
    return _encoder(sequence)


def part_encoder_of(sequence: Sequence) -> Encoder:
    """Like `encoder_of`; takes a list of parts as well and returns the last one, which is not in the list."""
    return _part_encoder(sequence)


def bounded_decoder_of(sequence: Sequence, times: int) -> Decoder:
    """A decoder of requests, which are bounded (see `bounds`). It takes bytes and bytearrays, and returns the
    position reached last."""
    return compile_decoder([layout(*each) for each in sequence], view=False, to_end=False, times=times)


def explain_decoding(
    sequence: Sequence, buffer: Buffer, position: int, end: int, *, to_end: bool = True, times: int = 0
) -> ProtocolError:
    """Why decoding failed, found by decoding again with a reader that knows where it is."""
    reader = Reader(buffer, position, end, times=times)
    try:
        for cls, version in sequence:
            reader.read(layout(cls, version))
        if to_end:
            reader.finish()
    except ProtocolError as error:
        return error
    raise AssertionError(f"compiled and plain decoder of {sequence} disagree at {position}..{end}")


def explain_encoding(sequence: Sequence, messages: tuple[Message, ...]) -> ProtocolError:
    """Why encoding failed, found by encoding again with a writer that knows where it is."""
    writer = Writer()
    try:
        for (cls, version), message in zip(sequence, messages, strict=True):
            writer.write(layout(cls, version), message)
    except ProtocolError as error:
        return error
    raise AssertionError(f"compiled and plain encoder of {sequence} disagree")


@cache
def _decoder(sequence: Sequence, view: bool) -> Decoder:
    return compile_decoder([layout(*each) for each in sequence], view=view, to_end=True)


@cache
def _prefix_decoder(sequence: Sequence, view: bool) -> Decoder:
    return compile_decoder([layout(*each) for each in sequence], view=view, to_end=False)


@cache
def _table_decoder(sequence: Sequence, view: bool) -> Decoder:
    from quorate.protocol.rows import table_reader  # numpy loads only where tables are wanted

    layouts = [layout(*each) for each in sequence]
    return compile_decoder(layouts, view=view, to_end=True, tables=table_reader)


@cache
def _encoder(sequence: Sequence) -> Encoder:
    return compile_encoder([layout(*each) for each in sequence], parts=False)


@cache
def _part_encoder(sequence: Sequence) -> Encoder:
    return compile_encoder([layout(*each) for each in sequence], parts=True)
