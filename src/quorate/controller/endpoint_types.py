"""Which kind of node DescribeCluster is asked of: a listener of brokers tells brokers, one of controllers
controllers, and each refuses to tell the others."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from quorate.protocol.api.admin import DescribeClusterRequest, DescribeClusterResponse
from quorate.protocol.errors import ErrorCode

__all__ = ["EndpointType", "refused_endpoint_type"]


class EndpointType(IntEnum):
    """The numbers stand in requests; version 0 of them means brokers."""

    BROKER = 1
    CONTROLLER = 2


_MISMATCHED_SINCE: Final = 1  # the version of the answer that knows this error


def refused_endpoint_type(
    request: DescribeClusterRequest, version: int, ours: EndpointType
) -> DescribeClusterResponse | None:
    """The answer to a request that should have gone elsewhere, if it should."""
    wanted = request.endpoint_type
    if wanted == ours:
        return None
    if wanted not in tuple(EndpointType):
        error, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {wanted}"
    else:
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = (
            f"The request was sent to an endpoint of type {ours.name}, but we wanted an endpoint of type"
            f" {EndpointType(wanted).name}"
        )
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=error if version >= _MISMATCHED_SINCE else ErrorCode.INVALID_REQUEST,
        error_message=message,
        cluster_id="",
        brokers=[],
    )
