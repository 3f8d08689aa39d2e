"""One run from its folder to result tables, with any engine.

The order: read the small tables, find truncation events, count the large tables, find what was
known at each assignment, classify what occurs more than once. Then come the figures that need both:
inherited causes, faults, windows, distances.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.arrays.intervals import IntervalSet, Ints
from failback.analytics.analysis.arrays.memory import give_back
from failback.analytics.analysis.causes import coverage
from failback.analytics.analysis.causes.attribution import Attribution
from failback.analytics.analysis.causes.classify import CauseInputs
from failback.analytics.analysis.causes.coverage import Distance
from failback.analytics.analysis.causes.repeats import RepeatsReduction
from failback.analytics.analysis.causes.windows import fault_ids, redelivered_of, windows_of
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials.context import (
    QUIET_NS,
    Context,
    Outage,
    context_of,
    instants_of,
)
from failback.analytics.analysis.counting.partials.phases import PHASES, Phase
from failback.analytics.analysis.counting.partials.resolution import Resolution
from failback.analytics.analysis.engines.base import Forbidden
from failback.analytics.analysis.engines.engine import Engine
from failback.analytics.analysis.engines.repeated_ranges import RepeatedRanges
from failback.analytics.analysis.engines.repeats import RowsTo
from failback.analytics.analysis.foreign import foreign_of
from failback.analytics.analysis.results import Analysis, Repeats
from failback.analytics.lake.lake import Lake
from failback.analytics.run.epochs import Queue
from failback.analytics.run.history import FaultStep, History, row_id
from failback.analytics.run.history_reading import add_events, read_history, starts
from failback.analytics.run.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is known before the large tables are worked through."""

    history: History
    outages: Sequence[Outage]
    context: Context


def prepare(folder: RunFolder, lake: Lake, engine: Engine) -> Prepared:
    """Read the small tables and find the truncation events."""
    history = read_history(folder, lake)
    boots: dict[str, list[int]] = defaultdict(list)
    for start in starts(history):
        boots[start.broker].append(start.boot_ms)
    add_events(history, _known(engine.known(boots)) if boots else {})
    outages = outages_of(history.faults)
    return Prepared(history, outages, context_of(history, outages))


def analyse(
    folder: RunFolder,
    lake: Lake,
    engine: Engine,
    rows: RowsTo | None = None,
    proved: pa.Table | None = None,
) -> Analysis:
    """Compute everything that a report needs of one run.

    Args:
        folder: The run's documents.
        lake: Its tables.
        engine: What passes over the large ones.
        rows: Where the classified deliveries go, one by one; nowhere by default.
        proved: Causes that are known of a run without assignments, ``attribution.PROVED``.
    """
    stage_timings = _StageTimings()
    prepared = prepare(folder, lake, engine)
    history, outages, context = prepared.history, prepared.outages, prepared.context
    stage_timings.end_of("prepare")
    counts = engine.count(context)
    stage_timings.end_of("stage_a")
    progress = coverage.progress_of(history, counts.values)
    again = RepeatedRanges.of(counts)
    inputs = CauseInputs(
        assigned=coverage.assigned_table(history.assignments),
        cover=coverage.cover_table(history.assignments, progress),
        reset=coverage.reset_table(history, progress),
    )
    distances = [coverage.distance_of(history, progress, a) for a in history.assignments]
    resolution = Resolution.of(again.deliveries)
    foreign = foreign_of(history, progress, counts.depths, lake)
    if foreign is not None:
        proved = foreign.proved
    reduce = reduction_of(prepared, distances, resolution, proved)
    found = engine.repeats(context, again, inputs, reduce, rows)
    repeats = Repeats(found.depths, found.values, reduce.resolution)
    order = engine.order(context, folder.ordered_topics, again.searched)
    stage_timings.end_of("stage_b")
    forbidden = [forbidden_of(counts.values, *each) for each in enumerate(outages)]
    resumed = engine.resumed(context, forbidden).to_pylist() if forbidden else []
    wanted = [
        Phase(row["outage"], name, row["value"])
        for name, way in PHASES.items()
        for row in way.family.rows(counts.values)
    ]
    phase_rows = engine.phase_rows(context, wanted).to_pylist() if wanted else []
    analysis = Analysis(
        folder=folder,
        lake=lake,
        history=history,
        context=context,
        counts=counts,
        progress=progress,
        repeats=repeats,
        order=order,
        resumed={row["outage"]: row["value"] for row in resumed},
        phase_rows=_row_names(phase_rows),
        failed_after={number: each.failed for number, each in enumerate(forbidden)},
        distances=distances,
        redelivered=redelivered_of(repeats.depths, repeats.values, reduce.processed),
        windows=windows_of(history, repeats.depths, repeats.values),
        foreign=foreign,
        timings=stage_timings.seconds,
    )
    stage_timings.end_of("measures")
    give_back()
    return analysis


