"""kafka-python's own integration tests, from its source distribution, which is kept where built things are.

The distribution lacks two modules that the tests import: an empty `test` package, and the services that they
would start if they were not pointed at a broker that runs already. The tests of TLS cannot be pointed at one:
they ask for a broker of their own. So what they ask is answered with the listener of one that runs.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from apache_oracle import BUILD, built, run
from kafka import KafkaAdminClient

from unpacking import unpack

HERE = Path(__file__)
LOCK = HERE.parents[2] / "requirements.lock"
TIMEOUT_SECONDS = 300
AGAIN_MAX = 2
SERVICE = '''
class ExternalService:
    """A broker that somebody else runs."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    close = dump_logs = wait_for = open


class SpawnedService:
    def __init__(self, *_arguments, **_options):
        raise RuntimeError("the broker runs already")
'''
TLS = '''
import os

from test.integration.fixtures import KafkaFixture

_instance = KafkaFixture.instance


def instance(broker_id, **options):
    """Who asks for a broker with TLS gets the one that runs, and the authority that has signed for it."""
    if options.get("transport") != "SSL":
        return _instance(broker_id, **options)
    broker = _instance(broker_id, **options, port=int(os.environ["TLS_PORT"]), external=True)
    broker.ssl_dir = os.environ["TLS_AUTHORITY"]
    return broker


KafkaFixture.instance = instance
'''


class Doors(NamedTuple):
    """Where a broker on this machine listens, and the certificate of who has signed its own."""

    port: int
    tls_port: int
    authority: Path


def run_suite(doors: Doors, modules: Sequence[str], without: Collection[str], work: Path) -> "Ran":
    """Runs its modules, without some tests, against a broker on this machine.

    The client has a race: if a consumer subscribes while the answer to its first question for metadata is
    under way, `ClusterMetadata.update_metadata` forgets that there is another to ask, and the topic is not
    heard of for five minutes. So a few tests that failed are run once more, by themselves.
    """
    suite = _suite()
    version = _version_of(doors.port)
    (suite / "servers" / version / "kafka-bin").mkdir(parents=True, exist_ok=True)
    files = [f"test/integration/test_{one}_integration.py" for one in modules]
    left_out = [f"--deselect={file}::{one}" for file in files for one in without]
    environment = os.environ | {
        "KAFKA_VERSION": version,
        "KAFKA_URI": f"kafka://127.0.0.1:{doors.port}",
        "TLS_PORT": str(doors.tls_port),
        "TLS_AUTHORITY": str(_authority(doors.authority, work)),
    }

    def run_tests(*tests: str) -> dict[str, str]:
        """What each came to, by its id."""
        report = work / "report.xml"
        report.unlink(missing_ok=True)
        options = ["-q", "-o", "addopts=", "-p", "no:cacheprovider", f"--junitxml={report}"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=suite,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert report.exists(), done.stdout
        print(done.stdout)
        return dict(map(_outcome, ElementTree.parse(report).iter("testcase")))

    outcomes = run_tests(*left_out, *files)
    again = [one for one, outcome in outcomes.items() if outcome == "failed"]
    if 0 < len(again) <= AGAIN_MAX:
        outcomes |= run_tests(*again)
    return Ran({one.partition("::")[2]: outcome for one, outcome in outcomes.items()}, again)


def all_modules() -> set[str]:
    """What `run_suite` may be asked for."""
    ends = "test_", "_integration.py"
    files = (_suite() / "test" / "integration").glob("*".join(ends))
    return {one.name.removeprefix(ends[0]).removesuffix(ends[1]) for one in files}


class Ran(NamedTuple):
    """The tests of the suite: passed, skipped or failed, by their names and parameters."""

    outcomes: dict[str, str]
    again: list[str]  # those that failed at first


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    kinds = {one.tag for one in case}
    outcome = "skipped" if "skipped" in kinds else "failed" if kinds & {"failure", "error"} else "passed"
    return f"{str(case.get('classname')).replace('.', '/')}.py::{case.get('name')}", outcome


def _authority(certificate: Path, work: Path) -> Path:
    """A directory with the certificate under the name that the tests have for it."""
    directory = work / "authority"
    directory.mkdir()
    shutil.copy(certificate, directory / "ca-cert")
    return directory


def _version_of(port: int) -> str:
    """The release that the client takes the broker for: the tests go by it."""
    with KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}") as client:
        client.list_topics()
        found = client._manager.broker_version
    return ".".join(map(str, (*found, 0, 0)[:3]))


def _suite() -> Path:
    return next(built(BUILD / "kafka-python-suite", HERE, _prepare).glob("kafka_python-*"))


def _prepare(directory: Path) -> None:
    """Brings the distribution that `requirements.lock` names, checked by its hashes."""
    pinned = re.search(r"^kafka-python==[^\n]*\n(?:    --hash=[^\n]*\n)+", LOCK.read_text(), re.MULTILINE)
    assert pinned is not None
    (directory / "requirement.txt").write_text(pinned[0])
    options = ["--no-binary", ":all:", "--no-deps", "--require-hashes", "--quiet"]
    requirement = str(directory / "requirement.txt")
    run([sys.executable, "-m", "pip", "download", *options, "-d", str(directory), "-r", requirement])
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        unpack(tar, directory)
    (suite,) = [one for one in directory.glob("kafka_python-*") if one.is_dir()]
    (suite / "test" / "__init__.py").touch()
    (suite / "test" / "service.py").write_text(SERVICE)
    (suite / "test" / "conftest.py").write_text(TLS)
    archive.unlink()
