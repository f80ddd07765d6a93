"""Elections that nobody needs but somebody wants: preferred leaders, by request and by themselves, and
unclean ones by request."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from quorate.protocol.api.topics import ElectLeadersRequest, ElectLeadersResponse
from quorate.protocol.errors import ApiError, ErrorCode
from quorate.zookeeper.context import Key, Status
from quorate.zookeeper.leader_choice import Choice, for_preferred
from quorate.zookeeper.office import Changed, Office
from quorate.zookeeper.znodes import PartitionState

__all__ = ["balance_leaders", "elect_leaders", "elect_preferred"]

PREFERRED: Final = 0
UNCLEAN: Final = 1
BALANCED_AT_ONCE: Final = 1_000

_TopicResult = ElectLeadersResponse.ReplicaElectionResult
_Result = ElectLeadersResponse.ReplicaElectionResult.PartitionResult

_logger = logging.getLogger("quorate.zookeeper")


async def elect_preferred(office: Office, keys: Iterable[Key]) -> Changed:
    """The first replica leads, where it can and does not."""
    context = office.context

    def choose(key: Key, state: PartitionState) -> Choice | None:
        assignment = context.assignment(key)
        if assignment is None or state.leader == assignment.replicas[0]:
            return None
        return for_preferred(assignment, state, lambda one: context.is_online(one, key), context.epoch)

    changed = await office.change([key for key in keys if key[0] not in office.deleting], choose)
    await office.tell_chosen(changed.done)
    return changed


async def balance_leaders(office: Office) -> None:
    """For each broker that leads too little of what it should."""
    context = office.context
    allowed = office.settings.leader_imbalance_per_broker_percentage
    for broker_id in sorted(context.members):
        count = context.preferred_count(broker_id)
        missing = context.preferred_imbalance(broker_id)
        if not count or 100 * len(missing) <= allowed * count:
            continue
        movable = [key for key in missing if key not in context.moving][:BALANCED_AT_ONCE]
        changed = await elect_preferred(office, movable)
        if changed.done:
            _logger.info("leaders balanced broker=%d partitions=%d", broker_id, len(changed.done))


async def elect_leaders(office: Office, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """By request: without a list it is about all partitions, and those that need nothing are left out."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        reason = f"there is no election of type {request.election_type}: 0 is preferred, 1 is unclean"
        raise ApiError(ErrorCode.INVALID_REQUEST, reason)
    context = office.context
    is_everywhere = request.topic_partitions is None
    keys: list[Key] = (
        list(context.keys())
        if request.topic_partitions is None
        else [(one.topic, number) for one in request.topic_partitions for number in one.partitions]
    )
    verdicts = {key: _needed(office, key, request.election_type) for key in keys}
    needy = [key for key, verdict in verdicts.items() if verdict is ErrorCode.NONE]
    if request.election_type == PREFERRED:
        changed, code = await elect_preferred(office, needy), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        changed = await office.elect_where_needed(needy, unclean=True)
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    for key in needy:
        if key not in changed.done:
            verdicts[key] = code
    results: dict[str, _TopicResult] = {}
    for key, verdict in verdicts.items():
        if is_everywhere and verdict is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        topic = results.setdefault(key[0], _TopicResult(topic=key[0], partition_result=[]))
        message = None if verdict is ErrorCode.NONE else f"{key[0]}-{key[1]}: {verdict.name}"
        topic.partition_result.append(_Result(partition_id=key[1], error_code=verdict, error_message=message))
    return ElectLeadersResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, replica_election_results=list(results.values())
    )


def _needed(office: Office, key: Key, election_type: int) -> ErrorCode:
    context = office.context
    assignment = context.assignment(key)
    if assignment is None or key[0] in office.deleting:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if election_type == UNCLEAN:
        is_led = context.status(key) is Status.ONLINE
        return ErrorCode.ELECTION_NOT_NEEDED if is_led else ErrorCode.NONE
    state = context.states.get(key)
    is_preferred = state is not None and state.leader == assignment.replicas[0]
    return ErrorCode.ELECTION_NOT_NEEDED if is_preferred else ErrorCode.NONE
