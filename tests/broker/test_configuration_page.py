"""The page of keys says what the declarations say, and these say what the code does."""

from pathlib import Path

from tools.list_configs import BEGIN, CHECKED_ONLY, PAGE, ROOT, tables

from quorate.controller.config_definitions import TOPIC_CONFIGS
from quorate.controller.config_of_brokers import BROKER_KEYS
from quorate.coordinator.settings import KEYS as GROUP_KEYS
from quorate.node.config import SETTINGS

TABLES = "config_*.py"


def test_the_tables_of_keys_are_those_of_the_code():
    _, mark, written = PAGE.read_text().partition(BEGIN)
    assert mark + written == tables(), "run python -m tools.list_configs"


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


def test_a_key_of_a_file_is_used_or_said_not_to_be():
    """If this fails for a key that you have just begun to use: `CHECKED_ONLY` of `tools.list_configs`."""
    source = ROOT / "src" / "quorate"
    declared = {*(source / "controller").glob(TABLES), source / "testing" / "profiles.py"}
    config = (source / "node" / "config.py").read_text()
    table = config[config.index("SETTINGS: Final") :].partition("\n}\n")[0]
    text = "".join(path.read_text() for path in _modules(source) if path not in declared)
    text = text.replace(table, "")
    prefixes = {"controller.quorum.": "_QUORUM", "zookeeper.": "_ZOOKEEPER"}
    unused = set()
    for name in SETTINGS.keys() - GROUP_KEYS.keys():
        spellings = [f'"{name}"']
        spellings += [
            f'{variable} + "{name.removeprefix(prefix)}"'
            for prefix, variable in prefixes.items()
            if name.startswith(prefix)
        ]
        if not any(one in text for one in spellings):
            unused.add(name)
    assert unused == CHECKED_ONLY


def _modules(source: Path) -> list[Path]:
    return [path for path in source.rglob("*.py") if path.parent.name != "protocol"]


def _names(key: str) -> list[str]:
    """The key, and the keys of topics that it is the default of."""
    return [key, *(topic for topic, one in TOPIC_CONFIGS.items() if key in one.synonyms)]
