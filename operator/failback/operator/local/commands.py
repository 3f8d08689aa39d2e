"""What a container's command becomes on this machine: our interpreter, or a JVM."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Final

from failback.operator.local.apache_release import Apache
from failback.operator.render.broker import WHEN_RELEASED
from failback.protocol.errors import ConfigError

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
        ConfigError: The local runtime cannot run such a container.
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
