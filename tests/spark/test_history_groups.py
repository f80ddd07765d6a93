"""Groups over time, against a fold by hand; and why they rebalanced, and how far behind they were."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from story_logs import clock

from quorate.spark import answers, history
from quorate.spark.history_schemas import COMMITTED_OFFSETS, GROUP_GENERATIONS
from quorate.spark.raw_tables import END_OFFSETS
from quorate.spark.schemas import EVENTS, GROUP_RECORDS

pytestmark = pytest.mark.spark

Row = dict[str, Any]


class Journal:
    """Records of one partition of `__consumer_offsets`, one a second."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.rows: list[Row] = []

    def write(self, kind: str, value: Row | None, **key: Any) -> int:
        offset = len(self.rows)
        self.rows.append(
            {
                "cluster_id": self.cluster_id,
                "partition": 7,
                "offset": offset,
                "epoch": 1,
                "ts": clock(offset),
                "type": kind,
                "version": None if value is None else 0,
                "is_tombstone": value is None,
                "key_fields": "{}",
                "fields": None if value is None else json.dumps(value),
                "is_confirmed": True,
                "committed_offset": None if value is None else value.get("offset"),
                **key,
            }
        )
        return offset


def random_journal(seed: int) -> Journal:
    random = Random(seed)
    journal = Journal(f"groups-{seed}")
    generation = 0
    for _ in range(60):
        group = random.choice(["g1", "g2"])
        match random.choice(
            ["classic", "classic gone", "member", "member gone", "commit", "commit", "epoch"]
        ):
            case "classic":
                generation += random.choice([0, 1, 1])
                members = random.sample(["a", "b", "c"], random.randint(0, 3))
                journal.write(
                    "GroupMetadata",
                    {
                        "generation": generation,
                        "protocol": random.choice(["range", None]),
                        "leader": members[0] if members else None,
                        "members": [
                            {
                                "memberId": one,
                                "groupInstanceId": None,
                                "clientId": "c",
                                "clientHost": random.choice(["h", "h", "i"]),
                            }
                            for one in members
                        ],
                    },
                    group_id=group,
                )
            case "classic gone":
                journal.write("GroupMetadata", None, group_id=group)
            case "member":
                said = {"instanceId": "s", "clientId": random.choice("xy"), "clientHost": "h"}
                journal.write(
                    "ConsumerGroupMemberMetadata", said, group_id=group, member_id=random.choice("mn")
                )
            case "member gone":
                journal.write(
                    "ConsumerGroupMemberMetadata", None, group_id=group, member_id=random.choice("mn")
                )
            case "commit":
                value = random.choice([None, {"offset": random.randint(0, 3)}])
                journal.write(
                    "OffsetCommit", value, group_id=group, topic="t", topic_partition=random.choice([0, 1])
                )
            case "epoch":
                journal.write("ConsumerGroupMetadata", {"epoch": random.randint(1, 3)}, group_id=group)
    return journal


