"""Reading the configuration file of a node."""

from __future__ import annotations

from pathlib import Path

from quorate.node.config import ConfigError, NodeConfig, parse_config
from quorate.storage.properties import parse_properties

__all__ = ["load_config"]


def load_config(path: str) -> NodeConfig:
    """The configuration in a file; a `ConfigError` if it cannot be read or makes no sense."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file") from None
    try:
        return parse_config(path, parse_properties(text))
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
