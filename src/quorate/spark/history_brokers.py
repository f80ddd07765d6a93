"""Brokers and controllers over time: who was registered, who was fenced, who was in charge."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from quorate.spark.history_replay import replayed
from quorate.spark.history_schemas import BROKER_SESSIONS, BROKER_STATES, CONTROLLER_TERMS
from quorate.spark.intervals import (
    PLACED,
    declared,
    following,
    identified,
    in_order,
    intervals,
    last_known,
)

__all__ = [
    "FENCED",
    "SHUTTING_DOWN",
    "UNFENCED",
    "broker_changes",
    "broker_sessions",
    "broker_states",
    "controller_terms",
    "says_fenced",
    "says_shutting_down",
]

FENCED: Final = "fenced"
UNFENCED: Final = "unfenced"
SHUTTING_DOWN: Final = "shutting_down"

_REGISTER: Final = "RegisterBrokerRecord"
_CHANGE: Final = "BrokerRegistrationChangeRecord"
_UNREGISTER: Final = "UnregisterBrokerRecord"
_FENCE: Final = "FenceBrokerRecord"
_UNFENCE: Final = "UnfenceBrokerRecord"
_KEYS: Final = ("cluster_id", "broker_id")
_ENDPOINTS: Final = "array<struct<name:string,host:string,port:int,securityProtocol:int>>"


def broker_sessions(records: DataFrame) -> DataFrame:
    """From registration to unregistration, or to the registration that replaces it. A broker that amends what
    it said gets another row with the same epoch."""
    state = ("broker_epoch", "incarnation_id", "rack", "endpoints")
    return declared(intervals(broker_changes(records), _KEYS, state), BROKER_SESSIONS)


def broker_states(records: DataFrame) -> DataFrame:
    """Fenced, unfenced or shutting down. One that is fenced while it shuts down is fenced."""
    return declared(intervals(broker_changes(records), _KEYS, ("broker_epoch", "state")), BROKER_STATES)


def controller_terms(records: DataFrame) -> DataFrame:
    """Who was the active controller. Every term begins with a record that names it; of an epoch whose first
    records are not there any more, only the number is known."""
    is_election = fn.col("type") == "LeaderChange"
    elected = fn.when(is_election, _field("leaderId").try_cast("int"))
    terms = (
        records.where(fn.col("origin") == "log")
        .groupBy("cluster_id", "epoch")
        .agg(
            fn.min(fn.struct("offset", "ts")).alias("first"),
            fn.min(fn.when(is_election, fn.col("offset"))).alias("election_offset"),
            fn.max(elected).alias("controller_id"),
        )
    )
    changes = terms.select(
        "cluster_id",
        "epoch",
        "controller_id",
        fn.col("first.offset").alias("at_offset"),
        fn.col("first.ts").alias("at_ts"),
        fn.col("first.offset").alias("offset"),
        fn.lit("log").alias("origin"),
        fn.lit(0).alias("position"),
        fn.lit(False).alias("is_gone"),
        fn.lit(None).cast("struct<offset:bigint,ts:timestamp,is_known:boolean>").alias("cut"),
        (fn.col("election_offset") == fn.col("first.offset")).alias("is_first"),
    )
    keys = ("cluster_id",)
    followed = identified(changes, keys).select("*", following(in_order()))
    found = intervals(followed, keys, ("epoch", "controller_id", "is_first"))
    with_known = found.select(
        "cluster_id",
        "epoch",
        "controller_id",
        "origin",
        "start_offset",
        "end_offset",
        "start_ts",
        "end_ts",
        fn.coalesce("is_first", fn.lit(False)).alias("is_start_known"),
        "is_end_known",
    )
    return declared(with_known, CONTROLLER_TERMS)


def broker_changes(records: DataFrame) -> DataFrame:
    """A row for every record about a broker, with all that is known of the broker from then on: changes in
    the sense of `intervals`."""
    kind = fn.col("type")
    rows = identified(
        replayed(records).where(kind.isin(_REGISTER, _CHANGE, _UNREGISTER, _FENCE, _UNFENCE)), _KEYS
    )
    order = in_order()
    known = rows.select(
        fn.col("broker_epoch").alias("said_epoch"),
        last_known(fn.when(kind == _REGISTER, _registration()), order).alias("registration"),
        last_known(says_fenced(), order).alias("is_fenced"),
        last_known(says_shutting_down(), order).alias("is_shutting_down"),
        *[one for one in PLACED if one != "is_gone"],
        (kind == _UNREGISTER).alias("is_gone"),
        following(order),
    )
    state = (
        fn.when(fn.col("is_fenced"), FENCED)
        .when(fn.col("is_shutting_down"), SHUTTING_DOWN)
        .when(~fn.col("is_fenced"), UNFENCED)
    )
    return known.select(
        fn.coalesce("registration.broker_epoch", "said_epoch").alias("broker_epoch"),
        fn.col("registration.incarnation_id").alias("incarnation_id"),
        fn.col("registration.rack").alias("rack"),
        fn.col("registration.endpoints").alias("endpoints"),
        "is_fenced",
        "is_shutting_down",
        state.alias("state"),
        *PLACED,
        "following",
    )


def _registration() -> Column:
    """All in one value, so that what the new one does not say is not taken from the one before."""
    endpoints = fn.transform(
        fn.from_json(_field("endPoints"), _ENDPOINTS),
        lambda one: fn.struct(
            one["name"].alias("name"),
            one["host"].alias("host"),
            one["port"].alias("port"),
            one["securityProtocol"].alias("security_protocol"),
        ),
    )
    return fn.struct(
        fn.col("broker_epoch").alias("broker_epoch"),
        _field("incarnationId").alias("incarnation_id"),
        _field("rack").alias("rack"),
        endpoints.alias("endpoints"),
    )


def says_fenced() -> Column:
    """A registration says yes or no; a change says 1 for yes, -1 for no, and 0 or nothing if it says
    neither."""
    kind, said = fn.col("type"), _field("fenced")
    return (
        fn.when(kind == _FENCE, fn.lit(True))
        .when(kind == _UNFENCE, fn.lit(False))
        .when(said.isin("true", "1"), fn.lit(True))
        .when(said.isin("false", "-1"), fn.lit(False))
    )


def says_shutting_down() -> Column:
    """Once a broker shuts down, only its next registration undoes that."""
    is_said = fn.coalesce(_field("inControlledShutdown").isin("true", "1"), fn.lit(False))
    return fn.when(fn.col("type") == _REGISTER, is_said).when(is_said, fn.lit(True))


def _field(name: str) -> Column:
    return fn.get_json_object("fields", f"$.{name}")
