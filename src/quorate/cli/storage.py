"""Formatting the directories of a node."""

from __future__ import annotations

import asyncio

from quorate.node.config import ConfigError
from quorate.node.config_file import load_config
from quorate.node.format import format_storage, parse_initial_controllers, random_cluster_id
from quorate.node.host import real_host

__all__ = ["format_directories", "random_uuid"]


def random_uuid() -> str:
    return random_cluster_id(real_host("storage"))


def format_directories(
    path: str,
    cluster_id: str,
    *,
    is_standalone: bool,
    initial_controllers: str,
    no_initial_controllers: bool,
    ignore_formatted: bool,
) -> None:
    config = load_config(path)
    chosen = [is_standalone, bool(initial_controllers), no_initial_controllers]
    if sum(chosen) > 1:
        raise ConfigError(
            "--standalone, --initial-controllers and --no-initial-controllers exclude each other"
        )
    if not len(config.static_voters) and not any(chosen):
        raise ConfigError(
            f"{path}: without controller.quorum.voters, say who votes first:"
            " --standalone, --initial-controllers or --no-initial-controllers"
        )
    initial = None
    if initial_controllers:
        initial = parse_initial_controllers(initial_controllers, config.controller_listener.name)
    for warning in config.warnings:
        print(f"warning: {warning}")
    done = asyncio.run(
        format_storage(
            real_host("storage"),
            config,
            cluster_id,
            initial=initial,
            is_standalone=is_standalone,
            ignore_formatted=ignore_formatted,
        )
    )
    for directory in done:
        print(f"formatted {directory} for node {config.node_id} of cluster {cluster_id}")
