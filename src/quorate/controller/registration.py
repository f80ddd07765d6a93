"""A broker asks to become a member.

The process that asks names the id it was configured with and an id of its own that no other run ever had, its
*incarnation*. What it gets is an epoch: the offset at which this decision starts in the log, which therefore
grows with every incarnation, and by which all its requests are known from then on.

Everything that speaks against it stands in `CHECKS`, in the order in which it is looked at; the first that
applies is the answer. What is accepted comes to this:

| who asks                                                | epoch | fenced | shutting down | way is cleared |
|---------------------------------------------------------|-------|--------|---------------|----------------|
| one with an id that nobody has                          | new   | yes    | no            | yes            |
| another incarnation, and the one before has gone silent | new   | yes    | no            | yes            |
| the same incarnation: its reply was lost, for example   | kept  | kept   | kept          | no             |

Clearing the way takes the old incarnation out of everything that it leads or is in sync for, and, if it was
not shut down in order, out of what it could be elected for: it may have lost what it was counted on to have.
The registration stands behind that in the log. Should the controller fail in between, the next one will do
the first part once more.

A new incarnation does not hold its id before its first heartbeat: two processes with one id can take it from
each other until then, and the loser learns that its epoch is stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from quorate.controller import fencing
from quorate.controller.decision import Decision, Situation
from quorate.controller.events import BrokerFenced, BrokerRegistered, Event, RegistrationRefused
from quorate.controller.refusal import Refusal
from quorate.controller.wording import cut
from quorate.metadata.brokers import BrokerRegistration, SecurityProtocol
from quorate.metadata.records import RegisterBrokerRecord
from quorate.metadata.versions import CORDONED, DIRECTORIES, KRAFT_VERSION, METADATA_VERSION
from quorate.protocol.api.brokers import BrokerRegistrationRequest, BrokerRegistrationResponse
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import ZERO_UUID, Uuid
from quorate.values import dataclass

__all__ = [
    "CHECKS",
    "Check",
    "decide_registration",
    "objection_to_feature_names",
    "objection_to_listeners",
    "objection_to_migration",
]

_PREVIOUS_EPOCH_SINCE: Final = 3  # older requests do not say how the last run ended
_RESERVED_DIRECTORIES: Final = 100
_NAMED_MAX: Final = 1000  # of listeners, features and log directories each; nobody has so many


def decide_registration(situation: Situation, request: BrokerRegistrationRequest) -> Decision:
    """Gives the broker an epoch, or says which check speaks against it."""
    for check in CHECKS:
        reason = check.objection(situation, request)
        if reason is not None:
            raise _refuse(situation, request, check, reason)
    before = situation.image.brokers.get(request.broker_id)
    if before is not None and before.incarnation_id == request.incarnation_id:
        return _amend(situation, request, before)
    return _register(situation, request, before)


# The checks. Each says what is wrong, or None.


@dataclass(frozen=True, slots=True)
class Check:
    """Something that may speak against a registration, and the error that it is answered with."""

    name: str
    error: ErrorCode
    objection: Callable[[Situation, BrokerRegistrationRequest], str | None]


def _objection_to_cluster(situation: Situation, request: BrokerRegistrationRequest) -> str | None:
    expected = situation.settings.cluster_id
    if request.cluster_id == expected:
        return None
    return (
        f"it belongs to cluster {request.cluster_id!r}, this is cluster {expected!r}: either its log"
        f" directories were formatted for another cluster, or it is configured with the wrong controllers"
    )


def _objection_to_identity(_situation: Situation, request: BrokerRegistrationRequest) -> str | None:
    if request.broker_id < 0:
        return f"a broker id must not be negative, but it is {request.broker_id}"
    if request.incarnation_id == ZERO_UUID:
        return "the incarnation id is all zeros; every start of a broker needs a random one"
    return None


def _objection_to_duplicate(situation: Situation, request: BrokerRegistrationRequest) -> str | None:
    holder = situation.image.brokers.get(request.broker_id)
    if holder is None or holder.incarnation_id == request.incarnation_id:
        return None  # nobody has the id, or the one who asks has it and did not get its reply
    if not situation.sessions.is_alive(holder.id, holder.epoch, situation.now_ms):
        return None
    waited_ms = _ms_since_heartbeat(situation, holder)
    return (
        f"the id is held by incarnation {holder.incarnation_id} at epoch {holder.epoch}, which was heard of"
        f" {waited_ms} ms ago. It is free once that one has been shut down, or has been silent for"
        f" {situation.sessions.timeout_ms} ms; if both shall run, give one of them another node.id"
    )


def objection_to_migration(_situation: Situation, request: BrokerRegistrationRequest) -> str | None:
    """Brokers that still live with ZooKeeper cannot be members here."""
    if not request.is_migrating_zk_broker:
        return None
    return (
        "it says that it migrates from ZooKeeper, which this controller does not support:"
        " remove zookeeper.metadata.migration.enable and start it with process.roles=broker"
    )


def _objection_to_directories(situation: Situation, request: BrokerRegistrationRequest) -> str | None:
    if situation.image.metadata_version < DIRECTORIES:
        return None
    directories = request.log_dirs
    if not directories:
        return f"it names no log directories; {METADATA_VERSION} {DIRECTORIES} and above asks for them"
    if len(directories) > _NAMED_MAX:
        return f"it names {len(directories)} log directories; allowed are {_NAMED_MAX}"
    for one in directories:
        if _is_reserved(one):
            return f"log directory id {one} is reserved; format the directory anew"
    if len(set(directories)) != len(directories):
        return "two of its log directories have the same id; was one copied from the other?"
    mine = set(directories)
    for other in situation.image.brokers.values():
        if other.id != request.broker_id and not mine.isdisjoint(other.directories):
            shared = ", ".join(str(one) for one in sorted(mine.intersection(other.directories)))
            return (
                f"log directory {shared} belongs to broker {other.id}; if it has moved, unregister that one"
            )
    return None


class EndPoint(Protocol):
    """A listener, of whatever request."""

    name: str
    host: str
    port: int
    security_protocol: int


class FeatureRange(Protocol):
    """The levels of a feature that a node knows, of whatever request."""

    name: str
    min_supported_version: int
    max_supported_version: int


def objection_to_listeners(listeners: Sequence[EndPoint]) -> str | None:
    """What is wrong with the addresses under which a node says that it is found."""
    if not listeners:
        return "it names no listeners, so nobody could reach it"
    if len(listeners) > _NAMED_MAX:
        return f"it names {len(listeners)} listeners; allowed are {_NAMED_MAX}"
    for one in listeners:
        if not one.name.strip():
            return f"the listener at {one.host}:{one.port} has no name"
        if not one.host.strip():
            return f"listener {one.name} has no host; set it in advertised.listeners"
        if one.port == 0:
            return f"listener {one.name} has port 0; it must be the port that others connect to"
        if one.security_protocol not in SecurityProtocol.NAMES:
            known = ", ".join(f"{name} ({number})" for number, name in SecurityProtocol.NAMES.items())
            return f"listener {one.name} has security protocol {one.security_protocol}; there are {known}"
    repeated = _repeated(one.name for one in listeners)
    return None if repeated is None else f"there are two listeners with the name {repeated}"


def objection_to_feature_names(features: Sequence[FeatureRange]) -> str | None:
    """What is wrong with the features that a node says it knows, whatever is finalized."""
    if len(features) > _NAMED_MAX:
        return f"it names {len(features)} features; allowed are {_NAMED_MAX}"
    if not all(one.name for one in features):
        return "it names a feature with an empty name"
    repeated = _repeated(one.name for one in features)
    return None if repeated is None else f"it names the feature {repeated} twice"


def _objection_to_ranges(situation: Situation, request: BrokerRegistrationRequest) -> str | None:
    finalized = _finalized(situation)
    for one in request.features:
        low, high, level = one.min_supported_version, one.max_supported_version, finalized.get(one.name, 0)
        if not low <= level <= high:
            return f"it supports {one.name} from {low} to {high}, but the cluster uses level {level}"
    return None


def _objection_to_missing_version(situation: Situation, request: BrokerRegistrationRequest) -> str | None:
    if any(one.name == METADATA_VERSION for one in request.features):
        return None
    return (
        f"it does not say which levels of {METADATA_VERSION} it supports;"
        f" the cluster uses {situation.image.metadata_version}"
    )


def _objection_to_missing_features(situation: Situation, request: BrokerRegistrationRequest) -> str | None:
    named = {one.name for one in request.features}
    for name, level in sorted(_finalized(situation).items()):
        if level and name not in named:
            return f"it does not know the feature {name}, which the cluster uses at level {level}"
    return None


CHECKS: Final = (
    Check("cluster id", ErrorCode.INCONSISTENT_CLUSTER_ID, _objection_to_cluster),
    Check("identity", ErrorCode.INVALID_REQUEST, _objection_to_identity),
    Check("id in use", ErrorCode.DUPLICATE_BROKER_REGISTRATION, _objection_to_duplicate),
    Check("migration", ErrorCode.BROKER_ID_NOT_REGISTERED, objection_to_migration),
    Check("log directories", ErrorCode.INVALID_REGISTRATION, _objection_to_directories),
    Check(
        "listeners",
        ErrorCode.INVALID_REGISTRATION,
        lambda _, request: objection_to_listeners(request.listeners),
    ),
    Check(
        "feature names",
        ErrorCode.INVALID_REGISTRATION,
        lambda _, request: objection_to_feature_names(request.features),
    ),
    Check("feature ranges", ErrorCode.UNSUPPORTED_VERSION, _objection_to_ranges),
    Check("metadata.version", ErrorCode.INVALID_REGISTRATION, _objection_to_missing_version),
    Check("missing features", ErrorCode.UNSUPPORTED_VERSION, _objection_to_missing_features),
)
"""In this order, which is Kafka's; `identity` and `feature names` are ours. That this node is the active
controller was checked before."""


# What is accepted


def _amend(situation: Situation, request: BrokerRegistrationRequest, before: BrokerRegistration) -> Decision:
    """The same process asks again: its registration says something else, or the same once more."""
    record = _record(situation, request, before.epoch)
    record.fenced = before.is_fenced
    record.in_controlled_shutdown = before.is_shutting_down
    if situation.image.metadata_version >= CORDONED:
        record.cordoned_log_dirs = [one for one in before.cordoned if one in record.log_dirs] or None
    event = BrokerRegistered(
        broker_id=before.id,
        epoch=before.epoch,
        incarnation_id=before.incarnation_id,
        previous_epoch=before.epoch,
        is_clean=True,
        rack=request.rack,
    )
    return Decision(reply=_reply(before.epoch), records=[record], events=[event])


def _register(
    situation: Situation, request: BrokerRegistrationRequest, before: BrokerRegistration | None
) -> Decision:
    """A new process: the way is cleared, then it is registered, fenced until it has caught up."""
    broker_id, epoch = request.broker_id, situation.next_offset
    is_clean = _was_shut_down(situation, request, before)
    cleared = fencing.clear_way(situation, broker_id, is_clean=is_clean)
    events: list[Event] = []
    if before is not None and not before.is_fenced:
        events.append(
            BrokerFenced(
                broker_id=broker_id,
                epoch=before.epoch,
                check="registered anew",
                ms_since_heartbeat=_ms_since_heartbeat(situation, before),
                session_timeout_ms=situation.sessions.timeout_ms,
                partitions=cleared.partitions,
                leaderships=cleared.leaderships,
                leaderless=cleared.leaderless,
                unclean=cleared.unclean,
            )
        )
    events.append(
        BrokerRegistered(
            broker_id=broker_id,
            epoch=epoch,
            incarnation_id=request.incarnation_id,
            previous_epoch=-1 if before is None else before.epoch,
            is_clean=is_clean,
            rack=request.rack,
            partitions=cleared.partitions,
        )
    )
    sessions = situation.sessions
    return Decision(
        reply=_reply(epoch),
        records=[*cleared.records, _record(situation, request, epoch)],
        events=events,
        then=lambda _: sessions.begin(broker_id, epoch),
    )


def _was_shut_down(
    situation: Situation, request: BrokerRegistrationRequest, before: BrokerRegistration | None
) -> bool:
    """Whether all disks of the broker agree that its last run, the one that we know of, ended in order."""
    if before is None or situation.asker.api_version < _PREVIOUS_EPOCH_SINCE:
        return False
    return request.previous_broker_epoch == before.epoch


def _record(situation: Situation, request: BrokerRegistrationRequest, epoch: int) -> RegisterBrokerRecord:
    has_directories = situation.image.metadata_version >= DIRECTORIES
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol
            )
            for one in request.listeners
        ],
        features=[
            RegisterBrokerRecord.BrokerFeature(
                name=one.name,
                min_supported_version=one.min_supported_version,
                max_supported_version=one.max_supported_version,
            )
            for one in request.features
        ],
        rack=request.rack,
        log_dirs=sorted(request.log_dirs) if has_directories else [],
    )


def _reply(epoch: int) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, broker_epoch=epoch)


def _refuse(situation: Situation, request: BrokerRegistrationRequest, check: Check, reason: str) -> Refusal:
    holder, reason = situation.image.brokers.get(request.broker_id), cut(reason)
    event = RegistrationRefused(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        check=check.name,
        error=check.error.name,
        reason=reason,
        registered_epoch=-1 if holder is None else holder.epoch,
        ms_since_heartbeat=None if holder is None else _ms_since_heartbeat(situation, holder),
    )
    return Refusal(check.error, f"broker {request.broker_id} cannot be registered: {reason}", event)


def _ms_since_heartbeat(situation: Situation, broker: BrokerRegistration) -> int | None:
    return situation.sessions.silence_ms(broker.id, broker.epoch, situation.now_ms)


def _finalized(situation: Situation) -> Mapping[str, int]:
    """The levels that the cluster uses; a feature that is not among them is at 0."""
    return {
        **situation.image.features,
        METADATA_VERSION: situation.image.metadata_version,
        KRAFT_VERSION: situation.settings.kraft_version,
    }


def _is_reserved(directory: Uuid) -> bool:
    """The first of all ids have meanings of their own, such as: not assigned yet."""
    return directory[:8] == bytes(8) and int.from_bytes(directory[8:], signed=True) < _RESERVED_DIRECTORIES


def _repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
