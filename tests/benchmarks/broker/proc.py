"""What the kernel says of processes, and what machine this is."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from tools.setup_java import CLIENT_VERSION, SERVER_VERSION

from failback.broker.native import kernels
from tests.support.java.apache import java

CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, all its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def anonymous_mib(pid: int) -> float:
    """Resident memory of a process that no file backs: what its mapped store files are not."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"/proc/{pid}/smaps_rollup has no line Anonymous")


def machine() -> str:
    """One line: processors, memory, kernel, versions of everything that took part."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    parts = [
        f"{os.cpu_count()} CPUs ({cpu[1].strip() if cpu else platform.machine()})",
        f"{int(memory[1]) / 2**20:.0f} GiB of memory" if memory else "",
        f"Linux {platform.release()}",
        f"Python {platform.python_version()}",
        f"uvloop {_version('uvloop')}",
        f"msgspec {_version('msgspec')}",
        f"Apache RocketMQ {SERVER_VERSION}",
        f"client {CLIENT_VERSION}",
        f"Java {_java_version()}",
        f"Failback {_commit()} {'with' if kernels else 'without'} kernels",
    ]
    return ", ".join(part for part in parts if part)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _java_version() -> str:
    said = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'version "([^"]+)"', said)
    return found[1] if found else said.partition("\n")[0]


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=False,
    )
    return done.stdout.strip() or _version("failback")
