"""Whole reports on a cluster, and what they take of the driver: Python and its JVM.

Executors are processes of their own (Spark's ``local-cluster``), as on a cluster: what they have
is not the driver's. Each report is a process of its own, as users start it. Its answer is held
against the truth beside the run before its figures count.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks.analytics.bench import generated
from tests.benchmarks.analytics.engine_race import answer_of, is_right
from tests.benchmarks.analytics.synthetic import Plan
from tests.benchmarks.documents import Table
from tests.benchmarks.targets import Target, at_most

MASTER: Final = "local-cluster[2,1,1024]"
HEAP: Final = "512m"
"""Of the driver's JVM."""
FACTORS: Final = (1, 3, 10)
"""Sizes of the runs, as multiples of ``--rows``."""
SMALL_ROWS: Final = 2_000
FLAT: Final = at_most(1.15)
DRIVER_MIB: Final = at_most(1.5 * 1024)
LARGEST_SECONDS: Final = at_most(600)
SMALL_SECONDS: Final = {"local": at_most(3), "spark": at_most(25)}
_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Case:
    """What repeats are like, and what counts as the same message."""

    name: str
    shape: str
    options: Sequence[str] = ()
    part: int = 1
    """Its runs have so many times fewer deliveries: ``generate`` takes its time for them."""


CASES: Final = (
    Case("ranges", "windows"),
    Case("scattered", "scattered", part=10),
    Case("by key", "scattered", ("--key", "businessKey"), part=10),
)
"""Handovers, which repeat ranges of offsets; messages sent twice, each a range of its own; and the
same where nothing is dense, since a message is the hash of a text."""


@dataclass(frozen=True, slots=True)
class Whole:
    """One report."""

    rows: int
    case: str
    seconds: float
    python_mib: float
    jvm_mib: float
    executor_mib: float
    """The most that any one process of the executors had."""
    right: bool

    @property
    def driver_mib(self) -> float:
        return self.python_mib + self.jvm_mib


@dataclass(frozen=True, slots=True)
class Measured:
    """Reports of runs of several sizes, and how long small ones take."""

    wholes: Sequence[Whole]
    small_seconds: dict[str, float]

    @property
    def wrong(self) -> list[str]:
        """Whose answers differ from the truth."""
        return [f"{each.case}, {each.rows:,}" for each in self.wholes if not each.right]

    @property
    def bars(self) -> list[tuple[str, float, Target]]:
        """What, the figure, and what it has to reach."""
        found = []
        for case in dict.fromkeys(each.case for each in self.wholes):
            mine = [each for each in self.wholes if each.case == case]
            peaks = [each.driver_mib for each in mine]
            largest = max(each.rows for each in mine)
            flat = max(peaks) / min(peaks)
            found.append((f"{case}: driver's largest / smallest peak", flat, FLAT))
            found.append((f"{case}: driver's largest peak, MiB", max(peaks), DRIVER_MIB))
            slowest = max(each.seconds for each in mine if each.rows == largest)
            found.append((f"{case}: seconds of {largest:,}", slowest, LARGEST_SECONDS))
        for engine, seconds in self.small_seconds.items():
            what = f"seconds of {SMALL_ROWS:,}, {engine}"
            found.append((what, seconds, SMALL_SECONDS[engine]))
        return found

    def markdown(self) -> str:
        """The tables of the document."""
        bars = Table("Targets", ("what", "figure (target)"))
        bars.rows += [[what, target.verdict(figure)] for what, figure, target in self.bars]
        columns = ("repeats", "deliveries", "Python", "JVM", "driver", "an executor", "seconds")
        wholes = Table("Peaks in MiB", columns)
        for each in self.wholes:
            sizes = (each.python_mib, each.jvm_mib, each.driver_mib, each.executor_mib)
            numbers = [f"{size:,.0f}" for size in (*sizes, each.seconds)]
            wholes.rows.append([each.case, f"{each.rows:,}", *numbers])
        return f"{bars.markdown()}\n{wholes.markdown()}"


