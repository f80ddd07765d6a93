"""Ports: none is taken that somebody listens on, or counts on."""

import socket

import pytest

from quorate.node.config_values import ConfigError
from quorate.testing import ports
from quorate.testing.ports import HOST, Ports, claim, is_free


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> range:
    """Three ports are all there are."""
    free = range(next(at for at in range(30_000, 32_000) if all(map(is_free, range(at, at + 3)))), 32_000)[:3]
    monkeypatch.setattr(ports, "PORTS", free)
    monkeypatch.setattr(ports, "_TRIES", 3)
    return free


def test_none_is_given_twice(few: range):
    with Ports() as taken, Ports() as others:
        assert sorted(taken.any() for _ in few) == list(few)
        for each in (taken, others):
            with pytest.raises(ConfigError, match="no port from"):
                each.any()
    with Ports() as taken:
        assert taken.any() in few


def test_a_port_with_a_claim_is_left_alone_though_nobody_listens(few: range):
    claims = claim(few[:2])
    assert [is_free(one) for one in few] == [True] * 3
    with Ports() as taken:
        assert taken.any() == few[2]
    assert claim(few[:1]) == [], "the first has it"
    for one in claims:
        one.close()
    with Ports() as taken:
        assert sorted(taken.any() for _ in few) == list(few)


def test_a_port_on_which_somebody_listens_is_left_alone(few: range):
    with socket.socket() as listening, Ports(few[0]) as taken:
        listening.bind((HOST, few[0]))
        listening.listen()
        assert not is_free(few[0])
        assert [taken.next_for_clients() for _ in range(2)] == list(few[1:])
