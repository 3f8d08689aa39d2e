"""A lake with the runs of an experiment: two arms, three repetitions each, with their documents."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from failback.chaos.faults.catalogue import load_experiment
from failback.cli.shared.bundled import bundled
from failback.client.consumelog.upload.layout import folder_of, place_of
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.support.analytics.run_documents import put_documents

ARMS = {"handover": 0.3, "stay": 0.0}
REPETITIONS = 3
EXPERIMENT = "comparison"


def lake_of_runs(folder: Path) -> Path:
    """Make it below ``folder``; a handover repeats, a stay does not."""
    lake = folder / "lake"
    lake.mkdir(parents=True)
    number = 0
    for arm, share in ARMS.items():
        for repetition in range(REPETITIONS):
            run = folder / "made" / f"{arm}-{repetition}"
            plan = Plan(rows=1_000 + 100 * repetition, dup_share=share, seed=number)
            generate(plan, run)
            _rename(run, arm, repetition, number)
            for part in (run / "lake").glob("table=*/date=*/run=*/*"):
                place = place_of(str(part.relative_to(run / "lake")))
                assert place is not None
                target = lake / folder_of(place.table, run.name, place.day) / part.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(part, target)
            shutil.rmtree(run / "lake")
            put_documents(lake, run)
            number += 1
    shutil.rmtree(folder / "made")
    return lake


def _rename(run: Path, arm: str, repetition: int, hours: int) -> None:
    path = run / "run.json"
    document: dict[str, Any] = json.loads(path.read_text())
    wall = document["zero"]["wall_ns"] + hours * 3600 * 10**9
    document |= {"run": run.name, "experiment": EXPERIMENT, "arm": arm, "repetition": repetition}
    document["zero"] = {**document["zero"], "wall_ns": wall}
    chosen = load_experiment(bundled("experiment.yaml")).arm(arm)
    workload = chosen.workload.model_dump(mode="json", by_alias=True)
    workload["groups"][0]["name"] = document["groups"][0]["name"]
    document["workload"] = workload
    document["faults"] = [each.model_dump(mode="json", by_alias=True) for each in chosen.faults]
    path.write_text(json.dumps(document))
    (run / "manifest.json").unlink(missing_ok=True)
