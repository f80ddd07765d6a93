"""Showing in messages what somebody has sent."""

from __future__ import annotations

from typing import Final

__all__ = ["cut", "shown"]

_SHOWN_MAX: Final = 249  # no good name is longer
_MESSAGE_MAX: Final = 8000  # in UTF-8 less than the 32,767 bytes that an old string can have


def shown(text: str) -> str:
    """A text in quotes, without its end if it is longer than it can rightly be.

    >>> shown("orders"), len(shown("x" * 10_000))
    ("'orders'", 254)
    """
    return repr(text) if len(text) <= _SHOWN_MAX else repr(text[:_SHOWN_MAX]) + "..."


def cut(message: str) -> str:
    """A message that fits into any response."""
    return message if len(message) <= _MESSAGE_MAX else message[:_MESSAGE_MAX] + "..."
