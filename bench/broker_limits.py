"""The broker against what the machine can do: servers that only move bytes, and librdkafka's own mock broker.

What counts is the CPU time of the broker for each megabyte. Both sides of a ratio are measured in turns,
after a round that is not counted; the best round of each counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from bench.broker_baselines import PRODUCED_TO, Baseline
from bench.broker_clients import percentile, produce, stored, topic_on
from bench.broker_nodes import Nodes, QuorateCommands, apart
from bench.broker_sizes import Sizes, best
from bench.broker_wire import HOST, Wire, fetch_frame, produce_frame
from bench.timing import Row

LARGE, SMALL = 1000, 16  # records of a kilobyte in a batch
RECORD_BYTES = 1000
FETCHED_BYTES = 1_100_000
REPLICATED = 3


def rows(root: Path, sizes: Sizes) -> Iterator[Row | str]:
    with Nodes("Quorate", root, QuorateCommands()) as node:
        yield from _produce(root, node, sizes)
        yield from _fetch(root, node, sizes)
        yield from _latency(root, node, sizes)
        yield from _mock_broker(root, node, sizes)
    with Nodes("Replicated", root, QuorateCommands(), REPLICATED) as nodes:
        yield from _replication(nodes, sizes)


def _produce(root: Path, node: Nodes, sizes: Sizes) -> Iterator[Row | str]:
    def send(port: int, request: bytes, in_flight: int) -> float:
        times = max(1, sizes.megabytes * 1_000_000 // len(request))
        with Wire(port) as wire:
            wire.stream(request, times, in_flight)
        return times * len(request)

    def ours(records: int, in_flight: int) -> tuple[float]:
        with topic_on(node.bootstrap) as topic:
            request = produce_frame(topic, records, RECORD_BYTES)
            used = _us_per_megabyte(node.cpu_seconds, lambda: send(node.port_of(1), request, in_flight))
            times = max(1, sizes.megabytes * 1_000_000 // len(request))
            assert stored(node.bootstrap, topic, 1) == records * times, "something was not appended"
        return used

    def bare() -> tuple[float]:
        request = produce_frame("some-topic", LARGE, RECORD_BYTES)
        return _us_per_megabyte(base.cpu_seconds, lambda: send(base.port, request, 8))

    with Baseline("file", root) as base:
        (base_us,), (large_us,), (small_us,) = best(
            sizes.rounds, bare, lambda: ours(LARGE, 8), lambda: ours(SMALL, 64)
        )
    note = f"{large_us:.0f} and {base_us:.0f} us per MB"
    what = "produce, 1 MB batches, CPU: broker / receive and write to a file"
    yield Row(what, large_us / base_us, 1.6, note=note)
    note = f"{small_us:.0f} and {large_us:.0f} us per MB"
    yield Row("produce, CPU: 16 KB batches / 1 MB batches", small_us / large_us, 3.5, note=note)


def _fetch(root: Path, node: Nodes, sizes: Sizes) -> Iterator[Row | str]:
    count = sizes.megabytes

    def ours() -> float:
        wire.send(requests[0])
        received = 0
        for one in requests[1:]:
            wire.send(one)  # two are under way
            received += wire.receive()
        return received + wire.receive()

    def bare() -> float:
        other = Wire(base.port)
        received = other.stream(requests[0], count, 2)
        other.close()
        return received

    with (
        topic_on(node.bootstrap) as topic,
        Baseline("sendfile", root, count * LARGE * RECORD_BYTES, LARGE * RECORD_BYTES) as base,
        Wire(node.port_of(1)) as wire,
    ):
        wire.stream(produce_frame(topic, LARGE, RECORD_BYTES), count, 8)
        requests = [fetch_frame(topic, LARGE * one, FETCHED_BYTES) for one in range(count)]
        (base_us,), (ours_us,) = best(
            sizes.rounds,
            lambda: _us_per_megabyte(base.cpu_seconds, bare),
            lambda: _us_per_megabyte(node.cpu_seconds, ours),
        )
    note = f"{ours_us:.0f} and {base_us:.0f} us per MB"
    yield Row("fetch, 1 MB, CPU: broker / paced blocking sendfile", ours_us / base_us, 1.2, note=note)


def _latency(root: Path, node: Nodes, sizes: Sizes) -> Iterator[Row | str]:
    with (
        topic_on(node.bootstrap) as topic,
        Baseline("echo", root) as base,
        Wire(base.port) as to_echo,
        Wire(node.port_of(1)) as to_broker,
    ):
        request = produce_frame(topic, 1, RECORD_BYTES)

        def measured(wire: Wire, pid: int) -> tuple[float, float]:
            with apart(pid):
                return _p50_p99(wire.latencies(request, sizes.singles))

        (echo, echo_99), (ours, ours_99) = best(
            sizes.rounds, lambda: measured(to_echo, base.pid), lambda: measured(to_broker, node.pid)
        )
    note = f"{ours * 1e6:.0f} and {echo * 1e6:.0f} us"
    yield Row("one record, acks=1, p50: broker / uvloop echo of the same bytes", ours / echo, 2, note=note)
    note = f"{ours_99 * 1e6:.0f} and {echo_99 * 1e6:.0f} us"
    yield Row("one record, acks=1, p99: broker / uvloop echo", ours_99 / echo_99, 2.5, note=note)


def _mock_broker(root: Path, node: Nodes, sizes: Sizes) -> Iterator[Row | str]:
    records = sizes.megabytes * 1_000_000 // RECORD_BYTES
    settings = {"acks": 1, "batch.size": LARGE * RECORD_BYTES}

    def seconds_at(where: Mapping[str, object], topic: str, is_told: bool) -> tuple[float]:
        flow = produce({**where, **settings}, topic, 1, records, RECORD_BYTES, is_told=is_told)
        return (flow.seconds,)

    def ours(is_told: bool) -> tuple[float]:
        with topic_on(node.bootstrap) as topic:
            return seconds_at({"bootstrap.servers": node.bootstrap}, topic, is_told)

    def mock(is_told: bool) -> tuple[float]:
        where = {"test.mock.num.brokers": 1, "bootstrap.servers": "unused", "log_level": 0}
        return seconds_at(where, "mocked", is_told)

    with Baseline("producer", root) as base:
        at_base = {"bootstrap.servers": f"{HOST}:{base.port}"}
        for is_told in (False, True):
            (mock_s,), (ours_s,), (base_s,) = best(
                sizes.rounds,
                partial(mock, is_told),
                partial(ours, is_told),
                partial(seconds_at, at_base, PRODUCED_TO, is_told),
            )
            note = f"{records / ours_s:,.0f} and {records / mock_s:,.0f} records/s"
            what = "librdkafka, produce 1 KB, records/s: broker / its own mock broker in C"
            if is_told:
                what = "  the same, with a report for each record"
            yield Row(what, mock_s / ours_s, at_least=0.9, note=note)
            note = f"{records / base_s:,.0f} records/s"
            what = "  the same of a server that only receives and writes to a file"
            yield Row(what, mock_s / base_s, note=note)


def _replication(nodes: Nodes, sizes: Sizes) -> Iterator[Row | str]:
    with (
        topic_on(nodes.bootstrap, 1, REPLICATED) as topic,
        Wire(nodes.leader_port(topic)) as wire,
    ):
        one, everyone = (produce_frame(topic, 1, RECORD_BYTES, acks) for acks in (1, -1))
        (one_50, _), (all_50, all_99) = best(
            sizes.rounds,
            lambda: _p50_p99(wire.latencies(one, sizes.singles)),
            lambda: _p50_p99(wire.latencies(everyone, sizes.singles)),
        )
    note = f"{all_50 * 1e6:.0f} and {one_50 * 1e6:.0f} us, p99 {all_99 * 1e6:.0f} us"
    yield Row("one record, three replicas, p50: acks=all / acks=1", all_50 / one_50, 4, note=note)


def _p50_p99(ordered: list[float]) -> tuple[float, float]:
    return percentile(ordered, 50), percentile(ordered, 99)


def _us_per_megabyte(cpu_seconds: Callable[[], float], work: Callable[[], float]) -> tuple[float]:
    """The CPU time of a process for the bytes that went through while we worked."""
    before = cpu_seconds()
    size_bytes = work()
    return ((cpu_seconds() - before) / size_bytes * 1e12,)
