"""What users get: the wheel, built from this tree and installed where there is nothing else.

The environment has the base install alone, in the locked versions. A client of others runs in the environment
of the tests, so that what it brings with it cannot stand in for something that the wheel forgot to ask for.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import venv
import zipfile
from contextlib import closing
from importlib.metadata import requires
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"
HOST = "127.0.0.1"
DEADLINE_S = 60
INSTALL_S = 600
# What an empty environment would not have: the settings of whoever runs the tests.
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}

pytestmark = pytest.mark.interop


def run(*command: object, seconds: float = DEADLINE_S) -> str:
    done = subprocess.run(
        [str(one) for one in command],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    pip = sys.executable, "-m", "pip", "wheel", "--quiet"
    run(*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", directory, ROOT, seconds=INSTALL_S)
    (found,) = directory.glob("quorate-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel and what it needs, and nothing else."""
    directory = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(directory, with_pip=False)
    programs = directory / "bin"
    locked = directory / "base.lock"
    locked.write_text(base_of(LOCK.read_text()))
    pip = sys.executable, "-m", "pip", "--python", programs / "python"
    # Everything that these need must be among them: pip refuses what has no hash.
    run(*pip, "install", "--quiet", "--require-hashes", "--requirement", locked, seconds=INSTALL_S)
    run(*pip, "install", "--quiet", "--no-deps", wheel, seconds=INSTALL_S)
    run(*pip, "check")
    return programs


def base_of(lock: str) -> str:
    """Those lines of the lock that the base install needs, by what every distribution says of itself."""
    blocks: dict[str, list[str]] = {}  # several, where versions of Python have versions of their own
    for block in re.findall(r"^\S.*(?:\n[ \t].*)*", lock, re.MULTILINE):
        name = canonicalize_name(re.split(r"[=\[; ]", block, maxsplit=1)[0])
        blocks.setdefault(name, []).append(block)
    wanted: dict[str, None] = {}
    left = ["quorate"]
    while left:
        for one in map(Requirement, requires(left.pop()) or ()):
            name = canonicalize_name(one.name)
            if (one.marker is None or one.marker.evaluate({"extra": ""})) and name not in wanted:
                wanted[name] = None
                left.append(name)
    return "\n".join(block for name in wanted for block in blocks[name]) + "\n"


def test_the_wheel_has_both_packages_and_says_that_they_are_typed(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        text = archive.read(metadata).decode()
    assert {"quorate/__init__.py", "quorate/py.typed", "pyspark_quorate/__init__.py"} <= set(names)
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert sources == {name for name in names if name.endswith(".py")}
    assert "License-Expression: Apache-2.0" in text
    tops = {name.partition("/")[0] for name in names}
    assert {one for one in tops if not one.endswith(".dist-info")} == {"quorate", "pyspark_quorate"}


def test_every_module_that_is_not_an_extra_can_be_imported(installed: Path):
    """What a module asks for that the base install does not bring must be the extra's that it belongs to."""
    source = (
        "import importlib, json, pkgutil, quorate\n"
        "missing = {}\n"
        "for one in pkgutil.walk_packages(quorate.__path__, 'quorate.', onerror=lambda _: None):\n"
        "    try:\n"
        "        importlib.import_module(one.name)\n"
        "    except ModuleNotFoundError as error:\n"
        "        missing[one.name] = error.name.partition('.')[0]\n"
        "try:\n"
        "    import pyspark_quorate\n"
        "except ModuleNotFoundError as error:\n"
        "    missing['quorate.spark'] = error.name.partition('.')[0]\n"
        "print(json.dumps(missing))\n"
    )
    missing = json.loads(run(installed / "python", "-W", "error", "-c", source).splitlines()[-1])
    extras = {
        "spark": ("pyspark", "pyarrow", "pandas"),
        "zookeeper": ("kazoo",),
        "web": ("starlette", "uvicorn"),
    }
    for module, name in missing.items():
        part = module.split(".")[1]
        is_of_the_extra = name in extras.get(part, ())
        assert is_of_the_extra or (part == "testing" and name == "pytest"), f"{module} needs {name}"


def test_a_cluster_comes_up_and_a_client_uses_it(installed: Path, tmp_path: Path):
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    data = tmp_path / "data"
    command = [str(installed / "quorate"), "up", "--port", str(port), "--data", str(data)]
    with (tmp_path / "log").open("wb") as log:
        up = subprocess.Popen(command, env=ENVIRONMENT, cwd=tmp_path, stdout=log, stderr=log)
    try:
        state = wait_until_ready(up, data / "cluster.json", tmp_path / "log")
        assert state["bootstrap_servers"] == f"{HOST}:{port}"
        with closing(KafkaProducer(bootstrap_servers=state["bootstrap_servers"])) as producer:
            for number in range(100):
                producer.send("greetings", b"hello %d" % number)
            producer.flush(DEADLINE_S)
        assert read(state["bootstrap_servers"], 100) == [b"hello %d" % one for one in range(100)]
        topics = run(installed / "quorate", "topics", "list", "--bootstrap-server", f"{HOST}:{port}")
        assert "greetings" in topics
        up.send_signal(signal.SIGINT)
        assert up.wait(DEADLINE_S) == 0, (tmp_path / "log").read_text()
    finally:
        if up.poll() is None:
            up.kill()
            up.wait()


def wait_until_ready(up: "subprocess.Popen[bytes]", path: Path, log: Path) -> dict[str, object]:
    deadline = time.monotonic() + DEADLINE_S
    while up.poll() is None and time.monotonic() < deadline:
        state = json.loads(path.read_text()) if path.exists() else {}
        if state.get("ready"):
            return state
        time.sleep(0.02)
    raise AssertionError(log.read_text())


def read(servers: str, count: int) -> list[bytes]:
    options = {"auto_offset_reset": "earliest", "consumer_timeout_ms": DEADLINE_S * 1000}
    found: list[bytes] = []
    with closing(KafkaConsumer("greetings", bootstrap_servers=servers, **options)) as consumer:
        for record in consumer:
            found.append(record.value)
            if len(found) == count:
                break
    return found


def test_the_command_says_what_it_can_do_without_loading_it(installed: Path):
    heavy = "{'numpy', 'asyncio', 'uvloop', 'quorate.protocol', 'quorate.node'}"
    source = (
        f"import atexit, sys; atexit.register(lambda: print('loaded', {heavy} & set(sys.modules)));"
        "sys.argv[:] = ['quorate', '--help']; from quorate.cli.start import main; main()"
    )
    said = run(installed / "python", "-c", source)
    assert "Usage: quorate" in said
    assert said.splitlines()[-1] == "loaded set()"