def reduction_of(
    prepared: Prepared,
    distances: Sequence[Distance],
    resolution: Resolution,
    proved: pa.Table | None = None,
) -> RepeatsReduction:
    """What makes partial rows of classified candidates, in a worker or here."""
    history, context, outages = prepared.history, prepared.context, prepared.outages
    run = history.folder.run
    proves_causes = not (run.lacks_holdings or run.is_foreign)
    committed = [-1 if each.committed is None else each.committed for each in distances]
    return RepeatsReduction(
        attribution=Attribution.of(history, proves_causes=proves_causes, proved=proved),
        warmup_end_ns=context.warmup_end_ns,
        until_ns=context.until_ns,
        ok_bin_ns=context.ok_bin_ns,
        seconds=context.seconds,
        killed=[outage.killed for outage in outages],
        instants=instants_of(outages),
        committed=committed,
        processed=[each.processed for each in distances],
        fault_ids=fault_ids(history),
        resolution=resolution,
    )


class _StageTimings:
    """Seconds per stage. Reports call counting ``stage_a`` and classifying ``stage_b``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def end_of(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name] = round(now - self._last, 3)
        self._last = now


def _row_names(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[int, str], str]:
    """Of the rows that have a phase's instant the first, by table and process."""
    found: dict[tuple[int, str], str] = {}
    for row in sorted(rows, key=lambda row: (row["outage"], row["phase"], row["proc_no"])):
        name, _, table = row["phase"].partition("/")
        found.setdefault((row["outage"], name), row_id(table, row["proc_no"], row["value"]))
    return found


def _known(found: pa.Table) -> dict[tuple[Any, int], int]:
    return {
        (Queue(row["broker"], row["topic"], row["qid"]), row["boot_ms"]): row["value"]
        for row in found.to_pylist()
    }


def outages_of(faults: Sequence[FaultStep]) -> list[Outage]:
    """Kills and stops of brokers: from GONE (else the kill itself) to ACCEPT."""
    by_fid: dict[str, list[FaultStep]] = defaultdict(list)
    for step in faults:
        by_fid[step.fid].append(step)
    found = []
    for fid, steps in by_fid.items():
        down = [step for step in steps if step.kind in ("KILL", "TERM") and step.bid is not None]
        if not down:
            continue
        gone = [step for step in steps if step.kind == "GONE"]
        killed = (gone or down)[0]
        back = [step.t for step in steps if step.kind == "ACCEPT" and step.t >= killed.t]
        found.append(
            Outage(
                fid=fid,
                broker=down[0].broker,
                addr=down[0].addr,
                killed=killed.t,
                accepted=min(back, default=None),
            )
        )
    return sorted(found, key=lambda outage: (outage.killed, outage.fid))


@dataclass(frozen=True, slots=True)
class _Forbidden(Forbidden):
    failed: bool


def forbidden_of(values: Mapping[str, pa.Table], number: int, outage: Outage) -> _Forbidden:
    """When a good send does not end the outage: a failure starts within the quiet time after it."""
    first, last = (
        _of_outage(family.of(values), number, outage)
        for family in (families.FIRST_FAILED, families.LAST_FAILED)
    )
    if not first.size:
        nothing = np.empty(0, np.int64)
        return _Forbidden(outage.killed, nothing, nothing, failed=False)
    # The begin of a good send must not lie in (bad - quiet, bad]: the failure would start in its
    # quiet. Failures of one bin are nearer to each other than that, so first and last are enough.
    blocked = IntervalSet.of(first - QUIET_NS + 1, last + 1)
    return _Forbidden(int(first.min()), blocked.lo, blocked.hi, failed=True)


def _of_outage(rows: pa.Table, number: int, outage: Outage) -> Ints:
    """Values of failed attempts that ended after the outage began, in order of bins."""
    c = Columns(rows)
    chosen = c.ints("begun_outage") >= number
    if outage.broker is not None:
        chosen &= c.one_of("broker", [outage.broker])
    order = np.lexsort((c.ints("begun_outage"), c.ints("quiet_bin"), c.dense("broker")))
    found: Ints = c.ints("value")[order][chosen[order]]
    return found