def measured(sizes: Sequence[int], cases: Sequence[Case], scratch: Path) -> Measured:
    """Generate runs of up to these sizes, a tenth of which are repeats, and report on each."""
    wholes = []
    for most in sizes:
        for shape, part in dict.fromkeys((case.shape, case.part) for case in cases):
            rows = most // part
            run = scratch / f"{shape}-{rows}"
            generated(Plan(rows=rows, dup_share=0.1, dup_shape=shape), run)
            for case in cases:
                if (case.shape, case.part) == (shape, part):
                    wholes.append(whole(rows, case, run))
                    print(wholes[-1], flush=True)
            shutil.rmtree(run)
    small = scratch / "small"
    generated(Plan(rows=SMALL_ROWS), small)
    seconds = {engine: seconds_of(small, engine) for engine in SMALL_SECONDS}
    return Measured(wholes, seconds)


def whole(rows: int, case: Case, run: Path, master: str = MASTER) -> Whole:
    """Report on a run, and look at the processes that do it."""
    truth = json.loads((run / "truth.json").read_text())
    with tempfile.TemporaryDirectory(prefix="failback-bench-") as out:
        ours = {"FAILBACK_SPARK_MASTER": master, "FAILBACK_SPARK_MEMORY": HEAP}
        environment = os.environ | ours
        command = [*_command(run, out, "spark"), *case.options]
        began = time.monotonic()
        silent = subprocess.DEVNULL
        with subprocess.Popen(command, env=environment, stdout=silent) as process:
            peaks = _Peaks(process.pid)
            while process.poll() is None:
                peaks.look()
                time.sleep(_LOOK_SECONDS)
        seconds = time.monotonic() - began
        report = Path(out, "report.json")
        right = report.exists() and is_right(answer_of(json.loads(report.read_text())), truth)
    return Whole(rows, case.name, round(seconds, 1), *peaks.mib(), right)


def seconds_of(run: Path, engine: str) -> float:
    """How long a report takes, with the start of everything that it needs."""
    with tempfile.TemporaryDirectory(prefix="failback-bench-") as out:
        began = time.monotonic()
        subprocess.run(_command(run, out, engine), check=False, stdout=subprocess.DEVNULL)
        assert Path(out, "report.json").exists()
        return time.monotonic() - began


def _command(run: Path, out: str, engine: str) -> list[str]:
    words = ["report", str(run), "--engine", engine, "--out", out]
    return [sys.executable, "-m", "failback.cli", *words]


class _Peaks:
    """The most resident memory of a driver, of its JVM, and of any process below that.

    Source: proc(5), ``VmHWM`` of ``/proc/pid/status``.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._kib: dict[int, dict[int, int]] = {0: {}, 1: {}, 2: {}}
        """By depth below the driver, 2 for all deeper ones, and by process."""

    def look(self) -> None:
        below = {self._pid: 0}
        parents = dict(_parents())
        for pid in sorted(parents):
            self._depth(pid, parents, below)
        for pid, depth in below.items():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("VmHWM:"):
                        self._kib[min(depth, 2)][pid] = int(line.split()[1])

    def _depth(self, pid: int, parents: dict[int, int], below: dict[int, int]) -> int | None:
        if pid not in below:
            parent = parents.get(pid)
            above = None if parent is None else self._depth(parent, parents, below)
            if above is None:
                return None
            below[pid] = above + 1
        return below[pid]

    def mib(self) -> tuple[float, float, float]:
        """Of the driver's Python, its JVM, and an executor's process."""
        driver, jvm, executor = (max(kib.values(), default=0) / 1024 for kib in self._kib.values())
        return driver, jvm, executor


def _parents() -> list[tuple[int, int]]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                found.append((int(entry.name), int(stat[1])))
    return found
