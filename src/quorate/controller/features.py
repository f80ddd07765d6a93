"""Levels of features: what may be finalized, what a new cluster begins with, what a new controller writes.

A level is finalized when everyone in the cluster can live with it: all registered brokers, fenced or not, and
all controllers. `metadata.version` says which records may stand in the log; it cannot go back beyond a level
that brought new ones. `kraft.version` is not a record of this log, the quorum keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from quorate.controller.decision import Decision, Situation
from quorate.controller.settings import ControllerSettings
from quorate.controller.topic_settings import MIN_ISR
from quorate.metadata.errors import ImageError
from quorate.metadata.image import BROKER, CLUSTER_DEFAULT, ClusterImage
from quorate.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from quorate.metadata.versions import (
    CONTROLLER_REGISTRATION,
    ELR,
    ELR_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LATEST,
    TRANSACTIONS,
)
from quorate.protocol.api.admin import UpdateFeaturesRequest, UpdateFeaturesResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.message import Record

__all__ = [
    "DEFAULT_LEVELS",
    "DEPENDENCIES",
    "METADATA_CHANGES",
    "activation_records",
    "decide_update_features",
    "default_features",
    "finalized",
]


class DefaultLevel(NamedTuple):
    level: int
    metadata_version: int  # from this one on, new clusters have it


DEFAULT_LEVELS: Final[Mapping[str, DefaultLevel]] = {
    ELR_VERSION: DefaultLevel(1, 26),  # 4.1-IV0
    GROUP_VERSION: DefaultLevel(1, 22),  # 4.0-IV0
    "share.version": DefaultLevel(1, 28),  # 4.2-IV0
    "streams.version": DefaultLevel(1, 29),  # 4.2-IV1
    "transaction.version": DefaultLevel(2, 24),  # 4.0-IV2
}

# A level of a feature, and the lowest level of another that it needs.
DEPENDENCIES: Final[Mapping[tuple[str, int], tuple[str, int]]] = {
    (ELR_VERSION, 1): (METADATA_VERSION, ELR),
}

# The levels of `metadata.version` that brought records, or fields of records, that were not there before.
METADATA_CHANGES: Final = (7, 8, 11, 13, 14, 15, 17, 23, 30)


class Direction(IntEnum):
    """What an update may do; an upgrade to the level that there is changes nothing."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def default_features(metadata_version: int) -> dict[str, int]:
    """What a cluster has that is formatted at a level, in the order of its records. `kraft.version` is not
    among them: it depends on how the quorum is formatted.

    >>> default_features(25)
    {'metadata.version': 25, 'group.version': 1, 'transaction.version': 2}
    """
    levels = {METADATA_VERSION: metadata_version}
    for name, default in sorted(DEFAULT_LEVELS.items()):
        if metadata_version >= default.metadata_version:
            levels[name] = default.level
    return levels


def finalized(image: ClusterImage, kraft_version: int = 0) -> dict[str, int]:
    """The levels that count, for whoever asks which versions there are."""
    levels = dict(image.features)
    if kraft_version > 0:
        levels[KRAFT_VERSION] = kraft_version
    return dict(sorted(levels.items()))


# Updates


def decide_update_features(situation: Situation, request: UpdateFeaturesRequest) -> Decision:
    """All of the updates or none. All voters must have said what they support, where they can. What is said
    last of a feature counts."""
    image = situation.image
    is_old = situation.asker.api_version == 0
    updates = {one.feature: one for one in request.feature_updates}
    proposed = finalized(image) | {name: one.max_version_level for name, one in updates.items()}
    records: list[Record] = []
    for update in updates.values():
        records += _update(situation, update, proposed, is_old)
    records.sort(key=_metadata_version_first)
    if proposed.get(ELR_VERSION, 0) > 0 and not image.is_elr_enabled:
        records = [*_min_isr_for_all(image, situation.settings), *records]
    # Later versions have nothing to say about a single feature.
    results = [
        UpdateFeaturesResponse.UpdatableFeatureResult(feature=name, error_code=0, error_message=None)
        for name in updates
        if situation.asker.api_version <= 1
    ]
    reply = UpdateFeaturesResponse(throttle_time_ms=0, error_code=0, error_message=None, results=results)
    return Decision(reply, () if request.validate_only else records, is_atomic=True)


def _update(
    situation: Situation,
    update: UpdateFeaturesRequest.FeatureUpdateKey,
    proposed: Mapping[str, int],
    is_old: bool,
) -> list[Record]:
    """The record of one update, if it is allowed and changes anything."""
    name, level = update.feature, update.max_version_level
    now = _level_now(situation, name)
    if is_old:
        # It says only whether a lower level would be all right.
        is_lower_allowed, is_higher_allowed = update.allow_downgrade, True
    else:
        direction = _direction(update)
        is_lower_allowed = direction is not Direction.UPGRADE
        is_higher_allowed = direction is Direction.UPGRADE
    if level < 0:
        raise _refused(update, "A feature version cannot be less than 0.")
    reason = next(_reasons_not_supported(situation, name, level), None)
    if reason is not None:
        raise _refused(update, reason)
    if level < now and not is_lower_allowed:
        reason = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or"
            " unsafe downgrade."
        )
        raise _refused(update, reason)
    if level > now and not is_higher_allowed:
        raise _refused(update, "Can't downgrade to a newer version.")
    if name == METADATA_VERSION:
        is_unsafe = not is_old and direction is Direction.UNSAFE_DOWNGRADE
        _check_metadata_downgrade(level, now, is_unsafe=is_unsafe)
    elif name == KRAFT_VERSION and level != now:
        raise _refused(update, f"The quorum keeps it at {now}, and it cannot be changed.")
    elif name not in situation.settings.features:
        raise _refused(update, f"Feature {name} not found.")
    needed = DEPENDENCIES.get((name, level))
    if needed is not None and proposed.get(needed[0], 0) < needed[1]:
        reason = f"{name} could not be set to {level} because it depends on {needed[0]} level {needed[1]}"
        raise _refused(update, reason)
    return [] if level == now else [FeatureLevelRecord(name=name, feature_level=level)]


