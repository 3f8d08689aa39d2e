"""The grid on which the predictor is checked: its cells, their experiment, what is kept of them.

A cell is a fault under a setting. The four faults of a setting share a run: one kill of the master,
and four groups on topics of their own, of which one runs on and three end and start again at
different moments. What each group was given again is compared with what was predicted for it from
the very experiment file that was run. Timers run at half their length: a harness needs tenths of a
second for what should happen at once.
"""

from __future__ import annotations

import json
import statistics
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

from failback.analytics import predict as package
from failback.analytics.predict.prediction import Prediction, predict
from failback.analytics.predict.questions import Asked
from failback.cli.measure.predict_sources import read_questions
from failback.common.replacing import replace_file
from tests.support.operator.resources import as_file, resource

REPETITIONS: Final = 5
TIME_SCALE: Final = 0.5
KEPT: Final = Path(package.__file__).with_name("grid.json")
LEAST_INSIDE: Final = 0.9
PAIR: Final = "demo-0"
TOPIC: Final = {"queues": 4, "ratePerSecond": 5, "bodyBytes": 128, "preloadMessages": 6000}
HANDLER_MS: Final = 25.0
KILL: Final = {
    "id": "f1",
    "fault": "kill",
    "at": 6,
    "jitterSeconds": 5,
    "target": {"pair": PAIR, "role": "Master"},
    "with": {"downSeconds": 60},
}
ENDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "kill": {},
    "restart-on-slave": {
        "at": 1,
        "with": {"signal": "KILL", "after": "gone:f1", "restartAfterSeconds": 5},
    },
    "handover": {
        "with": {
            "signal": "TERM",
            "after": "slave-serving:f1",
            "minServed": 100,
            "restartAfter": "registered:f1",
            "restartAfterSeconds": 5,
        },
    },
    "restart-after-return": {
        "at": 0.5,
        "with": {"signal": "KILL", "after": "accept:f1", "restartAfterSeconds": 1},
    },
}
"""How the group of each fault ends, in the order in which the groups end; the first runs on."""
FAULTS: Final = tuple(ENDS)


@dataclass(frozen=True)
class Setting:
    """What a cluster and its clients are started with."""

    flush_ms: int
    commit_ms: int
    rules: str

    def __str__(self) -> str:
        return f"flush-{self.flush_ms}-commit-{self.commit_ms}-{self.rules}"

    def cells(self) -> list[Cell]:
        return [Cell(self, fault) for fault in FAULTS]

    def resources(self) -> str:
        """The name server and the pair, as a file for ``failback up``."""
        scale = {"failbackTimeScale": str(TIME_SCALE)}
        cluster = {
            "pairs": 1,
            "slavesPerPair": 1,
            "slaveReadEnable": True,
            "nameServerRef": {"name": "ns"},
            "config": {**scale, "flushConsumerOffsetInterval": str(self.flush_ms)},
            "engine": {"type": "Failback", "rules": self.rules},
        }
        return as_file(
            resource("NameServer", "ns", replicas=1, config=scale),
            resource("BrokerCluster", "demo", **cluster),
        )

    def document(self, seed: int, tag: str = "") -> dict[str, Any]:
        """The experiment of one repetition. ``tag`` keeps the topics of several apart."""
        faults: list[dict[str, Any]] = [dict(KILL)]
        for number, (fault, end) in enumerate(ENDS.items()):
            if end:
                target = {"group": group_of(fault, tag), "mode": "All"}
                name = f"f{number + 1}"
                faults.append({"id": name, "fault": "kill-consumer", "target": target, **end})
        spec = {
            "clusterRef": {"name": "demo"},
            "seed": seed,
            "timeScale": TIME_SCALE,
            "workload": {
                "topics": [{"name": _topic_of(fault, tag), **TOPIC} for fault in FAULTS],
                "groups": [_group(fault, tag) for fault in FAULTS],
                "switches": {
                    "persist_offset_interval_ms": self.commit_ms,
                    "drain_on_shutdown_ms": 30_000,
                },
            },
            "faults": faults,
            "warmupSeconds": 5,
            "cooldownSeconds": 10,
            "steadyState": {"minProducePerSecond": 5, "holdSeconds": 5, "timeoutSeconds": 120},
            "drain": {"timeoutSeconds": 900, "quietSeconds": 3},
            "recoverTimeoutSeconds": 600,
            "healDeadlineSeconds": 600,
            "timeoutSeconds": 1800,
        }
        return resource("ChaosExperiment", "grid", **spec)


def _topic_of(fault: str, tag: str) -> str:
    return f"{fault}{tag}"


def group_of(fault: str, tag: str = "") -> str:
    """The group whose repeats are those of a fault."""
    return f"group-{_topic_of(fault, tag)}"


def _group(fault: str, tag: str) -> dict[str, Any]:
    """One member with one handler; three that are as fast together where several matter."""
    members = 1 if ENDS[fault] else 3
    mean_ms = HANDLER_MS * members
    return {
        "name": group_of(fault, tag),
        "topic": _topic_of(fault, tag),
        "members": members,
        "threads": 1,
        "pullThresholdForQueue": 16,
        "handler": {"meanMs": mean_ms, "jitterMs": mean_ms / 4},
        "start": {"spreadSeconds": 30},
    }


SETTINGS: Final = tuple(
    Setting(flush_ms, commit_ms, rules)
    for flush_ms in (5_000, 1_000)
    for commit_ms, rules in ((5_000, "compat"), (1_000, "compat"), (5_000, "guarded"))
)


@dataclass(frozen=True)
class Cell:
    """One fault under one setting."""

    setting: Setting
    fault: str

    def __str__(self) -> str:
        return f"{self.fault}-{self.setting}"

    def predicted(self) -> Prediction:
        return _predicted(self)


