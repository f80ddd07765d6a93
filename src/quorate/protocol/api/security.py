"""Who is there, and what they may do: SASL, credentials, delegation tokens, access control lists."""

from quorate.protocol.message import Message, Request, Response, Struct, field
from quorate.protocol.types import Array, Bool, Bytes, Int8, Int16, Int32, Int64, String


class SaslHandshakeRequest(Request, key=17, versions="0-1", flexible="none", listeners="broker controller"):
    """Chooses a SASL mechanism."""

    mechanism: String


class SaslHandshakeResponse(Response, key=17, versions="0-1", flexible="none"):
    error_code: Int16
    mechanisms: Array[String]


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+", listeners="broker controller"):
    """Carries one token of the chosen mechanism."""

    auth_bytes: Bytes


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    error_code: Int16
    error_message: String | None
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = field(default=0, since=1, ignorable=True)


class DescribeUserScramCredentialsRequest(
    Request, key=50, versions="0", flexible="0+", listeners="broker controller"
):
    """Which users have SCRAM credentials? Never the credentials themselves."""

    class UserName(Struct):
        name: String

    users: Array[UserName] | None


class DescribeUserScramCredentialsResponse(Response, key=50, versions="0", flexible="0+"):
    class Result(Struct):
        class CredentialInfo(Struct):
            mechanism: Int8
            iterations: Int32

        user: String
        error_code: Int16
        error_message: String | None
        credential_infos: Array[CredentialInfo]

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    results: Array[Result]


class AlterUserScramCredentialsRequest(
    Request, key=51, versions="0", flexible="0+", listeners="broker controller"
):
    """Sets or deletes SCRAM credentials."""

    class ScramCredentialDeletion(Struct):
        name: String
        mechanism: Int8

    class ScramCredentialUpsertion(Struct):
        name: String
        mechanism: Int8
        iterations: Int32
        salt: Bytes
        salted_password: Bytes

    deletions: Array[ScramCredentialDeletion]
    upsertions: Array[ScramCredentialUpsertion]


class AlterUserScramCredentialsResponse(Response, key=51, versions="0", flexible="0+"):
    class Result(Struct):
        user: String
        error_code: Int16
        error_message: String | None

    throttle_time_ms: Int32
    results: Array[Result]


class CreateDelegationTokenRequest(
    Request, key=38, versions="0-3", flexible="2+", served="1-3", listeners="broker controller"
):
    """Creates a token that others can authenticate with."""

    class CreatableRenewers(Struct):
        principal_type: String
        principal_name: String

    owner_principal_type: String | None = field(default="", since=3)
    owner_principal_name: String | None = field(default="", since=3)
    renewers: Array[CreatableRenewers]
    max_lifetime_ms: Int64


class CreateDelegationTokenResponse(Response, key=38, versions="0-3", flexible="2+"):
    error_code: Int16
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = field(default="", since=3)
    token_requester_principal_name: String = field(default="", since=3)
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: String
    hmac: Bytes
    throttle_time_ms: Int32


class RenewDelegationTokenRequest(
    Request, key=39, versions="0-2", flexible="2+", served="1-2", listeners="broker controller"
):
    """Makes a token live longer."""

    hmac: Bytes
    renew_period_ms: Int64


class RenewDelegationTokenResponse(Response, key=39, versions="0-2", flexible="2+"):
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32


class ExpireDelegationTokenRequest(
    Request, key=40, versions="0-2", flexible="2+", served="1-2", listeners="broker controller"
):
    """Makes a token end sooner."""

    hmac: Bytes
    expiry_time_period_ms: Int64


class ExpireDelegationTokenResponse(Response, key=40, versions="0-2", flexible="2+"):
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32


class DescribeDelegationTokenRequest(
    Request, key=41, versions="0-3", flexible="2+", served="1-3", listeners="broker controller"
):
    """Tokens by owner."""

    class Owner(Struct):
        principal_type: String
        principal_name: String

    owners: Array[Owner] | None


class DescribeDelegationTokenResponse(Response, key=41, versions="0-3", flexible="2+"):
    class DescribedDelegationToken(Struct):
        class DescribedDelegationTokenRenewer(Struct):
            principal_type: String
            principal_name: String

        principal_type: String
        principal_name: String
        token_requester_principal_type: String = field(default="", since=3)
        token_requester_principal_name: String = field(default="", since=3)
        issue_timestamp: Int64
        expiry_timestamp: Int64
        max_timestamp: Int64
        token_id: String
        hmac: Bytes
        renewers: Array[DescribedDelegationTokenRenewer]

    error_code: Int16
    tokens: Array[DescribedDelegationToken]
    throttle_time_ms: Int32


class DescribeAclsRequest(
    Request, key=29, versions="0-3", flexible="2+", served="1-3", listeners="broker controller"
):
    """Access control entries that match a filter."""

    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = field(default=3, since=1)
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


class DescribeAclsResponse(Response, key=29, versions="0-3", flexible="2+"):
    class Resource(Struct):
        class AclDescription(Struct):
            principal: String
            host: String
            operation: Int8
            permission_type: Int8

        resource_type: Int8
        resource_name: String
        pattern_type: Int8 = field(default=3, since=1)
        acls: Array[AclDescription]

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    resources: Array[Resource]


class CreateAclsRequest(
    Request, key=30, versions="0-3", flexible="2+", served="1-3", listeners="broker controller"
):
    """Adds access control entries."""

    class AclCreation(Struct):
        resource_type: Int8
        resource_name: String
        resource_pattern_type: Int8 = field(default=3, since=1)
        principal: String
        host: String
        operation: Int8
        permission_type: Int8

    creations: Array[AclCreation]


class CreateAclsResponse(Response, key=30, versions="0-3", flexible="2+"):
    class AclCreationResult(Struct):
        error_code: Int16
        error_message: String | None

    throttle_time_ms: Int32
    results: Array[AclCreationResult]


class DeleteAclsRequest(
    Request, key=31, versions="0-3", flexible="2+", served="1-3", listeners="broker controller"
):
    """Deletes access control entries that match filters."""

    class Filter(Struct):
        resource_type_filter: Int8
        resource_name_filter: String | None
        pattern_type_filter: Int8 = field(default=3, since=1)
        principal_filter: String | None
        host_filter: String | None
        operation: Int8
        permission_type: Int8

    filters: Array[Filter]


class DeleteAclsResponse(Response, key=31, versions="0-3", flexible="2+"):
    class FilterResult(Struct):
        class MatchingAcl(Struct):
            error_code: Int16
            error_message: String | None
            resource_type: Int8
            resource_name: String
            pattern_type: Int8 = field(default=3, since=1)
            principal: String
            host: String
            operation: Int8
            permission_type: Int8

        error_code: Int16
        error_message: String | None
        matching_acls: Array[MatchingAcl]

    throttle_time_ms: Int32
    filter_results: Array[FilterResult]


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    """A principal, as a forwarding broker puts it into an Envelope."""

    type: String
    name: String
    token_authenticated: Bool
