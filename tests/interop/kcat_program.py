"""kcat: the one on PATH, or that of the system's packages, unpacked where built things are."""

import shutil
import subprocess
from pathlib import Path

from apache_oracle import BUILD, OracleDiedError, built, run

PACKAGES = ("kcat", "librdkafka1", "libyajl2")
HERE = Path(__file__)


def kcat_command() -> list[str] | None:
    """How to run it, if it can be had: it is not worth installing for a test."""
    found = shutil.which("kcat")
    if found is not None:
        return [found]
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return None
    try:
        root = built(BUILD / "kcat", HERE, _unpack)
    except OracleDiedError:
        return None
    libraries = ":".join(str(path) for path in sorted(root.glob("usr/lib/*-linux-gnu")))
    command = ["env", f"LD_LIBRARY_PATH={libraries}", str(root / "usr" / "bin" / "kcat")]
    done = subprocess.run([*command, "-V"], capture_output=True, check=False)
    return command if done.returncode == 0 else None


def _unpack(directory: Path) -> None:
    for package in PACKAGES:
        run(["sh", "-c", f"cd {directory} && apt-get download -qq {package}"])
    for archive in sorted(directory.glob("*.deb")):
        run(["dpkg-deb", "-x", str(archive), str(directory)])
        archive.unlink()