def fold(journal: Journal) -> dict[str, list[Row]]:
    """The groups after each record, and where they differ from before."""
    state: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = {
        "group_generations": {},
        "group_members": {},
        "committed_offsets": {},
    }
    done: dict[str, list[Row]] = {name: [] for name in state}
    opened: dict[tuple[str, tuple[Any, ...]], tuple[tuple[Any, ...], int]] = {}
    for row in journal.rows:
        value = None if row["fields"] is None else json.loads(row["fields"])
        group = row["group_id"]
        generations, members, offsets = state.values()
        match row["type"]:
            case "GroupMetadata":
                generations.pop((group, "classic"), None)
                for key in [key for key in members if key[:2] == (group, "classic")]:
                    del members[key]
                if value is not None:
                    of_group = (
                        value["generation"],
                        value["protocol"],
                        value["leader"],
                        len(value["members"]),
                    )
                    generations[group, "classic"] = of_group
                    for one in value["members"]:
                        members[group, "classic", one["memberId"]] = (
                            None,
                            one["clientId"],
                            one["clientHost"],
                        )
            case "ConsumerGroupMetadata":
                generations[group, "consumer"] = (value["epoch"], None, None, None)
            case "ConsumerGroupMemberMetadata":
                members.pop((group, "consumer", row["member_id"]), None)
                if value is not None:
                    said = (value["instanceId"], value["clientId"], value["clientHost"])
                    members[group, "consumer", row["member_id"]] = said
            case "OffsetCommit":
                offsets.pop((group, row["topic"], row["topic_partition"]), None)
                if value is not None:
                    offsets[group, row["topic"], row["topic_partition"]] = (value["offset"],)
        now = {(name, key): what for name, things in state.items() for key, what in things.items()}
        for thing in [one for one, (what, _) in opened.items() if now.get(one) != what]:
            what, start = opened.pop(thing)
            done[thing[0]].append({"key": thing[1], "state": what, "start": start, "end": row["offset"]})
        for thing, what in now.items():
            opened.setdefault(thing, (what, row["offset"]))
    for thing, (what, start) in opened.items():
        done[thing[0]].append({"key": thing[1], "state": what, "start": start, "end": None})
    return done


KEYS = {
    "group_generations": (("group_id", "group_type"), ("generation", "protocol", "leader", "member_count")),
    "group_members": (("group_id", "group_type", "member_id"), ("instance_id", "client_id", "client_host")),
    "committed_offsets": (("group_id", "topic", "partition"), ("committed_offset",)),
}


@pytest.mark.parametrize("table", KEYS)
def test_groups_agree_with_a_fold_by_hand(table: str, spark: SparkSession) -> None:
    journals = [random_journal(seed) for seed in range(40)]
    frame = of_rows(spark, [row for one in journals for row in one.rows], GROUP_RECORDS)

    found = rows_of(getattr(history, table)(frame))

    keys, state = KEYS[table]
    shown = [
        (
            row["cluster_id"],
            tuple(row[one] for one in keys),
            tuple(row[one] for one in state),
            row["start_offset"],
            row["end_offset"],
        )
        for row in found
    ]
    expected = [
        (one.cluster_id, row["key"], row["state"], row["start"], row["end"])
        for one in journals
        for row in fold(one)[table]
    ]
    assert sorted(shown, key=repr) == sorted(expected, key=repr)
    assert all(row["start_ts"] == clock(row["start_offset"]) for row in found)


def test_a_rebalance_says_what_set_it_off(spark: SparkSession) -> None:
    started = {
        "generation": 1,
        "trigger": "a member joined",
        "member_id": "m-2",
        "client_id": "app",
        "client_host": "/10.0.0.2",
        "reason": "",
        "members": 1,
    }
    ended = {"generation": 2, "members": 2, "duration_ms": 3000, "removed": ["m-9"]}
    bumped = {"epoch": 5, "trigger": "a member left", "members": 2, "member_id": ""}
    settled = {"epoch": 6, "members": 3, "duration_ms": 4000, "removed": ["m-8"]}
    events = of_rows(
        spark,
        [
            _event(10, "RebalanceStarted", "g", started),
            _event(13, "RebalanceEnded", "g", ended),
            _event(20, "GroupEpochBumped", "h", bumped),
            _event(21, "GroupEpochBumped", "h", bumped | {"epoch": 6, "member_id": "m-3"}),
            _event(24, "ConsumerRebalanceEnded", "h", settled),
            _event(30, "ConsumerRebalanceEnded", "h", settled | {"epoch": 7, "duration_ms": None}),
        ],
        EVENTS,
    )
    generations = of_rows(
        spark,
        [
            _generation("g", "classic", 1, 1, 1),
            _generation("g", "classic", 2, 13, 2),
            *[_generation("stormy", "classic", 10 + n, 100 + n, 1) for n in range(5)],
        ],
        GROUP_GENERATIONS,
    )

    rows = {
        (row["group_id"], row["generation"]): row for row in rows_of(answers.rebalances(generations, events))
    }

    told = rows["g", 2]
    assert (told["trigger"], told["member_id"], told["client_host"]) == (
        "a member joined",
        "m-2",
        "/10.0.0.2",
    )
    assert (told["reason"], told["removed"], told["member_count"]) == (None, ["m-9"], 2)
    assert (told["start_ts"], told["end_ts"], told["duration_ms"]) == (clock(10), clock(13), 3000)
    assert (told["source"], told["is_storm"]) == ("both", False)
    silent = rows["g", 1]
    assert (silent["source"], silent["trigger"], silent["duration_ms"]) == ("records", None, None)
    assert silent["end_ts"] == clock(1)
    consumer = rows["h", 5]
    assert (consumer["group_type"], consumer["source"], consumer["member_id"]) == ("consumer", "events", None)
    assert (consumer["end_ts"], consumer["duration_ms"]) == (clock(20), None), "another epoch came"
    consumer = rows["h", 6]
    assert (consumer["trigger"], consumer["member_id"]) == ("a member left", "m-3")
    assert (consumer["start_ts"], consumer["end_ts"], consumer["duration_ms"]) == (clock(21), clock(24), 4000)
    assert (consumer["removed"], consumer["member_count"]) == (["m-8"], 3)
    untold = rows["h", 7]
    assert (untold["trigger"], untold["end_ts"], untold["duration_ms"]) == (None, clock(30), None)
    assert [rows["stormy", 10 + n]["is_storm"] for n in range(5)] == [False] * 4 + [True]


