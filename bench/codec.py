"""The codec against kio, and the columnar paths against the ordinary ones."""

from __future__ import annotations

import io

import numpy as np
from kio.schema.broker_heartbeat.v1.request import BrokerHeartbeatRequest as KioBrokerHeartbeat
from kio.schema.heartbeat.v4.request import HeartbeatRequest as KioHeartbeat
from kio.schema.request_header.v2.header import RequestHeader as KioHeader
from kio.serial import entity_reader, entity_writer

from bench.timing import Row, compare
from quorate.protocol import codec, frame
from quorate.protocol.api.brokers import BrokerHeartbeatRequest
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.groups import HeartbeatRequest
from quorate.protocol.api.produce_fetch import FetchRequest
from quorate.protocol.api.topics import MetadataResponse
from quorate.protocol.message import Request
from quorate.protocol.rows import Ragged, encode_rows

PARTITIONS = 1000


def section() -> list[Row]:
    beat = HeartbeatRequest(group_id="orders-group", generation_id=12, member_id="consumer-1-" + "0" * 36)
    broker_beat = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=1234, current_metadata_offset=987654, want_fence=False, want_shut_down=False
    )
    rows = []
    for request, version, theirs in ((broker_beat, 1, KioBrokerHeartbeat), (beat, 4, KioHeartbeat)):
        rows += against_kio(request, version, theirs)
    rows.append(fetch_request())
    rows.append(metadata_response())
    return rows


def against_kio(request: Request, version: int, theirs: type) -> list[Row]:
    name = type(request).__name__
    raw = bytes(frame.encode_request(request, version, 7, "consumer-orders-1"))[4:]
    read_header, read_body = entity_reader(KioHeader), entity_reader(theirs)
    write_header, write_body = entity_writer(KioHeader), entity_writer(theirs)
    kio_header, size = read_header(raw, 0)
    kio_body, _ = read_body(raw, size)
    sequence = (RequestHeader, 2), (type(request), version)
    decode, end = codec.decoder_of(sequence, raw), len(raw)
    encode = codec.encoder_of(sequence)
    header, body = decode(raw, 0, end)

    def kio_decodes() -> None:
        _, position = read_header(raw, 0)
        read_body(raw, position)

    def kio_encodes() -> None:
        out = io.BytesIO()
        write_header(out, kio_header)
        write_body(out, kio_body)
        out.getvalue()

    decoding = compare(kio_decodes, lambda: decode(raw, 0, end))
    dispatching = compare(kio_decodes, lambda: frame.decode_request(raw, 0, end))
    encoding = compare(kio_encodes, lambda: encode(header, body, bytearray()))
    return [
        Row(f"decode {name} v{version} and header: time / kio's native reader", decoding, at_most=1.7),
        Row(
            "  the same, found by the key and version in the frame", dispatching, note="kio is told the class"
        ),
        Row(f"encode {name} v{version} and header: speed / kio", 1 / encoding, at_least=4),
    ]


def fetch_request() -> Row:
    partition = FetchRequest.Topic.Partition
    partitions = [
        partition(partition=i, fetch_offset=i * 7, partition_max_bytes=1 << 20) for i in range(PARTITIONS)
    ]
    topics = [FetchRequest.Topic(topic="t", partitions=partitions)]
    raw = bytes(codec.encode(FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics), 12))
    ends = np.full(PARTITIONS, 3500)

    def loop() -> list[int]:
        request = codec.decode(FetchRequest, 12, raw)
        end_of = ends.tolist()
        return [p.partition for p in request.topics[0].partitions if p.fetch_offset < end_of[p.partition]]

    def table() -> np.ndarray:
        rows = codec.decode_tables(FetchRequest, 12, raw).topics[0].partitions
        numbers = rows.column("partition")
        return numbers[rows.column("fetch_offset") < ends[numbers]]

    assert loop() == table().tolist()
    ratio = compare(table, loop)
    return Row("fetch request of 1,000 partitions, and which have data: table / loop", ratio, at_least=15)


def metadata_response() -> Row:
    random = np.random.default_rng(1)
    replicas = random.integers(1, 100, (PARTITIONS, 3))
    in_sync = random.random((PARTITIONS, 3)) < 0.9
    leaders, epochs = replicas[:, 0], random.integers(0, 50, PARTITIONS)
    nobody, everybody = np.zeros((PARTITIONS, 3), bool), np.ones((PARTITIONS, 3), bool)
    partition = MetadataResponse.Topic.Partition
    objects = [
        partition(
            error_code=0,
            partition_index=i,
            leader_id=int(leaders[i]),
            leader_epoch=int(epochs[i]),
            replica_nodes=replicas[i].tolist(),
            isr_nodes=replicas[i][in_sync[i]].tolist(),
            offline_replicas=[],
        )
        for i in range(PARTITIONS)
    ]

    def response(partitions: object) -> bytearray:
        topic = MetadataResponse.Topic(error_code=0, name="t", partitions=partitions)
        return codec.encode(MetadataResponse(brokers=[], topics=[topic]), 12)

    def columns() -> bytearray:
        return response(
            encode_rows(
                partition,
                MetadataResponse,
                12,
                {
                    "error_code": 0,
                    "partition_index": np.arange(PARTITIONS),
                    "leader_id": leaders,
                    "leader_epoch": epochs,
                    "replica_nodes": Ragged(replicas, everybody),
                    "isr_nodes": Ragged(replicas, in_sync),
                    "offline_replicas": Ragged(replicas, nobody),
                },
            )
        )

    assert columns() == response(objects)
    ratio = compare(columns, lambda: response(objects))
    return Row("metadata response of 1,000 partitions, mixed ISRs: columns / objects", ratio, at_least=4)
