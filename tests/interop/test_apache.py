"""Apache Kafka's own generated classes: every message, every version, byte for byte and field by field."""

from __future__ import annotations

import pytest
from apache_oracle import ApacheOracle, Confirmed

import vectors
from quorate.protocol import frame
from quorate.protocol.api import APIS
from samples import REQUESTS, VERSIONS

pytestmark = pytest.mark.interop


def confirm(apache: ApacheOracle, apache_39: ApacheOracle, salt: str) -> list[vectors.Vector]:
    """Every candidate, confirmed by the release that has its version; fails on the first difference."""
    confirmed = []
    for oracle in (apache, apache_39):
        chosen = [
            one
            for one in vectors.candidates(salt)
            if oracle is judge(apache, apache_39, one[0].__name__, one[1])
        ]
        answers = oracle.roundtrip_many((cls.__name__, version, data) for cls, version, _, data in chosen)
        for (cls, version, message, data), answer in zip(chosen, answers, strict=True):
            assert isinstance(answer, Confirmed), f"{cls.__name__} v{version}: {answer}: {message}"
            assert answer.data == data, f"{cls.__name__} v{version}: {message}"
            vectors.assert_same_fields(message, version, answer.fields)
            confirmed.append(vectors.Vector(cls.__name__, version, data, answer.fields))
    return sorted(confirmed)


def judge(apache: ApacheOracle, apache_39: ApacheOracle, name: str, version: int) -> ApacheOracle:
    """The pinned release wherever it has the version; the older one for what 4.0 dropped."""
    versions = apache.versions(name)
    return apache if versions is not None and version in versions else apache_39


@pytest.mark.parametrize("salt", ["", "a second time", "a third time"])
def test_every_version_is_confirmed_by_apache(apache, apache_39, salt, record_property):
    confirmed = confirm(apache, apache_39, salt)
    compared = {(one.name, one.version) for one in confirmed}
    assert compared == {(cls.__name__, version) for cls, version in VERSIONS}
    names = {name for name, _ in compared}
    figure = f"compared with Apache {apache.release} and {apache_39.release}: {len(names)} messages, "
    record_property("figure", figure + f"{len(compared)} message versions")


def test_the_committed_vectors_are_still_confirmed(apache, apache_39):
    """Anything that `make vectors` would change shows here first."""
    kept = vectors.load()
    for oracle in (apache, apache_39):
        mine = [one for one in kept if oracle is judge(apache, apache_39, one.name, one.version)]
        answers = oracle.roundtrip_many((one.name, one.version, one.data) for one in mine)
        for one, answer in zip(mine, answers, strict=True):
            assert answer == (one.data, one.fields)


def test_we_have_every_version_that_apache_has(apache):
    ours = {(cls.__name__, version) for cls, version in VERSIONS}
    theirs = {(name, version) for name in apache.names() for version in apache.versions(name) or ()}
    tiered_storage = {name for name, _ in theirs if name.startswith("Remote") and "RemoteLog" in name}
    not_ours = tiered_storage | {"RemotePartitionDeleteMetadataRecord", "ControlRecordTypeSchema"}
    assert {(name, version) for name, version in theirs - ours if name not in not_ours} == set()


def test_served_versions_and_listeners_are_those_of_the_pinned_release(apache):
    apis = {api.key: api for api in apache.apis()}
    assert sorted(apis) == sorted(APIS)
    for request in REQUESTS:
        api = apis[request.__key__]
        assert APIS[request.__key__][0] == api.name
        assert request.__served__ == range(api.lowest, api.highest_stable + 1), api
        assert set(request.__listeners__) == api.listeners, api


def test_header_versions_are_those_of_apache(apache, apache_39):
    for request in REQUESTS:
        for version in request.__versions__:
            oracle = judge(apache, apache_39, request.__name__, version)
            theirs = oracle.header_versions(request.__key__, version)
            assert frame.request_header_version(request.__key__, version) == theirs.request
            assert frame.response_header_version(request.__key__, version) == theirs.response
