"""Who may become a member, and as what."""

import pytest

from broker_requests import beat, expire, feature, listener, refusal_of, register, reply_of, start
from controller_cluster import CLUSTER_ID, Cluster, directory, incarnation
from quorate.controller.events import BrokerFenced, BrokerRegistered, RegistrationRefused
from quorate.controller.registration import CHECKS
from quorate.metadata.brokers import Listener
from quorate.metadata.partitions import LOST, MIGRATING, UNASSIGNED, Partition
from quorate.metadata.records import FeatureLevelRecord, RegisterBrokerRecord
from quorate.metadata.versions import version_of
from quorate.protocol.errors import ErrorCode
from quorate.protocol.types import ZERO_UUID, Uuid

SESSION_MS = 9000


def without(cluster: Cluster, name: str) -> list:
    """The features of a broker that does not know one of them."""
    return [feature(one, *levels) for one, levels in cluster.settings.features.items() if one != name]


def with_feature(cluster: Cluster, name: str, low: int, high: int) -> list:
    return [*without(cluster, name), feature(name, low, high)]


# What speaks against it


BAD_FIELDS = [
    ("cluster id", ErrorCode.INCONSISTENT_CLUSTER_ID, {"cluster_id": "another"}),
    ("cluster id", ErrorCode.INCONSISTENT_CLUSTER_ID, {"cluster_id": ""}),
    ("identity", ErrorCode.INVALID_REQUEST, {"incarnation_id": ZERO_UUID}),
    ("migration", ErrorCode.BROKER_ID_NOT_REGISTERED, {"is_migrating_zk_broker": True}),
    ("log directories", ErrorCode.INVALID_REGISTRATION, {"log_dirs": []}),
    ("log directories", ErrorCode.INVALID_REGISTRATION, {"log_dirs": [MIGRATING]}),
    ("log directories", ErrorCode.INVALID_REGISTRATION, {"log_dirs": [directory(1), UNASSIGNED]}),
    ("log directories", ErrorCode.INVALID_REGISTRATION, {"log_dirs": [LOST, directory(1)]}),
    ("log directories", ErrorCode.INVALID_REGISTRATION, {"log_dirs": [Uuid(bytes(15) + b"\x63")]}),
    ("log directories", ErrorCode.INVALID_REGISTRATION, {"log_dirs": [Uuid(bytes(8) + b"\xff" * 8)]}),
    ("log directories", ErrorCode.INVALID_REGISTRATION, {"log_dirs": [directory(1), directory(1)]}),
    ("log directories", ErrorCode.INVALID_REGISTRATION, {"log_dirs": [directory(1), directory(2)]}),
    ("listeners", ErrorCode.INVALID_REGISTRATION, {"listeners": []}),
    ("listeners", ErrorCode.INVALID_REGISTRATION, {"listeners": [listener(name="")]}),
    ("listeners", ErrorCode.INVALID_REGISTRATION, {"listeners": [listener(host="")]}),
    ("listeners", ErrorCode.INVALID_REGISTRATION, {"listeners": [listener(host="  ")]}),
    ("listeners", ErrorCode.INVALID_REGISTRATION, {"listeners": [listener(port=0)]}),
    ("listeners", ErrorCode.INVALID_REGISTRATION, {"listeners": [listener(protocol=4)]}),
    ("listeners", ErrorCode.INVALID_REGISTRATION, {"listeners": [listener(protocol=-1)]}),
    (
        "listeners",
        ErrorCode.INVALID_REGISTRATION,
        {"listeners": [listener("A"), listener("B"), listener("A")]},
    ),
    (
        "listeners",
        ErrorCode.INVALID_REGISTRATION,
        {"listeners": [listener(f"L{number}") for number in range(1001)]},
    ),
    (
        "log directories",
        ErrorCode.INVALID_REGISTRATION,
        {"log_dirs": [directory(1, number) for number in range(1001)]},
    ),
    (
        "feature names",
        ErrorCode.INVALID_REGISTRATION,
        {"features": [feature(f"f{number}", 0, 1) for number in range(1001)]},
    ),
    ("metadata.version", ErrorCode.INVALID_REGISTRATION, {"features": []}),
    ("feature names", ErrorCode.INVALID_REGISTRATION, {"features": [feature("", 0, 1)]}),
    ("feature names", ErrorCode.INVALID_REGISTRATION, {"features": [feature("a", 0, 1), feature("a", 0, 2)]}),
]


