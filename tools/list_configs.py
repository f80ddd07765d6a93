"""Writes the tables of docs/configuration.md: every key, what it may be, and where it is changed.

python -m tools.list_configs
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from quorate.controller import config_documentation
from quorate.controller.config_definitions import (
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
)
from quorate.controller.config_of_brokers import BROKER_KEYS, BrokerKey, Change
from quorate.controller.config_types import Definition
from quorate.controller.settings import GROUP_BOUNDS, bound_keys
from quorate.coordinator.consumer_rules import GROUP_KEYS
from quorate.node.config import SETTINGS, TLS_KEYS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "configuration.md"
BEGIN = "<!-- from here on: tools/list_configs.py -->"
NO_EFFECT = "no effect"
CHECKED_ONLY = frozenset({"controller.quorum.append.linger.ms", "inter.broker.protocol.version"})
"""Keys of a file that must make sense, and that nobody goes by."""

_CHANGES = {
    Change.RESTART: "file",
    Change.BROKER: "broker",
    Change.CLUSTER: "broker, all",
}
_TOPICS_DEFAULTS = frozenset(one for definition in TOPIC_CONFIGS.values() for one in definition.synonyms)


def tables() -> str:
    """Everything after the mark."""
    topics = {name: one for name, one in TOPIC_CONFIGS.items() if not name.startswith("internal.")}
    parts = [
        ("Of a node", "changes", (_of_node(name, key) for name, key in BROKER_KEYS.items())),
        ("Of a topic", "the node's key", (_of_topic(name, one) for name, one in topics.items())),
        ("Of a group", "changes", (_of_group(name, one) for name, one in GROUP_CONFIGS.items())),
        (
            "Of a subscription to client metrics",
            "changes",
            (
                _row(name, one, NO_EFFECT, config_documentation.CLIENT_METRICS[name])
                for name, one in CLIENT_METRICS_CONFIGS.items()
            ),
        ),
    ]
    return "\n".join([BEGIN, *(line for part in parts for line in _table(*part)), ""])


def has_effect(name: str, key: BrokerKey) -> bool:
    """Whether a Quorate node goes by a key."""
    if key.is_dynamic:
        return key.has_effect
    if name in CHECKED_ONLY:
        return False
    return name in SETTINGS or name in TLS_KEYS or name in _TOPICS_DEFAULTS


def _table(title: str, changes: str, rows: Iterable[str]) -> list[str]:
    head = ["", f"### {title}", "", f"| key | type | default | allowed | {changes} | meaning |"]
    return [*head, "|---|---|---|---|---|---|", *rows]


def _of_node(name: str, key: BrokerKey) -> str:
    text = config_documentation.of_broker(name)
    assert text is not None, f"{name}: what is it for?"
    changes = _CHANGES[key.change] + ("" if has_effect(name, key) else f"; {NO_EFFECT}")
    allowed = SETTINGS[name].allowed if name in SETTINGS else None
    return _row(name, key.definition, changes, text, allowed)


def _of_topic(name: str, definition: Definition) -> str:
    """Those of the node, or that nobody goes by any of them."""
    keys = [BROKER_KEYS[one] for one in definition.synonyms]
    text = ", ".join(f"`{one}`" for one in definition.synonyms)
    if keys and not any(key.has_effect and key.is_dynamic for key in keys):
        text += f"; {NO_EFFECT}"
    return _row(name, definition, text, config_documentation.TOPICS[name])


def _of_group(name: str, definition: Definition) -> str:
    changes = "group" if name in GROUP_KEYS else NO_EFFECT
    allowed = " to ".join(f"`{one}`" for one in bound_keys(name)) if name in GROUP_BOUNDS else None
    return _row(name, definition, changes, config_documentation.GROUPS[name], allowed)


def _row(name: str, definition: Definition, changes: str, text: str, allowed: str | None = None) -> str:
    default = (
        "" if definition.default is None else f"`{definition.default}`" if definition.default else "empty"
    )
    wanted = allowed or definition.wanted
    return f"| `{name}` | {definition.type.name.lower()} | {default} | {wanted} | {changes} | {text} |"


def main() -> None:
    written, mark, _ = PAGE.read_text().partition(BEGIN)
    assert mark, f"{PAGE} has no mark"
    PAGE.write_text(written + tables())


if __name__ == "__main__":
    main()
