"""Which records of a partition's files count: those of transactions only if the transaction was committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.protocol.batch import ControlType, control_type, records, validate
from quorate.protocol.errors import ApiError

__all__ = ["Aborted", "Transactions", "transactions_of"]


class Aborted(NamedTuple):
    """A transaction that was aborted: what this producer wrote between these offsets never was."""

    producer_id: int
    first_offset: int
    last_offset: int


class Transactions(NamedTuple):
    aborted: tuple[Aborted, ...]
    stable_end: int | None  # from here on a transaction is open; None if none is


def transactions_of(batches: NDArray[Any], read_batch: Callable[[int], bytes]) -> Transactions:
    """What became of the transactions of some batches in order, of which `read_batch` gives the bytes."""
    aborted: list[Aborted] = []
    open_since: dict[int, int] = {}
    for at in np.flatnonzero(batches["is_transactional"]).tolist():
        batch = batches[at]
        producer_id = int(batch["producer_id"])
        if not batch["is_control"]:
            open_since.setdefault(producer_id, int(batch["base_offset"]))
            continue
        since = open_since.pop(producer_id, None)
        if since is not None and _is_abort(read_batch(at)):
            aborted.append(Aborted(producer_id, since, int(batch["base_offset"])))
    return Transactions(tuple(aborted), min(open_since.values(), default=None))


def _is_abort(data: bytes) -> bool:
    try:
        header = validate(data)
        return any(control_type(one) is ControlType.ABORT for one in records(data, header))
    except ApiError:
        return False
