"""Objects are not looked through for garbage while somebody says so, and as before after that."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from quorate.garbage import looked_through_later


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    gc.enable()


def test_nothing_is_looked_through_meanwhile() -> None:
    with looked_through_later():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_ends_it() -> None:
    with pytest.raises(KeyError), looked_through_later():
        raise KeyError
    assert gc.isenabled()


def test_where_nothing_was_looked_through_before_it_stays_so() -> None:
    gc.disable()
    with looked_through_later():
        pass
    assert not gc.isenabled()


def test_whatever_the_order_it_ends() -> None:
    first, second = looked_through_later(), looked_through_later()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert gc.isenabled()
