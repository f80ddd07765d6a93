"""The work after a broker was found silent, and the memory for partitions: Apache's controller and ours.

Both load the same snapshot, which we write. Apache's own classes (`apache/ControllerFencing.java`) then
decide, encode, write, sync and apply what a fencing comes to, and decode and apply it once more as a standby
does: what its controller does between the moment when it has found a session over and the commit, without the
queue, the threads and the network around it, which would only add to it. Ours is measured in the same parts,
before and after. A Java machine needs a few rounds until it is fast; the best round counts, the first one is
shown too.

What is not compared: the commit by other voters, and what brokers do with it. Besides its controller, every
Apache node keeps an image for its publishers; the time for that is shown, but not counted. Its memory is: of
ours, a leader has two images as well.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.controller_cluster import cluster, settings, write_snapshot
from bench.controller_fencing import WALL_MS, Fencing, fence_in_bulk, fence_often
from bench.timing import Row
from quorate.controller.controller import ActiveController, Moment
from quorate.metadata.image import ClusterImage
from quorate.storage.files import RealFiles
from quorate.storage.snapshots import SnapshotId, SnapshotReader

SIZES = (100_000, 1_000_000)
ROUNDS = 8
HEAP = "3g"
SNAPSHOT = SnapshotId(2000, 1)
HERE = Path(__file__).parent
SOURCE = HERE / "apache" / "ControllerFencing.java"
TESTS = HERE.parent / "tests"


def rows(root: Path) -> Iterator[Row | str]:
    sys.path[:0] = [str(TESTS / "interop")]
    import apache_oracle

    reason = apache_oracle.missing()
    if reason is not None:
        yield f"  Apache's controller is left out: {reason}"
        return
    chosen = os.environ.get("QUORATE_BENCH_APACHE_PARTITIONS")
    yield f"  a fencing in Apache {apache_oracle.PINNED}, heap up to {HEAP}; ms, the best round"
    heads = ("decide", "encode", "apply", "sync", "standby", "total")
    yield f"  {'partitions':>10} {'affected':>9} {'side':>7} " + " ".join(f"{one:>8}" for one in heads)
    for size in [int(one) for one in chosen.split(",")] if chosen else SIZES:
        yield from _at_size(root / str(size), size)


def _at_size(root: Path, size: int) -> Iterator[Row | str]:
    root.mkdir()
    image = cluster(size)
    path = asyncio.run(write_snapshot(image, root / "snapshot", SNAPSHOT))
    before, _ = fence_often(root / "before", image, fence_in_bulk, ROUNDS)
    lines = _run_apache(path, root / "apache.log")
    after, _ = fence_often(root / "after", image, fence_in_bulk, ROUNDS)
    ours = min(before, after, key=lambda one: one.total)
    first, best = _apache(lines, 1), _apache(lines, ROUNDS)
    for name, one in (("ours", ours), ("Apache", best), ("1st", first)):
        parts = one.decide, one.encode + one.build, one.apply, one.sync, one.standby, one.total
        times = " ".join(f"{part * 1000:8.2f}" for part in parts)
        yield f"  {size:>10,} {one.partitions:>9,} {name:>7} {times}"
    # Each has fenced brokers of its own, which differ a little in what they hold.
    ratio = (best.total / best.partitions) / (ours.total / ours.partitions)
    note = f"{best.total / best.partitions * 1e6:.1f} and {ours.total / ours.partitions * 1e6:.2f} us each"
    yield Row(f"work after detection at {size:,}: Apache / ours", ratio, at_least=10, note=note)
    image_ms = min(float(one[2]) * 1000 for one in _split(lines, "image"))
    load_s = float(_split(lines, "load")[0][1])
    yield f"  Apache besides: the image for publishers {image_ms:.1f} ms; loading the snapshot {load_s:.2f} s"
    yield from _memory(lines, path, size)


def _memory(lines: Sequence[str], path: Path, size: int) -> Iterator[Row | str]:
    (memory,) = _split(lines, "memory")
    managers, published = int(memory[2]) / size, int(memory[3]) / size
    said = subprocess.run(
        [sys.executable, "-m", "bench.controller_apache", str(path)],
        cwd=HERE.parent,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    loaded, leading, table = (int(one) / size for one in said)
    yield (
        f"  bytes for each partition, Apache: heap {managers:.0f} for the controller, {published:.0f} for the"
        f" image; ours: table {table:.0f}, RSS of a standby grows by {loaded:.0f}, of a leader {leading:.0f}"
    )
    ratio = (managers + published) / leading
    note = f"the controller alone / one table {managers / table:.1f}"
    yield Row(f"bytes for each of {size:,} partitions, of a leader: Apache / ours", ratio, note=note)


def _run_apache(snapshot: Path, log: Path) -> list[str]:
    from apache_oracle import BUILD, PINNED, built, run
    from apache_programs import ApachePrograms

    command = ApachePrograms().command("unused")
    jars = command[command.index("-cp") + 1]

    def compile_program(target: Path) -> None:
        run(["javac", "--release", "17", "-cp", jars, "-d", str(target), str(SOURCE)])

    classes = built(BUILD / f"{PINNED}-controller-fencing", SOURCE, compile_program)
    options = [f"-Xmx{HEAP}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
    main = "org.apache.kafka.controller.ControllerFencing"
    arguments = [str(snapshot), str(log), "0", str(ROUNDS)]
    done = subprocess.run(
        ["java", *options, "-cp", f"{jars}{os.pathsep}{classes}", main, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def _split(lines: Sequence[str], kind: str) -> list[list[str]]:
    return [line.split() for line in lines if line.startswith(f"{kind} ")]


def _apache(lines: Sequence[str], count_rounds: int) -> Fencing:
    """The fastest of the first rounds; a standby's part is added as if it had as many records."""
    found = []
    rounds = zip(_split(lines, "fenced"), _split(lines, "standby"), strict=True)
    for fenced, standby in list(rounds)[:count_rounds]:
        count = int(fenced[1])
        decide, encode, apply, sync = (float(one) for one in fenced[2:])
        again = float(standby[2]) / int(standby[1]) * count
        found.append(Fencing(count - 1, decide, encode, apply, 0.0, sync, again))
    return min(found, key=lambda one: one.total / one.partitions)


# Our memory, in a process of its own: `python -m bench.controller_apache SNAPSHOT`


def _resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))


def _print_memory(path: str) -> None:
    """What a standby grows by when it loads a snapshot, and a leader; and the size of the table alone."""
    small = ClusterImage()
    ActiveController(small, 1, settings(), None, Moment(0.0, WALL_MS, 1))  # type: ignore[arg-type]
    before = _resident_bytes()
    with SnapshotReader(RealFiles(), path, SNAPSHOT.epoch) as reader:
        batches = (data[header.position : header.end] for header, data in reader.batches())
        image = ClusterImage.load(batches, SNAPSHOT.offset - 1)
    loaded = _resident_bytes()
    active = ActiveController(image, 1, settings(), None, Moment(0.0, WALL_MS, 1))  # type: ignore[arg-type]
    leading = _resident_bytes()
    print(loaded - before, leading - before, active.image.partitions.size_bytes)


if __name__ == "__main__":
    _print_memory(sys.argv[1])
