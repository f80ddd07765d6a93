"""Rows of the metadata log: decoded in bulk, they are what the plain decoder says of each record."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from histories import History, batch_of, batches_of, encoded, histories
from quorate.metadata import records as r
from quorate.metadata.log_format import decode_record
from quorate.protocol.batch import ControlType, Record, build, build_control, read_header
from quorate.protocol.codec import encode
from quorate.protocol.compression import Codec
from quorate.protocol.errors import ApiError
from quorate.protocol.types import Uuid
from quorate.raft.records import LeaderChangeMessage, SnapshotHeaderRecord
from quorate.spark.metadata_columns import Place, decode_batches, record_batch
from quorate.spark.record_json import UNKNOWN_TAGS, fields_of, json_name
from quorate.spark.schemas import EVENTS, GROUP_RECORDS, PROBLEMS, RECORDS, arrow_schema

CLUSTER = "cluster-1"


def rows_of(values: Sequence[bytes], sizes: Sequence[int] = (1000,), **wanted: Any) -> list[dict[str, Any]]:
    data = b"".join(batches_of(values, sizes))
    return record_batch(CLUSTER, data, **wanted).to_pylist()


def one(record: Any) -> dict[str, Any]:
    (row,) = rows_of([record if isinstance(record, bytes) else encoded(record)])
    return row


@settings(max_examples=25)
@given(histories(), st.lists(st.integers(1, 80), min_size=1, max_size=4))
def test_every_record_is_a_row_that_says_what_the_decoder_says(
    values: Sequence[bytes], sizes: Sequence[int]
) -> None:
    rows = rows_of(values, sizes)

    assert [row["offset"] for row in rows] == list(range(len(values)))
    for value, row in zip(values, rows, strict=True):
        try:
            record, version = decode_record(value)
        except ApiError:
            assert row["type"] == "Unknown"
            assert base64.b64decode(json.loads(row["fields"])["base64"]) == value
            continue
        assert (row["type"], row["version"]) == (type(record).__name__, version)
        assert json.loads(row["fields"]) == fields_of(record, version)
        if isinstance(record, (r.PartitionRecord, r.PartitionChangeRecord)):
            leader = None if record.leader == -2 else record.leader
            assert (row["topic_id"], row["partition"]) == (str(record.topic_id), record.partition_id)
            assert (row["leader"], row["isr"], row["replicas"]) == (leader, record.isr, record.replicas)


@settings(max_examples=25)
@given(
    histories(),
    st.sets(st.sampled_from(["PartitionRecord", "PartitionChangeRecord", "NoOpRecord", "Unknown"])),
)
def test_only_some_types(values: Sequence[bytes], types: set[str]) -> None:
    wanted = [row for row in rows_of(values) if row["type"] in types]

    assert rows_of(values, types=types) == wanted


@settings(max_examples=25)
@given(histories(), st.integers(0, 100), st.integers(0, 100))
def test_only_a_range_of_offsets(values: Sequence[bytes], first: int, last: int) -> None:
    buffers = list(batches_of(values, (7, 30)))
    place = Place(cluster_id=CLUSTER, first_offset=first, end_offset=last)

    found = decode_batches(buffers, [read_header(one) for one in buffers], place)

    wanted = [row["offset"] for row in rows_of(values) if first <= row["offset"] < last]
    assert found.column("offset").to_pylist() == wanted


def test_the_envelope_says_where_a_record_stands() -> None:
    batch = build(
        [Record(5, 1_700_000_000_000, None, encoded(r.NoOpRecord()))], base_offset=5, leader_epoch=9
    )

    row = record_batch(CLUSTER, batch, is_confirmed=False).to_pylist()[0]

    assert row["ts"].isoformat() == "2023-11-14T22:13:20+00:00"
    assert {name: row[name] for name in ("cluster_id", "origin", "offset", "position", "epoch")} == {
        "cluster_id": CLUSTER,
        "origin": "log",
        "offset": 5,
        "position": 0,
        "epoch": 9,
    }
    assert row["is_confirmed"] is False


def test_what_a_broker_does_names_the_broker() -> None:
    change = one(r.BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=77, fenced=1))
    fenced = one(r.FenceBrokerRecord(id=4, epoch=78))

    assert (change["broker_id"], change["broker_epoch"]) == (3, 77)
    assert json.loads(change["fields"]) == {"brokerId": 3, "brokerEpoch": 77, "fenced": 1}
    assert (fenced["broker_id"], fenced["broker_epoch"]) == (4, 78)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 2**40), st.integers(-1, 1), st.booleans()), max_size=40
    )
)
def test_changes_of_registrations_in_bulk_say_what_the_decoder_says(
    changes: Sequence[tuple[int, int, int, bool]],
) -> None:
    values = []
    for broker_id, epoch, fenced, has_unknown in changes:
        record = r.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=fenced)
        record.in_controlled_shutdown = epoch % 2
        if has_unknown:
            record.__unknown_tags__ = {9: b"x"}
        values.append(encoded(record))
    values.append(encoded(r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2))[:-1] + b"\5")

    rows = rows_of(values)

    assert [json.loads(row["fields"]) for row in rows[:-1]] == [
        fields_of(*decode_record(value)) for value in values[:-1]
    ]
    assert [(row["broker_id"], row["broker_epoch"]) for row in rows[:-1]] == [one[:2] for one in changes]
    assert rows[-1]["type"] == "Malformed"


def test_a_record_that_carries_the_name_of_a_topic() -> None:
    configured = r.ConfigRecord(resource_type=2, resource_name="orders", name="a", value="1")
    of_a_broker = r.ConfigRecord(resource_type=4, resource_name="1", name="a", value="1")

    assert one(r.TopicRecord(name="orders", topic_id=Uuid(bytes(16))))["topic"] == "orders"
    assert one(configured)["topic"] == "orders"
    assert one(of_a_broker)["topic"] is None


def test_secrets_stay_where_they_are() -> None:
    credential = r.UserScramCredentialRecord(
        name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )

    fields = json.loads(one(credential)["fields"])

    assert fields["name"] == "u"
    assert {fields["salt"], fields["storedKey"], fields["serverKey"]} == {"(secret)"}


def test_a_field_of_a_newer_kafka_is_kept_raw() -> None:
    record = r.PartitionChangeRecord(partition_id=1, topic_id=Uuid(bytes(16)), leader=2)
    record.__unknown_tags__ = {40: b"new"}

    row = one(record)

    assert (row["type"], row["leader"]) == ("PartitionChangeRecord", 2)
    assert json.loads(row["fields"])[UNKNOWN_TAGS] == {"40": base64.b64encode(b"new").decode()}


@pytest.mark.parametrize(
    ("value", "kind", "about"),
    [
        (bytes.fromhex("01630000"), "Unknown", {"key": 99, "type": None}),
        (bytes.fromhex("010509"), "Unknown", {"key": 5, "type": "PartitionChangeRecord"}),
        (bytes.fromhex("010200ff"), "Malformed", {}),
        (bytes.fromhex("0105"), "Malformed", {}),
        (b"", "Malformed", {}),
    ],
)
def test_what_cannot_be_read_is_a_row_too(value: bytes, kind: str, about: dict[str, Any]) -> None:
    rows = rows_of([encoded(r.NoOpRecord()), value, encoded(r.NoOpRecord())])

    fields = json.loads(rows[1]["fields"])
    assert [row["type"] for row in rows] == ["NoOpRecord", kind, "NoOpRecord"]
    assert base64.b64decode(fields["base64"]) == value
    assert about.items() <= fields.items()


def test_a_batch_whose_records_are_not_there_is_one_row() -> None:
    batch = build([Record(4, 0, None, b"x")], base_offset=4, codec=Codec.GZIP, leader_epoch=1)
    batch[-10:] = bytes(10)
    header = read_header(batch)

    (row,) = decode_batches([batch], [header], Place(cluster_id=CLUSTER)).to_pylist()

    assert (row["offset"], row["type"]) == (4, "Malformed")


def test_compressed_batches_and_odd_records_are_read_too() -> None:
    noop = encoded(r.NoOpRecord())
    stored = [Record(0, 5, None, noop), Record(1, 9, b"key", noop), Record(4, 9, None, noop)]

    rows = record_batch(CLUSTER, build(stored, codec=Codec.ZSTD, leader_epoch=1)).to_pylist()

    assert [(row["offset"], row["type"]) for row in rows] == [
        (0, "NoOpRecord"),
        (1, "NoOpRecord"),
        (4, "NoOpRecord"),
    ]


def test_control_records_are_rows() -> None:
    voter = LeaderChangeMessage.Voter(voter_id=1)
    message = LeaderChangeMessage(version=0, leader_id=1, voters=[voter], granting_voters=[voter])
    control = build_control(
        [(ControlType.LEADER_CHANGE, bytes(encode(message, 0)))], timestamp=1, base_offset=0, leader_epoch=2
    )
    data = bytes(control) + bytes(batch_of([encoded(r.NoOpRecord())], 1))

    rows = record_batch(CLUSTER, data).to_pylist()

    assert [row["type"] for row in rows] == ["LeaderChange", "NoOpRecord"]
    assert json.loads(rows[0]["fields"])["leaderId"] == 1


def test_rows_of_a_snapshot_carry_its_offset_and_their_position() -> None:
    head = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=1_000)
    control = build_control([(ControlType.SNAPSHOT_HEADER, bytes(encode(head, 0)))], timestamp=9_000)
    data = bytes(control) + bytes(batch_of([encoded(r.NoOpRecord())] * 2, 1))

    rows = record_batch(CLUSTER, data, snapshot_offset=41).to_pylist()

    assert [(row["origin"], row["offset"], row["position"]) for row in rows] == [
        ("snapshot", 41, 0),
        ("snapshot", 41, 1),
        ("snapshot", 41, 2),
    ]
    assert {row["ts"].timestamp() for row in rows} == {1.0}
    assert [row["gap"] for row in rows] == ["retention", None, None]


def test_a_gap_is_named_where_it_ends() -> None:
    noop = encoded(r.NoOpRecord())
    buffers = [batch_of([noop], 3), batch_of([noop], 4), batch_of([noop] * 2, 9)]
    headers = [read_header(one) for one in buffers]

    place = Place(cluster_id=CLUSTER, expected_offset=0, gap="retention")
    gaps = decode_batches(buffers, headers, place).column("gap").to_pylist()

    assert gaps == ["retention", None, "loss", None]


def test_nothing_is_an_empty_table() -> None:
    assert record_batch(CLUSTER, b"").schema == arrow_schema(RECORDS)


def test_arrow_and_spark_declare_the_same_columns() -> None:
    assert arrow_schema(RECORDS).names == RECORDS.fieldNames()
    assert all(field.metadata["comment"] for field in RECORDS.fields)


def test_a_large_history_of_many_shapes() -> None:
    history = History(Random(7))
    for _ in range(30):
        history.create_topics()
        history.change_partitions_unusually()
        history.remove_topic()

    rows = rows_of(history.values)

    assert [json.loads(row["fields"]) for row in rows] == [
        fields_of(*decode_record(value)) for value in history.values
    ]


def test_names_are_those_of_kafka() -> None:
    assert json_name("last_known_elr") == "lastKnownElr"
    assert json_name("in_controlled_shutdown") == "inControlledShutdown"


def test_many_batches_of_one_record_each_are_read_together() -> None:
    noop = encoded(r.NoOpRecord())
    data = b"".join(batches_of([noop] * 500, (1,)))

    found = record_batch(CLUSTER, data)

    assert isinstance(found, pa.RecordBatch)
    assert found.column("offset").to_pylist() == list(range(500))


@pytest.mark.parametrize("table", [RECORDS, GROUP_RECORDS, EVENTS, PROBLEMS])
def test_what_we_declare_for_arrow_is_what_spark_expects(table: StructType) -> None:
    assert to_arrow_schema(table, timezone="UTC").equals(arrow_schema(table))
