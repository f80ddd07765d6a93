"""How many partitions a client may create and delete in a second: the quota `controller_mutation_rate`.

Each client has a bucket of tokens, one for a partition, that fills at the rate of its quota and holds what
eleven seconds bring. Kafka's rules:

- A request may take more than there is, and the bucket then owes; whoever owes gets nothing more until the
  debt is paid, and is told how long that takes.
- Clients of an age that knows the error (*strict*) are refused topic by topic. Older ones are served, and
  the broker then keeps them waiting.
- The most specific quota counts, see `find_rate`, and decides who shares a bucket: a quota for a user is
  shared by all the user's clients, one for a client id by all users.

Only the active controller knows the buckets. They begin full, so a change of the controller forgives debts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quorate.metadata.image import Entity
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.values import dataclass

__all__ = ["BUCKETS_MAX", "BURST_S", "KEY", "Account", "MutationQuota", "find_rate"]

KEY: Final = "controller_mutation_rate"
BURST_S: Final = 11  # Kafka's controller.quota.window.num times controller.quota.window.size.seconds
BUCKETS_MAX: Final = 10_000
_THROTTLE_MS_MAX: Final = (1 << 31) - 1

# Whose bucket it is: the user and the client id, empty where it is shared by all.
Owner = tuple[str, str]


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_ms: float


class MutationQuota:
    """The buckets of all clients; the ones that were not used for longest are forgotten first."""

    def __init__(self, buckets_max: int = BUCKETS_MAX) -> None:
        self._buckets: dict[Owner, _Bucket] = {}
        self._buckets_max = buckets_max

    def __len__(self) -> int:
        return len(self._buckets)

    def open(
        self,
        quotas: Mapping[Entity, Mapping[str, float]],
        principal: str,
        client_id: str,
        now_ms: float,
        *,
        is_strict: bool,
    ) -> Account:
        """What one request of a client is charged to."""
        found = find_rate(quotas, principal.partition(":")[2], client_id)
        if found is None:
            return Account(None, 0.0, is_strict=is_strict)
        rate, owner = found
        burst = rate * BURST_S
        bucket = self._buckets.pop(owner, None)
        if bucket is None:
            bucket = _Bucket(burst, now_ms)
            if len(self._buckets) >= self._buckets_max:
                del self._buckets[next(iter(self._buckets))]
        self._buckets[owner] = bucket
        bucket.tokens = min(burst, bucket.tokens + rate * (now_ms - bucket.filled_ms) / 1000)
        bucket.filled_ms = now_ms
        return Account(bucket, rate, is_strict=is_strict)


class Account:
    """What one request may still change. `throttle_time_ms` is how long its client must wait afterwards."""

    def __init__(self, bucket: _Bucket | None = None, rate: float = 0.0, *, is_strict: bool = False) -> None:
        self._bucket = bucket
        self._rate = rate
        self._is_strict = is_strict
        self.throttle_time_ms = 0

    def charge(self, partitions: int) -> None:
        """Pays for so many partitions, or raises THROTTLING_QUOTA_EXCEEDED and takes nothing."""
        bucket = self._bucket
        if bucket is None:
            return
        if self._is_strict and bucket.tokens < 0:
            self._keep_waiting(bucket)
            reason = (
                f"the quota of {self._rate:g} partitions per second ({KEY}) is used up:"
                f" try again in {self.throttle_time_ms} ms"
            )
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, reason)
        bucket.tokens -= partitions
        if not self._is_strict and bucket.tokens < 0:
            self._keep_waiting(bucket)

    def _keep_waiting(self, bucket: _Bucket) -> None:
        wait_ms = min(round(-bucket.tokens / self._rate * 1000), _THROTTLE_MS_MAX)
        self.throttle_time_ms = max(self.throttle_time_ms, wait_ms)


def find_rate(
    quotas: Mapping[Entity, Mapping[str, float]], user: str, client_id: str, key: str = KEY
) -> tuple[float, Owner] | None:
    """The quota that counts for a user's client, and who shares it; None if there is none.

    The order is that of Kafka, for quotas of every kind. Whoever has no name, as a user or as a client, has
    no quota by that name, not even that of all.

    >>> quotas = {(("user", "ann"),): {KEY: 5.0}, (("client-id", None), ("user", None)): {KEY: 1.0}}
    >>> find_rate(quotas, "ann", "app"), find_rate(quotas, "bob", "app"), find_rate({}, "ann", "app")
    ((5.0, ('ann', '')), (1.0, ('bob', 'app')), None)
    """
    for entity, owner in (
        ((("client-id", client_id), ("user", user)), (user, client_id)),
        ((("client-id", None), ("user", user)), (user, client_id)),
        ((("user", user),), (user, "")),
        ((("client-id", client_id), ("user", None)), (user, client_id)),
        ((("client-id", None), ("user", None)), (user, client_id)),
        ((("user", None),), (user, "")),
        ((("client-id", client_id),), ("", client_id)),
        ((("client-id", None),), ("", client_id)),
    ):
        rate = quotas.get(entity, {}).get(key)
        if rate is not None and _has_names(entity, user, client_id):
            return rate, owner
    return None


def _has_names(entity: Entity, user: str, client_id: str) -> bool:
    return all((client_id if kind == "client-id" else user) for kind, _ in entity)
