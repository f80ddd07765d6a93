"""What a newly formatted directory holds."""

import asyncio
from pathlib import Path

import pytest

from controller_cluster import CLUSTER_ID
from quorate.controller.features import default_features
from quorate.metadata.log_format import decode_record
from quorate.metadata.records import FeatureLevelRecord
from quorate.metadata.versions import METADATA_VERSION_LATEST
from quorate.node.config import parse_config
from quorate.node.format import format_storage
from quorate.node.host import real_host
from quorate.storage.bootstrap import read_bootstrap
from quorate.storage.files import RealFiles


@pytest.mark.parametrize("log_dirs", ["data/one,data/two", "one,two"])
def test_the_names_of_log_directories_survive_a_power_failure(tmp_path, monkeypatch, log_dirs):
    """Also where the file says where they are from where the command is run."""
    monkeypatch.chdir(tmp_path)
    synced = []
    fsync_dir = RealFiles.fsync_dir

    async def watched(files, path):
        await fsync_dir(files, path)
        synced.append((Path(path).resolve(), sorted(one.name for one in Path(path or ".").iterdir())))

    monkeypatch.setattr(RealFiles, "fsync_dir", watched)
    config = parse_config(
        "node.properties",
        {
            "process.roles": "broker",
            "node.id": "1",
            "listeners": "PLAINTEXT://localhost:9092",
            "controller.quorum.voters": "2@localhost:9093",
            "log.dirs": log_dirs,
        },
    )
    assert asyncio.run(format_storage(real_host("1"), config, CLUSTER_ID)) == log_dirs.split(",")
    for directory in map(Path, log_dirs.split(",")):
        for one in (directory, *directory.parents):
            if one != Path():
                assert any(at == one.resolve().parent and one.name in names for at, names in synced), one


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
