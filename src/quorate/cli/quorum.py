"""The quorum of controllers: who leads, how far everyone is, who votes from now on.

Controllers are asked themselves, or brokers, which ask them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, Final, TypeVar, cast

import typer

from quorate.cli.asking import (
    BOOTSTRAP_SERVER,
    JsonOption,
    fail,
    nobody_answered,
    print_json,
    print_table,
    run,
)
from quorate.client.controllers import Controllers, Described
from quorate.client.errors import Unavailable, code_of
from quorate.client.metadata import parse_addresses
from quorate.net.connections import Address
from quorate.node.config import ConfigError
from quorate.node.config_file import load_config
from quorate.node.format import parse_initial_controllers
from quorate.protocol.api.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.protocol.types import ZERO_UUID, Uuid
from quorate.raft.voters import ReplicaKey, Voter
from quorate.storage.errors import StorageError
from quorate.storage.files import ReadOnlyFiles
from quorate.storage.meta_properties import load_meta_properties

__all__ = ["app", "describe"]

T = TypeVar("T")
TIMEOUT_MS: Final = 30_000  # for a new voter to catch up
LISTENER: Final = "CONTROLLER"

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The quorum of controllers.")

ControllerOption = Annotated[
    str, typer.Option("--bootstrap-controller", metavar="HOST:PORT,...", help="Controllers to ask.")
]
ServerOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help=f"Brokers to ask; {BOOTSTRAP_SERVER} if nothing is said.",
    ),
]


@app.command("describe")
def describe_quorum(
    bootstrap_controller: ControllerOption = "",
    bootstrap_server: ServerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Who leads, and how far everyone is."""
    found = _as_dict(_ask(bootstrap_controller, bootstrap_server, lambda controllers: controllers.describe()))
    if as_json:
        print_json(found)
        return
    print(
        f"leader {found['leader_id']}, epoch {found['leader_epoch']},"
        f" high watermark {found['high_watermark']}"
    )
    replicas = [("voter", one) for one in found["voters"]]
    replicas += [("observer", one) for one in found["observers"]]
    rows = [
        (kind, one["id"], one["log_end_offset"], one["lag"], one["directory_id"]) for kind, one in replicas
    ]
    print_table(("KIND", "ID", "LOG END", "LAG", "DIRECTORY"), rows, "it has no voters")


@app.command("add")
def add(
    controller: Annotated[
        str, typer.Argument(metavar="[ID@HOST:PORT:DIRECTORY-ID]", help="A controller that runs already.")
    ] = "",
    config: Annotated[
        str, typer.Option("-c", "--config", metavar="FILE", help="Its configuration, if it runs here.")
    ] = "",
    bootstrap_controller: ControllerOption = "",
    bootstrap_server: ServerOption = "",
) -> None:
    """Makes a controller a voter. It must run, as an observer, and the quorum be one that can change."""
    if bool(controller) == bool(config):
        fail("which one? Say ID@HOST:PORT:DIRECTORY-ID, or --config FILE")
    try:
        voter = _configured(config) if config else _typed(controller)
    except (ConfigError, StorageError) as error:
        fail(str(error))
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=TIMEOUT_MS,
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory,
        listeners=[
            AddRaftVoterRequest.Listener(name=one.name, host=one.host, port=one.port)
            for one in voter.endpoints
        ],
    )

    async def ask(controllers: Controllers) -> None:
        said = cast("AddRaftVoterResponse", await controllers.ask_leader(request))
        _check(said.error_code, said.error_message)

    _ask(bootstrap_controller, bootstrap_server, ask)
    print(f"controller {voter.key} votes")


@app.command("remove")
def remove(
    controller_id: Annotated[int, typer.Argument(min=0, metavar="ID", help="The id of a voter.")],
    directory_id: Annotated[
        str, typer.Option(metavar="ID", help="Of its log; that which the quorum knows, if not said.")
    ] = "",
    bootstrap_controller: ControllerOption = "",
    bootstrap_server: ServerOption = "",
) -> None:
    """Takes the vote from a controller. It goes on as an observer until it is stopped."""

    async def ask(controllers: Controllers) -> ReplicaKey:
        known = [
            one for one in (await controllers.describe()).current_voters if one.replica_id == controller_id
        ]
        if not known and not directory_id:
            raise ApiError(ErrorCode.VOTER_NOT_FOUND, f"controller {controller_id} is not a voter")
        directory = Uuid.parse(directory_id) if directory_id else known[0].replica_directory_id
        if directory == ZERO_UUID:
            reason = "the quorum is a static one: voters cannot change at kraft.version 0"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, reason)
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=controller_id, voter_directory_id=directory
        )
        said = cast("RemoveRaftVoterResponse", await controllers.ask_leader(request))
        _check(said.error_code, said.error_message)
        return ReplicaKey(controller_id, directory)

    key = _ask(bootstrap_controller, bootstrap_server, ask)
    print(f"controller {key} votes no more")


def describe(addresses: Sequence[Address]) -> dict[str, Any]:
    """What the leader says about the quorum; an ApiError if nobody knows a leader, or nobody answers."""

    async def ask() -> Described:
        async with Controllers(addresses) as controllers:
            return await controllers.describe()

    try:
        return _as_dict(asyncio.run(ask()))
    except Unavailable as error:
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"no leader answered: {error}") from None


def _ask(controllers: str, servers: str, question: Callable[[Controllers], Coroutine[Any, Any, T]]) -> T:
    if controllers and servers:
        fail("say --bootstrap-controller or --bootstrap-server, and not both")
    asked = controllers or servers or BOOTSTRAP_SERVER

    async def ask() -> T:
        async with Controllers(parse_addresses(asked)) as asking:
            try:
                return await question(asking)
            except Unavailable as error:
                whom = "controller" if controllers else "broker"
                raise nobody_answered(whom, asked, str(error)) from None

    return run(ask())


def _check(number: int, message: str | None) -> None:
    code = code_of(number)
    if code is not ErrorCode.NONE:
        raise ApiError(code, message or code.name)


def _typed(text: str) -> Voter:
    return next(iter(parse_initial_controllers(text, LISTENER)))


def _configured(path: str) -> Voter:
    """A controller of this machine, as its configuration and its directory say."""
    config = load_config(path)
    meta = load_meta_properties(ReadOnlyFiles(), config.metadata_directory)
    if meta is None or meta.directory_id is None:
        raise ConfigError(f"{path}: {config.metadata_directory} is not formatted: quorate storage format")
    return Voter(ReplicaKey(config.node_id, meta.directory_id), (config.advertised_controller,))


def _as_dict(found: Described) -> dict[str, Any]:
    leader_end = max((one.log_end_offset for one in found.current_voters + found.observers), default=0)
    for one in found.current_voters + found.observers:
        if one.replica_id == found.leader_id:
            leader_end = one.log_end_offset

    def replica(one: Described.ReplicaState) -> dict[str, Any]:
        return {
            "id": one.replica_id,
            "directory_id": str(one.replica_directory_id),
            "log_end_offset": one.log_end_offset,
            "lag": leader_end - max(0, one.log_end_offset),
            "last_fetch_timestamp": one.last_fetch_timestamp,
            "last_caught_up_timestamp": one.last_caught_up_timestamp,
        }

    return {
        "leader_id": found.leader_id,
        "leader_epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "voters": [replica(one) for one in found.current_voters],
        "observers": [replica(one) for one in found.observers],
    }
