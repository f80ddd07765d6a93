"""What a broker of ZooKeeper mode answers about the cluster over HTTP: the questions of `admin`, as far as
they make sense without a quorum. Every broker answers from its own image; who the controller is, all know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quorate.broker.pushed_replicas import Fences
from quorate.metadata.brokers import SecurityProtocol
from quorate.net.http import HttpHandler, HttpResponse
from quorate.node.admin import partition_totals, replicas_by_broker
from quorate.node.cluster_state import ClusterState
from quorate.zookeeper.plane import ZooKeeperPlane

__all__ = ["ZooKeeperAdminRoutes"]

_Params = Mapping[str, str]


class ZooKeeperAdminRoutes:
    """`/v1/controller`, `/v1/brokers` and `/v1/partitions`."""

    def __init__(self, node_id: int, plane: ZooKeeperPlane, fences: Fences, state: ClusterState) -> None:
        self._node_id = node_id
        self._plane = plane
        self._fences = fences
        self._state = state

    def table(self) -> dict[str, HttpHandler]:
        return {
            "/v1/controller": self._controller,
            "/v1/brokers": self._brokers,
            "/v1/partitions": self._partitions,
        }

    async def _controller(self, _params: _Params, _query: _Params) -> HttpResponse:
        controller_id = self._plane.controller_id
        return HttpResponse.json(
            {
                **self._source(),
                "mode": "zookeeper",
                "controller_id": controller_id if controller_id >= 0 else None,
                "epoch": self._fences.controller_epoch,
            }
        )

    async def _brokers(self, _params: _Params, _query: _Params) -> HttpResponse:
        image = self._state.image
        leaders, replicas = replicas_by_broker(image)
        brokers = [
            {
                "id": one.id,
                "state": "active",
                "epoch": self._plane.broker_epoch if one.id == self._node_id else None,
                "rack": one.rack,
                "listeners": [
                    {
                        "name": each.name,
                        "host": each.host,
                        "port": each.port,
                        "security_protocol": SecurityProtocol.NAMES.get(each.security_protocol),
                    }
                    for each in one.listeners
                ],
                "leaders": leaders.get(one.id, 0),
                "replicas": replicas.get(one.id, 0),
            }
            for _, one in sorted(image.brokers.items())
        ]
        return HttpResponse.json({**self._source(), "brokers": brokers})

    async def _partitions(self, _params: _Params, _query: _Params) -> HttpResponse:
        return HttpResponse.json({**self._source(), **partition_totals(self._state.image)})

    def _source(self) -> dict[str, Any]:
        """Whose view it is, and of when."""
        return {
            "node_id": self._node_id,
            "is_active": self._plane.is_controller,
            "applied_offset": self._state.position.offset - 1,
        }
