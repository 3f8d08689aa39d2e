"""Where a version of Apache RocketMQ and its Java come from: a cache, filled from Maven Central.

Maven fetches a version when a resource asks for it first, and checks each file's checksum.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from failback.common import java as java_here
from failback.common.maven import NoMaven, cache_folder, fetch_jars, locked
from failback.operator.engines.quirks import PUBLISHED, nearest_versions, numbers_of
from failback.operator.render.apache import logback
from failback.protocol.errors import ConfigError

MINIMUM_JAVA: Final = 17
DEFAULT_VERSION: Final = "4.9.7"
"""Of Apache's servers where no version is given: the newest 4.9 of a broker on Maven Central."""
TESTED: Final = ("4.9.7", "5.1.4", "5.3.3", "5.5.0")
"""Versions that ``make versions`` runs."""
FIELD: Final = "spec.engine.version"
_HOME: Final = "FAILBACK_APACHE_HOME"
_PROGRAMS: Final = ("broker", "namesrv", "tools")


@dataclass(frozen=True, slots=True)
class Apache:
    """An unpacked Apache RocketMQ and the Java that runs it."""

    java: str
    libraries: Path
    home: Path


def find_apache(version: str, log: Callable[[str], None] = lambda line: None) -> Apache:
    """Return Apache RocketMQ's jars, fetched if they are not there yet, and a Java for them.

    ``FAILBACK_APACHE_HOME`` names a folder with ``lib/`` and ``home/conf/``; else
    ``~/.cache/failback/apache-VERSION`` is used.

    Args:
        log: Called before a download, which takes minutes.

    Raises:
        ConfigError: Says the one thing to install or change.
    """
    java = find_java()
    named = os.environ.get(_HOME)
    if named is None:
        folder = ensure_apache(version, log)
    elif not any((Path(named) / "lib").glob("rocketmq-broker-*.jar")):
        raise ConfigError(_HOME, f"no lib/rocketmq-broker-*.jar in {named}")
    else:
        folder = Path(named)
    return Apache(java, folder / "lib", folder / "home")


def ensure_apache(version: str, log: Callable[[str], None] = lambda line: None) -> Path:
    """Return the folder of a version in the cache, with ``lib`` (jars) and ``home`` filled.

    Raises:
        ConfigError: The version is not on Maven Central, or could not be fetched.
    """
    _refuse_unknown(version)
    cache = cache_folder()
    folder = cache / f"apache-{version}"
    if _is_whole(folder, version):
        return folder
    with locked(cache / f"apache-{version}.lock"):
        if not _is_whole(folder, version):  # another process may have fetched it meanwhile
            log(f"fetching Apache RocketMQ {version} from Maven Central into {folder}")
            _make_home(folder / "home")
            _fetch(version, folder / "lib")
    return folder


def find_java() -> str:
    """Return the path of a Java that is new enough.

    Raises:
        ConfigError: There is none.
    """
    java = java_here.find_java()
    needed = f"Java {MINIMUM_JAVA} or newer is needed for engine apache"
    if java is None:
        raise ConfigError("java", f"{needed}; install it: apt-get install openjdk-17-jre-headless")
    version = java_here.version_of(java)
    if version is None or version[1] < MINIMUM_JAVA:
        found = version[0] if version else "an unknown version"
        raise ConfigError("java", f"{needed}, {java} is {found}")
    return java


def _refuse_unknown(version: str) -> None:
    """Refuse a version that was never published; one newer than all known ones may exist."""
    if version not in PUBLISHED and numbers_of(version) < numbers_of(PUBLISHED[-1]):
        raise ConfigError(FIELD, _unpublished(version))


def _unpublished(version: str) -> str:
    near = nearest_versions(version)
    return f"no broker of Apache RocketMQ {version} is on Maven Central; the nearest: {near}"


def _is_whole(folder: Path, version: str) -> bool:
    """Whether the folder is complete: ``lib`` is filled under another name and renamed last."""
    return (folder / "lib" / f"rocketmq-broker-{version}.jar").is_file()


def _fetch(version: str, target: Path) -> None:
    try:
        problem = fetch_jars(
            "failback.operator.local", "apache_pom.xml", target, rocketmq_version=version
        )
    except NoMaven:
        needed = f"fetching Apache RocketMQ {version} needs Maven: apt-get install maven"
        raise ConfigError(FIELD, f"{needed}, or set {_HOME}") from None
    if problem is not None:
        raise ConfigError(FIELD, problem if version in PUBLISHED else _unpublished(version))


def _make_home(home: Path) -> None:
    """Make ``rocketmq.home.dir``: 4.9 does not start without its logback files; 5.x brings them."""
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for name in _PROGRAMS:
        (home / "conf" / f"logback_{name}.xml").write_text(logback(name))
