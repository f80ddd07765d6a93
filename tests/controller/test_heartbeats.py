"""What a heartbeat comes to, and what silence does."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_requests import beat, expire, heartbeat_request, register, reply_of, start
from controller_cluster import Cluster, directory
from quorate.controller.decision import Decision
from quorate.controller.events import (
    BrokerFenced,
    BrokerUnfenced,
    DirectoriesFailed,
    HeartbeatRefused,
    ShutdownGranted,
    ShutdownStarted,
    ShutdownWaiting,
    UnfenceWithheld,
)
from quorate.controller.heartbeats import (
    _FINDINGS,
    _OUTCOMES,
    TRANSITIONS,
    Finding,
    State,
    decide_expiry,
    note_late_heartbeat,
)
from quorate.controller.refusal import Refusal
from quorate.controller.unregistration import decide_unregistration
from quorate.metadata.partitions import Partition
from quorate.metadata.records import BrokerRegistrationChangeRecord
from quorate.metadata.versions import version_of
from quorate.protocol.api.brokers import UnregisterBrokerRequest
from quorate.protocol.errors import ErrorCode

SESSION_MS = 9000


def started(*broker_ids: int, **about: Any) -> Cluster:
    """A cluster of brokers that are unfenced and have read the whole log."""
    cluster = Cluster(**about)
    for broker_id in broker_ids:
        start(cluster, broker_id)
    all_read(cluster, *broker_ids)
    return cluster


def all_read(cluster: Cluster, *broker_ids: int) -> None:
    """Brokers say that they have read the log to its end."""
    for broker_id in broker_ids:
        beat(cluster, broker_id)


def kinds(decision: Decision) -> list[str]:
    return [event.kind for event in decision.events]


def own_changes(decision: Decision) -> list[BrokerRegistrationChangeRecord]:
    return [one for one in decision.records if isinstance(one, BrokerRegistrationChangeRecord)]


def states(decision: Decision) -> tuple[bool, bool]:
    return reply_of(decision).is_fenced, reply_of(decision).should_shut_down


FENCED, UNFENCED, GONE = (True, False), (False, False), (True, True)


# The table


def test_every_finding_of_every_state_leads_somewhere():
    before_the_end = {State.FENCED, State.UNFENCED, State.CONTROLLED_SHUTDOWN}
    assert {state for state, _ in TRANSITIONS} == set(_FINDINGS) == before_the_end
    assert {finding for _, finding in TRANSITIONS} == set(Finding)
    assert {(state, following) for (state, _), following in TRANSITIONS.items()} == set(_OUTCOMES)


@pytest.mark.parametrize(
    ("want_shut_down", "want_fence", "is_behind", "expected"),
    [
        (False, False, False, UNFENCED),
        (False, False, True, FENCED),
        (False, True, False, FENCED),
        (False, True, True, FENCED),
        (True, False, False, GONE),
        (True, False, True, GONE),
        (True, True, False, GONE),
        (True, True, True, GONE),
    ],
)
def test_from_fenced(want_shut_down, want_fence, is_behind, expected):
    cluster = Cluster()
    register(cluster, 1)
    offset = cluster.image.brokers[1].registration_offset - is_behind

    decision = beat(cluster, 1, want_shut_down=want_shut_down, want_fence=want_fence, offset=offset)

    assert states(decision) == expected
    assert reply_of(decision).is_caught_up is not is_behind
    assert cluster.image.brokers[1].is_fenced is expected[0]


@pytest.mark.parametrize(
    ("want_shut_down", "want_fence", "leads", "expected", "is_leaving"),
    [
        (False, False, False, UNFENCED, False),
        (False, False, True, UNFENCED, False),
        (False, True, False, FENCED, False),
        (False, True, True, FENCED, False),
        (True, False, False, GONE, False),
        (True, False, True, UNFENCED, True),
        (True, True, False, GONE, False),
        (True, True, True, GONE, False),
    ],
)
def test_from_unfenced(want_shut_down, want_fence, leads, expected, is_leaving):
    cluster = started(1, 2)
    cluster.create(1, [(1, 2) if leads else (2, 1)])

    decision = beat(cluster, 1, want_shut_down=want_shut_down, want_fence=want_fence)

    assert states(decision) == expected
    assert cluster.image.brokers[1].is_fenced is expected[0]
    assert cluster.image.brokers[1].is_shutting_down is is_leaving
    assert (cluster.sessions.of(1).shutdown_offset >= 0) is is_leaving


@pytest.mark.parametrize("want_shut_down", [False, True])
@pytest.mark.parametrize("want_fence", [False, True])
@pytest.mark.parametrize(
    ("is_seen", "leads", "expected"),
    [(False, False, UNFENCED), (True, True, UNFENCED), (True, False, GONE)],
)
def test_from_controlled_shutdown_whatever_it_asks(want_shut_down, want_fence, is_seen, leads, expected):
    cluster = started(1, 2)
    cluster.create(1, [(1, 2)])
    beat(cluster, 1, want_shut_down=True)
    if is_seen:
        all_read(cluster, 2)
    if leads:
        cluster.create(2, [(1, 2)])

    decision = beat(cluster, 1, want_shut_down=want_shut_down, want_fence=want_fence)

    assert states(decision) == expected


# Epochs


@pytest.mark.parametrize("difference", [-1, 1])
def test_another_epoch_is_stale(difference):
    cluster = started(1)
    epoch = cluster.image.brokers[1].epoch
    cluster.now_ms += 100

    with pytest.raises(Refusal) as caught:
        beat(cluster, 1, epoch=epoch + difference)

    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert caught.value.event == HeartbeatRefused(1, epoch + difference, epoch, "epoch")
    assert str(epoch) in caught.value.message
    assert cluster.sessions.of(1).contact_ms == cluster.now_ms - 100


def test_who_is_not_registered_has_a_stale_epoch():
    cluster = Cluster()

    with pytest.raises(Refusal) as caught:
        beat(cluster, 1, epoch=5)

    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert caught.value.event == HeartbeatRefused(1, 5, -1, "not registered")
    assert "not registered" in caught.value.event.line()
    assert cluster.sessions.of(1) is None


def test_the_loser_of_two_processes_with_one_id_learns_it():
    cluster = Cluster()
    first = reply_of(register(cluster, 1)).broker_epoch
    register(cluster, 1, run=1)

    with pytest.raises(Refusal) as caught:
        beat(cluster, 1, epoch=first)

    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert states(beat(cluster, 1)) == UNFENCED


# Coming up


def test_a_broker_is_unfenced_when_it_has_read_its_registration():
    cluster = Cluster()
    epoch = reply_of(register(cluster, 1)).broker_epoch
    offset = cluster.image.brokers[1].registration_offset

    decision = beat(cluster, 1, offset=offset)

    assert own_changes(decision) == [
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=-1)
    ]
    assert list(decision.events) == [BrokerUnfenced(1, epoch, offset, offset, 0)]
    assert cluster.image.brokers[1].is_active


def test_a_broker_that_comes_back_leads_what_nobody_else_could():
    cluster = Cluster()
    register(cluster, 1)
    cluster.create(1, [Partition((1,), (directory(1),), (1,), -1)])

    decision = beat(cluster, 1)

    assert cluster.partition(1).leader == 1
    assert isinstance(decision.records[0], BrokerRegistrationChangeRecord)
    assert decision.events[0].leaderships == 1


def test_why_a_broker_stays_fenced_is_said_once_for_each_reason():
    cluster = Cluster()
    register(cluster, 1)
    heartbeats = [
        {"offset": -1, "want_fence": True},
        {"offset": 3, "want_fence": True},
        {"offset": 4},
        {"offset": 5},
        {"offset": 6, "want_fence": True},
    ]

    said = [[event.check for event in beat(cluster, 1, **what).events] for what in heartbeats]

    assert said == [["wants to be fenced"], [], ["metadata offset"], [], ["wants to be fenced"]]


def test_what_keeps_a_broker_fenced_comes_with_its_numbers():
    cluster = Cluster()
    register(cluster, 1)
    broker = cluster.image.brokers[1]

    decision = beat(cluster, 1, offset=7)

    assert list(decision.events) == [
        UnfenceWithheld(1, broker.epoch, "metadata offset", 7, broker.registration_offset)
    ]
    assert not decision.records


def test_the_reported_offset_survives_the_unfencing():
    cluster = Cluster()
    register(cluster, 1)
    offset = cluster.next_offset + 5

    beat(cluster, 1, offset=offset)

    assert cluster.sessions.of(1).metadata_offset == offset


def test_an_ordinary_heartbeat_says_and_writes_nothing():
    cluster = started(1)

    decision = beat(cluster, 1)

    assert (list(decision.records), list(decision.events)) == ([], [])
    assert states(decision) == UNFENCED


def test_an_ordinary_heartbeat_looks_at_no_partition(monkeypatch):
    cluster = started(1)
    register(cluster, 2)
    looked = []
    monkeypatch.setattr(
        type(cluster.image.partitions), "is_leading", lambda *_: bool(looked.append(1)), raising=True
    )

    beat(cluster, 1)
    beat(cluster, 2, want_fence=True)
    assert looked == []

    beat(cluster, 1, want_shut_down=True)
    assert looked == [1]


# Fencing


def test_a_broker_that_asks_to_be_fenced_is():
    cluster = started(1, 2)
    cluster.create(1, [(1, 2), (2, 1), (1,)])
    epoch = cluster.image.brokers[1].epoch

    decision = beat(cluster, 1, want_fence=True)

    assert own_changes(decision) == [
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=1)
    ]
    assert isinstance(decision.records[-1], BrokerRegistrationChangeRecord)
    assert [cluster.partition(1, number).leader for number in range(3)] == [2, 2, -1]
    assert list(decision.events) == [BrokerFenced(1, epoch, "asked to be fenced", 0, SESSION_MS, 3, 2, 1)]
    assert cluster.sessions.is_alive(1, epoch, cluster.now_ms)


def test_a_silent_broker_is_fenced():
    cluster = started(1, 2)
    cluster.create(1, [(1, 2), (2, 1)])
    epoch = cluster.image.brokers[1].epoch
    cluster.now_ms += SESSION_MS + 1
    beat(cluster, 2)

    decision = expire(cluster)

    assert cluster.image.brokers[1].is_fenced
    assert [cluster.partition(1, number).isr for number in range(2)] == [(2,), (2,)]
    assert decision.reply is None
    assert list(decision.events) == [
        BrokerFenced(1, epoch, "missed heartbeats", SESSION_MS + 1, SESSION_MS, 2, 1, 0)
    ]
    assert "due to missed heartbeats" in decision.events[0].line()
    assert expire(cluster) is None


def test_nobody_is_fenced_at_the_timeout_itself():
    cluster = started(1)
    cluster.now_ms += SESSION_MS

    assert expire(cluster) is None


def test_silent_brokers_are_fenced_one_at_a_time_the_oldest_first():
    cluster = started(1, 2, 3, 4)
    for broker_id in (3, 1, 4, 2):
        cluster.now_ms += 10
        beat(cluster, broker_id)
    cluster.create(1, [(3, 1, 4, 2)])
    cluster.now_ms += SESSION_MS + 1
    fenced, leaders = [], []

    while (decision := expire(cluster)) is not None:
        fenced.append(decision.events[0].broker_id)
        leaders.append(cluster.partition(1).leader)

    assert fenced == [3, 1, 4, 2]
    assert leaders == [1, 4, 2, -1]


def test_the_silence_of_a_fenced_broker_is_nothing():
    cluster = Cluster()
    register(cluster, 1)
    beat(cluster, 1, want_fence=True)
    cluster.now_ms += SESSION_MS + 1

    assert expire(cluster) is None
    assert cluster.sessions.deadline_ms == float("inf")


def test_the_silence_of_a_fenced_broker_does_not_hide_that_of_others():
    cluster = Cluster()
    register(cluster, 1)
    beat(cluster, 1, want_fence=True)
    cluster.now_ms += 1
    start(cluster, 2)
    cluster.now_ms += SESSION_MS + 1

    assert expire(cluster).events[0].broker_id == 2


def test_who_was_unregistered_is_not_fenced():
    cluster = started(1)
    cluster.decide(decide_unregistration, UnregisterBrokerRequest(broker_id=1))
    cluster.now_ms += SESSION_MS + 1

    assert expire(cluster) is None


def test_the_silence_of_an_old_incarnation_does_not_fence_the_new_one():
    cluster = started(1)
    cluster.now_ms += SESSION_MS + 0.5
    start(cluster, 1, run=1)
    cluster.now_ms += 5000

    assert expire(cluster) is None


def test_a_fencing_that_failed_is_tried_again():
    cluster = started(1)
    cluster.now_ms += SESSION_MS + 1

    assert decide_expiry(cluster.situation()) is not None  # it never reaches the log
    assert decide_expiry(cluster.situation()) is None
    cluster.now_ms += SESSION_MS

    assert expire(cluster).events[0].broker_id == 1


def test_a_broker_back_from_a_network_cut_is_unfenced_by_its_next_heartbeat():
    cluster = started(1)
    epoch = cluster.image.brokers[1].epoch
    cluster.now_ms += SESSION_MS + 1
    expire(cluster)

    decision = beat(cluster, 1)

    assert states(decision) == UNFENCED
    assert kinds(decision) == ["BrokerUnfenced"]
    assert cluster.image.brokers[1].epoch == epoch
    cluster.now_ms += SESSION_MS + 1
    assert expire(cluster).events[0].broker_id == 1


def test_after_a_change_of_controllers_everyone_has_a_full_session():
    cluster = started(1, 2)
    register(cluster, 3)
    cluster.now_ms += 60_000
    unfenced = [(one.id, one.epoch) for one in cluster.image.brokers.values() if not one.is_fenced]

    cluster.sessions.restart(unfenced, cluster.now_ms)

    assert expire(cluster) is None
    cluster.now_ms = cluster.sessions.deadline_ms
    assert [expire(cluster).events[0].broker_id for _ in range(2)] == [1, 2]
    assert expire(cluster) is None


def test_a_late_heartbeat_is_a_sign_of_life_and_no_more():
    cluster = started(1)
    register(cluster, 2)
    cluster.now_ms += 8000
    late = heartbeat_request(cluster, 1, offset=4711, want_shut_down=True)

    note_late_heartbeat(cluster.sessions, late, cluster.now_ms)
    note_late_heartbeat(cluster.sessions, heartbeat_request(cluster, 1, epoch=3), cluster.now_ms + 50)
    note_late_heartbeat(cluster.sessions, heartbeat_request(cluster, 1, epoch=3, offset=9), cluster.now_ms)

    assert cluster.sessions.of(1).metadata_offset == 4711
    assert cluster.sessions.of(1).contact_ms == cluster.now_ms
    assert not cluster.image.brokers[1].is_fenced
    assert cluster.sessions.of(1).shutdown_offset == -1


# Going


def test_who_leads_nothing_may_go_at_once():
    cluster = started(1, 2)
    cluster.create(1, [(2, 1)])
    epoch = cluster.image.brokers[1].epoch

    decision = beat(cluster, 1, want_shut_down=True)

    assert states(decision) == GONE
    assert cluster.partition(1).isr == (2,)
    assert kinds(decision) == ["ShutdownGranted", "BrokerFenced"]
    assert decision.events[0] == ShutdownGranted(1, epoch, -1)
    assert decision.events[1].check == "shut down"
    assert not cluster.sessions.is_alive(1, epoch, cluster.now_ms)


def test_who_leads_waits_until_all_others_have_seen_it_leave():
    cluster = started(1, 2, 3)
    cluster.create(1, [(1, 2, 3), (1,)])
    epoch = cluster.image.brokers[1].epoch
    all_read(cluster, 2, 3)

    first = beat(cluster, 1, want_shut_down=True)

    end = cluster.next_offset - 1
    assert states(first) == UNFENCED
    assert isinstance(first.records[0], BrokerRegistrationChangeRecord)
    assert first.records[0].in_controlled_shutdown == 1
    assert [cluster.partition(1, number).leader for number in range(2)] == [2, -1]
    assert list(first.events) == [ShutdownStarted(1, epoch, 2, 2, 1, end)]
    assert cluster.sessions.of(1).shutdown_offset == end

    beat(cluster, 2, offset=end)
    waiting = beat(cluster, 1, want_shut_down=True)
    assert states(waiting) == UNFENCED
    assert list(waiting.events) == [
        ShutdownWaiting(
            1, epoch, "others have not seen it leave", end, 3, cluster.sessions.of(3).metadata_offset
        )
    ]
    assert kinds(beat(cluster, 1, want_shut_down=True)) == []  # it is not said twice

    beat(cluster, 3, offset=end)
    last = beat(cluster, 1, want_shut_down=True)
    assert states(last) == GONE
    assert last.events[0] == ShutdownGranted(1, epoch, end)
    assert cluster.image.brokers[1].is_fenced


def test_nobody_waits_for_brokers_that_are_not_active():
    cluster = started(1, 2, 3)
    register(cluster, 4)
    cluster.create(1, [(1, 2), (3, 2)])
    beat(cluster, 3, want_shut_down=True)
    beat(cluster, 1, want_shut_down=True)
    all_read(cluster, 2)

    assert states(beat(cluster, 1, want_shut_down=True)) == GONE
    assert states(beat(cluster, 3, want_shut_down=True)) == GONE


def test_the_last_broker_waits_for_nobody():
    cluster = started(1)
    cluster.create(1, [(1,)])
    assert states(beat(cluster, 1, want_shut_down=True)) == UNFENCED

    assert states(beat(cluster, 1, want_shut_down=True)) == GONE


def test_a_broker_that_still_leads_is_told_so():
    cluster = started(1, 2)
    cluster.create(1, [(1, 2)])
    beat(cluster, 1, want_shut_down=True)
    cluster.create(2, [(1, 2)])

    decision = beat(cluster, 1, want_shut_down=True)

    event = decision.events[0]
    assert (event.check, event.slowest_broker, event.slowest_offset) == ("it still leads", -1, -1)


def test_the_first_shutdown_offset_counts():
    cluster = started(1, 2)
    cluster.create(1, [(1, 2)])
    beat(cluster, 1, want_shut_down=True)
    offset = cluster.sessions.of(1).shutdown_offset
    cluster.create(2, [(2,)])

    beat(cluster, 1, want_shut_down=True)

    assert cluster.sessions.of(1).shutdown_offset == offset


def test_who_falls_silent_while_it_goes_is_fenced_and_may_go_at_its_next_heartbeat():
    cluster = started(1, 2)
    cluster.create(1, [(1, 2)])
    beat(cluster, 1, want_shut_down=True)
    cluster.now_ms += SESSION_MS + 1
    beat(cluster, 2, offset=0)

    assert expire(cluster).events[0].broker_id == 1
    assert cluster.sessions.of(1).shutdown_offset == -1
    assert states(beat(cluster, 1, want_shut_down=True)) == GONE


def test_a_new_controller_lets_go_who_was_about_to():
    cluster = started(1, 2)
    cluster.create(1, [(1, 2)])
    beat(cluster, 1, want_shut_down=True)
    cluster.sessions.restart([(one.id, one.epoch) for one in cluster.image.brokers.values()], cluster.now_ms)

    assert states(beat(cluster, 1, want_shut_down=True)) == GONE


def test_a_new_controller_does_not_mark_again_who_is_shutting_down():
    cluster = started(1, 2)
    cluster.shut_down(1)
    cluster.create(1, [(1, 2)])
    cluster.sessions.restart([(one.id, one.epoch) for one in cluster.image.brokers.values()], cluster.now_ms)

    decision = beat(cluster, 1, want_shut_down=True)

    assert own_changes(decision) == []
    assert cluster.sessions.of(1).shutdown_offset == cluster.next_offset - 1
    assert cluster.partition(1).leader == 2


def test_a_fenced_broker_that_goes_is_not_fenced_again():
    cluster = Cluster()
    register(cluster, 1)

    decision = beat(cluster, 1, want_shut_down=True)

    assert states(decision) == GONE
    assert (list(decision.records), kinds(decision)) == ([], ["ShutdownGranted"])


def test_who_did_not_hear_that_it_may_go_is_told_again():
    cluster = started(1)
    beat(cluster, 1, want_shut_down=True)

    assert states(beat(cluster, 1, want_shut_down=True)) == GONE
    assert not cluster.sessions.is_alive(1, cluster.image.brokers[1].epoch, cluster.now_ms)


@pytest.mark.parametrize("level", [7, 16, 17, 22, 23, 30])
def test_the_way_out_is_the_same_at_every_level(level):
    cluster = started(1, 2, metadata_version=level)
    cluster.create(1, [(1, 2)])

    first = beat(cluster, 1, want_shut_down=True)
    all_read(cluster, 2)
    last = beat(cluster, 1, want_shut_down=True)

    assert [version_of(one, level) for one in own_changes(first) + own_changes(last)] == [1, 0]
    assert states(last) == GONE


# Disks


def with_disks(**about: Any) -> Cluster:
    """Broker 1 has two directories with a partition in each, broker 2 follows."""
    cluster = Cluster(**about)
    start(cluster, 1, log_dirs=[directory(1, 0), directory(1, 1)])
    start(cluster, 2)
    for number in range(2):
        cluster.create(number, [Partition((1, 2), (directory(1, number), directory(2)), (1, 2), 1)])
    return cluster


def test_a_disk_that_failed_is_left():
    cluster = with_disks()
    epoch = cluster.image.brokers[1].epoch

    decision = beat(cluster, 1, offline=[directory(1, 1), directory(9)])

    assert cluster.image.brokers[1].directories == (directory(1, 0),)
    assert [cluster.partition(number).leader for number in range(2)] == [1, 2]
    assert list(decision.events) == [DirectoriesFailed(1, epoch, (str(directory(1, 1)),), 1, 0)]
    assert [version_of(one, 30) for one in own_changes(decision)] == [2]
    assert states(decision) == UNFENCED


def test_a_disk_that_failed_is_reported_again_and_again():
    cluster = with_disks()
    beat(cluster, 1, offline=[directory(1, 1)])

    decision = beat(cluster, 1, offline=[directory(1, 1)])

    assert (list(decision.records), list(decision.events)) == ([], [])


def test_disks_are_not_looked_at_before_there_were_any():
    cluster = started(1, metadata_version=16)

    decision = beat(cluster, 1, offline=[directory(1)])

    assert not decision.records


@pytest.mark.parametrize("what", [{"want_shut_down": True}, {"want_fence": True}])
def test_disks_come_first_and_the_next_heartbeat_goes_on(what):
    cluster = with_disks()
    offline = [directory(1, 1)]

    first = beat(cluster, 1, offline=offline, **what)

    assert states(first) == UNFENCED
    assert kinds(first) == ["DirectoriesFailed"]
    assert not cluster.image.brokers[1].is_shutting_down
    second = beat(cluster, 1, offline=offline, **what)
    assert kinds(second) == ["ShutdownStarted" if "want_shut_down" in what else "BrokerFenced"]


def test_a_fenced_broker_that_reports_a_failed_disk_is_unfenced_afterwards():
    cluster = Cluster()
    register(cluster, 1, log_dirs=[directory(1, 0), directory(1, 1)])
    for number in range(2):
        cluster.create(number, [Partition((1,), (directory(1, number),), (1,), -1)])

    assert states(beat(cluster, 1, offline=[directory(1, 1)])) == FENCED
    assert states(beat(cluster, 1, offline=[directory(1, 1)])) == UNFENCED

    assert [cluster.partition(number).leader for number in range(2)] == [1, -1]


def test_a_disk_that_fails_in_controlled_shutdown_does_not_move_its_offset():
    cluster = with_disks()
    beat(cluster, 1, want_shut_down=True)
    offset = cluster.sessions.of(1).shutdown_offset

    beat(cluster, 1, want_shut_down=True, offline=[directory(1, 0)])

    assert cluster.sessions.of(1).shutdown_offset == offset


def test_a_broker_without_any_disk_is_fenced_and_stays_so():
    cluster = with_disks()
    offline = [directory(1, 0), directory(1, 1)]

    first = beat(cluster, 1, offline=offline)
    second = beat(cluster, 1, offline=offline)
    third = beat(cluster, 1, offline=offline)

    assert [states(one) for one in (first, second, third)] == [FENCED] * 3
    assert first.events[0].check == "all log directories are offline"
    assert (list(second.records), list(second.events), list(third.events)) == ([], [], [])
    assert [cluster.partition(number).leader for number in range(2)] == [2, 2]


def test_a_broker_without_any_disk_may_go_at_once():
    cluster = with_disks()

    decision = beat(cluster, 1, want_shut_down=True, offline=[directory(1, 0), directory(1, 1)])

    assert states(decision) == GONE


# Cordoned disks


@pytest.mark.parametrize(
    ("before", "sent", "after", "is_written"),
    [
        ([], None, [], False),
        ([], [], [], False),
        ([], [0], [0], True),
        ([0], [0], [0], False),
        ([0], None, [0], False),
        ([0], [], [], True),
        ([0], [1, 0], [0, 1], True),
        ([0, 1], [1, 0, 1], [0, 1], False),
        ([], [7], [], False),  # not one of its own
    ],
)
def test_which_disks_get_no_new_replicas_is_kept(before, sent, after, is_written):
    cluster = with_disks()
    if before:
        beat(cluster, 1, cordoned=[directory(1, number) for number in before])

    decision = beat(cluster, 1, cordoned=None if sent is None else [directory(1, number) for number in sent])

    assert cluster.image.brokers[1].cordoned == tuple(directory(1, number) for number in after)
    assert [version_of(one, 30) for one in own_changes(decision)] == [3] * is_written


def test_cordoned_disks_are_not_looked_at_before_there_were_any():
    cluster = with_disks(metadata_version=29)

    assert not beat(cluster, 1, cordoned=[directory(1)]).records


def test_a_change_of_cordoned_disks_goes_with_any_other():
    cluster = with_disks()

    decision = beat(cluster, 1, cordoned=[directory(1)], want_shut_down=True)

    assert cluster.image.brokers[1].cordoned == (directory(1),)
    assert decision.events[0].controlled_shutdown_offset == cluster.sessions.of(1).shutdown_offset
    assert cluster.sessions.of(1).shutdown_offset == cluster.next_offset - 1


# Whatever happens


class Membership:
    """A few brokers that come, go, fall silent and are replaced, and what must be true all the time."""

    def __init__(self, replicas: list[list[int]], *, elr: bool) -> None:
        self.cluster = Cluster(elr=elr)
        self.runs = dict.fromkeys(range(1, 5), 0)
        self.epochs = dict.fromkeys(range(1, 5), -1)
        self.cluster.create(
            1, [Partition(tuple(one), tuple(map(directory, one)), tuple(one), -1) for one in replicas]
        )

    def register(self, broker_id: int, is_new: bool, is_clean: bool) -> None:
        cluster = self.cluster
        holder = cluster.image.brokers.get(broker_id)
        is_held = holder is not None and cluster.sessions.is_alive(holder.id, holder.epoch, cluster.now_ms)
        run = self.runs[broker_id] + is_new
        try:
            register(
                cluster, broker_id, run=run, previous_broker_epoch=holder.epoch if holder and is_clean else -1
            )
        except Refusal as refusal:
            assert refusal.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
            assert is_held
            assert cluster.image.brokers[broker_id] == holder
            return
        assert not (is_held and is_new)
        self.runs[broker_id] = run

    def beat(self, broker_id: int, lag: int, stale: int, want_fence: bool, want_shut_down: bool) -> None:
        cluster = self.cluster
        broker = cluster.image.brokers.get(broker_id)
        epoch = broker.epoch - stale if broker is not None else 1
        try:
            reply = reply_of(
                beat(
                    cluster,
                    broker_id,
                    epoch=epoch,
                    offset=cluster.next_offset - 1 - lag,
                    want_fence=want_fence,
                    want_shut_down=want_shut_down,
                )
            )
        except Refusal:
            assert broker is None or stale
            return
        assert cluster.image.brokers[broker_id].is_fenced == reply.is_fenced
        assert not (reply.should_shut_down and not reply.is_fenced)

    def wait(self, ms: int) -> None:
        self.cluster.now_ms += ms
        while expire(self.cluster) is not None:
            self.check()

    def unregister(self, broker_id: int) -> None:
        if broker_id in self.cluster.image.brokers:
            request = UnregisterBrokerRequest(broker_id=broker_id)
            self.cluster.decide(decide_unregistration, request)
            self.runs[broker_id] += 1

    def check(self) -> None:
        image, sessions = self.cluster.image, self.cluster.sessions
        for _, partition in image.partitions_of(next(iter(image.topics)).id):
            if partition.leader >= 0:
                assert image.brokers[partition.leader].is_active
        for broker in image.brokers.values():
            assert broker.epoch >= self.epochs[broker.id]
            assert broker.epoch <= broker.registration_offset
            self.epochs[broker.id] = broker.epoch
            if not broker.is_fenced:  # somebody waits for it to fall silent
                session = sessions.of(broker.id)
                assert session.epoch == broker.epoch
                assert session.deadline_ms <= self.cluster.now_ms + SESSION_MS + 1


brokers = st.integers(1, 4)
actions = st.one_of(
    st.tuples(st.just("register"), brokers, st.booleans(), st.booleans()),
    st.tuples(
        st.just("beat"),
        brokers,
        st.sampled_from([0, 0, 0, 1, 50]),
        st.sampled_from([0, 0, 0, 1]),
        st.sampled_from([False, False, True]),
        st.sampled_from([False, False, True]),
    ),
    st.tuples(st.just("beat"), brokers, st.just(0), st.just(0), st.just(False), st.just(False)),
    st.tuples(st.just("wait"), st.sampled_from([1, 4000, 9001])),
    st.tuples(st.just("unregister"), brokers),
)
assignments = st.lists(st.lists(brokers, min_size=1, max_size=3, unique=True), min_size=1, max_size=4)


@given(assignments, st.lists(actions, max_size=50), st.booleans())
def test_whatever_brokers_do_the_membership_holds_together(replicas, actions, elr):
    membership = Membership(replicas, elr=elr)
    for broker_id in range(1, 5):
        membership.register(broker_id, is_new=False, is_clean=False)
        membership.beat(broker_id, 0, 0, False, False)
    for name, *arguments in actions:
        getattr(membership, name)(*arguments)
        membership.check()
