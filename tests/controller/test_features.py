"""Levels of features: which updates are possible, and what a cluster begins with."""

from __future__ import annotations

from typing import Any

import pytest

from controller_cluster import Cluster, incarnation
from quorate.controller.decision import Decision
from quorate.controller.features import (
    DEFAULT_LEVELS,
    METADATA_CHANGES,
    decide_update_features,
    default_features,
    finalized,
)
from quorate.controller.settings import SUPPORTED_FEATURES
from quorate.metadata.image import BROKER, CLUSTER_DEFAULT
from quorate.metadata.records import ConfigRecord, FeatureLevelRecord, RegisterControllerRecord
from quorate.metadata.versions import ELR_VERSION, KRAFT_VERSION, METADATA_VERSION, METADATA_VERSION_LATEST
from quorate.protocol.api.admin import UpdateFeaturesRequest, UpdateFeaturesResponse
from quorate.protocol.codec import encode
from quorate.protocol.errors import ApiError, ErrorCode

UPGRADE, SAFE, UNSAFE = 1, 2, 3
NO_DOWNGRADE = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
    " downgrade."
)
GROUP_VERSION = "group.version"
MIN_ISR = "min.insync.replicas"

Update = UpdateFeaturesRequest.FeatureUpdateKey
Levels = dict[str, tuple[int, int]]


def update(name: str, level: int, kind: int = UPGRADE) -> Update:
    return Update(feature=name, max_version_level=level, upgrade_type=kind)


def ask(cluster: Cluster, *updates: Update, validate_only: bool = False, api_version: int = 2) -> Decision:
    request = UpdateFeaturesRequest(feature_updates=list(updates), validate_only=validate_only)
    situation = cluster.situation(api_version)
    decision = decide_update_features(situation, request)
    assert decision.is_atomic
    assert isinstance(decision.reply, UpdateFeaturesResponse)
    encode(decision.reply, api_version)
    for record in decision.records:
        cluster.apply(record)
    return decision


def about(feature: str, level: int, reason: str) -> str:
    return f"Invalid update version {level} for feature {feature}. {reason}"


def refused(cluster: Cluster, *updates: Update, **how: Any) -> str:
    """Why it is not done. Nothing of it is."""
    before = cluster.next_offset, dict(cluster.image.features)
    with pytest.raises(ApiError) as caught:
        ask(cluster, *updates, **how)
    assert caught.value.code == ErrorCode.INVALID_UPDATE_VERSION
    assert (cluster.next_offset, cluster.image.features) == before
    prefix = "The update failed for all features since the following feature had an error: "
    assert caught.value.message.startswith(prefix)
    return caught.value.message.removeprefix(prefix)


def register_broker(cluster: Cluster, broker_id: int, features: Levels, *, fenced: bool = False) -> None:
    cluster.register(broker_id, fenced=fenced)
    record = cluster.image.brokers[broker_id].to_record()
    record.features = [
        type(record).BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in features.items()
    ]
    cluster.apply(record)


def register_controller(cluster: Cluster, controller_id: int, features: Levels) -> None:
    feature = RegisterControllerRecord.ControllerFeature
    cluster.apply(
        RegisterControllerRecord(
            controller_id=controller_id,
            incarnation_id=incarnation(controller_id),
            zk_migration_ready=False,
            end_points=[],
            features=[
                feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in features.items()
            ],
        )
    )


def with_levels(**levels: tuple[int, int]) -> Levels:
    return dict(SUPPORTED_FEATURES) | {name.replace("_", "."): level for name, level in levels.items()}


# Up and down


def test_a_feature_is_turned_on_and_off():
    cluster = Cluster([1, 2])
    assert ask(cluster, update(GROUP_VERSION, 1)).records == [
        FeatureLevelRecord(name=GROUP_VERSION, feature_level=1)
    ]
    assert finalized(cluster.image)[GROUP_VERSION] == 1
    ask(cluster, update(GROUP_VERSION, 0, SAFE))
    assert GROUP_VERSION not in finalized(cluster.image)


@pytest.mark.parametrize("kind", [UPGRADE, SAFE, UNSAFE])
def test_the_level_that_there_is_changes_nothing(kind):
    cluster = Cluster([1])
    ask(cluster, update(GROUP_VERSION, 1))
    decision = ask(
        cluster, update(GROUP_VERSION, 1, kind), update(METADATA_VERSION, METADATA_VERSION_LATEST, kind)
    )
    assert decision.records == []


