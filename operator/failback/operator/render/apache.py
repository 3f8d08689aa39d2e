"""The JVM of an Apache server: memory that fits its container, logs that fit their volume. Pure.

The scripts of Apache's images (rocketmq-docker, runbroker-customize.sh) give it a quarter of what
Java sees, without a limit the node's; its GC log goes to memory. They put ``JAVA_OPT_EXT`` last.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib import resources
from typing import Final

from failback.operator.engines.catalogue import quirk
from failback.operator.kinds.base import Engine, Resources, parse_quantity
from failback.operator.kinds.guarding import Tls
from failback.operator.render.context import Context, Object

LEAST_MEMORY: Final = {"broker": "1Gi", "namesrv": "512Mi"}
"""Server → its limit of memory where the resource gives none and requests less."""
LOG_FILE: Final = "logback.xml"
"""Key of a ConfigMap: how an Apache server logs."""
METRICS_PORTS: Final = ("http", "prometheus")
"""Names of ports that are scraped; the second is that of Apache's brokers from 5.1 on."""
_MEBIBYTE: Final = 1024**2
_MOST_HEAP: Final = re.compile(r"(?:-Xmx|-XX:MaxHeapSize=)([0-9]+)([kKmMgG]?)")
_UNITS: Final = {"": 1, "k": 1024, "m": _MEBIBYTE, "g": 1024 * _MEBIBYTE}


def is_bounded(context: Context) -> bool:
    """Whether the release of the pods gives all their containers bounds."""
    return quirk("boundedPods", "failback", context.version) is True


def limited(engine: Engine, server: str, wanted: Resources, context: Context) -> Resources:
    """Return what a server's container asks for; one of Apache's has a limit of memory."""
    given = parse_quantity(wanted.limits.get("memory", "0"))  # 0: none, as in a Pod
    if engine.program != "apache" or given or not is_bounded(context):
        return wanted
    twice = f"{2 * _given_heap(engine) // _MEBIBYTE}Mi"
    asked = (wanted.requests.get("memory", "0"), LEAST_MEMORY[server], twice)
    limits = {**wanted.limits, "memory": max(asked, key=parse_quantity)}
    return wanted.model_copy(update={"limits": limits})


def _given_heap(engine: Engine) -> int:
    """Return the bytes that the resource itself makes the heap; 0 if it does not."""
    found = map(_MOST_HEAP.fullmatch, (engine.java_options or "").split())
    sizes = [int(each[1]) * _UNITS[each[2].lower()] for each in found if each]
    return sizes[-1] if sizes else 0


def excess(engine: Engine, wanted: Resources) -> str:
    """Return what is wrong with the heap that a resource names; empty if it fits its limit."""
    heap, limit = _given_heap(engine), parse_quantity(wanted.limits.get("memory", "0"))
    if not limit or 4 * heap <= 3 * limit:
        return ""
    text = f"a heap of {heap // _MEBIBYTE}Mi by engine.javaOptions is more than three quarters of"
    return f"{text} limits.memory, {wanted.limits['memory']}: the kernel ends such a JVM"


def guarding_options(folder: str, tls: Tls | None, mode: str, *, own_tls: bool) -> str:
    """Return the JVM's options by which a server reads its accounts and speaks TLS.

    Those of PlainPermissionManager and TlsSystemConfig, apache/rocketmq 4.9.7 and 5.1.4: the file
    of accounts begins in ROCKETMQ_HOME, and two settings of TLS count on the command line alone.
    """
    found = {"rocketmq.acl.plain.file": f"/../{folder.rpartition('/')[2]}/plain_acl.yml"}
    if tls is not None:
        found |= {**tls.settings(f"{folder}/"), "tls.server.mode": mode}
        found["tls.enable"] = "true" if own_tls else "false"
    return " ".join(f"-D{key}={value}" for key, value in found.items())


def java_options(
    engine: Engine,
    server: str,
    home: str,
    version: str,
    wanted: Resources,
    context: Context,
    guarding: str = "",
) -> str:
    """Return ``JAVA_OPT_EXT`` of an Apache server.

    Half of the limit is heap. An eighth is direct memory, which Netty and the JVM count apart. So a
    quarter is left for threads, classes, code and the page cache of the log.
    """
    found = [f"-Duser.home={home}", f"-Djava.io.tmpdir={home}/scratch"]
    if engine.program == "apache" and is_bounded(context):
        memory = int(parse_quantity(limited(engine, server, wanted, context).limits["memory"]))
        # Beside -Xmx of the resource alone, -Xms of the scripts could be more than it.
        heap = (_given_heap(engine) or memory // 2) // _MEBIBYTE
        install, file = _paths(home, server, version)
        found += [f"-Drocketmq.home.dir={install}", f"-Drmq.logback.configurationFile={file}"]
        found += [f"-Xms{heap}m", f"-Xmx{heap}m", f"-Xmn{heap // 2}m"]
        found += [f"-XX:MaxDirectMemorySize={memory // 8 // _MEBIBYTE}m"]
        found += [f"-Xloggc:{home}/logs/gc.log"]
    return " ".join(filter(None, (*found, guarding, engine.java_options)))


def log_files(engine: Engine, server: str, context: Context) -> dict[str, str]:
    """Return the file of an Apache server's ConfigMap that caps its logs, if it is to have one."""
    own = engine.program == "apache" and engine.logs.config_map is None and is_bounded(context)
    return {LOG_FILE: logback(server)} if own else {}


def log_mounts(
    engine: Engine, server: str, home: str, version: str, context: Context
) -> list[Object]:
    """Return the mount of that file: where the scripts of Apache's images look for it."""
    if engine.program != "apache" or not is_bounded(context):
        return []
    name = "desired" if engine.logs.config_map is None else "logback"
    _, path = _paths(home, server, version)
    return [{"name": name, "mountPath": path, "subPath": LOG_FILE, "readOnly": True}]


@functools.cache
def logback(server: str) -> str:
    """Return the text for ``broker``, ``namesrv`` or ``tools``: 4.9 and 5.x read the same."""
    text = resources.files("failback.operator.engines").joinpath("apache_logback.xml")
    return text.read_text(encoding="utf-8").replace("NAME", server)


def exporter(engine: Engine, config: Mapping[str, str], context: Context) -> dict[str, int]:
    """Return name and port of a broker's own exporter, if its ``broker.conf`` switches one on."""
    on = engine.program == "apache" and config.get("metricsExporterType") == "PROM"
    port = config.get("metricsPromExporterPort", "5557")
    return {METRICS_PORTS[1]: int(port)} if on and port.isdigit() and is_bounded(context) else {}


def _paths(home: str, server: str, version: str) -> tuple[str, str]:
    """Return ``ROCKETMQ_HOME`` of Apache's images (Dockerfile-alpine), and the log file's place."""
    name = str(quirk("logbackFile", "apache", version)).format(server)
    return f"{home}/rocketmq-{version}", f"{home}/rocketmq-{version}/conf/{name}"