@pytest.mark.parametrize(("check", "error", "changes"), BAD_FIELDS)
def test_a_bad_registration_is_refused_and_the_check_is_named(check, error, changes):
    cluster = Cluster([2])

    refusal = refusal_of(cluster, 1, **changes)

    assert refusal.code is error
    assert isinstance(refusal.event, RegistrationRefused)
    assert (refusal.event.check, refusal.event.error) == (check, error.name)
    assert refusal.event.reason in refusal.message
    assert refusal.event.registered_epoch == -1
    assert check in refusal.event.line()
    assert refusal.event.to_json()["incarnation_id"] == str(refusal.event.incarnation_id)


def test_a_negative_id_is_refused():
    refusal = refusal_of(Cluster(), -1)

    assert (refusal.code, refusal.event.check) == (ErrorCode.INVALID_REQUEST, "identity")
    assert "-1" in refusal.message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cluster_id": "another"}, ["another", CLUSTER_ID, "formatted"]),
        ({"log_dirs": [directory(2)]}, [str(directory(2)), "broker 2", "unregister"]),
        ({"log_dirs": [LOST]}, [str(LOST), "reserved"]),
        ({"listeners": [listener("CLIENT", protocol=9)]}, ["CLIENT", "9", "SASL_SSL (3)"]),
        ({"listeners": [listener("CLIENT", host=" ")]}, ["CLIENT", "advertised.listeners"]),
        ({"listeners": [listener("CLIENT", port=0)]}, ["CLIENT", "port 0"]),
        ({"listeners": [listener("CLIENT"), listener("CLIENT")]}, ["two listeners", "CLIENT"]),
    ],
)
def test_a_refusal_says_what_to_do(changes, words):
    refusal = refusal_of(Cluster([2]), 1, **changes)

    assert [word for word in words if word not in refusal.message] == []


def test_the_checks_are_made_in_their_order():
    cluster = Cluster(elr=True)
    start(cluster, 1)
    mistakes = [
        ("cluster id", {"cluster_id": "another"}),
        ("identity", {"incarnation_id": ZERO_UUID}),
        ("id in use", {}),  # the id is held as long as its holder is heard of
        ("migration", {"is_migrating_zk_broker": True}),
        ("log directories", {"log_dirs": []}),
        ("listeners", {"listeners": []}),
        ("feature names", {"features": [feature("a", 0, 1), feature("a", 0, 1)]}),
        ("feature ranges", {"features": [feature("kraft.version", 2, 3)]}),
        ("metadata.version", {"features": [feature("kraft.version", 1, 1)]}),
        ("missing features", {"features": [feature("metadata.version", 7, 30)]}),
    ]
    assert [name for name, _ in mistakes] == [check.name for check in CHECKS]

    for position, (name, _) in enumerate(mistakes):
        if position == 3:
            cluster.now_ms += SESSION_MS + 1
        every_later = {}
        for _, changes in reversed(mistakes[position:]):
            every_later |= changes
        assert refusal_of(cluster, 1, run=1, **every_later).event.check == name


def test_log_directories_are_not_looked_at_before_there_were_any():
    cluster = Cluster(metadata_version=16)

    register(cluster, 1, log_dirs=[LOST, LOST], features=with_feature(cluster, "metadata.version", 7, 16))

    assert cluster.image.brokers[1].directories == ()


@pytest.mark.parametrize("low", [100, 2**40])
def test_ids_of_directories_that_only_look_reserved_are_fine(low):
    cluster = Cluster()

    register(cluster, 1, log_dirs=[Uuid(low.to_bytes(16))])

    assert cluster.image.brokers[1].directories == (Uuid(low.to_bytes(16)),)


def test_a_broker_may_register_its_own_directories_again():
    cluster = Cluster()
    register(cluster, 1)

    register(cluster, 1, run=1)

    assert cluster.image.brokers[1].directories == (directory(1),)


# Features


