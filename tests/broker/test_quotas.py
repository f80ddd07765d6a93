"""Which quota counts for whom, who shares it, and what is remembered of them."""

from __future__ import annotations

import itertools

import pytest

from quorate.broker.quotas import IDLE_MS_MAX, ConnectionQuota, Quota, Quotas
from quorate.broker.quotas_rates import Window

KEY = "producer_byte_rate"
ANN = "User:ann"


def of(user: str | None = "", client_id: str | None = "") -> tuple[tuple[str, str | None], ...]:
    """An entity; None is the default of all, and "" is not part of it."""
    parts = (("client-id", client_id), ("user", user))
    return tuple((kind, name) for kind, name in parts if name != "")


# From the most specific to the least, with a value for each that says which it is.
LEVELS = [
    of("ann", "app"),
    of("ann", None),
    of("ann"),
    of(None, "app"),
    of(None, None),
    of(None),
    of("", "app"),
    of("", None),
]


def quota_with(limits: dict, **about) -> Quota:
    quota = Quota(KEY, **about)
    quota.update({entity: {KEY: value} for entity, value in limits.items()})
    return quota


def limit_of(quota: Quota, principal: str, client_id: str) -> float | None:
    most = quota.most_at_once(principal, client_id, 0)
    return None if most is None else most / 10


@pytest.mark.parametrize("absent", range(9))
def test_the_most_specific_quota_counts(absent):
    limits = {entity: 100.0 + level for level, entity in enumerate(LEVELS) if level >= absent}
    expected = 100.0 + absent if absent < 8 else None
    assert limit_of(quota_with(limits), ANN, "app") == expected


@pytest.mark.parametrize("levels", list(itertools.combinations(range(8), 2)))
def test_of_any_two_the_more_specific_counts(levels):
    quota = quota_with({LEVELS[level]: 100.0 + level for level in levels})
    assert limit_of(quota, ANN, "app") == 100.0 + levels[0]


@pytest.mark.parametrize(
    ("entity", "shared_with"),
    [
        (of("ann", "app"), []),
        (of("ann", None), []),
        (of("ann"), [(ANN, "other")]),
        (of(None, "app"), []),
        (of(None, None), []),
        (of(None), [(ANN, "other")]),
        (of("", "app"), [("User:bob", "app")]),
        (of("", None), [("User:bob", "app")]),
    ],
)
def test_who_shares_a_quota(entity, shared_with):
    quota = quota_with({entity: 10.0})
    assert quota.charge(ANN, "app", 1000, 0) == 90_000
    everybody = itertools.product((ANN, "User:bob"), ("app", "other"))
    waiting = [one for one in everybody if quota.charge(*one, 0, 0)]
    assert waiting == sorted([(ANN, "app"), *shared_with])


def test_who_has_no_name_has_no_quota_by_it():
    quota = quota_with({of("", None): 10.0, of(None, None): 20.0})
    assert limit_of(quota, ANN, "") is None
    assert limit_of(quota_with({of(None): 30.0}), ANN, "") == 30
    assert limit_of(quota_with({of(None): 30.0, of("", "app"): 7.0}), "User:", "app") == 7


def test_without_a_quota_nobody_is_remembered():
    quota = quota_with({of("bob"): 10.0})
    assert quota.charge(ANN, "app", 1e9, 0) == 0
    assert len(quota) == 0


def test_another_value_counts_at_once_for_what_was_used_before():
    quota = quota_with({of("", None): 1000.0})
    assert quota.charge(ANN, "app", 5000, 0) == 0
    quota.update({of("", "app"): {KEY: 100.0}})
    assert quota.charge(ANN, "app", 0, 0) == 40_000
    quota.update({of("", "app"): {"consumer_byte_rate": 1.0}})
    assert not quota.is_set
    assert quota.charge(ANN, "app", 1e9, 0) == 0


def test_kinds_of_quotas_do_not_mix():
    quotas = Quotas()
    quotas.update({of("", None): {"consumer_byte_rate": 10.0}, of("ann"): {"request_percentage": 50.0}})
    assert (quotas.produce.is_set, quotas.fetch.is_set, quotas.request.is_set) == (False, True, True)
    assert quotas.fetch.charge(ANN, "app", 200, 0) == 10_000


def test_the_time_of_the_broker_is_waited_for_a_second_at_most():
    quotas = Quotas(Window(5, 2000))
    quotas.update({of("ann"): {"request_percentage": 1.0}})
    assert quotas.request.charge(ANN, "app", 1000, 0) == 2000


def test_a_wait_fits_into_its_field():
    assert quota_with({of("ann"): 1.0}).charge(ANN, "app", 1e12, 0) == (1 << 31) - 1


def test_whoever_was_not_seen_for_an_hour_is_forgotten():
    quota = quota_with({of("", None): 10.0})
    quota.charge(ANN, "old", 1, 0)
    quota.charge(ANN, "young", 1, IDLE_MS_MAX / 2)
    quota.charge(ANN, "new", 1, IDLE_MS_MAX)
    assert {owner for owner, _, _ in quota.rates(IDLE_MS_MAX)} == {("", "young"), ("", "new")}


def test_so_many_clients_are_remembered_and_no_more():
    quota = quota_with({of("", None): 10.0}, clients_max=100)
    for number in range(10_000):
        quota.charge(ANN, f"client-{number}", 1, number)
        assert len(quota) <= 100
        assert len(quota._found) <= 100
    assert ("", "client-9999") in {owner for owner, _, _ in quota.rates(10_000)}


# Connections


def of_address(address: str | None, rate: float) -> dict:
    return {(("ip", address),): {"connection_creation_rate": rate}}


def test_connections_of_an_address_are_counted():
    quota = ConnectionQuota()
    quota.update(of_address("10.0.0.1", 2) | of_address(None, 1))
    assert [quota.charge("10.0.0.1", 0) for _ in range(20)] == [0] * 20
    assert quota.charge("10.0.0.1", 0) == 500
    assert quota.charge("::ffff:10.0.0.1", 0) == 500, "the same address, and what was closed does not count"
    assert [quota.charge("10.0.0.2", 0) for _ in range(11)] == [0] * 10 + [1000]
    assert (quota.throttles.count, quota.throttles.total_ms) == (3, 2000)


def test_addresses_without_a_quota_are_not_remembered():
    quota = ConnectionQuota()
    assert quota.charge("10.0.0.1", 0) == 0
    quota.update(of_address("10.0.0.1", 1))
    assert quota.charge("10.0.0.2", 0) == 0
    assert len(quota) == 0


def test_so_many_addresses_are_remembered_and_no_more():
    quota = ConnectionQuota(addresses_max=10)
    quota.update(of_address(None, 1))
    for number in range(100):
        quota.charge(f"10.0.0.{number}", number)
    assert len(quota) == 10
