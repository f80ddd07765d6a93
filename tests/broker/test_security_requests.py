"""Rights and tokens in a cluster without security: nobody is left to believe that something is protected."""

import asyncio
import inspect
from dataclasses import replace

import pytest

from broker.test_forwarding import Forwarder, codes, header, sample
from broker.test_metadata import ANN, Asked
from controller_cluster import Cluster
from quorate.broker.handlers.forwarding import Forwarding
from quorate.broker.handlers.security import ANONYMOUS, Security
from quorate.protocol.api import response_class
from quorate.protocol.api.security import (
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from quorate.protocol.codec import decode, encode
from quorate.protocol.errors import ErrorCode

ACLS = [DescribeAclsRequest, CreateAclsRequest, DeleteAclsRequest]
TOKENS = [
    CreateDelegationTokenRequest,
    RenewDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    DescribeDelegationTokenRequest,
]
NOBODY = replace(ANN, principal=ANONYMOUS)


def ask(context, kind, version):
    forwarder = Forwarder()
    routes = Security(Asked(Cluster([1])).broker, Forwarding(forwarder)).routes()
    (handler,) = [one.handler for one in routes if one.request is kind]
    request = sample(kind, version)
    answer = handler(context, header(request, version), request)
    response = asyncio.run(answer) if inspect.isawaitable(answer) else answer
    assert forwarder.asked == []
    return codes(decode(response_class(kind.__key__), version, bytes(encode(response, version))))


@pytest.mark.parametrize("kind", ACLS, ids=lambda one: one.__name__)
def test_without_an_authorizer_there_are_no_rights(kind):
    for version in kind.__served__:
        assert set(ask(ANN, kind, version)) == {ErrorCode.SECURITY_DISABLED}


@pytest.mark.parametrize("kind", TOKENS, ids=lambda one: one.__name__)
def test_tokens_are_for_those_who_have_shown_who_they_are(kind):
    for version in kind.__served__:
        assert ask(NOBODY, kind, version) == [ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED]


def test_a_broker_that_takes_no_tokens_tells_of_none():
    kind = DescribeDelegationTokenRequest
    for version in kind.__served__:
        assert ask(ANN, kind, version) == [ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED]
