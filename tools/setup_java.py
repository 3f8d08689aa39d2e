"""Fetch Apache RocketMQ and build our Java and Go test programs: ``python tools/setup_java.py``.

Everything lands under ``~/.cache/failback`` and stays: a second call makes nothing.

    apache-4.9.7/lib, home          name server, broker, mqadmin, as the local runtime has them
    apache-client-4.9.8/lib-*       the client our programs run with
    apache-client-4.9.8/programs-*  the programs of tests/java/programs, compiled against it
    apache-client-4.9.8/load-*      the load generator of the benchmarks, tests/java/load
    class-archives-*                the classes that those JVMs load, for a faster start
    go-member-*                     the member on the Go client, by tools/setup_go.py

``*`` is a digest of what a folder was made from: checkouts that differ have folders of their own.
``FAILBACK_APACHE_HOME`` names another folder with ``lib`` and ``home`` to use instead of the
first. Tests import the functions, the Makefile runs it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JAVA_TESTS = ROOT / "tests" / "java"
SERVER_VERSION = "4.9.7"
CLIENT_VERSION = "4.9.8"

sys.path.insert(0, str(ROOT))
from tools.setup import SetupError, need_command, need_java  # noqa: E402 - a script sees tools/ only


def cache_folder() -> Path:
    """Return where downloads are kept across clones and runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "failback"


def ensure_servers(version: str = SERVER_VERSION) -> Path:
    """Return the folder with ``lib`` (jars) and ``home`` (rocketmq.home.dir) of a version, filled.

    Does nothing for a folder given by the environment, which stands for every version.
    """
    # The project's packages may not be installed yet where only the jars of Spark are fetched.
    from failback.operator.local.apache_release import ensure_apache
    from failback.protocol.errors import ConfigError

    given = os.environ.get("FAILBACK_APACHE_HOME")
    if given:
        home = Path(given)
        if not (home / "lib").is_dir() or not (home / "home" / "conf").is_dir():
            raise SetupError(f"FAILBACK_APACHE_HOME={home} has no lib or no home/conf folder")
        return home
    try:
        return ensure_apache(version, lambda line: print(f"setup: {line}", flush=True))
    except ConfigError as error:
        raise SetupError(str(error)) from error


def ensure_client() -> tuple[Path, Path]:
    """Return the folder of the client's jars, and that of our programs, compiled."""
    return _client("programs", sorted((JAVA_TESTS / "programs").glob("*.java")))


def ensure_load_generator() -> tuple[Path, Path]:
    """Return the folder of the client's jars, and that of the benchmarks' load generator."""
    options = JAVA_TESTS / "programs" / "Options.java"
    return _client("load", [options, *sorted((JAVA_TESTS / "load").glob("*.java"))])


def _client(name: str, sources: list[Path]) -> tuple[Path, Path]:
    home = cache_folder() / f"apache-client-{CLIENT_VERSION}"
    pom = JAVA_TESTS / f"client-{CLIENT_VERSION}" / "pom.xml"
    lib = fetch_jars(pom, home / "lib")
    return lib, once(home / name, [pom, *sources], lambda target: _compile(sources, lib, target))


def fetch_jars(pom: Path, target: Path) -> Path:
    """Return a folder with the jars that a pom names, beside ``target``."""
    return once(target, [pom], lambda folder: _fetch(pom, folder))


def once(target: Path, inputs: Iterable[Path], make: Callable[[Path], None]) -> Path:
    """Return folder ``target-DIGEST`` of the ``inputs``, which is made unless it stands.

    What other inputs made stays: another checkout may run with it now.
    """
    digest = hashlib.sha256()
    for path in inputs:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    made = target.with_name(f"{target.name}-{digest.hexdigest()[:12]}")
    if made.is_dir():
        return made
    with _locked(target.parent):
        if not made.is_dir():  # no other process made it while this one waited
            half = target.with_name(f".{made.name}.half")
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir(parents=True)
            make(half)
            half.rename(made)
    return made


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(pom: Path, target: Path) -> None:
    print(f"setup: fetching {pom.parent.name} from Maven Central", flush=True)
    need_command(("mvn",), "maven", "Maven (fetches Java libraries for tests)")
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={target}"]
    try:
        _run(command)
    except SetupError:
        # A failure may be remembered in the local repository; -U asks again.
        _run([*command, "-U"])
    if not any(target.glob("*.jar")):
        raise SetupError(f"{pom}: Maven fetched no jar")


def _compile(sources: list[Path], lib: Path, target: Path) -> None:
    need_command(("javac",), "openjdk-17-jdk-headless", "javac (compiles the Java test programs)")
    _run(["javac", "-nowarn", "-cp", f"{lib}/*", "-d", str(target), *map(str, sources)])
    # A jar, because no archive of classes can be made of a folder of classes.
    _run(["jar", "--create", "--file", str(target / "programs.jar"), "-C", str(target), "."])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print((done.stdout + done.stderr)[-4000:], file=sys.stderr)
        raise SetupError(f"{' '.join(command[:5])} ... ended with exit code {done.returncode}")


def _make_archives() -> None:
    from tests.support.java.class_archives import make_archives  # the tests' packages need this

    make_archives()


def _ensure_go_member() -> None:
    """Build it; it may be missing, unless the tests are to miss nothing."""
    from tools.setup_go import ensure_go_member  # it needs this module

    try:
        ensure_go_member()
    except SetupError as error:
        if os.environ.get("FAILBACK_REQUIRE") == "all":
            raise
        print(f"setup: no Go member: {error}", file=sys.stderr)


def main() -> int:
    started = time.monotonic()
    try:
        need_java()
        servers = ensure_servers()
        ensure_client()
        _make_archives()
        _ensure_go_member()
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 2
    print(f"setup: Apache RocketMQ is in {servers} ({time.monotonic() - started:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
