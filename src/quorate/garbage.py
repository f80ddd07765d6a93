"""When objects are looked through for garbage: not while thousands are made that are gone a moment later.

Those would be taken for ones that stay. After enough of them everything is looked through, and that takes
seconds with many partitions, in which nobody is answered: just when another broker is gone.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["looked_through_later"]


@contextmanager
def looked_through_later() -> Iterator[None]:
    """Nothing is looked through meanwhile; for a second or two, as nobody else's garbage goes either. Several
    may overlap: whoever was first ends it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
