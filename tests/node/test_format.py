"""What a newly formatted directory holds."""

import asyncio

from controller_cluster import CLUSTER_ID
from quorate.controller.features import default_features
from quorate.metadata.log_format import decode_record
from quorate.metadata.records import FeatureLevelRecord
from quorate.metadata.versions import METADATA_VERSION_LATEST
from quorate.node.config import parse_config
from quorate.node.format import format_storage
from quorate.node.host import real_host
from quorate.storage.bootstrap import read_bootstrap


def test_a_cluster_begins_with_the_default_levels_of_all_features(tmp_path):
    directory = str(tmp_path / "data")
    config = parse_config(
        "node.properties",
        {
            "process.roles": "controller",
            "node.id": "1",
            "listeners": "CONTROLLER://localhost:9093",
            "controller.quorum.voters": "1@localhost:9093",
            "metadata.log.dir": directory,
        },
    )
    host = real_host("1")
    assert asyncio.run(format_storage(host, config, CLUSTER_ID)) == [directory]
    records = [decode_record(value)[0] for value in read_bootstrap(host.files, directory)]
    assert records == [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in default_features(METADATA_VERSION_LATEST).items()
    ]
    assert [one.name for one in records] == [
        "metadata.version",
        "eligible.leader.replicas.version",
        "group.version",
        "share.version",
        "streams.version",
        "transaction.version",
    ]
