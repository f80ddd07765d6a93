"""What the file of a broker of ZooKeeper mode must say, and what cannot be said together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.node.config_values import ConfigError

if TYPE_CHECKING:
    from quorate.node.config import NodeConfig

__all__ = ["check_zookeeper"]


def check_zookeeper(config: NodeConfig) -> None:
    """`ConfigError` for keys that contradict each other, or are missing."""
    if not config["log.dirs"] and not config["log.dir"]:
        raise ConfigError(f"{config.path}: log.dirs is missing: directories")
    known = {config["broker.id"], -1 if config["node.id"] is None else config["node.id"]} - {-1}
    if len(known) > 1:
        raise ConfigError(f"{config.path}: broker.id={config['broker.id']}: node.id={config['node.id']}")
    if not known and not config["broker.id.generation.enable"]:
        raise ConfigError(f"{config.path}: broker.id is missing, and broker.id.generation.enable=false")
    for one in known:
        if config["broker.id.generation.enable"] and one > config["reserved.broker.max.id"]:
            raise ConfigError(
                f"{config.path}: broker.id={one}: allowed is up to reserved.broker.max.id,"
                f" {config['reserved.broker.max.id']}, or set broker.id.generation.enable=false"
            )
    name, names = config["control.plane.listener.name"], [one.name for one in config.broker_listeners]
    if name and (name not in names or name == config.inter_broker_listener):
        raise ConfigError(
            f"{config.path}: control.plane.listener.name={name}: allowed is one of {', '.join(names)}"
            f" that is not inter.broker.listener.name"
        )