def test_a_level_can_be_skipped_both_ways():
    cluster = Cluster([1])
    ask(cluster, update("transaction.version", 2))
    ask(cluster, update("transaction.version", 0, UNSAFE))
    assert "transaction.version" not in cluster.image.features


REFUSED = [
    (
        update(GROUP_VERSION, 1, 0),
        about("group.version", 1, "The controller does not support the given upgrade type."),
    ),
    (
        update(GROUP_VERSION, 1, 4),
        about("group.version", 1, "The controller does not support the given upgrade type."),
    ),
    (
        update(GROUP_VERSION, -1, SAFE),
        about("group.version", -1, "A feature version cannot be less than 0."),
    ),
    (
        update(GROUP_VERSION, 2),
        about("group.version", 2, "Local controller 3000 only supports versions 0-1"),
    ),
    (
        update("nonsense.version", 1),
        about("nonsense.version", 1, "Local controller 3000 does not support this feature."),
    ),
    (
        update("nonsense.version", 0),
        about("nonsense.version", 0, "Feature nonsense.version not found."),
    ),
    (
        update(GROUP_VERSION, 1, SAFE),
        about("group.version", 1, "Can't downgrade to a newer version."),
    ),
    (
        update(GROUP_VERSION, 1, UNSAFE),
        about("group.version", 1, "Can't downgrade to a newer version."),
    ),
    (
        update("share.version", 0),
        about("share.version", 0, NO_DOWNGRADE),
    ),
    (
        update(METADATA_VERSION, 31),
        about("metadata.version", 31, "Local controller 3000 only supports versions 7-30"),
    ),
    (
        update(METADATA_VERSION, 6, SAFE),
        about("metadata.version", 6, "Local controller 3000 only supports versions 7-30"),
    ),
    (
        update(METADATA_VERSION, 0, UNSAFE),
        about("metadata.version", 0, "Local controller 3000 only supports versions 7-30"),
    ),
    (
        update(METADATA_VERSION, 29),
        about("metadata.version", 29, NO_DOWNGRADE),
    ),
    (
        update(KRAFT_VERSION, 0, SAFE),
        about("kraft.version", 0, "The quorum keeps it at 1, and it cannot be changed."),
    ),
    (
        update(KRAFT_VERSION, 2),
        about("kraft.version", 2, "Local controller 3000 only supports versions 0-1"),
    ),
]


@pytest.mark.parametrize(("asked", "reason"), REFUSED)
def test_what_is_refused(asked, reason):
    cluster = Cluster([1])
    ask(cluster, update("share.version", 1))
    assert refused(cluster, asked) == reason
    assert refused(cluster, asked, validate_only=True) == reason


def test_one_that_is_refused_takes_the_others_with_it():
    cluster = Cluster([1])
    reason = refused(
        cluster, update(GROUP_VERSION, 1), update("share.version", 9), update("streams.version", 1)
    )
    assert reason.startswith("Invalid update version 9 for feature share.version.")


def test_what_is_said_last_of_a_feature_counts():
    decision = ask(Cluster([1]), update(GROUP_VERSION, 7), update(GROUP_VERSION, 1))
    assert [(one.name, one.feature_level) for one in decision.records] == [(GROUP_VERSION, 1)]


def test_validating_changes_nothing():
    cluster = Cluster([1])
    assert not ask(cluster, update(GROUP_VERSION, 1), update(ELR_VERSION, 1), validate_only=True).records


def test_the_same_level_of_the_quorum_is_fine():
    assert ask(Cluster([1]), update(KRAFT_VERSION, 1)).records == []
    reason = refused(Cluster([1], kraft_version=0), update(KRAFT_VERSION, 1))
    assert reason == about("kraft.version", 1, "The quorum keeps it at 0, and it cannot be changed.")


# Answers


@pytest.mark.parametrize(("api_version", "names"), [(0, [GROUP_VERSION]), (1, [GROUP_VERSION]), (2, [])])
def test_results_of_single_features_are_in_older_answers(api_version, names):
    reply = ask(Cluster([1]), update(GROUP_VERSION, 1), api_version=api_version).reply
    assert isinstance(reply, UpdateFeaturesResponse)
    assert (reply.error_code, reply.error_message) == (0, None)
    assert [(one.feature, one.error_code, one.error_message) for one in reply.results] == [
        (name, 0, None) for name in names
    ]


@pytest.mark.parametrize("allow_downgrade", [False, True])
def test_the_oldest_requests_say_only_whether_a_lower_level_is_all_right(allow_downgrade):
    cluster = Cluster([1])
    up, down = (
        Update(feature=GROUP_VERSION, max_version_level=level, allow_downgrade=allow_downgrade)
        for level in (1, 0)
    )
    ask(cluster, up, api_version=0)
    if allow_downgrade:
        ask(cluster, down, api_version=0)
        assert GROUP_VERSION not in cluster.image.features
    else:
        assert NO_DOWNGRADE in refused(cluster, down, api_version=0)


