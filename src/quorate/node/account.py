"""What a controller says of itself: events and counts as they come, and a view for those who ask."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from quorate.controller.controller import ActiveController
from quorate.controller.events import Event
from quorate.controller.settings import ControllerSettings
from quorate.metadata.image import ClusterImage
from quorate.node.admin_view import QuorumView, quorum_view
from quorate.node.cluster_state import ClusterState
from quorate.node.desk import Desk, Observer
from quorate.node.event_journal import EventJournal
from quorate.node.host import Host
from quorate.node.metrics import NodeMetrics
from quorate.node.repeats import Repeats
from quorate.node.replica import Replica
from quorate.values import dataclass

__all__ = ["Account", "View"]


class Account(Observer):
    """Keeps events in the journal and in the log, and counts."""

    def __init__(self, host: Host, journal: EventJournal, metrics: NodeMetrics) -> None:
        self._host = host
        self._journal = journal
        self._metrics = metrics
        self._repeats = Repeats(lambda: asyncio.get_running_loop().time())

    def saw(self, events: Sequence[Event]) -> None:
        for event in events:
            untold = self._repeats.untold(event)
            if untold is not None:
                self._journal.append(event, self._host.wall_ms(), untold=untold)
            self._metrics.saw(event)

    def handled(self, waited_ms: float, took_ms: float) -> None:
        self._metrics.handled(waited_ms, took_ms)

    def led(self, _leader_id: int) -> None:
        self._metrics.new_active_controllers += 1


@dataclass(frozen=True, slots=True)
class View:
    """An `AdminView` of a running controller."""

    host: Host
    settings: ControllerSettings
    state: ClusterState
    replica: Replica
    desk: Desk

    @property
    def node_id(self) -> int:
        return self.settings.node_id

    @property
    def image(self) -> ClusterImage:
        return self.state.image

    @property
    def applied_offset(self) -> int:
        return self.state.position.offset - 1

    @property
    def applied_timestamp_ms(self) -> int:
        return self.state.last_timestamp_ms

    @property
    def active(self) -> ActiveController | None:
        return self.desk.active

    def quorum(self) -> QuorumView:
        return quorum_view(self.replica.quorum, self.replica.now())

    def now_ms(self) -> float:
        return self.replica.now().ms

    def wall_ms(self) -> int:
        return self.host.wall_ms()

    def admin_address_of(self, _node_id: int) -> str | None:
        return None  # the log says where controllers listen, but not for these questions
