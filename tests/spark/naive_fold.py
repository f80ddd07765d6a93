"""History by hand: the log is applied record by record to plain dictionaries, and after each moment these are
compared with what they were. What the tables must agree with, written from what the records mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from random_logs import Entry, Log, Snapshot

from quorate.metadata import records as r
from quorate.metadata.log_format import decode_record
from quorate.protocol.errors import ProtocolError

Row = dict[str, Any]
State = dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]

KEYS = {
    "broker_sessions": ("broker_id",),
    "broker_states": ("broker_id",),
    "topics": ("topic_id",),
    "configs": ("resource_type", "resource_name", "name"),
    "features": ("name",),
    "partition_leaders": ("topic_id", "partition"),
    "partition_isr": ("topic_id", "partition"),
    "partition_states": ("topic_id", "partition"),
}
STATES = {
    "broker_sessions": ("broker_epoch", "incarnation_id", "rack", "endpoints"),
    "broker_states": ("broker_epoch", "state"),
    "topics": ("topic",),
    "configs": ("value",),
    "features": ("level",),
    "partition_leaders": ("topic", "leader", "leader_epoch"),
    "partition_isr": ("topic", "isr", "replicas"),
    "partition_states": ("topic", "leader", "leader_epoch", "isr", "replicas"),
}


def time_of(ts_ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ts_ms)


class World:
    """The cluster as far as history knows it."""

    def __init__(self) -> None:
        self.brokers: dict[int, dict[str, Any]] = {}
        self.topics: dict[str, str] = {}
        self.partitions: dict[tuple[str, int], dict[str, Any]] = {}
        self.configs: dict[tuple[int, str, str], str] = {}
        self.features: dict[str, int] = {}

    def apply(self, value: bytes) -> None:
        if not value:
            return  # the quorum's own
        try:
            record: Any = decode_record(value)[0]
        except ProtocolError:
            return
        match record:
            case r.RegisterBrokerRecord():
                self.brokers[record.broker_id] = {
                    "epoch": record.broker_epoch,
                    "incarnation": str(record.incarnation_id),
                    "rack": record.rack,
                    "endpoints": [
                        {
                            "name": e.name,
                            "host": e.host,
                            "port": e.port,
                            "security_protocol": e.security_protocol,
                        }
                        for e in record.end_points
                    ],
                    "fenced": record.fenced,
                    "leaving": record.in_controlled_shutdown,
                }
            case r.UnregisterBrokerRecord():
                del self.brokers[record.broker_id]
            case r.FenceBrokerRecord():
                self.brokers[record.id]["fenced"] = True
            case r.UnfenceBrokerRecord():
                self.brokers[record.id]["fenced"] = False
            case r.BrokerRegistrationChangeRecord():
                broker = self.brokers[record.broker_id]
                if record.fenced:
                    broker["fenced"] = record.fenced == 1
                if record.in_controlled_shutdown:
                    broker["leaving"] = True
            case r.TopicRecord():
                self.topics[str(record.topic_id)] = record.name
            case r.RemoveTopicRecord():
                topic_id = str(record.topic_id)
                name = self.topics.pop(topic_id)
                self.partitions = {k: v for k, v in self.partitions.items() if k[0] != topic_id}
                self.configs = {k: v for k, v in self.configs.items() if k[:2] != (2, name)}
            case r.PartitionRecord():
                self.partitions[str(record.topic_id), record.partition_id] = {
                    "leader": record.leader,
                    "leader_epoch": record.leader_epoch,
                    "isr": sorted(record.isr),
                    "replicas": list(record.replicas),
                    "partition_epoch": record.partition_epoch,
                }
            case r.PartitionChangeRecord():
                partition = self.partitions[str(record.topic_id), record.partition_id]
                partition["partition_epoch"] += 1
                if record.leader != -2:
                    partition["leader"] = record.leader
                    partition["leader_epoch"] += 1
                if record.isr is not None:
                    partition["isr"] = sorted(record.isr)
                if record.replicas is not None:
                    partition["replicas"] = list(record.replicas)
            case r.ConfigRecord():
                key = record.resource_type, record.resource_name, record.name
                if record.value is None:
                    self.configs.pop(key, None)
                else:
                    self.configs[key] = record.value
            case r.FeatureLevelRecord() if record.name != "kraft.version":
                if record.feature_level:
                    self.features[record.name] = record.feature_level
                else:
                    self.features.pop(record.name, None)

    def state(self) -> State:
        sessions, states = {}, {}
        for broker_id, one in self.brokers.items():
            sessions[(broker_id,)] = (one["epoch"], one["incarnation"], one["rack"], one["endpoints"])
            state = "fenced" if one["fenced"] else "shutting_down" if one["leaving"] else "unfenced"
            states[(broker_id,)] = (one["epoch"], state)
        leaders, in_sync, both = {}, {}, {}
        for key, one in self.partitions.items():
            topic = self.topics[key[0]]
            leaders[key] = (topic, one["leader"], one["leader_epoch"])
            in_sync[key] = (topic, one["isr"], one["replicas"])
            both[key] = (topic, one["leader"], one["leader_epoch"], one["isr"], one["replicas"])
        return {
            "broker_sessions": sessions,
            "broker_states": states,
            "topics": {(topic_id,): (name,) for topic_id, name in self.topics.items()},
            "configs": {key: (value,) for key, value in self.configs.items()},
            "features": {(name,): (level,) for name, level in self.features.items()},
            "partition_leaders": leaders,
            "partition_isr": in_sync,
            "partition_states": both,
        }


def naive_history(log: Log) -> dict[str, list[Row]]:
    """All tables of one cluster, each a list of rows in no particular order."""
    return {**_Fold(log).tables, "controller_terms": _terms(log)}


def _terms(log: Log) -> list[Row]:
    """A term begins with the first record of an epoch, which names the controller if nothing is missing."""
    rows: list[Row] = []
    for entry in log.entries:
        if isinstance(entry, Snapshot) or (rows and rows[-1]["epoch"] == entry.epoch):
            continue
        started = {"start_offset": entry.offset, "start_ts": time_of(entry.ts_ms)}
        if rows:
            rows[-1] |= {"end_offset": entry.offset, "end_ts": started["start_ts"], "is_end_known": True}
        rows.append(
            {
                "cluster_id": log.cluster_id,
                "epoch": entry.epoch,
                "controller_id": entry.leader,
                "origin": "log",
                **started,
                "end_offset": None,
                "end_ts": None,
                "is_start_known": entry.leader is not None,
                "is_end_known": None,
            }
        )
    return rows


class _Fold:
    def __init__(self, log: Log) -> None:
        self.cluster_id = log.cluster_id
        self.tables: dict[str, list[Row]] = {name: [] for name in KEYS}
        self.open: dict[str, dict[tuple[Any, ...], Row]] = {name: {} for name in KEYS}
        self.before: State = World().state()
        world = World()
        for moment, ts_ms, offset, is_log in self._moments(log.entries):
            if isinstance(moment, Snapshot):
                world = World()
                for value in moment.values:
                    world.apply(value)
            else:
                for entry in moment:
                    world.apply(entry.value)
            self._compare(world.state(), offset, ts_ms, is_log)
        for rows in self.open.values():
            for row in rows.values():
                self._close(row, None, None, None)
        for name, rows in self.open.items():
            self.tables[name] += rows.values()

    def _moments(self, entries: Iterable[Entry | Snapshot]) -> Iterable[tuple[Any, int, int, bool]]:
        """What counts together: a record, what a transaction held when it ended, or a snapshot."""
        inside: list[Entry] | None = None
        for entry in entries:
            if isinstance(entry, Snapshot):
                inside = None
                yield entry, 5, entry.offset, False
                continue
            kind = _kind(entry)
            if kind is r.BeginTransactionRecord:
                inside = []
            elif kind is r.AbortTransactionRecord:
                inside = None
            elif kind is r.EndTransactionRecord:
                yield inside or [], entry.ts_ms, entry.offset, True
                inside = None
            elif inside is not None:
                inside.append(entry)
            else:
                yield [entry], entry.ts_ms, entry.offset, True

    def _compare(self, now: State, offset: int, ts_ms: int, is_log: bool) -> None:
        for name, things in now.items():
            before = self.before[name]
            opened = self.open[name]
            for key in [key for key, state in before.items() if things.get(key) != state]:
                row = opened.pop(key)
                self._close(row, offset, ts_ms, is_log)
                self.tables[name].append(row)
            for key, state in things.items():
                if before.get(key) != state:
                    opened[key] = {
                        "cluster_id": self.cluster_id,
                        **dict(zip(KEYS[name], key, strict=True)),
                        **dict(zip(STATES[name], state, strict=True)),
                        "origin": "log" if is_log else "snapshot",
                        "start_offset": offset,
                        "start_ts": time_of(ts_ms),
                        "is_start_known": is_log,
                    }
        self.before = now

    def _close(self, row: Row, offset: int | None, ts_ms: int | None, is_known: bool | None) -> None:
        row |= {
            "end_offset": offset,
            "end_ts": None if ts_ms is None else time_of(ts_ms),
            "is_end_known": is_known,
        }


def _kind(entry: Entry) -> type | None:
    if not entry.value:
        return None
    try:
        return type(decode_record(entry.value)[0])
    except ProtocolError:
        return None