# Who must support it


@pytest.mark.parametrize("fenced", [False, True])
def test_every_broker_must_support_it(fenced):
    cluster = Cluster([1, 2])
    register_broker(cluster, 3, with_levels(group_version=(0, 0)), fenced=fenced)
    assert refused(cluster, update(GROUP_VERSION, 1)) == about(
        "group.version", 1, "Broker 3 does not support this feature."
    )
    register_broker(cluster, 3, with_levels(metadata_version=(7, 29)))
    ask(cluster, update(GROUP_VERSION, 1))


def test_every_broker_must_support_the_metadata():
    cluster = Cluster(metadata_version=25)
    register_broker(cluster, 1, with_levels(metadata_version=(20, 27)))
    assert refused(cluster, update(METADATA_VERSION, 28)) == (
        about("metadata.version", 28, "Broker 1 only supports versions 20-27")
    )
    ask(cluster, update(METADATA_VERSION, 27))
    assert cluster.image.metadata_version == 27


def test_a_broker_that_does_not_know_a_feature_supports_level_0():
    cluster = Cluster()
    ask(cluster, update(GROUP_VERSION, 1))
    register_broker(cluster, 1, {METADATA_VERSION: (7, 30)})
    ask(cluster, update(GROUP_VERSION, 0, SAFE))
    assert "Broker 1 does not support this feature." in refused(cluster, update(GROUP_VERSION, 1))


def test_every_controller_must_support_it():
    cluster = Cluster([1])
    register_controller(cluster, 3000, {})  # what we once said of ourselves does not count
    register_controller(cluster, 3001, with_levels(group_version=(0, 0)))
    assert refused(cluster, update(GROUP_VERSION, 1)) == (
        about("group.version", 1, "Controller 3001 does not support this feature.")
    )
    register_controller(cluster, 3001, with_levels())
    ask(cluster, update(GROUP_VERSION, 1))


def test_every_voter_must_have_registered():
    cluster = Cluster([1])
    register_controller(cluster, 3001, with_levels())
    cluster.voters = (3002, 3001, 3000)
    reason = refused(cluster, update(GROUP_VERSION, 1))
    assert reason == about(
        "group.version", 1, "controller 3002 has not registered, and may not support this feature"
    )
    cluster.voters = (3000, 3001)
    ask(cluster, update(GROUP_VERSION, 1))


def test_controllers_that_cannot_register_are_not_asked():
    cluster = Cluster([1], metadata_version=14)
    cluster.voters = (3000, 3001)
    ask(cluster, update(GROUP_VERSION, 1))
    ask(cluster, update(METADATA_VERSION, 15))
    assert "has not registered" in refused(cluster, update(METADATA_VERSION, 16))


def test_the_controller_itself_must_support_it():
    cluster = Cluster([1], features=with_levels(metadata_version=(7, 28)), metadata_version=25)
    assert refused(cluster, update(METADATA_VERSION, 29)) == (
        about("metadata.version", 29, "Local controller 3000 only supports versions 7-28")
    )


# The metadata itself


@pytest.mark.parametrize("level", range(8, METADATA_VERSION_LATEST + 1))
def test_the_metadata_can_be_upgraded_to_any_level(level):
    cluster = Cluster([1], metadata_version=7)
    assert ask(cluster, update(METADATA_VERSION, level)).records == [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)
    ]
    assert cluster.image.metadata_version == level


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
@pytest.mark.parametrize("level", range(8, METADATA_VERSION_LATEST + 1))
def test_the_metadata_goes_back_only_where_nothing_new_came(level, kind):
    cluster = Cluster([1], metadata_version=level)
    if level in METADATA_CHANGES:
        reason = refused(cluster, update(METADATA_VERSION, level - 1, kind))
        why = {
            SAFE: "Refusing to perform the requested downgrade because it might delete metadata information.",
            UNSAFE: "Unsafe metadata downgrade is not supported in this version.",
        }
        assert reason == f"Unsupported metadata.version downgrade from {level} to {level - 1}. {why[kind]}"
    else:
        ask(cluster, update(METADATA_VERSION, level - 1, kind))
        assert cluster.image.metadata_version == level - 1


