"""The grid on which the predictor is checked: real local brokers, all timers at a tenth.

A cell is a fault under settings; it is run several times and the median of what came twice is
compared with what was predicted from the very experiment file that was run.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from failback.analytics import predict as package
from failback.analytics.predict import Prediction, predict
from failback.cli.predict_sources import Asked, read_questions
from failback.client.files import replace_file
from tests.support.chaos_lab import (
    RESOURCES,
    TIME_SCALE,
    LocalCluster,
    duplicates,
    experiment,
    run_failback,
)

REPETITIONS = 5
KEPT = Path(package.__file__).with_name("grid.json")
FLUSH_MS = (5_000, 1_000)
RULES = ("compat", "guarded")
FAULTS = ("kill", "handover", "restart-on-slave", "restart-after-return")
COMMITS_MS = {"compat": (5_000, 1_000), "guarded": (5_000,)}

KILL: dict[str, Any] = {
    "id": "f1",
    "fault": "kill",
    "at": 6,
    "jitterSeconds": 5,
    "target": {"pair": "pair-0", "role": "master"},
    "with": {"downSeconds": 50},
}
CONSUMERS: dict[str, dict[str, Any]] = {
    "handover": {
        "with": {
            "signal": "TERM",
            "after": "slave-serving:f1",
            "minServed": 1200,
            "restartAfter": "registered:f1",
            "restartAfterSeconds": 5,
        }
    },
    "restart-on-slave": {
        "at": 20,
        "with": {"signal": "KILL", "after": "gone:f1", "restartAfterSeconds": 5},
    },
    "restart-after-return": {
        "at": 0.5,
        "with": {"signal": "KILL", "after": "accept:f1", "restartAfterSeconds": 1},
    },
}


@dataclass(frozen=True)
class Brokers:
    """What a cluster is started with."""

    flush_ms: int
    rules: str

    def __str__(self) -> str:
        return f"flush-{self.flush_ms}-{self.rules}"


@dataclass(frozen=True)
class Cell:
    """One fault under one set of settings."""

    brokers: Brokers
    fault: str
    commit_ms: int

    def __str__(self) -> str:
        return f"{self.fault}-commit-{self.commit_ms}-{self.brokers}"

    def document(self, topic: str, seed: int) -> Any:
        """The experiment of one repetition."""
        several = self.fault == "kill"
        faults = [KILL]
        if not several:
            target = {"group": f"group-{topic}", "mode": "all"}
            faults += [{"id": "f2", "fault": "kill-consumer", "target": target}]
            faults[1] |= CONSUMERS[self.fault]
        load = {"ratePerSecond": 40, "preloadMessages": 40_000 if several else 12_000}
        group = {
            "members": 3 if several else 1,
            "threads": 1,
            "pullThresholdForQueue": 64,
            "handler": {"meanMs": 8, "jitterMs": 2},
            "start": {"spreadSeconds": 30 if several else 0},
        }
        made = experiment(
            faults,
            topic=topic,
            name="grid",
            load=load,
            group=group,
            cooldownSeconds=35,
            drain={"timeoutSeconds": 900, "quietSeconds": 3},
            recoverTimeoutSeconds=600,
            healDeadlineSeconds=600,
        )
        document = json.loads(made.source)
        spec = document["spec"]
        spec["seed"] = seed
        spec["workload"]["switches"] = {
            "persist_offset_interval_ms": self.commit_ms,
            "drain_on_shutdown_ms": 30_000,
        }
        return document


@dataclass
class Result:
    """What was observed in a cell, and what was predicted."""

    cell: Cell
    predicted: Prediction
    observed: list[int] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.observed)

    @property
    def inside(self) -> bool:
        return self.predicted.holds(self.median)

    def row(self) -> str:
        """A line of the table of docs/predictor.md."""
        p = self.predicted
        seen = ", ".join(map(str, sorted(self.observed)))
        cell = self.cell
        return (
            f"| {cell.fault} | {cell.brokers.flush_ms} | {cell.commit_ms} | {cell.brokers.rules}"
            f" | {p.p5:,.0f} to {p.p95:,.0f} | {p.median:,.0f} | {p.worst:,} | {seen}"
            f" | {self.median:,.0f} | {'yes' if self.inside else 'no'} |"
        )

    def to_dict(self) -> dict[str, Any]:
        """As the package keeps it: what tells a report whether the predictor has held."""
        p, brokers = self.predicted, self.cell.brokers
        return {
            "fault": self.cell.fault,
            "flush_ms": brokers.flush_ms,
            "commit_ms": self.cell.commit_ms,
            "rules": brokers.rules,
            "p5": round(p.p5),
            "p50": round(p.median),
            "p95": round(p.p95),
            "worst": p.worst,
            "observed": sorted(self.observed),
        }

    def keep(self) -> None:
        """Put the cell in place of what the package knew of it."""
        found = json.loads(KEPT.read_text(encoding="utf-8"))
        mine = self.to_dict()
        key = ("fault", "flush_ms", "commit_ms", "rules")
        cells = [each for each in found["cells"] if any(each[k] != mine[k] for k in key)]
        order = {str(cell): number for number, cell in enumerate(ALL_CELLS)}
        cells.append(mine)
        cells.sort(key=lambda each: order[str(cell_of(each))])
        lines = ",\n ".join(json.dumps(each) for each in cells)
        about = json.dumps(found["about"])
        replace_file(KEPT, f'{{"about": {about}, "cells": [\n {lines}\n]}}\n'.encode())


def cell_of(kept: dict[str, Any]) -> Cell:
    """The cell that an entry of the package is about."""
    return Cell(Brokers(kept["flush_ms"], kept["rules"]), kept["fault"], kept["commit_ms"])


def kept_rows() -> list[str]:
    """The table of docs/predictor.md, from what the package keeps."""
    rows = []
    for each in json.loads(KEPT.read_text(encoding="utf-8"))["cells"]:
        median = statistics.median(each["observed"])
        inside = each["p5"] <= median <= each["p95"]
        seen = ", ".join(map(str, each["observed"]))
        rows.append(
            f"| {each['fault']} | {each['flush_ms']} | {each['commit_ms']} | {each['rules']}"
            f" | {each['p5']:,} to {each['p95']:,} | {each['p50']:,} | {each['worst']:,} | {seen}"
            f" | {median:,.0f} | {'yes' if inside else 'no'} |"
        )
    return rows


HEADER = (
    "| fault | flushConsumerOffsetInterval | persistConsumerOffsetInterval | rules | 90 % band"
    " | expected | worst case | observed | median | inside |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def cells(brokers: Brokers) -> list[Cell]:
    """The cells that one cluster can run."""
    return [
        Cell(brokers, fault, commit_ms)
        for fault in FAULTS
        for commit_ms in COMMITS_MS[brokers.rules]
    ]


ALL_CELLS = [cell for flush in FLUSH_MS for rules in RULES for cell in cells(Brokers(flush, rules))]


@contextmanager
def cluster(folder: Path, brokers: Brokers) -> Iterator[LocalCluster]:
    """A pair with these settings; stopped afterwards."""
    folder.mkdir(parents=True)
    file = folder / "cluster.yaml"
    plain = '  config: {failbackTimeScale: "SCALE"}\n'
    assert RESOURCES.endswith(plain)
    own = (
        '  config: {failbackTimeScale: "SCALE",'
        f' flushConsumerOffsetInterval: "{brokers.flush_ms}"}}\n'
        f"  engine: {{type: failback, rules: {brokers.rules}}}\n"
    )
    text = RESOURCES.removesuffix(plain) + own
    file.write_text(text.replace("SCALE", str(TIME_SCALE)))
    root = folder / "root"
    run_failback("up", "-f", str(file), "--root", str(root), "--detach")
    try:
        yield LocalCluster(root)
    finally:
        run_failback("down", "--root", str(root))


def run_cell(lab: LocalCluster, cell: Cell, folder: Path, repetitions: int) -> Result:
    """Predict a cell, then run it so many times."""
    from failback.chaos.spec import load_experiment

    folder.mkdir(parents=True)
    result: Result | None = None
    for number in range(repetitions):
        topic = f"t{ALL_CELLS.index(cell)}x{number}"
        file = folder / f"{number}.yaml"
        file.write_text(json.dumps(cell.document(topic, seed=number + 1)))
        if result is None:
            asked = Asked({}, cluster=lab.root.parent / "cluster.yaml")
            (question,) = read_questions(str(file), asked)
            (plan,) = question.plans
            result = Result(cell, predict(question.settings, plan))
        outcome, lines = lab.run(load_experiment(file), folder / f"run-{number}")
        assert outcome.exit_code == 0, (cell, outcome, lines[-5:])
        result.observed.append(duplicates(folder / f"run-{number}"))
    assert result is not None
    return result


if __name__ == "__main__":
    print("\n".join([HEADER, *kept_rows()]))
