"""What is set, and where it comes from: configurations, quotas, credentials.

Everything is answered from this broker's image of the cluster, and from its own file: that of another node is
known to that node only, so configurations of a broker are asked of the broker itself.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from quorate.broker import loggers
from quorate.broker.handlers.metadata import CLUSTER_NAME
from quorate.broker.listeners import Reachable
from quorate.broker.serving import Broker, Operation, ResourceKind
from quorate.controller.client_quotas import describe_client_quotas
from quorate.controller.config_descriptions import BROKER_LOGGER, describe_resource, what_is_asked
from quorate.controller.scram import describe_user_scram_credentials
from quorate.controller.settings import ControllerSettings
from quorate.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC, ClusterImage
from quorate.net.many import answers_for_each
from quorate.net.routes import Answer, RequestContext, Route
from quorate.net.slices import Work, in_slices
from quorate.protocol.api.admin import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from quorate.protocol.api.connection import RequestHeader
from quorate.protocol.api.security import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from quorate.protocol.errors import ErrorCode

__all__ = ["Describing"]

_LISTED: Final = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)

_Asked = DescribeConfigsRequest.Resource
_Result = DescribeConfigsResponse.Result

_FORBIDDEN: Final = {
    ResourceKind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceKind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


class Describing:
    """`routes` are the requests that only read."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        settings = broker.settings
        self._settings = ControllerSettings(
            node_id=settings.broker_id,
            cluster_id=settings.cluster_id,
            topic_defaults=settings.topic_defaults,
            properties=broker.configs.file,
        )

    def routes(self) -> list[Route]:
        return [
            Route(DescribeConfigsRequest, self.describe_configs),
            Route(ListConfigResourcesRequest, self.list_config_resources),
            Route(DescribeClientQuotasRequest, self.describe_client_quotas),
            Route(DescribeUserScramCredentialsRequest, self.describe_user_scram_credentials),
        ]

    # Configurations

    def describe_configs(
        self, context: RequestContext, header: RequestHeader, request: DescribeConfigsRequest
    ) -> Answer | Awaitable[Answer]:
        def result(asked: _Asked) -> _Result:
            return self._result(context, asked, request)

        def work() -> Work[DescribeConfigsResponse]:
            kind = _Result, DescribeConfigsResponse, header.request_api_version
            results = yield from answers_for_each(context, request.resources, result, kind, what_is_asked)
            return DescribeConfigsResponse(throttle_time_ms=0, results=results)

        return in_slices(work())

    def _result(self, context: RequestContext, asked: _Asked, request: DescribeConfigsRequest) -> _Result:
        kind = {TOPIC: ResourceKind.TOPIC, GROUP: ResourceKind.GROUP}.get(
            asked.resource_type, ResourceKind.CLUSTER
        )
        name = CLUSTER_NAME if kind == ResourceKind.CLUSTER else asked.resource_name
        if not self._broker.authorize(context, Operation.DESCRIBE_CONFIGS, kind, name):
            return _failed(asked, _FORBIDDEN[kind], "this takes DESCRIBE_CONFIGS")
        return describe_resource(self._broker.image, self._settings, asked, request, loggers.levels)

    def list_config_resources(
        self, context: RequestContext, header: RequestHeader, request: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse:
        """What has configurations of its own, or could have. Version 0 knows of client metrics only."""
        response = ListConfigResourcesResponse(throttle_time_ms=0, error_code=0, config_resources=[])
        if not self._may(context, Operation.DESCRIBE_CONFIGS):
            response.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return response
        listed = _LISTED if header.request_api_version > 0 else (CLIENT_METRICS,)
        wanted = set(request.resource_types or listed)
        if not wanted.issubset(listed):
            response.error_code = ErrorCode.UNSUPPORTED_VERSION
            return response
        resource = ListConfigResourcesResponse.ConfigResource
        response.config_resources = [
            resource(resource_name=name, resource_type=kind)
            for kind in listed
            if kind in wanted
            for name in _names(self._broker.image, kind, context.listener)
        ]
        return response

    # Everything else

    def describe_client_quotas(
        self, context: RequestContext, _header: RequestHeader, request: DescribeClientQuotasRequest
    ) -> DescribeClientQuotasResponse:
        if not self._may(context, Operation.DESCRIBE_CONFIGS):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return DescribeClientQuotasResponse(
                throttle_time_ms=0, error_code=code, error_message=None, entries=None
            )
        return describe_client_quotas(self._broker.image, request)

    def describe_user_scram_credentials(
        self, context: RequestContext, _header: RequestHeader, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        if not self._may(context, Operation.DESCRIBE):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return DescribeUserScramCredentialsResponse(
                throttle_time_ms=0, error_code=code, error_message=None, results=[]
            )
        return describe_user_scram_credentials(self._broker.image, request)

    def _may(self, context: RequestContext, operation: int) -> bool:
        return self._broker.authorize(context, operation, ResourceKind.CLUSTER, CLUSTER_NAME)


def _failed(asked: _Asked, code: ErrorCode, message: str) -> _Result:
    return _Result(
        error_code=code,
        error_message=message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[],
    )


def _names(image: ClusterImage, kind: int, listener: str) -> list[str]:
    """The resources of a kind: topics and brokers that there are, others that have configurations."""
    if kind == TOPIC:
        return sorted(image.topics.by_name)
    if kind in (BROKER, BROKER_LOGGER):
        return [str(one) for one in Reachable(image, listener).endpoints]
    return sorted(name for of_kind, name in image.configs if of_kind == kind)