@cache
def _predicted(cell: Cell) -> Prediction:
    """What ``failback predict`` says to the files of a run of this cell."""
    with TemporaryDirectory() as scratch:
        cluster, file = Path(scratch, "cluster.yaml"), Path(scratch, "experiment.yaml")
        cluster.write_text(cell.setting.resources())
        file.write_text(json.dumps(cell.setting.document(seed=1)))
        asked = Asked({}, cluster=cluster, group=group_of(cell.fault))
        (question,) = read_questions(str(file), asked)
    (plan,) = question.plans
    return predict(question.settings, plan)


ALL_CELLS: Final = tuple(cell for setting in SETTINGS for cell in setting.cells())


@dataclass
class Result:
    """What was observed in a cell, one number per repetition, and how much a run was held up.

    ``stall_ms``: the longest time by which a heartbeat of the group's processes came late.
    """

    cell: Cell
    observed: list[int] = field(default_factory=list)
    stall_ms: list[int] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.observed)

    @property
    def inside(self) -> bool:
        return self.cell.predicted().holds(self.median)

    @property
    def numbers_inside(self) -> int:
        """How many of the numbers lie in the band, each for itself."""
        return sum(self.cell.predicted().holds(each) for each in self.observed)

    @property
    def below_worst(self) -> bool:
        return max(self.observed) <= self.cell.predicted().worst

    def row(self) -> str:
        """A line of the table of docs/explanation/predictor.md."""
        p, setting = self.cell.predicted(), self.cell.setting
        seen = ", ".join(map(str, sorted(self.observed)))
        return (
            f"| {self.cell.fault} | {setting.flush_ms} | {setting.commit_ms} | {setting.rules}"
            f" | {p.p5:,.0f} to {p.p95:,.0f} | {p.median:,.0f} | {p.worst:,} | {seen}"
            f" | {self.median:,.0f} | {'yes' if self.inside else 'no'} |"
        )

    def to_dict(self) -> dict[str, Any]:
        """As the package keeps it: what tells a report whether the predictor has held."""
        p, setting = self.cell.predicted(), self.cell.setting
        return {
            "fault": self.cell.fault,
            "flush_ms": setting.flush_ms,
            "commit_ms": setting.commit_ms,
            "rules": setting.rules,
            "p5": round(p.p5),
            "p50": round(p.median),
            "p95": round(p.p95),
            "worst": p.worst,
            "observed": self.observed,
            "stall_ms": self.stall_ms,
        }


class Kept:
    """Results by cell, in a file that is whole after every repetition. Thread safe.

    Predictions are those of the program that writes the file, never what it read.
    """

    ABOUT: Final = (
        "What the grid of tests/support/analytics/predictor_grid.py observed on real brokers."
    )

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._results = {cell: Result(cell) for cell in ALL_CELLS}

    @classmethod
    def read(cls, file: Path) -> Self:
        """Go on with what a file holds, if there is one."""
        kept = cls(file)
        entries = json.loads(file.read_text("utf-8"))["cells"] if file.exists() else []
        for each in entries:
            cell = Cell(Setting(each["flush_ms"], each["commit_ms"], each["rules"]), each["fault"])
            kept._results[cell] = Result(cell, each["observed"], each["stall_ms"])
        return kept

    @property
    def results(self) -> list[Result]:
        """The cells that were run, in the grid's order."""
        with self._lock:
            return [each for each in self._results.values() if each.observed]

    def repetitions(self, setting: Setting) -> int:
        """How many are there of every cell of a setting."""
        with self._lock:
            return min(len(self._results[cell].observed) for cell in setting.cells())

    def add(
        self, setting: Setting, observed: Mapping[str, int], stall_ms: Mapping[str, int]
    ) -> None:
        """Take in one repetition: a number per fault."""
        with self._lock:
            for cell in setting.cells():
                self._results[cell].observed.append(observed[cell.fault])
                self._results[cell].stall_ms.append(stall_ms[cell.fault])
            self._save()

    def save(self) -> None:
        """Write the file, with today's predictions."""
        with self._lock:
            self._save()

    def _save(self) -> None:
        if self._file is not None:
            cells = [json.dumps(each.to_dict()) for each in self._results.values() if each.observed]
            text = ",\n ".join(cells)
            about = json.dumps(self.ABOUT)
            replace_file(self._file, f'{{"about": {about}, "cells": [\n {text}\n]}}\n'.encode())


HEADER: Final = (
    "| fault | flushConsumerOffsetInterval | persistConsumerOffsetInterval | rules | 90 % band"
    " | expected | worst case | observed | median | inside |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def table(results: Sequence[Result]) -> str:
    """The table of docs/explanation/predictor.md."""
    return "\n".join([HEADER, *(each.row() for each in results)])


def summary(results: Sequence[Result]) -> str:
    """What docs/explanation/predictor.md says of all numbers together."""
    total = sum(len(each.observed) for each in results)
    inside = sum(each.numbers_inside for each in results)
    late = max((stall for each in results for stall in each.stall_ms), default=0)
    return (
        f"{inside} of the {total} numbers lie in their bands, {inside / max(total, 1):.0%};"
        f" no heartbeat came more than {late} ms late."
    )


def shortcomings(results: Sequence[Result]) -> list[str]:
    """Why the grid does not hold; empty when it does."""
    found = [f"above the worst case: {each.row()}" for each in results if not each.below_worst]
    outside = [each.row() for each in results if not each.inside]
    if len(outside) > (1 - LEAST_INSIDE) * len(results):
        found += [f"outside of the band: {row}" for row in outside]
    return found
