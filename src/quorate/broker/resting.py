"""Who has heard everything of a partition, and need not look at it again before it changes.

Fetch sessions have thousands of partitions, of which most do nothing. One of which its session has said all
that there is goes to rest: it is not looked at, and its follower is not counted, until the partition stirs.
Then everybody who rests there is told, once.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from quorate.broker.leadership import Follower, Heard

__all__ = ["Onlooker", "Resting"]

Place = TypeVar("Place")
Place_contra = TypeVar("Place_contra", contravariant=True)


class Onlooker(Protocol[Place_contra]):
    """Whoever rests. `heard` is when it asked last."""

    heard: Heard

    def stirred(self, place: Place_contra) -> None:
        """Something may have changed at the place that it has given."""


class Resting(Generic[Place]):
    """Those who rest at one partition."""

    __slots__ = ("onlookers",)

    def __init__(self) -> None:
        self.onlookers: dict[Onlooker[Place], tuple[Place, Follower | None]] = {}

    def enter(self, onlooker: Onlooker[Place], place: Place, follower: Follower | None) -> None:
        """Rests here; as a follower that is known here, if it is one."""
        if follower is not None:
            follower.at_rest = onlooker.heard
        self.onlookers[onlooker] = place, follower

    def leave(self, onlooker: Onlooker[Place]) -> None:
        """Goes by itself, and is not told."""
        _, follower = self.onlookers.pop(onlooker, (None, None))
        if follower is not None:
            follower.stir(onlooker.heard)

    def stir(self) -> None:
        """Tells everybody."""
        everybody, self.onlookers = self.onlookers, {}
        for onlooker, (place, follower) in everybody.items():
            if follower is not None:
                follower.stir(onlooker.heard)
            onlooker.stirred(place)
