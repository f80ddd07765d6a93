"""Commands that run nodes inside themselves, and say what came of it in their own words."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_log_lines"]


@contextmanager
def without_log_lines() -> Iterator[None]:
    """What nodes log meanwhile is not shown; afterwards logging is as it was."""
    logger = logging.getLogger("quorate")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