@pytest.mark.parametrize(
    ("levels", "error"),
    [
        ((7, 30), None),
        ((20, 20), None),
        ((7, 20), None),
        ((20, 99), None),
        ((21, 30), ErrorCode.UNSUPPORTED_VERSION),
        ((7, 19), ErrorCode.UNSUPPORTED_VERSION),
        ((30, 7), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_the_range_of_metadata_version_contains_the_finalized_level(levels, error):
    cluster = Cluster(metadata_version=20)
    features = with_feature(cluster, "metadata.version", *levels)
    if error is None:
        register(cluster, 1, features=features)
        return

    refusal = refusal_of(cluster, 1, features=features)

    assert (refusal.code, refusal.event.check) == (error, "feature ranges")
    assert "level 20" in refusal.message


@pytest.mark.parametrize(
    ("name", "finalized", "levels", "is_refused"),
    [
        ("group.version", 1, (0, 1), False),
        ("group.version", 1, (0, 0), True),
        ("group.version", 0, (0, 1), False),
        ("group.version", 0, (1, 1), True),  # not finalized is level 0
        ("kraft.version", 1, (0, 1), False),
        ("kraft.version", 1, (0, 0), True),
        ("kraft.version", 0, (0, 0), False),
        ("kraft.version", 0, (1, 1), True),
        ("nobody.knows.it", 0, (0, 5), False),
        ("nobody.knows.it", 0, (2, 5), True),
    ],
)
def test_the_range_of_a_feature_contains_its_finalized_level(name, finalized, levels, is_refused):
    cluster = Cluster(kraft_version=finalized if name == "kraft.version" else 1)
    cluster.apply(FeatureLevelRecord(name=name, feature_level=finalized))
    features = with_feature(cluster, name, *levels)
    if is_refused:
        assert refusal_of(cluster, 1, features=features).code is ErrorCode.UNSUPPORTED_VERSION
    else:
        register(cluster, 1, features=features)
        assert cluster.image.brokers[1].features[name] == levels


@pytest.mark.parametrize(
    ("name", "finalized", "error"),
    [
        ("group.version", 1, ErrorCode.UNSUPPORTED_VERSION),
        ("group.version", 0, None),
        ("kraft.version", 1, ErrorCode.UNSUPPORTED_VERSION),
        ("kraft.version", 0, None),
        ("metadata.version", 30, ErrorCode.INVALID_REGISTRATION),
    ],
)
def test_a_feature_that_the_broker_does_not_name_must_not_be_in_use(name, finalized, error):
    cluster = Cluster(kraft_version=finalized if name == "kraft.version" else 1)
    cluster.apply(FeatureLevelRecord(name=name, feature_level=finalized))
    if error is None:
        register(cluster, 1, features=without(cluster, name))
    else:
        refusal = refusal_of(cluster, 1, features=without(cluster, name))
        assert refusal.code is error
        assert name in refusal.message


# What is accepted


def test_a_new_broker_is_registered_fenced_at_the_next_offset():
    cluster = Cluster()
    epoch = cluster.next_offset

    decision = register(
        cluster,
        1,
        rack="a",
        listeners=[listener("CLIENT", "one", 9092), listener("INTERNAL", "two", 65535, 3)],
        log_dirs=[directory(1, 1), directory(1, 0)],
    )

    broker = cluster.image.brokers[1]
    assert reply_of(decision).error_code == ErrorCode.NONE
    assert reply_of(decision).broker_epoch == broker.epoch == broker.registration_offset == epoch
    assert (broker.is_fenced, broker.is_shutting_down, broker.is_migrating) == (True, False, False)
    assert broker.incarnation_id == incarnation(1)
    assert broker.listeners == (Listener("CLIENT", "one", 9092), Listener("INTERNAL", "two", 65535, 3))
    assert broker.features == dict(cluster.settings.features)
    assert broker.rack == "a"
    assert broker.directories == (directory(1, 0), directory(1, 1))
    assert list(decision.events) == [BrokerRegistered(1, epoch, incarnation(1), -1, False, "a")]


def test_a_restart_with_two_directories_swapped_stores_them_sorted():
    cluster = Cluster()

    decision = register(cluster, 1, log_dirs=[directory(1, 2), directory(1, 0), directory(1, 1)])

    record = decision.records[-1]
    assert isinstance(record, RegisterBrokerRecord)
    assert record.log_dirs == [directory(1, number) for number in range(3)]


@pytest.mark.parametrize(("level", "version"), [(7, 1), (8, 2), (16, 2), (17, 3), (29, 3), (30, 4)])
def test_the_version_of_the_record_is_that_of_the_level(level, version):
    cluster = Cluster(metadata_version=level)

    decision = register(cluster, 1)

    assert version_of(decision.records[-1], level) == version
    assert cluster.image.brokers[1].directories == ((directory(1),) if level >= 17 else ())


def test_the_same_incarnation_keeps_what_it_is():
    cluster = Cluster()
    epoch = start(cluster, 1)
    start(cluster, 2)
    cluster.shut_down(1)
    cluster.now_ms += 5000
    before = cluster.sessions.of(1)

    decision = register(cluster, 1, rack="new", log_dirs=[directory(1), directory(1, 1)])

    broker = cluster.image.brokers[1]
    assert reply_of(decision).broker_epoch == broker.epoch == epoch
    assert (broker.is_fenced, broker.is_shutting_down) == (False, True)
    assert (broker.rack, broker.directories) == ("new", (directory(1), directory(1, 1)))
    assert broker.registration_offset == cluster.next_offset - 1 > epoch
    assert len(decision.records) == 1
    assert cluster.sessions.of(1) is before
    assert before.contact_ms == cluster.now_ms - 5000
    assert "its epoch remains" in decision.events[0].line()


def test_the_same_incarnation_keeps_its_cordoned_directories():
    cluster = Cluster()
    start(cluster, 1, log_dirs=[directory(1), directory(1, 1)])
    beat(cluster, 1, cordoned=[directory(1), directory(1, 1)])

    register(cluster, 1, log_dirs=[directory(1, 1), directory(1, 2)])

    assert cluster.image.brokers[1].cordoned == (directory(1, 1),)


def test_a_lost_reply_is_repeated():
    cluster = Cluster()
    epoch = reply_of(register(cluster, 1)).broker_epoch

    assert reply_of(register(cluster, 1)).broker_epoch == epoch


# An id that is held


def test_an_id_is_held_while_its_holder_is_heard_of():
    cluster = Cluster()
    epoch = start(cluster, 1)
    cluster.now_ms += SESSION_MS

    refusal = refusal_of(cluster, 1, run=1)

    assert refusal.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert refusal.event.check == "id in use"
    assert refusal.event.registered_epoch == epoch
    assert refusal.event.ms_since_heartbeat == SESSION_MS
    assert str(incarnation(1)) in refusal.message
    assert "9000 ms" in refusal.message
    assert cluster.image.brokers[1].epoch == epoch


def test_an_id_is_held_by_a_fenced_broker_that_is_heard_of():
    cluster = Cluster()
    register(cluster, 1)
    beat(cluster, 1, want_fence=True)

    assert refusal_of(cluster, 1, run=1).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_an_id_is_not_held_before_the_first_heartbeat():
    cluster = Cluster()
    first = reply_of(register(cluster, 1)).broker_epoch

    second = reply_of(register(cluster, 1, run=1)).broker_epoch

    assert second > first
    assert not cluster.sessions.is_alive(1, second, cluster.now_ms)


def test_an_id_is_free_when_its_holder_has_been_silent_for_too_long():
    cluster = Cluster()
    first = start(cluster, 1)
    cluster.now_ms += SESSION_MS + 0.6

    decision = register(cluster, 1, run=1)

    broker = cluster.image.brokers[1]
    assert reply_of(decision).broker_epoch == broker.epoch > first
    assert broker.is_fenced
    fenced, registered = decision.events
    assert isinstance(fenced, BrokerFenced)
    assert (fenced.epoch, fenced.check, fenced.ms_since_heartbeat) == (
        first,
        "registered anew",
        SESSION_MS + 1,
    )
    assert isinstance(registered, BrokerRegistered)
    assert registered.previous_epoch == first


def test_an_id_is_free_at_once_after_an_orderly_shutdown():
    cluster = Cluster()
    first = start(cluster, 1)
    assert reply_of(beat(cluster, 1, want_shut_down=True)).should_shut_down

    decision = register(cluster, 1, run=1, previous_broker_epoch=first)

    assert reply_of(decision).broker_epoch > first
    assert decision.events[-1].is_clean


def test_an_id_that_a_heartbeat_of_the_past_names_is_not_held():
    cluster = Cluster()
    first = start(cluster, 1)
    cluster.now_ms += SESSION_MS + 1
    register(cluster, 1, run=1)

    cluster.sessions.contact(1, first, cluster.now_ms)

    register(cluster, 1, run=2)


def test_a_new_controller_gives_the_holder_of_an_id_a_full_session():
    cluster = Cluster()
    epoch = start(cluster, 1)
    cluster.now_ms += 60_000
    cluster.sessions.restart([(1, epoch)], cluster.now_ms)
    cluster.now_ms += SESSION_MS

    assert refusal_of(cluster, 1, run=1).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION

    cluster.now_ms += 1
    register(cluster, 1, run=1)


def test_the_new_incarnation_starts_without_a_past():
    cluster = Cluster()
    start(cluster, 1)
    cluster.now_ms += SESSION_MS + 1
    expire(cluster)

    register(cluster, 1, run=1)

    session = cluster.sessions.of(1)
    assert session.epoch == cluster.image.brokers[1].epoch
    assert (session.metadata_offset, session.shutdown_offset, session.check) == (-1, -1, "")
    assert session.ms_since_contact(cluster.now_ms) is None


# Clearing the way


def test_a_new_incarnation_leads_nothing_of_the_old_one():
    cluster = Cluster()
    for broker_id in (1, 2):
        start(cluster, broker_id)
    cluster.create(1, [(1, 2), (2, 1), (1,)])
    cluster.now_ms += SESSION_MS + 1
    beat(cluster, 2)  # and nobody has noticed yet that broker 1 is gone

    decision = register(cluster, 1, run=1)

    assert [cluster.partition(1, number).leader for number in range(3)] == [2, 2, -1]
    assert [cluster.partition(1, number).isr for number in range(3)] == [(2,), (2,), (1,)]
    assert isinstance(decision.records[-1], RegisterBrokerRecord)
    broker = cluster.image.brokers[1]
    assert broker.epoch < broker.registration_offset  # what was cleared away stands in between


@pytest.mark.parametrize(
    ("api_version", "is_same_epoch", "is_clean"),
    [(4, True, True), (3, True, True), (2, True, False), (4, False, False)],
)
def test_who_was_shut_down_in_order_stays_eligible(api_version, is_same_epoch, is_clean):
    cluster = Cluster(elr=True, topic_defaults={"min.insync.replicas": "2"})
    epoch = cluster.register(1)
    cluster.create(
        1, [Partition((1, 2), (directory(1), directory(2)), (), -1, elr=(1, 2), last_known_leader=2)]
    )
    cluster.fence(1)

    decision = register(
        cluster,
        1,
        run=1,
        api_version=api_version,
        previous_broker_epoch=epoch if is_same_epoch else epoch - 1,
    )

    assert cluster.partition(1).elr == ((1, 2) if is_clean else (2,))
    assert decision.events[-1].is_clean is is_clean


def test_who_was_never_seen_was_not_shut_down_in_order():
    decision = register(Cluster(), 1, previous_broker_epoch=-1)

    assert not decision.events[-1].is_clean


def test_after_a_crash_the_last_replica_in_sync_is_not_trusted_with_eligible_leader_replicas():
    cluster = Cluster(elr=True)
    cluster.register(1)
    cluster.create(1, [(1,)])
    cluster.sessions.restart([], cluster.now_ms)

    register(cluster, 1, run=1)

    assert (cluster.partition(1).isr, cluster.partition(1).elr) == ((), ())
    assert (cluster.partition(1).leader, cluster.partition(1).last_known_leader) == (-1, 1)


def test_who_takes_an_unregistered_id_finds_the_way_cleared():
    cluster = Cluster([2])
    cluster.create(1, [Partition((1, 2), (directory(1), directory(2)), (1, 2), 1)])

    decision = register(cluster, 1)

    assert cluster.partition(1).leader == 2
    assert cluster.image.brokers[1].is_fenced
    assert decision.events[-1].partitions == 1


def test_a_registration_may_take_more_than_one_batch():
    assert not register(Cluster(), 1).is_atomic
