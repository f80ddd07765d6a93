"""Changing configurations: what concerns this broker is judged here, then the controller decides.

The file of a broker, its loggers, and what it can change while it runs are known to itself alone. So what is
set for a broker is asked of that broker, which says no to what it would not do; levels of loggers it changes
itself. Everything else, and what it has nothing against, is passed on to the active controller. One resource
that is refused does not keep the others from being changed.

A change is answered once this broker goes by it: whoever asks for it next is told what was set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from quorate.broker import loggers
from quorate.broker.cordoning import CORDONED_LOG_DIRS, objection_to
from quorate.broker.handlers.forwarding import Forwarding
from quorate.broker.handlers.metadata import CLUSTER_NAME
from quorate.broker.handlers.own_view import OwnView
from quorate.broker.handlers.shown_configs import Resource as _Resource
from quorate.broker.handlers.shown_configs import change_of
from quorate.broker.serving import Broker, ResourceKind
from quorate.broker.serving import Operation as Right
from quorate.controller.config_descriptions import BROKER_LOGGER
from quorate.controller.config_of_brokers import Change, broker_key
from quorate.controller.config_unused import UNUSED_CONFIGS
from quorate.controller.config_validation import validate_broker_configs
from quorate.controller.configs import Operation
from quorate.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from quorate.net.routes import RequestContext, Route
from quorate.protocol.api.admin import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["AlteringConfigs"]

_Request = AlterConfigsRequest | IncrementalAlterConfigsRequest
_Answer = AlterConfigsResponse.ResourceResponse | IncrementalAlterConfigsResponse.AlterConfigsResourceResponse

SHOWN_MS_MAX: Final = 2_000  # for what somebody else may have changed once more
_CLEANER: Final = ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads")
_CLEANER_BYTES_MIN: Final = 1 << 20  # for each thread
_KNOWN: Final = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


class AlteringConfigs:
    """Answers AlterConfigs, which names all keys of a resource, and IncrementalAlterConfigs."""

    def __init__(self, broker: Broker, forwarding: Forwarding, own_view: OwnView) -> None:
        self._broker = broker
        self._forwarding = forwarding
        self._own_view = own_view

    def routes(self) -> list[Route]:
        return [
            Route(AlterConfigsRequest, self.alter_configs),
            Route(IncrementalAlterConfigsRequest, self.alter_configs),
        ]

    async def alter_configs(
        self, context: RequestContext, header: RequestHeader, request: _Request
    ) -> AlterConfigsResponse | IncrementalAlterConfigsResponse:
        asked: Sequence[_Resource] = request.resources
        answers: dict[int, _Answer] = {}
        times_asked = Counter((one.resource_type, one.resource_name) for one in asked)
        for number, resource in enumerate(asked):
            try:
                if times_asked[resource.resource_type, resource.resource_name] > 1:
                    raise _refused("the resource stands more than once in the request")
                self._check(resource, is_incremental=isinstance(request, IncrementalAlterConfigsRequest))
                if resource.resource_type == BROKER_LOGGER:
                    self._set_levels(context, resource, is_for_real=not request.validate_only)
                    answers[number] = _answer(request, resource, ErrorCode.NONE, None)
            except ApiError as error:
                answers[number] = _answer(request, resource, error.code, error.message)
        left = [one for number, one in enumerate(asked) if number not in answers]
        throttle_time_ms = 0
        if left:
            shown = change_of(left, self._broker.image)
            response: Any = await self._forwarding.forward(context, header, _with(request, left))
            throttle_time_ms = response.throttle_time_ms
            answers |= _placed(asked, answers, response.responses)
            changed = {
                (one.resource_type, one.resource_name)
                for one in response.responses
                if one.error_code == ErrorCode.NONE
            }
            if changed and not request.validate_only:
                await self._own_view.holds(shown(changed), SHOWN_MS_MAX)
        made: Any = [answers[number] for number in sorted(answers)]
        if isinstance(request, AlterConfigsRequest):
            return AlterConfigsResponse(throttle_time_ms=throttle_time_ms, responses=made)
        return IncrementalAlterConfigsResponse(throttle_time_ms=throttle_time_ms, responses=made)

    def _check(self, resource: _Resource, *, is_incremental: bool) -> None:
        """What this broker has to say against it."""
        kind, name = resource.resource_type, resource.resource_name
        _check_keys(resource)
        if kind not in _KNOWN or (kind == BROKER_LOGGER and not is_incremental):
            raise _refused(f"there is no resource type {kind}")
        if kind == BROKER_LOGGER or (kind == BROKER and name):
            self._check_is_us(name)
        if kind == BROKER:
            put = {one.name: one.value or "" for one in resource.configs if _operation(one) is Operation.SET}
            altered = [one.name for one in resource.configs if _operation(one) is not Operation.DELETE]
            _check_dynamic(altered, self._broker.configs.file, is_for_one=bool(name))
            try:
                validate_broker_configs(put)
            except ApiError as error:
                raise _refused(error.message) from None
            self._check_cordoned(resource)
            self._check_cleaner(put)

    def _check_cordoned(self, resource: _Resource) -> None:
        """Only we know which directories there are. What is taken away from the list need not be one."""
        for one in resource.configs:
            operation = _operation(one)
            if one.name != CORDONED_LOG_DIRS or operation not in (Operation.SET, Operation.APPEND):
                continue
            entries = [part.strip() for part in (one.value or "").split(",") if part.strip()]
            if operation is Operation.APPEND:
                entries += self._broker.configs[CORDONED_LOG_DIRS]
            objection = objection_to(entries, self._broker.settings.log_directories)
            if objection is not None:
                raise _refused(objection)

    def _check_cleaner(self, put: Mapping[str, str]) -> None:
        """Threads of the cleaner share the memory for keys; as with Apache, a MiB for each is not enough."""
        if put.keys().isdisjoint(_CLEANER):
            return
        size_bytes, threads = (self._worth(key, put) for key in _CLEANER)
        if size_bytes <= threads * _CLEANER_BYTES_MIN:
            raise _refused(f"{_CLEANER[0]} must be at least 1MB per cleaner thread.")

    def _worth(self, key: str, put: Mapping[str, str]) -> int:
        """A number after the change. One that stands in another file (`${file:...}`) is not known."""
        try:
            return int(put[key])
        except (KeyError, ValueError):
            number: int = self._broker.configs[key]
            return number

    def _check_is_us(self, name: str) -> None:
        me = str(self._broker.settings.broker_id)
        if not name.isascii() or not name.isdecimal():
            raise _refused(f"Node id must be an integer, but it is: {name}")
        if name != me:
            raise _refused(f"Unexpected broker id, expected {me}, but received {name}")

    def _set_levels(self, context: RequestContext, resource: _Resource, *, is_for_real: bool) -> None:
        if not self._broker.authorize(context, Right.ALTER_CONFIGS, ResourceKind.CLUSTER, CLUSTER_NAME):
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "this takes ALTER_CONFIGS")
        for one in resource.configs:
            operation = _operation(one)
            if operation not in (Operation.SET, Operation.DELETE):
                raise _refused(f"{one.name}: allowed is SET or DELETE, a level is not a list")
            loggers.check_change(one.name, one.value if operation is Operation.SET else None)
        if is_for_real:
            for one in resource.configs:
                loggers.set_level(one.name, one.value if _operation(one) is Operation.SET else None)


def _check_keys(resource: _Resource) -> None:
    times_named = Counter(one.name for one in resource.configs)
    twice = sorted(name for name, times in times_named.items() if times > 1)
    if twice:
        raise _refused(f"{', '.join(twice)}: stands more than once in the request")
    null = [one.name for one in resource.configs if one.value is None and _operation(one) != Operation.DELETE]
    if null:
        raise _refused(f"{', '.join(null)}: allowed is a value, not null")


def _check_dynamic(names: Sequence[str], file: Mapping[str, str], *, is_for_one: bool) -> None:
    """A key that Kafka does not have may be a plugin's: its value can be anything."""
    known = {name: key for name in names if (key := broker_key(name, file)) is not None}
    fixed = sorted(
        name for name in names if name in UNUSED_CONFIGS or (name in known and not known[name].is_dynamic)
    )
    if fixed:
        raise _refused(
            f"Cannot update these configs dynamically: [{', '.join(fixed)}]."
            f" Set them in the file of the broker, and restart it"
        )
    single = [name for name, key in known.items() if key.change is Change.BROKER]
    if single and not is_for_one:
        raise _refused(
            f"Cannot update these configs at default cluster level, broker id must be specified:"
            f" [{', '.join(single)}]"
        )


def _operation(config: Any) -> Operation | None:
    """What is to be done with a key; None is nothing that there is, which the controller refuses."""
    number = getattr(config, "config_operation", Operation.SET)
    return Operation(number) if number in tuple(Operation) else None


def _with(request: _Request, resources: Sequence[Any]) -> _Request:
    """The same for some of the resources."""
    return type(request)(resources=list(resources), validate_only=request.validate_only)


def _placed(
    asked: Sequence[_Resource], answered: dict[int, _Answer], theirs: Sequence[_Answer]
) -> dict[int, _Answer]:
    """The controller's answers, by the places of the resources in the request."""
    places = {
        (one.resource_type, one.resource_name): number
        for number, one in enumerate(asked)
        if number not in answered
    }
    beyond = len(asked)  # what was not asked for, as it came
    return {
        places.get((one.resource_type, one.resource_name), beyond + number): one
        for number, one in enumerate(theirs)
    }


def _answer(request: _Request, resource: _Resource, code: ErrorCode, message: str | None) -> _Answer:
    kind: Any = (
        AlterConfigsResponse.ResourceResponse
        if isinstance(request, AlterConfigsRequest)
        else IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    )
    answer: _Answer = kind(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    return answer


def _refused(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)
