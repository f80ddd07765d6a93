"""Random metadata logs as the pipeline finds them: whole, cut short by a snapshot, with a hole in them.

The records are those of `histories`, in batches with times that sometimes step back, and with a change of the
active controller here and there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

from histories import History, snapshot_batches
from quorate.metadata.errors import ImageError
from quorate.metadata.image import ClusterImage
from quorate.protocol.batch import ControlType, build, build_control
from quorate.protocol.batch import Record as Stored
from quorate.protocol.codec import encode
from quorate.raft.records import LeaderChangeMessage
from quorate.spark.metadata_columns import record_batch

START_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Entry:
    """One record of the log, or, with `leader` set, the beginning of a controller's term."""

    offset: int
    ts_ms: int
    epoch: int
    value: bytes = b""
    leader: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """All that there is at an offset."""

    offset: int
    values: list[bytes]


@dataclass
class Log:
    cluster_id: str
    batches: list[bytearray] = field(default_factory=list)
    entries: list[Entry | Snapshot] = field(default_factory=list)
    tables: list[pa.RecordBatch] = field(default_factory=list)


def random_logs(seeds: range, *, steps: int = 10) -> list[Log]:
    """Four views of one history for each seed: all of it; all of it and a snapshot too; a snapshot and what
    follows; the beginning, a hole, a snapshot and what follows."""
    return [log for seed in seeds for log in _views(seed, steps)]


def as_table(logs: list[Log]) -> pa.Table:
    return pa.Table.from_batches([one for log in logs for one in log.tables])


def history_of(random: Random, steps: int) -> History:
    history = History(random)
    history.create_topics()
    choices = [*History.STEPS, *History.TRANSACTIONS * 2]
    for _ in range(steps):
        step = random.choice(choices)
        try:
            step(history)
        except ImageError:
            continue
    return history


def _views(seed: int, steps: int) -> list[Log]:
    random = Random(seed)
    batches = _batches(random, history_of(random, steps).values)
    whole = Log(f"whole-{seed}")
    for entries, batch in batches:
        _append(whole, entries, batch)
    at = random.randrange(1, len(batches))
    hole = random.randrange(at + 1)
    image = ClusterImage()
    for _, batch in batches[:at]:
        image.apply_batch(batch)
    if image.is_in_transaction:
        return [whole]
    offset = batches[at - 1][0][-1].offset
    restated, cut, holed = Log(f"restated-{seed}"), Log(f"cut-{seed}"), Log(f"holed-{seed}")
    for log, first in ((restated, batches[:at]), (cut, []), (holed, batches[:hole])):
        for entries, batch in first:
            _append(log, entries, batch)
        _snapshot(log, image, offset)
        for entries, batch in batches[at:]:
            _append(log, entries, batch)
    return [whole, restated, cut, holed]


def _batches(random: Random, values: list[bytes]) -> list[tuple[list[Entry], bytearray]]:
    found: list[tuple[list[Entry], bytearray]] = []
    offset, ts_ms, epoch, at = 0, START_MS, 0, 0
    while at < len(values):
        ts_ms += random.choice([0, 5, 1000, 60_000, -500])
        if not epoch or random.random() < 0.05:
            epoch += random.randint(1, 3)
            leader = random.choice([3000, 3001, 3002])
            message = LeaderChangeMessage(version=0, leader_id=leader, voters=[], granting_voters=[])
            batch = build_control(
                [(ControlType.LEADER_CHANGE, encode(message, 0))],
                timestamp=ts_ms,
                base_offset=offset,
                leader_epoch=epoch,
            )
            found.append(([Entry(offset, ts_ms, epoch, leader=leader)], batch))
            offset += 1
        some = values[at : at + random.choice([1, 1, 3, 40])]
        at += len(some)
        entries = [Entry(offset + n, ts_ms, epoch, value) for n, value in enumerate(some)]
        stored = [Stored(one.offset, ts_ms, None, one.value) for one in entries]
        found.append((entries, build(stored, base_offset=offset, leader_epoch=epoch)))
        offset += len(some)
    return found


def _append(log: Log, entries: list[Entry], batch: bytearray) -> None:
    log.entries += entries
    log.batches.append(batch)
    log.tables.append(record_batch(log.cluster_id, batch))


def _snapshot(log: Log, image: ClusterImage, offset: int) -> None:
    values = []
    for batch in snapshot_batches(image):
        values += [one.value or b"" for one in _stored(batch)]
        log.tables.append(record_batch(log.cluster_id, batch, snapshot_offset=offset))
    log.entries.append(Snapshot(offset, values))


def _stored(batch: bytearray) -> list[Stored]:
    from histories import stored

    return stored(batch)
