"""What there is to count in ZooKeeper mode: the session of a broker, and the controller, on whoever is it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from quorate.zookeeper.plane import ZooKeeperPlane

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = ["ZooKeeperMetrics"]

_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_MANAGER: Final = "kafka_controller_controllereventmanager_"
_CHANNELS: Final = "kafka_controller_controllerchannelmanager_"
_SESSION: Final = "kafka_server_sessionexpirelistener_"


class ZooKeeperMetrics:
    """A `metrics.Source`. What only the controller knows is not there on the others."""

    def __init__(self, plane: ZooKeeperPlane) -> None:
        self._plane = plane

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        plane, own = self._plane, self._plane.own_term
        session = plane.session
        is_connected = session is not None and session.connected.is_set()
        about = "1 while there is a connection to ZooKeeper."
        yield GaugeMetricFamily(_SESSION + "connected", about, int(is_connected))
        about = "Sessions with ZooKeeper that expired."
        yield CounterMetricFamily(_SESSION + "zookeeperexpirespersec", about, plane.expirations)
        about = "1 on the controller, 0 on the others."
        yield GaugeMetricFamily(_CONTROLLER + "activecontrollercount", about, int(own is not None))
        if own is None:
            return
        office = own.office
        context = office.context
        for name, help_text, value in (
            ("activebrokercount", "Brokers that are registered.", len(context.members)),
            ("globaltopiccount", "Topics.", len(context.topics)),
            ("globalpartitioncount", "Partitions.", context.partition_count()),
            ("topicstodeletecount", "Topics that are marked to be deleted.", len(office.deleting)),
            ("reassigningpartitions", "Partitions that are being reassigned.", len(context.moving)),
        ):
            yield GaugeMetricFamily(_CONTROLLER + name, help_text, value)
        about = "Events that wait for the controller."
        yield GaugeMetricFamily(_MANAGER + "eventqueuesize", about, own.waiting)
        about = "Requests that wait for a broker."
        queues = GaugeMetricFamily(_CHANNELS + "queuesize", about, labels=["broker"])
        for broker_id in sorted(context.members):
            queues.add_metric([str(broker_id)], office.channels.queued(broker_id))
        yield queues
