"""Before nodes are stopped: would the quorum be lost, or partitions be left with too few replicas or none?

The answer is about this moment. It takes the nodes as gone all at once and for good, which is what an
operator must be able to bear, and it counts on nobody who is fenced or on the way out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from quorate.controller.settings import ControllerSettings
from quorate.controller.topic_settings import MIN_ISR, effective
from quorate.metadata.image import TOPIC, ClusterImage
from quorate.metadata.partitions import NO_LEADER, Block, mask_type
from quorate.values import dataclass

__all__ = ["EXAMPLES_MAX", "NodesToStop", "PartitionsFound", "StopReport", "Verdict", "preflight_stop"]

EXAMPLES_MAX: Final = 20

Column = NDArray[Any]


class Verdict(Enum):
    SAFE = "safe"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class PartitionsFound:
    """How many partitions, and the names of the first few."""

    count: int = 0
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesToStop:
    """What is known about the nodes themselves. A node can be both a broker and a voter."""

    brokers: tuple[int, ...]
    voters: tuple[int, ...]
    unknown: tuple[int, ...]  # neither; somebody may have mistyped
    already_fenced: tuple[int, ...]  # among the brokers: to stop these changes nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReport:
    """What would happen.

    `below_min_isr` lose an in-sync replica and then have fewer than they must have, whether or not they had
    enough before; `leaderless` lose their leader, and nobody with all their records could take over.
    `already_offline` have no leader now. A partition can be in the first two at once.
    """

    nodes: NodesToStop
    quorum_lost: bool
    voters_left: int  # that have caught up
    voters_needed: int
    below_min_isr: PartitionsFound
    leaderless: PartitionsFound
    already_offline: PartitionsFound

    @property
    def verdict(self) -> Verdict:
        return Verdict.UNSAFE if self.reasons else Verdict.SAFE

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not safe, a phrase each."""
        found = []
        if self.nodes.unknown:
            ids = ", ".join(map(str, self.nodes.unknown))
            found.append(f"unknown: {ids} (neither a broker nor a voter)")
        if self.quorum_lost:
            found.append(
                f"the quorum would be lost: {self.voters_left} voters that have caught up would be left,"
                f" {self.voters_needed} are needed"
            )
        if self.leaderless.count:
            found.append(f"{_partitions(self.leaderless.count)} would have no leader")
        if self.below_min_isr.count:
            found.append(f"{_partitions(self.below_min_isr.count)} would be below min.insync.replicas")
        return tuple(found)


def preflight_stop(
    image: ClusterImage,
    settings: ControllerSettings,
    node_ids: Collection[int],
    *,
    voters: Collection[int],
    caught_up: Collection[int],
) -> StopReport:
    """What would happen if these nodes were stopped now. `caught_up` are the voters that could go on."""
    ids = sorted(set(node_ids))
    brokers = [one for one in ids if one in image.brokers]
    stopped_voters = [one for one in ids if one in voters]
    left = len([one for one in sorted(set(voters)) if one in caught_up and one not in ids])
    needed = len(set(voters)) // 2 + 1
    nodes = NodesToStop(
        brokers=tuple(brokers),
        voters=tuple(stopped_voters),
        unknown=tuple(
            one
            for one in ids
            if one not in image.brokers and one not in voters and one not in image.controllers
        ),
        already_fenced=tuple(one for one in brokers if image.brokers[one].is_fenced),
    )
    return StopReport(
        nodes=nodes,
        quorum_lost=bool(stopped_voters) and left < needed,
        voters_left=left,
        voters_needed=needed,
        **_partitions_after(image, settings, brokers),
    )


def _partitions_after(
    image: ClusterImage, settings: ControllerSettings, stopped: Sequence[int]
) -> dict[str, PartitionsFound]:
    gone = np.array(stopped, np.int32)
    usable = np.array(
        [one.id for one in image.brokers.values() if one.is_active and one.id not in stopped], np.int32
    )
    bound = _MinIsr(image, settings)
    below, leaderless, offline = _Collected(image), _Collected(image), _Collected(image)
    for width in sorted(image.partitions.blocks):
        block = image.partitions.blocks[width]
        offline.add(block, np.flatnonzero(block.leader[: block.end] == NO_LEADER))
        if not len(gone):
            continue
        rows = np.flatnonzero(np.isin(block.replicas[: block.end], gone).any(axis=1))
        isr, elr = block.isr[rows], block.elr[rows]
        gone_bits, usable_bits = _bits(block, rows, gone), _bits(block, rows, usable)
        shrinking = rows[(isr & gone_bits) != 0]
        left = np.bitwise_count((isr & usable_bits)[(isr & gone_bits) != 0])
        below.add(block, shrinking[left < bound.of(block, block.topic[shrinking])])
        loses_leader = np.isin(block.leader[rows], gone)
        leaderless.add(block, rows[loses_leader & (((isr | elr) & usable_bits) == 0)])
    return {
        "below_min_isr": below.found(),
        "leaderless": leaderless.found(),
        "already_offline": offline.found(),
    }


class _MinIsr:
    """`topic_settings.min_isr` for many topics at once."""

    def __init__(self, image: ClusterImage, settings: ControllerSettings) -> None:
        self._image = image
        self._default = int(effective(image, settings, "", MIN_ISR))  # no topic has this name
        self._own = {
            image.topics.by_name[name].slot: int(values[MIN_ISR])
            for (kind, name), values in image.configs.items()
            if kind == TOPIC and MIN_ISR in values and name in image.topics.by_name
        }

    def of(self, block: Block, slots: Column) -> Column:
        """The bound of each row's topic, which is never more than its partition 0 has replicas."""
        topics, inverse = np.unique(slots, return_inverse=True)
        wanted = np.array([self._own.get(slot, self._default) for slot in topics.tolist()], np.int64)
        runs = self._image.partitions.runs
        starts = np.array([runs[slot].start for slot in topics.tolist()], np.int64)
        widths = (block.replicas[starts] >= 0).sum(axis=1)
        # A partition 0 that is not there yet bounds nothing.
        bounded = np.where(widths > 0, np.minimum(wanted, widths), wanted)
        return bounded[inverse]


class _Collected:
    """Partitions that were found, block by block."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._count = 0
        self._examples: list[str] = []

    def add(self, block: Block, rows: Column) -> None:
        self._count += len(rows)
        self._examples += self._names(block, rows[: EXAMPLES_MAX - len(self._examples)])

    def found(self) -> PartitionsFound:
        return PartitionsFound(self._count, tuple(self._examples))

    def _names(self, block: Block, rows: Column) -> Iterator[str]:
        for row in rows.tolist():
            topic = self._image.topics.at(int(block.topic[row]))
            yield f"{topic.name}-{row - self._image.partitions.runs[topic.slot].start}"


def _bits(block: Block, rows: Column, brokers: Column) -> Column:
    """For each row the positions among the replicas that any of these brokers has."""
    mask = mask_type(block.width)
    bits = np.zeros(len(rows), mask)
    is_one = np.isin(block.replicas[rows], brokers)
    for position in range(block.width):
        bits |= np.where(is_one[:, position], mask(1 << position), mask(0))
    return bits


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"
