"""The directories of a node: made its own, and looked into."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from quorate.cli import storage_info
from quorate.cli.asking import JsonOption
from quorate.cli.failures import errors_as_one_line
from quorate.node.config import ConfigError
from quorate.node.config_file import load_config
from quorate.node.format import format_storage, parse_initial_controllers, random_cluster_id
from quorate.node.host import real_host

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The directories of a node.")


@app.command("random-uuid")
def random_uuid() -> None:
    """A new cluster id."""
    print(random_cluster_id(real_host("storage")))


@app.command("format")
def format_command(
    config: Annotated[
        str, typer.Option("-c", "--config", metavar="FILE", help="The configuration of the node.")
    ],
    cluster_id: Annotated[str, typer.Option("-t", "--cluster-id", metavar="ID", help="That of the cluster.")],
    standalone: Annotated[
        bool, typer.Option("--standalone", help="The only voter of a quorum that can change.")
    ] = False,
    initial_controllers: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="The first voters, the same on all nodes: id@host:port:directory-id,..."
        ),
    ] = "",
    no_initial_controllers: Annotated[
        bool, typer.Option("--no-initial-controllers", help="Joins a quorum that exists.")
    ] = False,
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", help="Leaves directories as they are that are formatted.")
    ] = False,
) -> None:
    """Makes the directories in a configuration those of one node of one cluster."""
    with errors_as_one_line():
        _format(
            config,
            cluster_id,
            is_standalone=standalone,
            initial_controllers=initial_controllers,
            no_initial_controllers=no_initial_controllers,
            ignore_formatted=ignore_formatted,
        )


@app.command("info")
def info(
    directories: Annotated[
        list[str] | None, typer.Argument(metavar="[DIR]", help="Log directories, Quorate's or Apache's.")
    ] = None,
    config: Annotated[
        str, typer.Option("-c", "--config", metavar="FILE", help="Those of a configuration.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """What is in directories: whose they are, the metadata log, its snapshots, replicas. Only looks."""
    storage_info.show_directories(directories or [], config, as_json=as_json)


def _format(
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
