"""How a connection begins: the headers of every request and response, and which versions a node speaks."""

from quorate.protocol.message import Message, Request, Response, Struct, field
from quorate.protocol.types import Array, Bool, Int16, Int32, Int64, String


class RequestHeader(Message, versions="0-2", flexible="2+"):
    """Stands before every request. The client id keeps its old length prefix in every version."""

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: String | None = field(default="", since=1, flexible=False)


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """Stands before every response."""

    correlation_id: Int32


class ApiVersionsRequest(Request, key=18, versions="0-4", flexible="3+", listeners="broker controller"):
    """Which versions of which requests do you serve? The first thing a client asks."""

    client_software_name: String = field(default="", since=3, ignorable=True)
    client_software_version: String = field(default="", since=3, ignorable=True)


class ApiVersionsResponse(Response, key=18, versions="0-4", flexible="3+"):
    class ApiVersion(Struct):
        api_key: Int16
        min_version: Int16
        max_version: Int16

    class SupportedFeatureKey(Struct):
        name: String
        min_version: Int16
        max_version: Int16

    class FinalizedFeatureKey(Struct):
        name: String
        max_version_level: Int16
        min_version_level: Int16

    error_code: Int16
    api_keys: Array[ApiVersion]
    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    supported_features: Array[SupportedFeatureKey] = field(default=(), since=3, tag=0, ignorable=True)
    finalized_features_epoch: Int64 = field(default=-1, since=3, tag=1, ignorable=True)
    finalized_features: Array[FinalizedFeatureKey] = field(default=(), since=3, tag=2, ignorable=True)
    zk_migration_ready: Bool = field(default=False, since=3, tag=3, ignorable=True)
