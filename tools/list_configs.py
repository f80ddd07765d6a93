"""Writes the tables of docs/administration.md: every key of a broker and of a topic, and how it changes."""

from __future__ import annotations

from pathlib import Path

from quorate.controller import config_documentation
from quorate.controller.config_definitions import INTERNAL, TOPIC_CONFIGS
from quorate.controller.config_of_brokers import BROKER_KEYS, BrokerKey, Change
from quorate.controller.config_types import Definition

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "administration.md"
BEGIN = "<!-- from here on: tools/list_configs.py -->"

_CHANGES = {
    Change.RESTART: "restart",
    Change.BROKER: "by broker",
    Change.CLUSTER: "by broker, for all",
}


def tables() -> str:
    """Everything after the mark."""
    broker = [_row(name, key.definition, _how(key), _of(name)) for name, key in BROKER_KEYS.items()]
    topic = [
        _row(name, one, _synonyms(one), config_documentation.TOPICS[name])
        for name, one in TOPIC_CONFIGS.items()
        if name not in INTERNAL
    ]
    return "\n".join(
        [
            BEGIN,
            "",
            "### Of a broker",
            "",
            "| key | type | default | changes | |",
            "|---|---|---|---|---|",
            *broker,
            "",
            "### Of a topic",
            "",
            "All of them change while the cluster runs. What a topic does not say, the broker's key says.",
            "",
            "| key | type | default | the broker's | |",
            "|---|---|---|---|---|",
            *topic,
            "",
        ]
    )


def _of(name: str) -> str:
    text = config_documentation.of_broker(name)
    assert text is not None, f"{name}: what is it for?"
    return text


def _how(key: BrokerKey) -> str:
    return _CHANGES[key.change] + ("" if key.has_effect else "; no effect")


def _synonyms(definition: Definition) -> str:
    """Those of the broker, or that nobody goes by any of them."""
    keys = [BROKER_KEYS[one] for one in definition.synonyms]
    text = ", ".join(f"`{one}`" for one in definition.synonyms)
    return text + (
        "; no effect" if keys and not any(key.has_effect and key.is_dynamic for key in keys) else ""
    )


def _row(name: str, definition: Definition, change: str, text: str) -> str:
    default = (
        "" if definition.default is None else f"`{definition.default}`" if definition.default else "empty"
    )
    return f"| `{name}` | {definition.type.name.lower()} | {default} | {change} | {text} |"


def main() -> None:
    written, mark, _ = PAGE.read_text().partition(BEGIN)
    assert mark, f"{PAGE} has no mark"
    PAGE.write_text(written + tables())


if __name__ == "__main__":
    main()
