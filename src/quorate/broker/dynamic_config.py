"""What a broker's keys are worth now: they can be changed while it runs.

A key's value is what was set for this broker; else what was set as the default of all brokers; else what the
file of the node says; else the default. The first two stand in the metadata log, so a value changes when the
broker applies a record, and whoever goes by it is told then:

    configs["leader.replication.throttled.rate"]             what counts now, of the key's type
    configs.when_changed(adjust, "max.connections")          calls adjust() after it has become another

A listener is told once for all of its keys that changed together, after all values are the new ones; it reads
what it needs. It is not told at the start: whoever begins reads the value then, which at first is that of
the file, until the broker has read its metadata. It must not raise, and must not take long.

Every key that a broker knows can be asked for; which of them change, and of which type they are, stands in
`controller.config_of_brokers`. What was set for a key that takes a restart counts for nothing, and what does
not make sense (the log may have been written by others) is passed over with a warning.

Settings of topics that the broker has a default for (`log.retention.ms` and so on) reach the replicas with
the topic's own: see `topic_config`. They need no listener.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from quorate.controller.config_descriptions import given_to_node
from quorate.controller.config_of_brokers import broker_key
from quorate.metadata.image import BROKER, CLUSTER_DEFAULT, ClusterImage

__all__ = ["DynamicConfig"]

_NOTHING: Final[Mapping[str, str]] = {}


class DynamicConfig:
    """`file` is what the node's own file says, text by key."""

    def __init__(self, broker_id: int, file: Mapping[str, str] | None = None) -> None:
        self.file: Mapping[str, str] = file or {}
        self._broker_id = broker_id
        self._own: Mapping[str, str] = _NOTHING
        self._of_all: Mapping[str, str] = _NOTHING
        self._listeners: list[tuple[Callable[[], None], tuple[str, ...]]] = []
        self._values: dict[str, Any] = {}  # as far as they have been asked for
        self._logger = logging.getLogger(f"quorate.broker.{broker_id}")

    def __getitem__(self, key: str) -> Any:
        """The value that counts; None if nobody gives one, and there is no default."""
        if key not in self._values:
            self._values[key] = self._value(key)
        return self._values[key]

    def when_changed(self, tell: Callable[[], None], *keys: str) -> None:
        """Calls `tell` whenever one or more of the keys have become worth something else."""
        assert all(map(broker_key, keys)), keys
        self._listeners.append((tell, keys))

    def update(self, image: ClusterImage) -> None:
        """The metadata has been read so far. Costs nothing unless configurations of brokers changed."""
        own = image.configs.get((BROKER, str(self._broker_id)), _NOTHING)
        of_all = image.configs.get(CLUSTER_DEFAULT, _NOTHING)
        if own == self._own and of_all == self._of_all:
            return
        before = {key: self[key] for _, keys in self._listeners for key in keys}
        self._note_changes(own, of_all)
        # Copies: an image changes its own in place.
        self._own, self._of_all, self._values = dict(own), dict(of_all), {}
        for tell, keys in self._listeners:
            if any(self[key] != before[key] for key in keys):
                tell()

    def _note_changes(self, own: Mapping[str, str], of_all: Mapping[str, str]) -> None:
        for scope, old, new in (("broker", self._own, own), ("cluster", self._of_all, of_all)):
            for key in sorted(old.keys() | new.keys()):
                if old.get(key) != new.get(key):
                    known = broker_key(key)
                    is_secret = known is None or known.definition.is_sensitive
                    value = "(hidden)" if is_secret and key in new else new.get(key, "(deleted)")
                    self._logger.info("config key=%s scope=%s value=%s", key, scope, value)

    def _value(self, key: str) -> Any:
        known = broker_key(key)
        assert known is not None, key
        definition = known.definition
        for name, text, source in given_to_node(key, self._own, self._of_all, self.file):
            if name != key or text is None:
                continue
            try:
                return definition.read(text)
            except ValueError:
                self._logger.warning(
                    "config key=%s source=%d is passed over: allowed is %s", key, source, definition.wanted
                )
        return None
