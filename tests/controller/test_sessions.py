"""Who is alive, who is next to be judged, and who has read least."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.controller.sessions import Session, Sessions

TIMEOUT_MS = 9000
GRACE_MS = 1


def sessions_of(*contacts: tuple[int, int, float]) -> Sessions:
    """Sessions of brokers by id, epoch, and the time of their last sign of life."""
    sessions = Sessions(TIMEOUT_MS)
    for broker_id, epoch, now_ms in contacts:
        sessions.touch(broker_id, epoch, -1, now_ms)
    return sessions


# Life


@pytest.mark.parametrize(
    ("after_ms", "is_alive"),
    [(0, True), (1, True), (TIMEOUT_MS, True), (TIMEOUT_MS + 0.5, False), (TIMEOUT_MS + 1, False)],
)
def test_a_session_lives_for_the_timeout(after_ms, is_alive):
    sessions = sessions_of((1, 10, 500.0))

    assert sessions.is_alive(1, 10, 500 + after_ms) is is_alive


def test_an_unknown_broker_is_not_alive():
    assert not Sessions(TIMEOUT_MS).is_alive(1, 10, 0)
    assert Sessions(TIMEOUT_MS).of(1) is None


def test_a_sign_of_life_extends_the_session():
    sessions = sessions_of((1, 10, 0.0))

    sessions.contact(1, 10, 5000)

    assert sessions.is_alive(1, 10, 5000 + TIMEOUT_MS)


def test_time_does_not_run_backwards_for_a_session():
    sessions = sessions_of((1, 10, 5000.0))

    sessions.contact(1, 10, 100)

    assert sessions.of(1).contact_ms == 5000


@pytest.mark.parametrize("epoch", [9, 11])
def test_another_epoch_does_not_extend_the_session(epoch):
    sessions = sessions_of((1, 10, 0.0))

    sessions.contact(1, epoch, 5000)

    assert sessions.of(1) == Session(1, 10, contact_ms=0, deadline_ms=TIMEOUT_MS + GRACE_MS)
    assert not sessions.is_alive(1, epoch, 5000)


def test_a_stranger_is_not_remembered():
    sessions = Sessions(TIMEOUT_MS)

    for broker_id in range(1000):
        sessions.contact(broker_id, 1, 0)

    assert all(sessions.of(broker_id) is None for broker_id in range(1000))


def test_a_new_incarnation_does_not_live_before_its_first_heartbeat():
    sessions = sessions_of((1, 10, 0.0))

    sessions.begin(1, 20)

    assert not sessions.is_alive(1, 10, 1)
    assert not sessions.is_alive(1, 20, 1)
    assert sessions.of(1).ms_since_contact(1) is None
    sessions.contact(1, 20, 2)
    assert sessions.is_alive(1, 20, 2)
    assert sessions.of(1).ms_since_contact(5) == 3


def test_the_old_incarnation_cannot_keep_the_new_one_alive():
    sessions = sessions_of((1, 10, 0.0))
    sessions.begin(1, 20)

    sessions.contact(1, 10, 1)

    assert not sessions.is_alive(1, 20, 1)
    assert not sessions.is_alive(1, 10, 1)


def test_a_restart_gives_everyone_a_full_session_and_forgets_the_rest():
    sessions = sessions_of((1, 10, 0.0), (2, 11, 0.0), (3, 12, 0.0))
    sessions.begin_shutdown(2, 400)

    sessions.restart([(1, 10), (2, 11)], 50_000)

    assert sessions.is_alive(1, 10, 50_000 + TIMEOUT_MS)
    assert sessions.of(2).shutdown_offset == -1
    assert sessions.of(3) is None
    assert sessions.deadline_ms == 50_000 + TIMEOUT_MS + GRACE_MS


def test_what_a_heartbeat_says_is_remembered():
    sessions = sessions_of((1, 10, 0.0))

    sessions.touch(1, 10, 77, 5, want_fence=True)

    assert sessions.of(1).metadata_offset == 77
    assert sessions.of(1).want_fence


def test_the_first_shutdown_offset_counts():
    sessions = sessions_of((1, 10, 0.0))

    sessions.begin_shutdown(1, 123)
    sessions.begin_shutdown(1, 456)

    assert sessions.of(1).shutdown_offset == 123


def test_an_id_is_free_once_its_holder_was_let_go():
    sessions = sessions_of((1, 10, 0.0))
    sessions.begin_shutdown(1, 5)

    sessions.end(1)

    assert not sessions.is_alive(1, 10, 1)
    assert sessions.of(1).has_left
    assert sessions.of(1).shutdown_offset == -1
    assert sessions.deadline_ms == math.inf
    sessions.contact(1, 10, 2)  # a copy of its last request arrives late
    assert not sessions.is_alive(1, 10, 2)


def test_who_was_let_go_and_is_heard_of_all_the_same_is_back():
    sessions = sessions_of((1, 10, 0.0))
    sessions.end(1)

    sessions.touch(1, 10, 5, 3)

    assert sessions.is_alive(1, 10, 3)
    assert not sessions.of(1).has_left
    assert sessions.deadline_ms == 3 + TIMEOUT_MS + GRACE_MS


def test_who_is_unregistered_is_forgotten():
    sessions = sessions_of((1, 10, 0.0))

    sessions.forget(1)
    sessions.forget(2)

    assert sessions.of(1) is None
    assert sessions.deadline_ms == math.inf


@pytest.mark.parametrize("forgotten", ["end", "forget"])
def test_the_end_of_a_session_that_does_not_exist_is_nothing(forgotten):
    getattr(Sessions(TIMEOUT_MS), forgotten)(1)


def test_the_same_is_not_said_twice():
    sessions = sessions_of((1, 10, 0.0))

    sessions.withhold(1, "metadata offset")
    sessions.withhold(2, "metadata offset")

    assert sessions.of(1).check == "metadata offset"


# Deadlines


def test_without_brokers_nothing_is_due():
    sessions = Sessions(TIMEOUT_MS)

    assert sessions.deadline_ms == math.inf
    assert sessions.next_expired(1e12) is None


def test_a_registration_alone_is_not_waited_for():
    sessions = Sessions(TIMEOUT_MS)
    sessions.begin(1, 10)

    assert sessions.deadline_ms == math.inf


def test_the_silent_are_named_one_at_a_time_the_oldest_first():
    sessions = sessions_of((3, 12, 20.0), (1, 10, 30.0), (2, 11, 10.0))
    late_ms = 30 + TIMEOUT_MS + GRACE_MS
    named = []

    while (expired := sessions.next_expired(late_ms)) is not None:
        named.append(expired)
        sessions.expire(*expired)

    assert named == [(2, 11), (3, 12), (1, 10)]
    assert sessions.deadline_ms == math.inf


def test_those_of_the_same_moment_are_named_by_their_ids():
    sessions = sessions_of((3, 12, 0.0), (1, 10, 0.0), (2, 11, 0.0))

    assert [sessions.next_expired(TIMEOUT_MS + 1) for _ in range(4)] == [(1, 10), (2, 11), (3, 12), None]


def test_only_who_is_silent_is_named():
    sessions = sessions_of((1, 10, 0.0), (2, 11, 5000.0))

    assert sessions.next_expired(TIMEOUT_MS) is None
    assert sessions.next_expired(TIMEOUT_MS + GRACE_MS) == (1, 10)
    assert sessions.next_expired(TIMEOUT_MS + GRACE_MS) is None


def test_at_the_deadline_someone_has_expired():
    sessions = sessions_of((1, 10, 0.1), (2, 11, 0.2))

    assert sessions.next_expired(math.nextafter(sessions.deadline_ms, 0)) is None
    assert sessions.next_expired(sessions.deadline_ms) == (1, 10)


def test_the_deadline_follows_the_signs_of_life():
    sessions = sessions_of((1, 10, 0.0), (2, 11, 100.0))

    sessions.contact(1, 10, 300)
    assert sessions.deadline_ms == 100 + TIMEOUT_MS + GRACE_MS
    sessions.contact(2, 11, 700)
    assert sessions.deadline_ms == 300 + TIMEOUT_MS + GRACE_MS


def test_what_an_expired_broker_was_is_still_known():
    sessions = sessions_of((1, 10, 4.0))
    sessions.begin_shutdown(1, 99)

    sessions.expire(1, 10)

    assert sessions.of(1).contact_ms == 4
    assert sessions.of(1).shutdown_offset == -1
    sessions.expire(1, 9)
    sessions.expire(2, 9)


def test_an_expired_broker_that_is_heard_of_again_is_waited_for_again():
    sessions = sessions_of((1, 10, 0.0))
    assert sessions.next_expired(20_000) == (1, 10)
    sessions.expire(1, 10)

    sessions.contact(1, 10, 30_000)

    assert sessions.deadline_ms == 30_000 + TIMEOUT_MS + GRACE_MS
    assert sessions.next_expired(30_000 + TIMEOUT_MS + GRACE_MS) == (1, 10)
    assert sessions.next_expired(30_000 + TIMEOUT_MS + GRACE_MS) is None


def test_a_fencing_that_failed_is_tried_again_after_the_others():
    sessions = sessions_of((1, 10, 0.0), (2, 11, 100.0))

    assert sessions.next_expired(20_000) == (1, 10)
    assert sessions.next_expired(20_000) == (2, 11)
    sessions.expire(2, 11)
    assert sessions.next_expired(20_000) is None

    assert sessions.deadline_ms == 20_000 + TIMEOUT_MS
    assert sessions.next_expired(20_000 + TIMEOUT_MS) == (1, 10)


# Who has read least


@pytest.mark.parametrize(
    ("active", "expected"),
    [
        ([], (-1, math.inf)),
        ([1], (1, 50)),
        ([1, 2, 3], (2, 40)),
        ([3, 1], (1, 50)),
        ([3, 4], (4, -1)),  # nothing was heard of broker 4 yet
    ],
)
def test_the_slowest_is_the_one_who_has_read_least(active, expected):
    sessions = Sessions(TIMEOUT_MS)
    for broker_id, offset in ((1, 50), (2, 40), (3, 50)):
        sessions.touch(broker_id, 10, offset, 0)

    assert sessions.slowest(active) == expected


# Cost


def test_heartbeats_leave_no_garbage():
    sessions = sessions_of(*((broker_id, 1, 0.0) for broker_id in range(100)))

    for now_ms in range(100):
        for broker_id in range(100):
            sessions.contact(broker_id, 1, now_ms)

    assert len(sessions._deadlines) == 100


def test_brokers_that_come_and_go_leave_bounded_garbage():
    sessions = Sessions(TIMEOUT_MS)

    for epoch in range(10_000):
        sessions.begin(epoch % 3, epoch)
        sessions.contact(epoch % 3, epoch, epoch)

    assert len(sessions._deadlines) < 100
    assert sessions.deadline_ms == 9997 + TIMEOUT_MS + GRACE_MS


class Model:
    """The same, looked up in a list."""

    def __init__(self):
        self.contacts = {}  # those that are waited for

    def deadline_ms(self):
        return min(self.contacts.values(), default=math.inf) + TIMEOUT_MS + GRACE_MS

    def next_expired(self, now_ms):
        if self.deadline_ms() > now_ms:
            return None
        _, key = min((contact_ms, key) for key, contact_ms in self.contacts.items())
        return key


ids = st.integers(0, 3)
steps = st.lists(
    st.tuples(
        st.sampled_from(["begin", "contact", "stale", "end", "forget", "expire"]), ids, st.floats(0, 5000)
    ),
    max_size=60,
)


@given(steps)
def test_deadlines_are_those_of_a_plain_list(steps):
    sessions, model = Sessions(TIMEOUT_MS), Model()
    epochs, now_ms = {}, 0.0
    for number, (what, broker_id, later_ms) in enumerate(steps):
        now_ms += later_ms
        key = broker_id, epochs.get(broker_id)
        match what:
            case "begin":
                epochs[broker_id] = number
                sessions.begin(broker_id, number)
                model.contacts.pop(key, None)
            case "contact" if key[1] is not None:
                sessions.touch(*key, 0, now_ms)
                model.contacts[key] = now_ms
            case "stale" if key[1] is not None:
                sessions.contact(broker_id, key[1] - 1, now_ms)
            case "end":
                sessions.end(broker_id)
                model.contacts.pop(key, None)
            case "forget":
                sessions.forget(broker_id)
                epochs.pop(broker_id, None)
                model.contacts.pop(key, None)
            case "expire":
                expired = sessions.next_expired(now_ms)
                assert expired == model.next_expired(now_ms)
                if expired is not None:
                    sessions.expire(*expired)
                    del model.contacts[expired]
        assert sessions.deadline_ms == model.deadline_ms()
        for one, contact_ms in model.contacts.items():
            assert sessions.is_alive(*one, now_ms) == (contact_ms + TIMEOUT_MS >= now_ms)
