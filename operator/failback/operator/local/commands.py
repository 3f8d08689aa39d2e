"""What a container's command becomes on this machine: our interpreter, or a JVM."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from failback.operator.render.broker import WHEN_RELEASED
from failback.protocol.errors import ConfigError

MINIMUM_JAVA: Final = 17
DEFAULT_APACHE: Final = "4.9.7"  # the newest 4.9 whose broker is on Maven Central
_INIT: Final = ("failback-init", "--")
_WAIT: Final = ("sh", "-c", WHEN_RELEASED)
_MAIN_CLASSES: Final = {
    "./mqbroker": "org.apache.rocketmq.broker.BrokerStartup",
    "./mqnamesrv": "org.apache.rocketmq.namesrv.NamesrvStartup",
}
_HEAP: Final = {
    "./mqbroker": ("-Xms512m", "-Xmx512m"),
    "./mqnamesrv": ("-Xms128m", "-Xmx256m"),
}
# Without them a clean stop of 4.9 on Java 17 fails half-way: `abort` stays, offsets are lost.
_OPENS: Final = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)


@dataclass(frozen=True, slots=True)
class Apache:
    """An unpacked Apache RocketMQ and the Java that runs it."""

    java: str
    libraries: Path
    home: Path


def own_command() -> list[str]:
    """Return the command line of ``failback`` itself."""
    return [sys.executable, "-m", "failback.cli"]


def to_argv(
    command: Sequence[str], args: Sequence[str], java_options: str, apache: Apache | None
) -> list[str]:
    """Return the process to start for a container.

    Args:
        java_options: ``JAVA_OPT_EXT`` of the container, put last as the start scripts do.

    Raises:
        ConfigError: Nobody here can run such a container.
    """
    words = [*command, *args]
    # This runtime is the parent itself, and starts nothing that is held.
    if tuple(words[:2]) == _INIT:
        words = words[2:]
    elif tuple(words[:3]) == _WAIT:
        words = words[4:]
    if words and words[0] == "failback":
        return [*own_command(), *words[1:]]
    if words and words[0] in _MAIN_CLASSES and apache is not None:
        return [
            apache.java,
            *_HEAP[words[0]],
            *_OPENS,
            f"-Drocketmq.home.dir={apache.home}",
            *shlex.split(java_options),
            "-cp",
            f"{apache.libraries}/*",
            _MAIN_CLASSES[words[0]],
            *words[1:],
        ]
    raise ConfigError("local", f"cannot run {shlex.join(words)} without its image")


def find_apache(version: str) -> Apache:
    """Find Apache RocketMQ's jars and a Java for them.

    ``FAILBACK_APACHE_HOME`` names a folder with ``lib/`` and ``home/conf/``; else
    ``~/.cache/failback/apache-VERSION`` is used.

    Raises:
        ConfigError: Says the one thing to install or run.
    """
    java = find_java()
    named = os.environ.get("FAILBACK_APACHE_HOME")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(named) if named else cache / "failback" / f"apache-{version}"
    if not any((folder / "lib").glob("rocketmq-broker-*.jar")):
        if named is None and version.startswith("4.9.") and version != DEFAULT_APACHE:
            problem = (
                f"the local runtime has Apache {DEFAULT_APACHE} only (the broker of {version} is"
                f" not on Maven Central, or was not fetched): use version: {DEFAULT_APACHE}"
            )
            raise ConfigError("spec.engine.version", problem)
        problem = (
            f"no Apache RocketMQ {version} in {folder}:"
            " run python tools/setup_java.py, or set FAILBACK_APACHE_HOME"
        )
        raise ConfigError("spec.engine.type: Apache", problem)
    return Apache(java, folder / "lib", folder / "home")


def find_java() -> str:
    """Return the path of a Java that is new enough.

    Raises:
        ConfigError: There is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    needed = f"Java {MINIMUM_JAVA} or newer is needed for engine apache"
    if java is None:
        raise ConfigError("java", f"{needed}; install it: apt-get install openjdk-17-jre-headless")
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', shown.stderr)
    if version is None or int(version[1]) < MINIMUM_JAVA:
        found = version[1] if version else "an unknown version"
        raise ConfigError("java", f"{needed}, {java} is {found}")
    return java
