"""Clusters for tests, laptops and demonstrations: planned, launched, looked at, and broken on purpose.

from quorate.testing import Cluster

with Cluster(brokers=3) as kafka:
    print(kafka.bootstrap_servers)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.testing.cluster import Cluster, ClusterError, ClusterNode

__all__ = ["Cluster", "ClusterError", "ClusterNode"]


def __getattr__(name: str) -> Any:
    """Loads what a cluster needs when somebody asks for one: pytest imports this package in every run."""
    if name in __all__:
        from quorate.testing import cluster

        return getattr(cluster, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
