"""Where a version of Apache RocketMQ and its Java come from: a cache, filled from Maven Central.

Maven fetches a version when a resource asks for it first, and checks each file's checksum.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from failback.common import java as java_here
from failback.common.files import cache_folder
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
_FETCH_SECONDS: Final = 1200.0
_LAST_WORDS: Final = 300


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
    with _locked(cache / f"apache-{version}.lock"):
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
    maven = shutil.which("mvn")
    if maven is None:
        needed = f"fetching Apache RocketMQ {version} needs Maven: apt-get install maven"
        raise ConfigError(FIELD, f"{needed}, or set {_HOME}")
    half = target.with_name(f".{target.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    # A pom of our own folder may lie where nothing can be written; Maven writes nothing beside it.
    folder = resources.files("failback.operator.local")
    with resources.as_file(folder.joinpath("apache_pom.xml")) as pom:
        command = [maven, "-q", "-B", "--strict-checksums", "-f", str(pom)]
        command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += [f"-DoutputDirectory={half}", f"-Drocketmq.version={version}"]
        problem = _run(command)
        if problem is not None:  # it may be one that Maven remembers; -U asks again
            problem = _run([*command, "-U"])
    if problem is not None:
        raise ConfigError(FIELD, problem if version in PUBLISHED else _unpublished(version))
    shutil.rmtree(target, ignore_errors=True)
    half.rename(target)


def _run(command: list[str]) -> str | None:
    """Run Maven; return what it said last of a failure."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_FETCH_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"Maven did not end within {_FETCH_SECONDS:g} s"
    if done.returncode == 0:
        return None
    errors = [line for line in done.stdout.splitlines() if line.startswith("[ERROR] ")]
    said = errors[0].removeprefix("[ERROR] ") if errors else f"exit code {done.returncode}"
    return f"Maven could not fetch it: {said[:_LAST_WORDS]}"


def _make_home(home: Path) -> None:
    """Make ``rocketmq.home.dir``: 4.9 does not start without its logback files; 5.x brings them."""
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for name in _PROGRAMS:
        (home / "conf" / f"logback_{name}.xml").write_text(logback(name))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
