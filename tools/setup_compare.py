"""Fetch what ``failback compare`` runs: ``python tools/setup_compare.py``, which is for a checkout.

Everything lands under ``~/.cache/failback`` and stays:

    kafka-4.1.0      jars of the broker and of what it needs, from Maven Central
    redis            Debian's redis-server, unpacked, where none is on PATH; no root is needed
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools.setup import SetupError, need_command  # noqa: E402 - a script sees tools/ only
from tools.setup_kube import cache_folder, locked, run, say  # noqa: E402

from failback.chaos.compare.settings import KAFKA_VERSION  # noqa: E402

_POM: Final = ROOT / "tools" / "kafka" / "pom.xml"
_PACKAGES: Final = ("redis-tools", "liblzf1", "libjemalloc2")
"""Debian's packages with the server and its libraries: ``redis-check-rdb`` is the same program."""
_HINT: Final = "missing: redis-server. Install it: apt-get install redis-server"
_START: Final = """#!/bin/sh
export LD_LIBRARY_PATH={libraries}
exec {program} "$@"
"""


def ensure_kafka() -> Path:
    """Return the folder of Kafka's jars, filled. Raises ``SetupError``."""
    target = cache_folder() / f"kafka-{KAFKA_VERSION}"
    return _once(target, _fetch_kafka)


def ensure_redis() -> Path:
    """Return a redis-server. Raises ``SetupError``."""
    found = shutil.which("redis-server")
    if found is not None:
        return Path(found)
    return _once(cache_folder() / "redis", _fetch_redis) / "redis-server"


def _once(target: Path, fill: Callable[[Path, Path], None]) -> Path:
    """Fill a folder under another name, which is renamed last, unless it is there."""
    with locked(target.name):
        if not target.is_dir():
            half = target.with_name(f".{target.name}.half")
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir(parents=True)
            fill(half, target)
            half.rename(target)
    return target


def _fetch_kafka(folder: Path, _: Path) -> None:
    say(f"fetching Kafka {KAFKA_VERSION} from Maven Central")
    need_command(("mvn",), "maven", "Maven (fetches Kafka)")
    command = ["mvn", "-q", "-B", "--strict-checksums", "-f", str(_POM)]
    command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    command += [f"-DoutputDirectory={folder}", f"-Dkafka.version={KAFKA_VERSION}"]
    run(command, folder=folder)


def _fetch_redis(folder: Path, target: Path) -> None:
    say("fetching Debian's redis-server")
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise SetupError(_HINT)
    folder.chmod(0o755)  # apt fetches as a user of its own
    download = ["apt-get", "download", "-qq", *_PACKAGES]
    try:
        run(download, folder=folder)
    except SetupError:
        if os.geteuid() != 0:
            raise SetupError(_HINT) from None
        run(["apt-get", "update", "-qq"], folder=folder)
        run(download, folder=folder)
    for package in sorted(folder.glob("*.deb")):
        run(["dpkg", "-x", package.name, "."], folder=folder)
    (folder / "usr" / "bin" / "redis-server").unlink(missing_ok=True)
    program = folder / "usr" / "bin" / "redis-check-rdb"
    program.rename(program.with_name("redis-server"))  # by its name it knows that it is to serve
    libraries = next(each.parent for each in folder.rglob("liblzf.so*"))
    start = folder / "redis-server"
    start.write_text(
        _START.format(
            libraries=target / libraries.relative_to(folder),
            program=target / "usr" / "bin" / "redis-server",
        )
    )
    start.chmod(0o755)


def main() -> int:
    try:
        print(f"setup: Kafka is in {ensure_kafka()}, Redis is {ensure_redis()}")
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