def test_every_level_that_is_crossed_counts():
    cluster = Cluster([1], metadata_version=22)
    ask(cluster, update(METADATA_VERSION, 17, SAFE))
    cluster = Cluster([1], metadata_version=22)
    reason = refused(cluster, update(METADATA_VERSION, 14, SAFE))
    assert reason.startswith("Unsupported metadata.version downgrade from 22 to 14.")


def test_the_level_of_the_metadata_comes_first():
    cluster = Cluster([1], metadata_version=22)
    decision = ask(
        cluster, update(GROUP_VERSION, 1), update(METADATA_VERSION, 30), update("share.version", 1)
    )
    assert [one.name for one in decision.records if isinstance(one, FeatureLevelRecord)] == [
        METADATA_VERSION,
        GROUP_VERSION,
        "share.version",
    ]


# Eligible leader replicas


def test_eligible_leader_replicas_need_a_level_of_the_metadata():
    cluster = Cluster([1], metadata_version=22)
    assert refused(cluster, update(ELR_VERSION, 1)) == (
        about(
            "eligible.leader.replicas.version",
            1,
            "eligible.leader.replicas.version could not be set to 1"
            " because it depends on metadata.version level 23",
        )
    )
    ask(cluster, update(ELR_VERSION, 1), update(METADATA_VERSION, 23))
    assert cluster.image.is_elr_enabled


def config(name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=BROKER, resource_name=name, name=MIN_ISR, value=value)


@pytest.mark.parametrize(("file", "bound"), [({}, "1"), ({MIN_ISR: "2"}, "2")])
def test_turning_them_on_puts_the_bound_into_the_log(file, bound):
    cluster = Cluster([1, 2, 10], topic_defaults=file)
    for broker_id in ("10", "2"):
        cluster.apply(config(broker_id, "3"))
    assert ask(cluster, update(GROUP_VERSION, 1), update(ELR_VERSION, 1)).records == [
        config("", bound),
        config("2", None),
        config("10", None),
        FeatureLevelRecord(name=GROUP_VERSION, feature_level=1),
        FeatureLevelRecord(name=ELR_VERSION, feature_level=1),
    ]
    assert cluster.image.configs == {CLUSTER_DEFAULT: {MIN_ISR: bound}}


def test_a_bound_that_is_in_the_log_stays():
    cluster = Cluster([1], topic_defaults={MIN_ISR: "2"})
    cluster.apply(config("", "3"))
    assert ask(cluster, update(ELR_VERSION, 1)).records == [
        FeatureLevelRecord(name=ELR_VERSION, feature_level=1)
    ]
    assert cluster.image.configs == {CLUSTER_DEFAULT: {MIN_ISR: "3"}}


def test_other_updates_leave_the_bound_alone():
    cluster = Cluster([1], elr=True)
    assert ask(cluster, update(GROUP_VERSION, 1), update(ELR_VERSION, 1)).records == [
        FeatureLevelRecord(name=GROUP_VERSION, feature_level=1)
    ]
    assert ask(cluster, update(ELR_VERSION, 0, SAFE)).records == [
        FeatureLevelRecord(name=ELR_VERSION, feature_level=0)
    ]
    assert not cluster.image.is_elr_enabled


# What a cluster begins with


@pytest.mark.parametrize(
    ("level", "others"),
    [
        (21, {}),
        (22, {"group.version": 1}),
        (24, {"group.version": 1, "transaction.version": 2}),
        (26, {ELR_VERSION: 1, "group.version": 1, "transaction.version": 2}),
        (28, {ELR_VERSION: 1, "group.version": 1, "share.version": 1, "transaction.version": 2}),
        (
            30,
            {
                ELR_VERSION: 1,
                "group.version": 1,
                "share.version": 1,
                "streams.version": 1,
                "transaction.version": 2,
            },
        ),
    ],
)
def test_what_a_new_cluster_has(level, others):
    assert list(default_features(level).items()) == [(METADATA_VERSION, level), *others.items()]


def test_what_a_new_cluster_has_can_be_had():
    for name, level in default_features(METADATA_VERSION_LATEST).items():
        lowest, highest = SUPPORTED_FEATURES[name]
        assert lowest <= level <= highest
    assert set(DEFAULT_LEVELS) | {METADATA_VERSION, KRAFT_VERSION} == set(SUPPORTED_FEATURES)


def test_what_clients_are_told():
    cluster = Cluster([1], elr=True)
    assert list(finalized(cluster.image).items()) == [(ELR_VERSION, 1), (METADATA_VERSION, 30)]
    assert list(finalized(cluster.image, kraft_version=1)) == [ELR_VERSION, KRAFT_VERSION, METADATA_VERSION]
