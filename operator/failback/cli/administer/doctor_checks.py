"""The checks of ``failback doctor``: each says what it found and what to type."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import resource
import shutil
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from failback.cli.shared.errors import EXTRAS
from failback.cli.shared.folders import check_folder
from failback.client.remoting.guarded.cluster import Cluster
from failback.common import java as java_here
from failback.common import numbers
from failback.common.text import install, typed
from failback.protocol.errors import ConfigError, FailbackError

OK: Final = "ok"
OPTIONAL: Final = "optional"
"""Missing, and only some commands need it."""
WARNING: Final = "warning"
MISSING: Final = "missing"

LEAST_FILES: Final = 4096
LEAST_MEMORY: Final = 2 << 30
LEAST_DISK: Final = 4 << 30
FULLEST_DISK: Final = 0.90
"""A broker refuses sends above; 4.9's default of what it may use of a disk."""
LEAST_MAPS: Final = 65_530
_ONLY_FOR: Final = {"operator": "Kubernetes", "spark": "Spark reports"}
"""Extras that local clusters, experiments and reports do without."""
_DISTRIBUTIONS: Final = {"chaoslib": "chaostoolkit-lib", "ruamel": "ruamel.yaml"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of one check."""

    check: str
    state: str
    found: str
    advice: str = ""
    """What to type, or what will not work."""


def look(runs: Path, state: Path, cluster: Cluster) -> Iterator[Finding]:
    """Make every check that needs no name server known, then ask those that are."""
    yield _python()
    yield _platform()
    yield _kernels()
    yield from _extras()
    yield _java()
    yield _files()
    yield _maps()
    yield _memory()
    yield _loopback()
    for option, folder in (("--runs", runs), ("--root", state)):
        yield from _folder(option, folder)
    yield from _other_roots(state)
    for address in cluster.name_servers:
        yield from _name_server(replace(cluster, name_servers=(address,)))


def _python() -> Finding:
    return Finding("Python", OK, f"{platform.python_version()} ({sys.executable})")


def _platform() -> Finding:
    found = f"{platform.system()} {platform.release()}"
    if sys.platform != "linux":
        return Finding("System", WARNING, found, "brokers and faults are tested on Linux only")
    return Finding("System", OK, found)


def _kernels() -> Finding:
    from failback.broker.native import kernels

    if kernels is not None:
        return Finding("Kernels in C", OK, "loaded: the broker is as fast as it can be")
    if os.environ.get("FAILBACK_PURE") == "1":
        return Finding("Kernels in C", OPTIONAL, "switched off", "unset FAILBACK_PURE")
    what = "not there: the broker is slower, all else is the same"
    advice = "install gcc, then pip install . again (in a checkout: make setup)"
    return Finding("Kernels in C", OPTIONAL, what, advice)


def _extras() -> Iterator[Finding]:
    wanted: dict[str, list[str]] = {}
    for module, extra in EXTRAS.items():
        wanted.setdefault(extra, []).append(module)
    for extra, modules in sorted(wanted.items()):
        absent = [each for each in modules if importlib.util.find_spec(each) is None]
        name = f"Extra {extra}"
        if not absent:
            yield Finding(name, OK, "installed")
            continue
        names = ", ".join(_DISTRIBUTIONS.get(each, each) for each in sorted(absent))
        only_for = _ONLY_FOR.get(extra)
        advice = f"{install(extra)}; for {only_for} only" if only_for else install(extra)
        needed = OPTIONAL if only_for else MISSING
        yield Finding(name, needed, f"not there: {names}", advice)


def _java() -> Finding:
    java = java_here.find_java()
    advice = "apt-get install openjdk-17-jre-headless; for Spark reports and engine apache only"
    if java is None:
        return Finding("Java", OPTIONAL, "not there", advice)
    version = java_here.version_of(java)
    if version is None:
        return Finding("Java", OPTIONAL, f"{java} does not tell its version", advice)
    name, major = version
    shown = f"{name} ({java})"
    if major < 17:
        return Finding("Java", OPTIONAL, shown, "Spark 4 needs Java 17 or newer")
    return Finding("Java", OK, shown)


def _files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    most = "unlimited" if hard == unlimited else numbers.count(hard)
    if hard != unlimited and hard < LEAST_FILES:
        advice = f"ulimit -Hn {LEAST_FILES} as root, or LimitNOFILE of the service"
        return Finding("Open files", WARNING, f"at most {most}", advice)
    return Finding("Open files", OK, f"{numbers.count(soft)}, a broker takes up to {most}")


def _maps() -> Finding:
    try:
        found = int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return Finding("vm.max_map_count", OK, "not known here")
    if found < LEAST_MAPS:
        advice = f"sysctl -w vm.max_map_count={LEAST_MAPS}"
        return Finding("vm.max_map_count", WARNING, numbers.count(found), advice)
    return Finding("vm.max_map_count", OK, numbers.count(found))


def _memory() -> Finding:
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return Finding("Memory", OK, "not known here")
    line = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    free = int(line[1]) * 1024 if line else 0
    if free < LEAST_MEMORY:
        advice = f"a demo needs about {numbers.size(LEAST_MEMORY)}; engine apache more"
        return Finding("Memory", WARNING, f"{numbers.size(free)} free", advice)
    return Finding("Memory", OK, f"{numbers.size(free)} free")


def _loopback() -> Finding:
    """Pods of a local cluster have addresses of their own below 127."""
    try:
        with socket.socket() as probe:
            probe.bind(("127.64.0.1", 0))
    except OSError:
        advice = "failback up needs all of 127.0.0.0/8 on the loopback interface"
        return Finding("Loopback", WARNING, "127.64.0.1 is no address here", advice)
    return Finding("Loopback", OK, "127.0.0.0/8")


def _folder(option: str, folder: Path) -> Iterator[Finding]:
    name = f"Folder of {option}"
    try:
        check_folder(option, folder)
    except ConfigError as error:
        yield Finding(name, MISSING, error.problem, f"name another one with {option}")
        return
    yield Finding(name, OK, f"{folder} can be written")
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    usage = shutil.disk_usage(there)
    used = usage.used / usage.total if usage.total else 1.0
    shown = f"{numbers.size(usage.free)} free, {numbers.percent(used)} used"
    if used > FULLEST_DISK or usage.free < LEAST_DISK:
        advice = "brokers refuse sends on a full disk; make room, or name another folder"
        yield Finding(f"Disk of {option}", WARNING, shown, advice)
    else:
        yield Finding(f"Disk of {option}", OK, shown)


def _other_roots(state: Path) -> Iterator[Finding]:
    """Local clusters that run below other folders: what a killed demo or ``up`` may have left."""
    running: Counter[Path] = Counter()
    for each in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):  # it ended, or is another user's
            folder = each.readlink()
            if folder.match("pods/*/home") and (folder.parents[2] / "state.json").is_file():
                running[folder.parents[2]] += 1
    running.pop(state.absolute(), None)
    for root, number in sorted(running.items()):
        down = typed("failback", "down", "--root", root)
        advice = f"unless a demo or experiment of yours runs there: {down}"
        yield Finding(
            f"Cluster in {root}",
            WARNING,
            f"{numbers.counted(number, 'process', 'processes')}",
            advice,
        )


def _name_server(cluster: Cluster) -> Iterator[Finding]:
    from failback.cli.shared.asking import ask
    from failback.client.admin.admin import AdminClient
    from failback.client.admin.queue_offsets import COPIES_NONE
    from failback.protocol.route import ClusterInfo

    async def question(admin: AdminClient) -> ClusterInfo:
        return await admin.cluster_info()

    async def without_offsets(admin: AdminClient) -> list[str]:
        found = []
        for each in members:
            if each.broker_id:
                with contextlib.suppress(FailbackError, OSError):
                    said = await admin.runtime_info(each.addr)
                    version = said.get("brokerVersionDesc")
                    if version in COPIES_NONE and not await admin.all_offsets(each.addr):
                        found.append(f"{each.broker_name}-{each.broker_id}")
        return found

    name = f"Name server {cluster.name_servers[0]}"
    try:
        members = list(ask(cluster, question).members())
    except FailbackError as error:
        yield Finding(name, MISSING, str(error), "is it up, and is a firewall between?")
        return
    yield Finding(name, OK, f"answers; it knows {numbers.counted(len(members), 'broker')}")
    for slave in ask(cluster, without_offsets):
        found = (
            "Apache 5.5.0, and it has no consumer offsets: it copies none (apache/rocketmq#10284)"
        )
        yield Finding(
            f"Slave {slave}", WARNING, found, "start no consumer while its master is down"
        )
