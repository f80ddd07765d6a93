"""How a command ends that cannot do what it should: one line, which says why."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from quorate.metadata.errors import ImageError
from quorate.node.config import ConfigError
from quorate.node.node import NodeFailed
from quorate.protocol.errors import ApiError
from quorate.storage.errors import StorageError

__all__ = ["errors_as_one_line", "fail"]


@contextmanager
def errors_as_one_line() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        fail(error.message)
    except (ConfigError, ImageError, StorageError, NodeFailed) as error:
        fail(str(error))


def fail(reason: str) -> NoReturn:
    print(f"quorate: {reason}", file=sys.stderr)
    raise SystemExit(1)
