"""What was to be expected of a run's faults: ``prediction[]``, ``exposure{}`` and ``knobs[]``.

Settings come from the run's documents, rates and ages are measured: the predictor draws only what
is not known before, the phases of timers. Each kill or stop of a master is predicted for each group
with the times that were observed: how long the master was down, when consumers ended and started.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Final

from failback.analytics.analysis.causes.labels import OFFSET_GROUPS, report_group
from failback.analytics.analysis.counting.partials.context import Outage
from failback.analytics.predict.faults import FAULTS, FaultPlan, Start, Stop
from failback.analytics.predict.knobs import Knob, rank_knobs
from failback.analytics.predict.prediction import Prediction, predict
from failback.analytics.predict.settings import Settings
from failback.analytics.report.measures.exposures import exposure_figures
from failback.analytics.report.measures.load_before import measured_settings
from failback.analytics.report.measures.lookups import Figures, declared_group, group_names
from failback.analytics.report.measures.numbers import NS, Row
from failback.protocol.errors import ConfigError

MAX_KNOBS: Final = 10
LEAST_RUNS: Final = 20
LEAST_INSIDE: Final = 0.8
REPLAYED: Final = frozenset({"DELAY_REPLAY", "BROKER_COPY"})
"""Causes beside those of offsets that a prediction counts."""
NO_OUTAGE: Final = "no master was killed or stopped, so there was nothing to predict"


class Unpredictable(Exception):
    """Why a fault of a group is not predicted; one clause."""


def forecast(figures: Figures) -> Row:
    """All three blocks, and in ``notes`` why one is empty.

    Equal runs give equal figures: draws are seeded.
    """
    exposure = exposure_figures(figures)
    notes: dict[str, str] = {}
    if not any(row["max"] is not None for row in exposure.values()):
        notes["exposure"] = "no broker's offsets were sampled"
    outages = figures.analysis.context.outages
    cases: list[tuple[Prediction, Settings]] = []
    rows: list[Row] = []
    reasons: list[str] = []
    for number, outage in enumerate(outages):
        until = outages[number + 1].killed if number + 1 < len(outages) else None
        for group in group_names(figures):
            try:
                plan = observed_plan(figures, outage, until, group)
                settings = measured_settings(figures, number, group)
                predicted = predict(settings, plan)
            except (Unpredictable, ConfigError) as error:
                reasons.append(f"{outage.fid}, group {group}: {error}")
                continue
            cases.append((predicted, settings))
            rows.append(_row(figures, number, group, predicted))
    knobs: list[Row] = []
    if cases:
        # The fault that costs most is the one to turn knobs for.
        pairs = zip(cases, rows, strict=True)
        (worst, settings), row = max(pairs, key=lambda pair: (pair[0][0].mean, pair[0][0].worst))
        knobs = knob_rows(rank_knobs(settings, worst.fault, before=worst), row["observed"])
    if reasons or not outages:
        notes["prediction"] = "; ".join(reasons[:5]) or NO_OUTAGE
    if not knobs:
        nothing = "no setting that the predictor knows would have saved anything"
        notes["knobs"] = nothing if cases else notes["prediction"]
    return {"prediction": rows, "exposure": exposure, "knobs": knobs, "notes": notes}


def knob_rows(ranked: Sequence[Knob], counted: int) -> list[Row]:
    """``knobs``: settings that would have saved something, each at most what was ``counted``.

    A setting that makes the worst case worse is left out.
    """
    rows = []
    for knob in ranked:
        saved, worst = (min(round(value), counted) for value in (knob.saved, knob.saved_worst))
        if min(saved, worst) >= 0 and max(saved, worst) > 0:
            row = {**knob.to_dict(), "predicted_reduction": saved, "worst_reduction": worst}
            for name in ("from", "to"):
                if isinstance(row[name], float) and row[name].is_integer():
                    row[name] = int(row[name])
            rows.append(row)
    return rows[:MAX_KNOBS]


def _row(figures: Figures, number: int, group: str, predicted: Prediction) -> Row:
    observed = figures.dups_after(
        number, group, lambda cause: report_group(cause) in OFFSET_GROUPS or cause in REPLAYED
    )
    shown = predicted.to_dict()
    return {
        "fid": figures.analysis.context.outages[number].fid,
        "group": group,
        **{name: shown[name] for name in ("p5", "median", "p95", "max", "mean", "worst")},
        "p50": shown["median"],
        "causes": shown["causes"],
        "observed": observed,
        "inside": predicted.holds(observed),
        "validated": validated(),
        "plan": predicted.fault.title,
        "rows": predicted.fault.rows,
    }


def observed_plan(figures: Figures, outage: Outage, until: int | None, group: str) -> FaultPlan:
    """The fault as it happened, in seconds before the time scale.

    Raises:
        Unpredictable: It did not end, or is of a kind that is not modelled.
    """
    folder = figures.analysis.folder
    scale = folder.time_scale
    steps = [step for step in figures.analysis.history.faults if step.fid == outage.fid]
    down = [step for step in steps if step.kind in ("KILL", "TERM") and step.bid is not None]
    if any(step.bid != 0 for step in down):
        raise Unpredictable("a fault of a slave repeats nothing")
    if outage.accepted is None:
        raise Unpredictable("the master did not come back")
    if declared_group(figures, group) in folder.broadcasting:
        raise Unpredictable("broadcasting groups keep their offsets themselves")
    ends = _consumer_ends(figures, outage, until, declared_group(figures, group))
    away = (outage.accepted - outage.killed) / NS / scale
    plan = FaultPlan(
        name=outage.fid,
        title="the fault as it was observed",
        rows=FAULTS["kill"].rows,
        down_seconds=away,
        offsets="file" if any(step.kind == "KILL" for step in down) else "CopyMax",
        broker_uptime_seconds=_uptime(figures, outage),
    )
    return plan if ends is None else _with_ends(plan, outage, ends, scale)


def _uptime(figures: Figures, outage: Outage) -> float | None:
    """How long the master had run, if it had come back in this run before."""
    scale = figures.analysis.folder.time_scale
    earlier = [
        each.accepted
        for each in figures.analysis.context.outages
        if each.broker == outage.broker and each.accepted and each.accepted <= outage.killed
    ]
    return (outage.killed - max(earlier)) / NS / scale if earlier else None


@dataclass(frozen=True, slots=True)
class _Ends:
    """When all members of a group ended, were gone, and started again; ns after run zero."""

    asked: int
    gone: int
    started: int | None
    clean: bool


def _consumer_ends(figures: Figures, outage: Outage, until: int | None, group: str) -> _Ends | None:
    steps = figures.analysis.history.faults
    mine = [
        step
        for step in steps
        if step.kind in ("CLIENT_KILL", "CLIENT_TERM")
        and outage.killed <= step.t
        and (until is None or step.t < until)
        and step.details.get("group") in (None, group)
    ]
    if not mine:
        return None
    members = max(
        (each.members for each in figures.analysis.folder.groups if each.name == group), default=1
    )
    if len({step.fid for step in mine}) > 1:
        raise Unpredictable("consumers were ended more than once")
    if len(mine) < members:
        raise Unpredictable(f"{len(mine)} of {members} members were ended: only all are modelled")
    asked = [step.t if step.issued is None else step.issued for step in mine]
    starts = [s.t for s in steps if s.fid == mine[0].fid and s.kind == "CLIENT_START"]
    return _Ends(
        asked=min(asked),
        gone=max(step.t for step in mine),
        started=min(starts, default=None),
        clean=all(step.kind == "CLIENT_TERM" for step in mine),
    )


def _with_ends(plan: FaultPlan, outage: Outage, ends: _Ends, scale: float) -> FaultPlan:
    accepted = outage.accepted or outage.killed
    if ends.started is None:
        raise Unpredictable("consumers were ended and did not start again")
    signal: Any = "TERM" if ends.clean else "KILL"

    def seconds(later: int, earlier: int) -> float:
        return max(0, later - earlier) / NS / scale

    if ends.asked < accepted:
        stop = Stop("outage", seconds(ends.asked, outage.killed), signal=signal)
    else:
        stop = Stop("return", seconds(ends.asked, accepted), signal=signal)
    after_return = ends.started >= accepted
    since = max(accepted, ends.gone) if after_return else ends.gone
    rows = "1+2+3+6" if after_return or stop.moment == "return" else "5"
    start = Start(seconds(ends.started, since), after_return=after_return)
    return replace(plan, rows=rows, stop=stop, start=start)


@cache
def validated() -> bool:
    """Whether the predictor has held in a grid of real runs; kept as data of the package."""
    return holds(grid_cells())


def holds(cells: Sequence[Mapping[str, Any]]) -> bool:
    """At least four of five runs in the band, of 20 or more, and none above the worst case."""
    runs = [
        (cell["p5"] <= seen <= cell["p95"], seen <= cell["worst"])
        for cell in cells
        for seen in cell["observed"]
    ]
    inside = sum(each for each, _ in runs)
    return (
        len(runs) >= LEAST_RUNS
        and inside >= LEAST_INSIDE * len(runs)
        and all(below for _, below in runs)
    )


def grid_cells() -> list[Row]:
    """The cells of the grid that were run: settings, band, and what was observed."""
    file = resources.files("failback.analytics.predict").joinpath("grid.json")
    found: list[Row] = json.loads(file.read_text("utf-8"))["cells"]
    return found
