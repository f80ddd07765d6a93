"""The broker against Apache Kafka: the same machine, the same run, the same client and settings.

Each side is one node, broker and controller, with its own defaults. Both run all the time; they are measured
in turns, after rounds that are not counted, in which a Java machine becomes fast. The best round of each side
counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from bench.broker_clients import consume, latencies, percentile, produce, stored, topic_on
from bench.broker_nodes import ApacheCommands, Nodes, QuorateCommands, why_no_apache
from bench.broker_sizes import Sizes, best
from bench.broker_wire import Wire, produce_frame
from bench.timing import Row

STARTS = 3
WARM_UP_ROUNDS = 4
ROUNDS_MAX = 3  # of those that count; there are many flows
CONSUME_ROUNDS_MAX = 6  # which differ more: it is the client that is busy
PARTITIONS = (1, 16)
ACKS = ("1", "all")
BATCHES = {"1 MB": 1_000_000, "16 KB": 16_384}  # librdkafka's default, and that of the Java producer
CONSUMED_BATCH_BYTES = 100_000
CPU_AT_MOST = 0.8
LITTLE = 0.15


def node_rows(root: Path, sizes: Sizes) -> Iterator[Row | str]:
    """Starting, waiting, and single records."""
    apache_commands, refusal = _apache()
    if apache_commands is None:
        yield refusal
        return
    yield f"  {apache_commands.about}; both figures beside each ratio"
    yield from _starts(root, apache_commands)
    with (
        Nodes("Quorate", root, QuorateCommands()) as ours,
        Nodes("Apache", root, apache_commands) as apache,
    ):
        yield _memory("idle", ours.resident_bytes(), apache.resident_bytes())
        yield from _latency(ours, apache, sizes)


def flow_rows(root: Path, sizes: Sizes, record_bytes: int) -> Iterator[Row | str]:
    """Many records of one size."""
    apache_commands, refusal = _apache()
    if apache_commands is None:
        yield refusal
        return
    yield f"  {apache_commands.about}; both figures beside each ratio"
    with (
        Nodes("Quorate", root, QuorateCommands()) as ours,
        Nodes("Apache", root, apache_commands) as apache,
    ):
        _warm_up(_Flows(ours, apache, sizes, record_bytes, 1))
        for partitions in PARTITIONS:
            yield from _flows(_Flows(ours, apache, sizes, record_bytes, partitions))
        yield _memory("under that load", ours.resident_bytes_max(), apache.resident_bytes_max())


def _apache() -> tuple[ApacheCommands | None, str]:
    reason = why_no_apache()
    return (None, f"  Apache Kafka is left out: {reason}") if reason is not None else (ApacheCommands(), "")


def _memory(when: str, ours_bytes: int, apache_bytes: int) -> Row:
    note = f"{ours_bytes / 1e6:.0f} and {apache_bytes / 1e6:.0f} MB"
    return Row(f"resident memory, {when}", ours_bytes / apache_bytes, LITTLE, note=note)


def _starts(root: Path, apache_commands: ApacheCommands) -> Iterator[Row | str]:
    def start(name: str, commands: QuorateCommands | ApacheCommands) -> tuple[float]:
        with Nodes(name, root, commands) as node:
            return (node.seconds_to_first_record,)

    (ours,), (apache,) = best(
        STARTS - 1, lambda: start("Quorate", QuorateCommands()), lambda: start("Apache", apache_commands)
    )
    note = f"{ours:.2f} and {apache:.2f} s"
    yield Row("from the start of a node to the first record produced", ours / apache, LITTLE, note=note)


def _latency(ours: Nodes, apache: Nodes, sizes: Sizes) -> Iterator[Row | str]:
    def measured(node: Nodes, topic: str, acks: str) -> tuple[float, ...]:
        found = latencies(node.bootstrap, topic, sizes.singles, 1000, acks)
        return percentile(found, 50), percentile(found, 99)

    with topic_on(ours.bootstrap) as our_topic, topic_on(apache.bootstrap) as apache_topic:
        for acks in ACKS:
            found = best(
                sizes.rounds,
                partial(measured, ours, our_topic, acks),
                partial(measured, apache, apache_topic, acks),
            )
            for name, own, other in zip(("p50", "p99"), *found, strict=True):
                note = f"{own * 1e6:.0f} and {other * 1e6:.0f} us"
                yield Row(f"one record of 1 KB, acks={acks}, {name}", own / other, 1.0, note=note)


def _warm_up(flows: _Flows) -> None:
    """A Java machine needs some rounds until it is as fast as it will be: the first rows would flatter us."""
    for _ in range(WARM_UP_ROUNDS if flows.sizes.rounds > 1 else 1):
        for node in (flows.ours, flows.apache):
            flows.produce(node, "1", BATCHES["1 MB"])
            flows.produce(node, "all", BATCHES["16 KB"])


@dataclass(frozen=True)
class _Flows:
    ours: Nodes
    apache: Nodes
    sizes: Sizes
    record_bytes: int
    partitions: int

    @property
    def records(self) -> int:
        # Small records take a client as long as ten times their bytes.
        return self.sizes.megabytes * 1_000_000 // self.record_bytes // (4 if self.record_bytes < 1000 else 1)

    def produce(self, node: Nodes, acks: str, batch_bytes: int) -> tuple[float, float]:
        """Seconds, and CPU seconds of the broker for a gigabyte."""
        settings = {"bootstrap.servers": node.bootstrap, "acks": acks, "batch.size": batch_bytes}
        with topic_on(node.bootstrap, self.partitions) as topic:
            before = node.cpu_seconds()
            flow = produce(settings, topic, self.partitions, self.records, self.record_bytes)
            used = node.cpu_seconds() - before
            assert stored(node.bootstrap, topic, self.partitions) == self.records + 1
        return flow.seconds, used / flow.megabytes * 1000

    def fill(self, node: Nodes, topic: str) -> None:
        """The same batches for both sides: a producer would make smaller ones for whoever answers faster, and
        what consumers do for a batch is most of what they do."""
        in_a_batch = CONSUMED_BATCH_BYTES // self.record_bytes
        batches = -(-self.records // (in_a_batch * self.partitions))
        with Wire(node.port_of(1)) as wire:
            for partition_id in range(self.partitions):
                request = produce_frame(topic, in_a_batch, self.record_bytes, partition_id=partition_id)
                wire.stream(request, batches, 8)
        assert stored(node.bootstrap, topic, self.partitions) >= self.records

    def consume(self, node: Nodes, topic: str) -> tuple[float, float]:
        before = node.cpu_seconds()
        flow = consume(node.bootstrap, topic, self.partitions, self.records, self.record_bytes)
        return flow.seconds, (node.cpu_seconds() - before) / flow.megabytes * 1000


def _flows(flows: _Flows) -> Iterator[Row | str]:
    where = f"{flows.record_bytes} B, {flows.partitions} partition{'s' if flows.partitions > 1 else ''}"
    for (batch, batch_bytes), acks in product(BATCHES.items(), ACKS):
        ours, apache = best(
            min(ROUNDS_MAX, flows.sizes.rounds),
            *(partial(flows.produce, node, acks, batch_bytes) for node in (flows.ours, flows.apache)),
        )
        yield from _compared(f"produce {where}, acks={acks}, {batch} batches", flows.records, ours, apache)
    with (
        topic_on(flows.ours.bootstrap, flows.partitions) as our_topic,
        topic_on(flows.apache.bootstrap, flows.partitions) as apache_topic,
    ):
        flows.fill(flows.ours, our_topic)
        flows.fill(flows.apache, apache_topic)
        ours, apache = best(
            CONSUME_ROUNDS_MAX if flows.sizes.rounds > 1 else 1,
            partial(flows.consume, flows.ours, our_topic),
            partial(flows.consume, flows.apache, apache_topic),
        )
    yield from _compared(f"consume {where}", flows.records, ours, apache)


def _compared(what: str, records: int, ours: Sequence[float], apache: Sequence[float]) -> Iterator[Row]:
    note = f"{records / ours[0] / 1000:,.0f} and {records / apache[0] / 1000:,.0f} thousand/s"
    yield Row(f"{what}, records/s", apache[0] / ours[0], at_least=1.0, note=note)
    note = f"{ours[1]:.2f} and {apache[1]:.2f} s/GB"
    yield Row("  CPU of the broker", ours[1] / apache[1], CPU_AT_MOST, note=note)
