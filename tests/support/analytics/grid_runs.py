"""Runs of the predictor's grid on real local brokers, several clusters at a time.

Most of a run is waiting, so runs stand side by side, each on a cluster of its own with ports and
folders of its own. Whether they disturbed each other is measured: by how much heartbeats of the
clients came late.
"""

from __future__ import annotations

import json
import queue
import shutil
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from failback.chaos.faults.catalogue import parse_experiment
from failback.chaos.run_folder.run_folder import RunFolder
from failback.chaos.workload.life import BEAT_SECONDS
from tests.support.analytics.predictor_grid import (
    FAULTS,
    REPETITIONS,
    SETTINGS,
    Kept,
    Setting,
    group_of,
)
from tests.support.chaos.chaos_lab import LocalCluster, rows, running_cluster

ATTEMPTS: Final = 3
"""A run that is not proved or does not drain proves nothing and is done again, on new brokers."""


class NotProved(AssertionError):
    """A run from which nothing follows."""


@dataclass(frozen=True)
class Observed:
    """One repetition: per fault what came twice, and by how much a heartbeat was late, ms."""

    repeats: Counter[str]
    stall_ms: Counter[str]


class GridRuns:
    """Brings every setting to the wanted number of repetitions.

    Args:
        kept: Where results go, and what is there already.
        scratch: For clusters and run folders; those of runs that failed stay, and those above
            their worst case.
        say: Told what happens, one line at a time.
    """

    def __init__(self, kept: Kept, scratch: Path, say: Callable[[str], None]) -> None:
        self._kept = kept
        self._scratch = scratch
        self._say = say
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._going: set[Path] = set()
        self._numbers: Counter[str] = Counter()
        self.failures: list[str] = []

    def run(
        self,
        settings: Sequence[Setting] = SETTINGS,
        *,
        repetitions: int = REPETITIONS,
        at_once: int = 2,
        seconds: float = float("inf"),
    ) -> None:
        """Run what is missing; begin nothing after ``seconds``. Ends early at :meth:`stop`."""
        left: queue.SimpleQueue[Setting] = queue.SimpleQueue()
        for setting in settings:
            left.put(setting)
        until = time.monotonic() + seconds

        def work() -> None:
            while not self._stop.is_set():
                try:
                    setting = left.get_nowait()
                except queue.Empty:
                    return
                self._bring(setting, repetitions, until)

        workers = [threading.Thread(target=work, name=f"grid-{n}") for n in range(at_once)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def stop(self) -> None:
        """Have the runs that go on undo what they did and end. From another thread or a signal."""
        self._stop.set()
        with self._lock:
            going = list(self._going)
        for run_dir in going:
            RunFolder(run_dir).ask_to_abort("the grid is stopped")

    def _bring(self, setting: Setting, repetitions: int, until: float) -> None:
        """Up to the wanted number, on one cluster as long as its runs prove something."""
        for _ in range(ATTEMPTS):
            try:
                with running_cluster(self._fresh(str(setting)), setting.resources()) as cluster:
                    while self._kept.repetitions(setting) < repetitions:
                        if self._stop.is_set() or time.monotonic() > until:
                            return
                        self._repeat(cluster, setting)
                return
            except NotProved as error:
                self._say(str(error))
                if self._stop.is_set():
                    return
            except Exception as error:  # told to the caller; the other settings go on
                self.failures.append(f"{setting}: {error!r}")
                return
        self.failures.append(f"{setting}: {ATTEMPTS} runs proved nothing")

    def _fresh(self, name: str) -> Path:
        with self._lock:
            self._numbers[name] += 1
            folder = self._scratch / f"{name}.{self._numbers[name]}"
        folder.mkdir(parents=True)
        return folder

    def _repeat(self, cluster: LocalCluster, setting: Setting) -> None:
        number = self._kept.repetitions(setting)
        seed = SETTINGS.index(setting) * 100 + number
        tag = f"-{number}"
        experiment = parse_experiment(json.dumps(setting.document(seed, tag)))
        run_dir = cluster.root.parent / f"run-{number}"
        run_dir.mkdir()
        with self._lock:
            self._going.add(run_dir)
        began = time.monotonic()
        try:
            outcome, said = cluster.run(experiment, run_dir)
        finally:
            with self._lock:
                self._going.discard(run_dir)
        if outcome.exit_code != 0:
            raise NotProved(f"{setting} {number}: {outcome.message or outcome}; {said[-3:]}")
        seen = observed(run_dir, tag)
        self._kept.add(setting, seen.repeats, seen.stall_ms)
        above = [c for c in setting.cells() if seen.repeats[c.fault] > c.predicted().worst]
        if above:  # a bug, or a mechanism that nobody knew
            self._say(f"above the worst case, see {run_dir}: {', '.join(map(str, above))}")
        else:
            shutil.rmtree(run_dir)
        took = time.monotonic() - began
        shown = ", ".join(
            f"{fault} {seen.repeats[fault]} (late {seen.stall_ms[fault]} ms)" for fault in FAULTS
        )
        self._say(f"{setting} {number + 1} in {took:.0f} s: {shown}")


def observed(run_dir: Path, tag: str) -> Observed:
    """Count in the log of a run, after the warm-up: copies that a group was given before."""
    run = json.loads((run_dir / "run.json").read_text())
    warm = run["zero"]["mono_ns"] + run["warmup_end_ns"]
    faults = {group_of(fault, tag): fault for fault in FAULTS}
    repeats: Counter[str] = Counter()
    seen: set[tuple[str, str, str, int, int]] = set()
    for row in sorted(rows(run_dir, "deliver"), key=lambda row: row["bt"]):
        copy = (row["grp"], row["broker"], row["ptopic"], row["qid"], row["qoff"])
        repeats[faults[row["grp"]]] += copy in seen and row["bt"] >= warm
        seen.add(copy)
    assert {group for group, *_ in seen} == set(faults), "a group was given nothing"
    of_process = {each["proc_no"]: faults[each["group"]] for each in run["procs"] if each["group"]}
    beats: dict[int, list[int]] = defaultdict(list)
    for row in rows(run_dir, "life"):
        if row["state"] == "RUNNING" and row["proc_no"] in of_process:
            beats[row["proc_no"]].append(row["mono_ns"])
    late: Counter[str] = Counter()
    for number, times in beats.items():
        times.sort()
        gaps = [later - earlier for earlier, later in pairwise(times)]
        worst = max(gaps, default=0) / 1e6 - BEAT_SECONDS * 1000
        fault = of_process[number]
        late[fault] = max(late[fault], round(worst))
    return Observed(repeats, late)
