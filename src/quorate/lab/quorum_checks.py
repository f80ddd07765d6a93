"""What must hold of the metadata quorum in every run.

After every step: one leader per epoch; epochs on a machine and high watermarks of a process never go back; a
new leader has everything that was committed before its epoch. Whenever a batch is applied anywhere, it is the
one that was applied at that offset before. After every committed batch: no fenced broker leads, a leader is
in sync, and no epoch of a broker or a partition goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from quorate.lab.membership_checks import MembershipChecks
from quorate.lab.outcome import Violation
from quorate.metadata.image import ClusterImage
from quorate.node.cluster_state import ClusterState
from quorate.node.node import Node
from quorate.protocol import batch as batches
from quorate.protocol.types import Buffer
from quorate.raft.state import Leader, Role

__all__ = ["QuorumChecks", "WatchedState"]


class QuorumChecks:
    """Watches all replicas of one metadata log."""

    def __init__(
        self, ids: Mapping[str, int], when_committed: Callable[[bytes], None] = lambda _: None
    ) -> None:
        """`when_committed` is told of each batch once, after it was folded."""
        self.fold = ClusterImage(is_strict=True)  # of what is committed, ahead of every node
        self.folded_end = 0
        self.committed: dict[int, bytes] = {}  # by base offset, what was applied there first
        self.leaders: dict[int, int] = {}  # by epoch
        self.checks = 0
        self._ids = ids
        self._when_committed = when_committed
        self._membership = MembershipChecks(self.fold)
        self._stored_epochs: dict[str, int] = {}
        self._high_watermarks: dict[str, tuple[Node, int]] = {}
        self._committed_end = 0
        self._seen: dict[str, tuple[Node, Role, int, int | None]] = {}

    def look(self, name: str, node: Node) -> None:
        """After a step of a node."""
        replica = node.replica
        if replica is None:
            return
        self.checks += 1
        quorum = replica.quorum
        stored = replica.log.election_state.epoch
        now = node, quorum.role, stored, quorum.high_watermark
        if self._seen.get(name) == now:
            return  # nearly every step changes nothing here
        self._seen[name] = now
        if stored < self._stored_epochs.get(name, 0):
            raise Violation(f"{name} went back from epoch {self._stored_epochs[name]} to {stored}")
        self._stored_epochs[name] = stored
        if quorum.high_watermark is not None:
            self._check_high_watermark(name, node, quorum.high_watermark)
        if isinstance(quorum.role, Leader):
            self._check_leader(name, quorum.role)

    def forget(self, name: str) -> None:
        """A machine has got an empty disk."""
        self._stored_epochs.pop(name, None)
        self._seen.pop(name, None)

    def applied(self, batch: Buffer) -> None:
        """A batch is committed as far as one node knows."""
        data = bytes(batch)
        header = batches.read_header(batch)
        if self.committed.setdefault(header.base_offset, data) != data:
            raise Violation(f"two different batches were committed at offset {header.base_offset}")
        if header.base_offset < self.folded_end:
            return
        if header.base_offset != self.folded_end:
            raise Violation(f"nobody applied what lies between {self.folded_end} and {header.base_offset}")
        self.folded_end = header.next_offset
        self.fold.apply_batch(data)
        problem = self._membership.after_batch()
        if problem is not None:
            raise Violation(f"{problem}, after the batch at offset {header.base_offset}")
        self._when_committed(data)

    def check_images(self, nodes: Mapping[str, Node]) -> None:
        """Whoever has read everything has the same image."""
        for name, node in nodes.items():
            if node.state.position.offset == self.folded_end and not node.state.image.equals(self.fold):
                raise Violation(f"{name} has another image than the log gives")

    def _check_leader(self, name: str, role: Leader) -> None:
        known = self.leaders.get(role.epoch)
        if known is None:
            if role.start_offset < self._committed_end and role.epoch >= max(self.leaders, default=0):
                raise Violation(
                    f"{name} leads epoch {role.epoch} from offset {role.start_offset},"
                    f" but everything below {self._committed_end} is committed"
                )
            self.leaders[role.epoch] = self._ids[name]
        elif known != self._ids[name]:
            raise Violation(f"epoch {role.epoch} has two leaders: {known} and {self._ids[name]}")

    def _check_high_watermark(self, name: str, node: Node, value: int) -> None:
        same, last = self._high_watermarks.get(name, (node, -1))
        # A new leader knows its high watermark only once it has committed; then it is at least the old one.
        if same is node and value < last:
            raise Violation(f"the high watermark of {name} went back from {last} to {value}")
        self._high_watermarks[name] = node, value
        self._committed_end = max(self._committed_end, value)


class WatchedState(ClusterState):
    """Shows the checkers what is applied."""

    def __init__(self, checks: QuorumChecks, *, is_strict: bool = True) -> None:
        super().__init__(is_strict=is_strict)
        self._checks = checks

    def apply(self, batch: Buffer) -> None:
        self._checks.applied(batch)
        super().apply(batch)
