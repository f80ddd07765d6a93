"""Who is let in, and whose place is given away when all are taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.net.admitted import KEPT_PER_PEER, Admitted, ConnectionLimits

NOW = 1000.0
CLIENTS, BROKERS = "PLAINTEXT", "INTERNAL"


@dataclass(eq=False)
class Guest:
    """A connection that is only spoken of."""

    client_host: str = "10.0.0.1"
    client_port: int = 0
    listener: str = CLIENTS
    has_spoken: bool = True
    is_busy: bool = False
    active_at: float = NOW - 100
    is_displaced: bool = field(default=False, init=False)

    def displace(self) -> None:
        assert not self.is_displaced
        self.is_displaced = True


def full(*guests: Guest, **limits: object) -> Admitted:
    """As many places as there are guests."""
    admitted = Admitted(ConnectionLimits(connections_max=len(guests), **limits))  # type: ignore[arg-type]
    for number, guest in enumerate(guests):
        guest.client_port = number
        assert admitted.admit(guest, NOW) is None
    return admitted


def come(admitted: Admitted, **about: object) -> str | None:
    """Somebody comes who has not said anything yet."""
    arrived = {"has_spoken": False, "active_at": NOW, "client_host": "10.9.9.9", "client_port": 9999}
    return admitted.admit(Guest(**(arrived | about)), NOW)  # type: ignore[arg-type]


def displaced(guests: Iterable[Guest]) -> list[int]:
    return [number for number, guest in enumerate(guests) if guest.is_displaced]


@pytest.mark.parametrize(
    ("guests", "gone"),
    [
        # who never said anything, although others are idle for longer
        ([Guest(active_at=1), Guest(has_spoken=False, active_at=500), Guest()], 1),
        # but whoever has just come is given the time to say something
        ([Guest(), Guest(has_spoken=False, active_at=NOW - 0.5), Guest()], 0),
        # who is idle, the longest first
        ([Guest(active_at=500), Guest(active_at=400), Guest(is_busy=True, active_at=1)], 1),
        # even who has a request under way, if everybody has
        ([Guest(is_busy=True, active_at=500), Guest(is_busy=True, active_at=400)], 1),
        # of the address that has the most
        ([Guest("a", active_at=1), Guest("b", active_at=3), Guest("b", active_at=2)], 2),
        ([Guest("a", active_at=1), Guest("b", active_at=2)], 0),
    ],
)
def test_whose_place_is_given_away(guests: list[Guest], gone: int) -> None:
    admitted = full(*guests)
    assert come(admitted) is None
    assert displaced(guests) == [gone]
    assert len(admitted) == len(guests)


def test_whoever_has_moved_since_it_was_chosen_stays() -> None:
    guests = [Guest(active_at=1), Guest(active_at=2), Guest(active_at=3)]
    admitted = full(*guests)
    assert come(admitted, active_at=NOW - 0.1) is None
    guests[1].active_at = NOW
    assert come(admitted) is None
    assert displaced(guests) == [0, 2]


def test_brokers_stay_whatever_clients_do() -> None:
    guests = [Guest(active_at=number) for number in range(5)]
    admitted = full(*guests)
    admitted.keep(CLIENTS, "10.0.0.1", 0, 2)
    for number in range(300):
        assert come(admitted, client_host="10.0.0.1", client_port=10_000 + number) is None
    assert displaced(guests) == [1, 2, 3, 4]
    assert len(admitted) == 5


def test_a_broker_that_has_just_come_is_not_displaced_by_those_that_come_after_it() -> None:
    guests = [Guest("hostile", active_at=NOW - 50 + number / 10) for number in range(200)]
    admitted = full(*guests)
    broker = Guest("hostile", 5000, has_spoken=False, active_at=NOW)
    assert admitted.admit(broker, NOW) is None
    for number in range(100):
        assert come(admitted, client_host="hostile", client_port=10_000 + number) is None
    assert not broker.is_displaced
    broker.has_spoken = True
    admitted.keep(CLIENTS, "hostile", 5000, 2)
    for number in range(1000):
        assert come(admitted, client_host="hostile", client_port=20_000 + number) is None
    assert not broker.is_displaced


def test_who_says_to_be_a_broker_too_often_counts_as_a_client() -> None:
    """Those that were used last are kept: that of the broker itself, which fetches all the time."""
    guests = [Guest(active_at=number) for number in range(KEPT_PER_PEER + 20)]
    admitted = full(*guests)
    for guest in guests:
        admitted.keep(CLIENTS, guest.client_host, guest.client_port, 2)
    for number in range(30):
        assert come(admitted, client_host="10.0.0.1", client_port=10_000 + number) is None
    assert displaced(guests) == [*range(20)]


def test_where_all_are_brokers_the_one_that_has_most_makes_room() -> None:
    guests = [Guest(active_at=number) for number in range(4)]
    admitted = full(*guests)
    for guest, broker_id in zip(guests, (1, 2, 2, 3), strict=True):
        admitted.keep(CLIENTS, guest.client_host, guest.client_port, broker_id)
    assert come(admitted) is None
    assert displaced(guests) == [1]


# Listeners


def test_the_limit_is_for_all_listeners_together() -> None:
    guests = [Guest(active_at=2), Guest(listener="OTHER", active_at=1)]
    admitted = full(*guests)
    assert come(admitted) is None
    assert displaced(guests) == [1]


def test_a_listener_has_a_limit_of_its_own() -> None:
    guests = [Guest(listener="OTHER", active_at=1), Guest(active_at=3), Guest(active_at=2)]
    admitted = full(*guests, of_listener={CLIENTS: 2})
    admitted.limit(ConnectionLimits(connections_max=10, of_listener={CLIENTS: 2}), NOW)
    assert come(admitted) is None
    assert displaced(guests) == [2]


def test_a_protected_listener_is_left_in_peace_and_has_what_it_needs() -> None:
    brokers = [Guest(listener=BROKERS, active_at=1), Guest(listener=BROKERS, active_at=2)]
    clients = [Guest(active_at=3)]
    admitted = full(*brokers, *clients, protected=BROKERS)
    assert come(admitted, listener=BROKERS) is None  # which costs a client its place
    assert (displaced(brokers), displaced(clients)) == ([], [0])
    assert come(admitted) == "there are 3 connections already"
    admitted.forget(brokers[0])
    assert come(admitted) is None


def test_a_protected_listener_may_have_more_than_there_are_places_up_to_its_own_limit() -> None:
    """Its own limit is what all have, where nobody says another."""
    clients = [Guest(active_at=1)]
    admitted = full(*clients, protected=BROKERS)
    assert come(admitted, listener=BROKERS, client_port=1) is None
    assert displaced(clients) == [0]
    admitted.limit(ConnectionLimits(connections_max=1, of_listener={BROKERS: 2}, protected=BROKERS), NOW)
    assert come(admitted, listener=BROKERS, client_port=2) is None
    assert len(admitted) == 2
    assert come(admitted) == "there are 1 connections already"


# Addresses


def test_an_address_that_has_as_many_as_it_may_is_refused() -> None:
    guests = [Guest("a"), Guest("a"), Guest("b")]
    admitted = full(*guests)
    admitted.limit(ConnectionLimits(per_address_max=2, of_address={"b": 1, "c": 0}), NOW)
    assert come(admitted, client_host="a") == "there are 2 connections from this address already"
    assert come(admitted, client_host="::ffff:a") == "there are 2 connections from this address already"
    assert come(admitted, client_host="b") == "there are 1 connections from this address already"
    assert come(admitted, client_host="c") == "there are 0 connections from this address already"
    assert come(admitted, client_host="d") is None
    admitted.forget(guests[0])
    assert come(admitted, client_host="a") is None
    assert displaced(guests) == []


def test_fewer_places_than_there_were_cost_those_their_place_who_would_be_next() -> None:
    guests = [Guest(active_at=number) for number in range(5)]
    admitted = full(*guests)
    admitted.keep(CLIENTS, "10.0.0.1", 0, 2)
    admitted.limit(ConnectionLimits(connections_max=2), NOW)
    assert displaced(guests) == [1, 2, 3]


@given(st.data())
def test_what_is_counted_is_who_is_there(data: st.DataObject) -> None:
    limits = ConnectionLimits(
        connections_max=6, per_address_max=4, of_listener={"A": 3, "B": 4}, protected="B"
    )
    admitted = Admitted(limits)
    there: list[Guest] = []
    for port in range(data.draw(st.integers(0, 40))):
        action = data.draw(st.sampled_from(["come", "come", "come", "go", "keep"]))
        if action == "come":
            guest = Guest(
                data.draw(st.sampled_from("xyz")),
                port,
                data.draw(st.sampled_from("AB")),
                has_spoken=data.draw(st.booleans()),
                is_busy=data.draw(st.booleans()),
                active_at=float(port),
            )
            if admitted.admit(guest, NOW) is None:
                there.append(guest)
        elif there and action == "go":
            admitted.forget(there.pop())
        elif there:
            one = data.draw(st.sampled_from(there))
            admitted.keep(one.listener, one.client_host, one.client_port, data.draw(st.integers(1, 2)))
        there = [one for one in there if not one.is_displaced]
        assert len(admitted) == len(there)
        assert sum(one.listener == "A" for one in there) <= 3
        assert sum(one.listener == "B" for one in there) <= 4
        assert all(sum(one.client_host == host for one in there) <= 4 for host in "xyz")
    for one in there:
        admitted.forget(one)
    assert not admitted._by_address
    assert not admitted._by_listener
    assert not admitted._by_end
    assert not admitted._peers
