"""The page for operators says what the tables of keys say, and these say what the code does."""

from pathlib import Path

from tools.list_configs import BEGIN, PAGE, ROOT, tables

from quorate.controller.config_definitions import TOPIC_CONFIGS
from quorate.controller.config_of_brokers import BROKER_KEYS

TABLES = "config_*.py"


def test_the_tables_of_keys_are_those_of_the_code():
    _, mark, written = PAGE.read_text().partition(BEGIN)
    assert mark + written == tables(), "run tools/list_configs.py"


def test_a_key_has_an_effect_if_somebody_goes_by_it():
    """If this fails for a key that you have just begun to use: `_WITHOUT_EFFECT` of `config_of_brokers`."""
    source = ROOT / "src" / "quorate"
    tables = set((source / "controller").glob(TABLES))
    text = "".join(path.read_text() for path in _modules(source) if path not in tables)
    wrong = {
        name: key.has_effect
        for name, key in BROKER_KEYS.items()
        if key.is_dynamic and any(f'"{one}"' in text for one in _names(name)) != key.has_effect
    }
    assert not wrong


def _modules(source: Path) -> list[Path]:
    return [path for path in source.rglob("*.py") if path.parent.name != "protocol"]


def _names(key: str) -> list[str]:
    """The key, and the keys of topics that it is the default of."""
    return [key, *(topic for topic, one in TOPIC_CONFIGS.items() if key in one.synonyms)]
