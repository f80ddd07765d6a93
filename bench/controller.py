"""The controller: what a fencing, a heartbeat and a failover cost, and Apache's controller beside ours.

    python -m bench controller
    QUORATE_BENCH_PARTITIONS=10000,2000000 python -m bench controller       other sizes
    QUORATE_BENCH_CONTROLLER=fencing,heartbeats python -m bench controller  some parts only
    QUORATE_BENCH_APACHE_PARTITIONS=100000,1000000 python -m bench controller

Partitions have three replicas on a hundred brokers, a thousand in a topic. Everything but the processes of
`requests` runs on one core, in this process. What is compared is measured in turns, in the same run; a figure
is the best of its rounds, since whatever else the machine does only makes it worse.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from bench import controller_apache, controller_requests
from bench.controller_cluster import (
    BUILD,
    CLUSTER_ID,
    VICTIM,
    cluster,
    directory,
    epoch_of,
    settings,
    with_brokers,
    write_snapshot,
)
from bench.controller_fencing import (
    ALONE_MAX,
    WALL_MS,
    batches_of,
    fence_in_bulk,
    fence_often,
    fence_one_by_one,
    situation,
)
from bench.timing import Row
from quorate.controller import fencing
from quorate.controller.controller import ActiveController, Moment
from quorate.controller.decision import Asker
from quorate.controller.settings import SUPPORTED_FEATURES
from quorate.metadata.image import ClusterImage
from quorate.metadata.sections import Section, encode_sections
from quorate.metadata.versions import METADATA_VERSION_LATEST
from quorate.node.cluster_state import ClusterState
from quorate.node.config import NodeConfig, parse_config
from quorate.node.format import format_storage
from quorate.node.host import real_host
from quorate.node.metadata_log import PARTITION_DIRECTORY, MetadataLog
from quorate.protocol import record as in_batch
from quorate.protocol.api.brokers import BrokerHeartbeatRequest, BrokerRegistrationRequest
from quorate.protocol.batch import build_encoded, read_header, records
from quorate.protocol.types import Uuid
from quorate.raft.positions import Position
from quorate.storage.files import RealFiles
from quorate.storage.snapshots import SnapshotId

SIZES = (10_000, 100_000, 1_000_000, 2_000_000)
HELD = (1_000, 10_000, 60_000, 200_000)  # of the largest size, on the broker that is fenced
BROKERS_REGISTERED = (10, 1_000, 10_000)
ROUNDS = 7
HEARTBEATS = 20_000
REGISTRATIONS = 200
REPLAYED = 60_000

T = TypeVar("T")


def section() -> Iterator[Row | str]:
    logging.getLogger("quorate").setLevel(logging.ERROR)
    chosen = os.environ.get("QUORATE_BENCH_CONTROLLER", ",".join(_PARTS)).split(",")
    BUILD.mkdir(exist_ok=True)
    for name in chosen:
        root = Path(tempfile.mkdtemp(prefix="bench-controller-", dir=BUILD))
        try:
            yield from _PARTS[name](root)
        finally:
            shutil.rmtree(root)


def _sizes() -> Sequence[int]:
    chosen = os.environ.get("QUORATE_BENCH_PARTITIONS")
    return [int(one) for one in chosen.split(",")] if chosen else SIZES


# Fencing


_FENCING_HEAD = f"  {'partitions':>10} {'affected':>9} " + " ".join(
    f"{name:>8}" for name in ("decide", "encode", "apply", "checksum", "sync", "standby", "total")
)


def _fencing(root: Path) -> Iterator[Row | str]:
    yield "  one of 100 brokers is fenced; ms, the best round. apply: to the image that it was decided on;"
    yield "  checksum: of batches of 10,000; sync: append to the log and fdatasync; standby: decode and apply"
    yield _FENCING_HEAD
    for size in _sizes():
        image = cluster(size)
        bulk, median = fence_often(root / str(size), image, fence_in_bulk, ROUNDS)
        yield f"  {size:>10,} {bulk.partitions:>9,} {bulk}   median {median * 1000:.1f}"
        alone, _ = fence_often(root / f"{size}-alone", image, fence_one_by_one, 1)
        part = f", from {ALONE_MAX:,}" if bulk.partitions > ALONE_MAX else ""
        yield f"  {'':>10} {'1 by 1':>9} {alone}{part}"
        # With a few hundred changes it is the sync that counts, on both sides.
        yield Row(
            f"fencing at {size:,} partitions: one by one / bulk",
            alone.total / bulk.total,
            at_least=15 if size >= 100_000 else None,
        )
        if size == max(SIZES):
            yield Row(f"fencing at {size:,} partitions: ms", bulk.total * 1000, at_most=100)
        yield from _fence_by_tick(image)
    yield from _linear(root)


def _linear(root: Path) -> Iterator[Row | str]:
    size = max(_sizes())
    yield f"  the same cluster of {size:,}, the broker holds more or less of it:"
    found = []
    for held in (one for one in HELD if one <= size // 3):
        bulk, _ = fence_often(root / f"held-{held}", cluster(size, held), fence_in_bulk, ROUNDS)
        found.append(bulk)
        each = f"{bulk.total / held * 1e9:7,.0f} ns each"
        yield f"  {size:>10,} {held:>9,} {bulk}   {each}"
    if len(found) > 2:
        steps = [
            (after.total - before.total) / (after.partitions - before.partitions)
            for before, after in pairwise(found)
        ]
        note = f"{steps[-2] * 1e9:,.0f} and {steps[-1] * 1e9:,.0f} ns for each that is added"
        ratio = steps[-1] / steps[-2]
        yield Row("time for each added partition: the last step / the one before", ratio, note=note)


def _fence_by_tick(image: ClusterImage) -> Iterator[Row | str]:
    """The whole step of the controller: what was measured in parts, with the session that ran out."""

    def fence(active: ActiveController) -> int:
        work = active.tick(Moment(active.sessions.deadline_ms, WALL_MS, 1))
        return sum(one.count for one in work.sections)

    took, count = _best(fence, before=lambda: _active(image), rounds=3)
    step = "decide, encode and apply in one step of ActiveController.tick"
    yield f"  {'':>10} {count:>9,} {took * 1000:8.2f}   {step}"


def _active(image: ClusterImage) -> ActiveController:
    return ActiveController(image, 1, settings(), random.Random(1), Moment(0.0, WALL_MS, 1))


# Heartbeats


def _heartbeats(_root: Path) -> Iterator[Row | str]:
    """Time passes as it would: every broker is heard of every two seconds."""
    controllers = {count: _active(with_brokers(count)) for count in BROKERS_REGISTERED}
    clocks = dict.fromkeys(controllers, 1.0)
    beats = dict.fromkeys(controllers, float("inf"))
    idle = dict.fromkeys(controllers, float("inf"))
    expiry = dict.fromkeys(controllers, float("inf"))
    gc.collect()
    gc.disable()
    try:
        for _ in range(ROUNDS):
            for count, active in controllers.items():
                took, clocks[count] = _beat(active, count, clocks[count])
                beats[count] = min(beats[count], took)
                idle[count] = min(idle[count], _look_for_expired(active, clocks[count]))
                took, clocks[count] = _renew_all(active, count, clocks[count])
                expiry[count] = min(expiry[count], took)
        registrations = {count: _register(count) for count in BROKERS_REGISTERED}
    finally:
        gc.enable()
    size = max(_sizes())
    took, _ = _best(
        lambda active: _register_some(active, 100, 5), before=lambda: _active(cluster(size)), rounds=2
    )
    yield f"  a registration, {size:,} partitions, 100 brokers: {took / 5 * 1000:.2f} ms"
    least = BROKERS_REGISTERED[0]
    for what, found in (
        ("an ordinary heartbeat", beats),
        ("a look for sessions that ran out, if none has", idle),
        ("a session found renewed at its deadline, once in a timeout", expiry),
        ("a registration, no partitions", registrations),
    ):
        for count, seconds in found.items():
            note = f"{seconds * 1e9:,.0f} ns"
            what_of = f"{what}, {count:,} brokers: / {least}"
            yield Row(what_of, seconds / found[least], note=note)


def _beat(active: ActiveController, count: int, now_ms: float) -> tuple[float, float]:
    requests = [
        BrokerHeartbeatRequest(
            broker_id=one,
            broker_epoch=epoch_of(one),
            current_metadata_offset=10**6,
            want_fence=False,
            want_shut_down=False,
        )
        for one in range(count)
    ]
    step_ms = 2000 / count
    asker = Asker(2)
    began = time.perf_counter()
    for at in range(HEARTBEATS):
        request = requests[at % count]
        now_ms += step_ms
        active.heard(request, now_ms)
        work = active.handle(None, request, asker, now_ms, Moment(now_ms, WALL_MS, 1))
    took = (time.perf_counter() - began) / HEARTBEATS
    assert work.replies[0].reply.error_code == 0  # type: ignore[attr-defined]
    assert not work.sections
    for one in requests:  # those whose turn did not come
        active.heard(one, now_ms)
    return took, now_ms


def _look_for_expired(active: ActiveController, now_ms: float) -> float:
    moment = Moment(now_ms, WALL_MS, 1)
    active.tick(moment)
    began = time.perf_counter()
    for _ in range(HEARTBEATS):
        active.tick(moment)
    return (time.perf_counter() - began) / HEARTBEATS


def _renew_all(active: ActiveController, count: int, now_ms: float) -> tuple[float, float]:
    """Every deadline in the heap has passed, and every broker has been heard of since: the worst moment."""
    now_ms += active.sessions.timeout_ms + 10
    for one in range(count):
        active.sessions.contact(one, epoch_of(one), now_ms)
    began = time.perf_counter()
    work = active.tick(Moment(now_ms, WALL_MS, 1))
    took = (time.perf_counter() - began) / count
    assert not work.sections
    return took, now_ms


def _register(count: int) -> float:
    took, _ = _best(
        lambda active: _register_some(active, count),
        before=lambda: _active(with_brokers(count)),
        rounds=3,
    )
    return took / REGISTRATIONS


def _register_some(active: ActiveController, count: int, more: int = REGISTRATIONS) -> None:
    offset = 1
    for broker_id in range(count, count + more):
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=Uuid(b"run-%012d" % broker_id),
            listeners=[
                BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=0)
            ],
            features=[
                BrokerRegistrationRequest.Feature(
                    name=name, min_supported_version=low, max_supported_version=high
                )
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=None,
            log_dirs=[directory(broker_id)],
        )
        work = active.handle(None, request, Asker(4), 0.0, Moment(0.0, WALL_MS, offset))
        assert len(work.sections) == 1, work
        offset += work.sections[0].count


# Failover and start


def _failover(root: Path) -> Iterator[Row | str]:
    yield '  ms. lead: from "you lead" to the first request, with a copy of the image; then a cold start,'
    yield "  with files in the page cache: open the directory and check it all, load the snapshot, lead"
    heads = ("copy", "lead", "| open", "load", "lead", "total")
    yield f"  {'partitions':>10} " + " ".join(f"{one:>8}" for one in heads) + f" {'snapshot':>11}"
    for size in _sizes():
        image = cluster(size)
        copied, _ = _best(image.copy, rounds=5)
        led, _ = _best(lambda image=image: _lead(image), rounds=5)
        opened, loaded, then_led, size_bytes = min(
            (asyncio.run(_cold_start(root / f"{size}-{at}", image)) for at in range(3)),
            key=lambda one: sum(one[:3]),
        )
        total = opened + loaded + then_led
        times = " ".join(f"{one * 1000:8.1f}" for one in (opened, loaded, then_led, total))
        yield f"  {size:>10,} {copied * 1000:8.1f} {led * 1000:8.1f} {times} {size_bytes / 1e6:8.1f} MB"
    yield from _replay(root)


def _lead(image: ClusterImage) -> ActiveController:
    active = _active(image)
    active.activate([], Moment(0.0, WALL_MS, 1))
    return active


async def _cold_start(root: Path, image: ClusterImage) -> tuple[float, float, float, int]:
    snapshot = SnapshotId(2000, 1)
    config = await _formatted(root)
    partition_directory = Path(config.metadata_directory) / PARTITION_DIRECTORY
    path = await write_snapshot(image, partition_directory, snapshot)
    clock = time.perf_counter
    gc.collect()
    began = clock()
    log = await MetadataLog.open(RealFiles(), config, WALL_MS)
    opened = clock()
    state = ClusterState()
    state.load(Position(*snapshot), log.snapshot_batches(Position(*snapshot)))
    loaded = clock()
    _lead(state.image)
    led = clock()
    size_bytes = path.stat().st_size
    await log.close()
    assert len(state.image.partitions) == len(image.partitions)
    shutil.rmtree(root)
    return opened - began, loaded - opened, led - loaded, size_bytes


def _replay(root: Path) -> Iterator[Row | str]:
    """A log of changes: as a fencing writes them, and as leaders ask for them, a batch for each."""
    image = cluster(max(_sizes()), min(REPLAYED, max(_sizes()) // 3))
    found = fencing.fence(situation(image), VICTIM)
    together = encode_sections(found.records, METADATA_VERSION_LATEST)
    count = sum(one.count for one in together)
    alone = []
    for section in together:
        batch = build_encoded(section.data, section.count, base_offset=0, leader_epoch=1, timestamp=0)
        for one in records(batch, read_header(batch)):
            record = in_batch.Record(0, 0, None, one.value)
            alone.append(Section(1, in_batch.encode_record(record, 0, 0)))
    for sections, what in ((together, "10,000 in a batch"), (alone, "1 in a batch")):
        opened, replayed = min(
            asyncio.run(_replay_from_disk(root / f"replay-{at}", image, sections)) for at in range(2)
        )
        yield (
            f"  a log of {count:,} changes, {what}: open {opened * 1000:,.1f} ms, replay"
            f" {replayed * 1000:,.1f} ms, {count / replayed:,.0f} changes/s"
        )


async def _replay_from_disk(
    root: Path, image: ClusterImage, sections: Sequence[Section]
) -> tuple[float, float]:
    config = await _formatted(root)
    log = await MetadataLog.open(RealFiles(), config, WALL_MS)
    log.append(batches_of(sections, 0), WALL_MS)
    await log.close()
    state = ClusterState()
    state.image = image.copy()
    clock = time.perf_counter
    gc.collect()
    began = clock()
    log = await MetadataLog.open(RealFiles(), config, WALL_MS)
    opened = clock()
    for batch, _ in log.batches(0, log.log.end_offset):
        state.apply(batch)
    replayed = clock()
    await log.close()
    assert state.image.brokers[VICTIM].is_fenced
    shutil.rmtree(root)
    return opened - began, replayed - opened


async def _formatted(root: Path) -> NodeConfig:
    root.mkdir()
    properties = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": "CONTROLLER://127.0.0.1:9093",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "metadata.log.dir": str(root / "data"),
    }
    config = parse_config("bench.properties", properties)
    await format_storage(real_host("format"), config, CLUSTER_ID)
    return config


def _best(
    measured: Callable[..., T], *, rounds: int, before: Callable[[], object] | None = None
) -> tuple[float, T]:
    """The seconds of the fastest round, and what came out of the last."""
    fastest = float("inf")
    gc.collect()
    for _ in range(rounds):
        given = () if before is None else (before(),)
        began = time.perf_counter()
        result = measured(*given)
        fastest = min(fastest, time.perf_counter() - began)
    return fastest, result


_PARTS: dict[str, Callable[[Path], Iterator[Row | str]]] = {
    "fencing": _fencing,
    "heartbeats": _heartbeats,
    "failover": _failover,
    "requests": controller_requests.rows,
    "apache": controller_apache.rows,
}