def _level_now(situation: Situation, name: str) -> int:
    if name == METADATA_VERSION:
        return situation.image.metadata_version
    if name == KRAFT_VERSION:
        return situation.settings.kraft_version
    return situation.image.features.get(name, 0)


def _direction(update: UpdateFeaturesRequest.FeatureUpdateKey) -> Direction:
    try:
        return Direction(update.upgrade_type)
    except ValueError:
        reason = "The controller does not support the given upgrade type."
        raise _refused(update, reason) from None


def _reasons_not_supported(situation: Situation, name: str, level: int) -> Iterator[str]:
    image, settings = situation.image, situation.settings
    yield from _reason(f"Local controller {settings.node_id}", settings.features, name, level)
    for broker in image.brokers.values():
        yield from _reason(f"Broker {broker.id}", broker.features, name, level)
    if image.metadata_version < CONTROLLER_REGISTRATION:
        return  # they cannot say
    for controller in image.controllers.values():
        if controller.id != settings.node_id:
            yield from _reason(f"Controller {controller.id}", controller.features, name, level)
    for voter in sorted(situation.voters):
        if voter not in image.controllers and voter != settings.node_id:
            yield f"controller {voter} has not registered, and may not support this feature"


def _reason(who: str, supported: Mapping[str, tuple[int, int]], name: str, level: int) -> Iterator[str]:
    lowest, highest = supported.get(name, (0, 0))
    if not lowest <= level <= highest:
        if highest == 0:
            yield f"{who} does not support this feature."
        else:
            yield f"{who} only supports versions {lowest}-{highest}"


def _check_metadata_downgrade(level: int, now: int, *, is_unsafe: bool) -> None:
    """Records that came with a level above the new one could be lost."""
    if any(level < change <= now for change in METADATA_CHANGES):
        reason = "Refusing to perform the requested downgrade because it might delete metadata information."
        if is_unsafe:
            reason = "Unsafe metadata downgrade is not supported in this version."
        raise _nothing_updated(f"Unsupported {METADATA_VERSION} downgrade from {now} to {level}. {reason}")


def _min_isr_for_all(image: ClusterImage, settings: ControllerSettings) -> list[Record]:
    """With eligible leader replicas, `min.insync.replicas` is one for all brokers, and stands in the log."""
    records: list[Record] = []
    if MIN_ISR not in image.configs.get(CLUSTER_DEFAULT, {}):
        records.append(_cluster_min_isr(settings))
    brokers = [name for kind, name in image.configs if kind == BROKER and name]
    records += [
        ConfigRecord(resource_type=BROKER, resource_name=name, name=MIN_ISR, value=None)
        for name in sorted(brokers, key=int)
        if MIN_ISR in image.configs[BROKER, name]
    ]
    return records


def _cluster_min_isr(settings: ControllerSettings) -> ConfigRecord:
    kind, name = CLUSTER_DEFAULT
    value = settings.topic_defaults.get(MIN_ISR, "1")
    return ConfigRecord(resource_type=kind, resource_name=name, name=MIN_ISR, value=value)


def _metadata_version_first(record: Record) -> bool:
    return not (isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION)


def _refused(update: UpdateFeaturesRequest.FeatureUpdateKey, reason: str) -> ApiError:
    level = update.max_version_level
    return _nothing_updated(f"Invalid update version {level} for feature {update.feature}. {reason}")


def _nothing_updated(reason: str) -> ApiError:
    """In the words of Apache, which tools show."""
    message = f"The update failed for all features since the following feature had an error: {reason}"
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, message)


# Activation


def activation_records(
    image: ClusterImage, bootstrap: Sequence[Record], settings: ControllerSettings
) -> list[Record]:
    """What a controller writes first when it becomes active.

    A transaction that its predecessor left open is aborted. A log without a `metadata.version`, not counting
    what is in that transaction, has no beginning: then the bootstrap records are it.
    """
    records: list[Record] = []
    is_new = METADATA_VERSION not in image.features
    beginning = _beginning(bootstrap, settings) if is_new else []
    level = _level_in(beginning, METADATA_VERSION) if is_new else image.metadata_version
    if image.is_in_transaction:
        if level < TRANSACTIONS:
            raise ImageError(f"a metadata transaction is open, but {METADATA_VERSION} {level} has none")
        records.append(AbortTransactionRecord(reason="Controller failover"))
    if is_new and level >= TRANSACTIONS:
        beginning = [BeginTransactionRecord(name="Bootstrap records"), *beginning, EndTransactionRecord()]
    return records + beginning


def _beginning(bootstrap: Sequence[Record], settings: ControllerSettings) -> list[Record]:
    """The bootstrap records, or the newest level if a node was not formatted with any, and what they need."""
    records = list(bootstrap) or [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LATEST)
    ]
    if _level_in(records, METADATA_VERSION) == 0:
        raise ImageError(f"the bootstrap records do not say which {METADATA_VERSION} the cluster has")
    if _level_in(records, ELR_VERSION) > 0:
        records.append(_cluster_min_isr(settings))
    return records


def _level_in(records: Sequence[Record], name: str) -> int:
    levels = [
        one.feature_level for one in records if isinstance(one, FeatureLevelRecord) and one.name == name
    ]
    return levels[-1] if levels else 0