def test_lag_is_counted_in_records_and_in_time(spark: SparkSession) -> None:
    committed = of_rows(
        spark,
        [
            _commit("g", 10, start=0, end=30),
            _commit("g", 25, start=30, end=45),
        ],
        COMMITTED_OFFSETS,
    )
    ends = [(5, 10), (15, 20), (25, 30), (35, 30), (44, 25), (50, 40)]
    samples = of_rows(
        spark,
        [
            {
                "cluster_id": "c",
                "sequence": at,
                "ts": clock(at),
                "topic": "t",
                "partition": 0,
                "end_offset": end,
            }
            for at, end in ends
        ],
        END_OFFSETS,
    )

    rows = sorted(rows_of(answers.lag(committed, samples)), key=lambda row: row["ts"])

    assert [(row["ts"], row["committed_offset"], row["lag"], row["lag_ms"]) for row in rows] == [
        (clock(5), 10, 0, 0),
        (clock(15), 10, 10, 0),  # seen for the first time
        (clock(25), 10, 20, 10_000),
        (clock(35), 25, 5, 10_000),  # the sample at 25 was the first beyond 25
        (clock(44), 25, 0, 0),
    ]  # at 50 the group has no offset any more


def _commit(group_id: str, offset: int, *, start: int, end: int | None) -> Row:
    return {
        "cluster_id": "c",
        "group_id": group_id,
        "topic": "t",
        "partition": 0,
        "committed_offset": offset,
        **_span(start, end),
    }


def _generation(group_id: str, group_type: str, generation: int, at: int, members: int) -> Row:
    return {
        "cluster_id": "c",
        "group_id": group_id,
        "group_type": group_type,
        "generation": generation,
        "member_count": members,
        **_span(at, None),
    }


def _span(start: int, end: int | None) -> Row:
    return {
        "origin": "log",
        "start_offset": start,
        "end_offset": end,
        "start_ts": clock(start),
        "end_ts": None if end is None else clock(end),
    }


def _event(at: int, kind: str, group_id: str, fields: Row) -> Row:
    return {
        "cluster_id": "c",
        "partition": 0,
        "offset": at,
        "ts": clock(at),
        "kind": kind,
        "group_id": group_id,
        "fields": json.dumps(fields),
    }


def of_rows(spark: SparkSession, rows: list[Row], schema: Any) -> DataFrame:
    return spark.createDataFrame([tuple(row.get(one.name) for one in schema) for row in rows], schema)


def rows_of(table: DataFrame) -> list[Row]:
    rows: list[Row] = table.toArrow().to_pylist()
    return rows
