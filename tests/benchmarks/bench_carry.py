"""What ``failback carry`` costs before a master starts: ``make bench-carry``.

    600 offsets, all raised; 60,000 offsets, all raised; a slave that accepts and says nothing

Each is the whole command in a process of its own: seconds, seconds of CPU, MiB of memory. Aims:
600 under 0.5 s, 60,000 under 3 s of CPU and 300 MiB, a silent slave at most 3.5 s.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.support.carry.stopped_master import AnsweringSlave, StoppedMaster
from tests.support.store.store_kit import open_store, put

QUEUES, GROUPS, MESSAGES = 4, 10, 3


class Cost(NamedTuple):
    """Of one run of the command."""

    seconds: float
    cpu_seconds: float
    mebibytes: float
    line: str


def measured(master: StoppedMaster, slave: AnsweringSlave) -> Cost:
    """Run the command once; what it raised is undone."""
    command = [sys.executable, "-m", "failback.carry", "--conf", str(master.conf)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    began = time.monotonic()
    child = subprocess.Popen(
        [*command, "--slave", slave.address],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert child.stdout is not None
    with child.stdout:
        line = child.stdout.read().strip()
    _, status, used = os.wait4(child.pid, 0)
    seconds = time.monotonic() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, line
    subprocess.run([*command, "--undo"], env=environment, capture_output=True, check=False)
    return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, line)


def prepared(folder: Path, topics: int) -> tuple[StoppedMaster, dict[str, dict[int, int]]]:
    """Return a stopped master with messages in all queues, and what a slave knows better."""
    master = StoppedMaster(folder, messages=0)
    store = open_store(master.store, mapped_file_bytes=1 << 24)
    for number in range(topics):
        for queue in range(QUEUES):
            for _ in range(MESSAGES):
                put(store, topic=f"orders_{number:04}", queue_id=queue)
        store.commit_pending()
    store.close()

    def table(offset: int) -> dict[str, dict[int, int]]:
        return {
            f"orders_{number:04}@billing_{group}": dict.fromkeys(range(QUEUES), offset)
            for number in range(topics)
            for group in range(GROUPS)
        }

    master.has(table(1))
    return master, table(MESSAGES)


def main() -> int:
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as scratch:
        for topics in (15, 1500):
            master, known = prepared(Path(scratch) / str(topics), topics)
            with AnsweringSlave(master, known) as slave:
                runs = [measured(master, slave) for _ in range(3)]
            show(f"{topics * QUEUES * GROUPS:,} offsets", min(runs))
        with AnsweringSlave(master, {}) as slave:
            slave.silent.set()
            show("silent slave", measured(master, slave))
    return 0


def show(what: str, cost: Cost) -> None:
    print(
        f"{what:>15}: {cost.seconds:5.2f} s, {cost.cpu_seconds:5.2f} s CPU, "
        f"{cost.mebibytes:4.0f} MiB   {cost.line}"
    )


if __name__ == "__main__":
    sys.exit(main())
