"""The report of an analysed run as one value, schema ``failback.report/1``. Pure but for the time.

:func:`build_report` puts together what the other modules measured; the verdict comes last, because
checks read the figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.intervals import NUMBER_BITS, VALUE_BITS
from failback.analytics.analysis.causes.labels import report_group
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.families import Family
from failback.analytics.analysis.results import Analysis, LakeRead
from failback.analytics.lake.catalogue import missing_records
from failback.analytics.report import checks, summary
from failback.analytics.report.measures import bounds, forecast, offsets, recovery, resume
from failback.analytics.report.measures.foreign import with_gaps, without_mechanisms
from failback.analytics.report.measures.groups import group_figures, totals_of
from failback.analytics.report.measures.lookups import Figures, group_names
from failback.analytics.report.measures.loss import losses_of, producer_figures
from failback.analytics.report.measures.numbers import NS, Row, millis, ratio
from failback.analytics.report.measures.points import points_table
from failback.analytics.report.measures.queues import queue_figures
from failback.analytics.report.outcome import outcome_of
from failback.analytics.report.schema import SCHEMA
from failback.analytics.run.documents import Run
from failback.analytics.run.history import GroupQueue
from failback.analytics.run.run_folder import RunFolder

NO_LOSS: Final[Row] = {"fates": None, "groups": None, "examples": {}, "intervals": {}}


def build_report(
    analysis: Analysis, engine: str, limits: Sequence[Row] = ()
) -> tuple[Row, pa.Table]:
    """The report of an analysed run, and the points for its plots.

    ``limits`` are expectations beside those of the experiment, as it writes them.
    """
    figures = Figures(analysis)
    run = analysis.folder.run
    closed = analysis.folder.closed
    complete = bool(closed.drained and closed.scan)
    counts, loss = losses_of(figures)
    groups = [
        group_figures(figures, name, counts if complete else None) for name in group_names(figures)
    ]
    queues, truncated_queues = queue_figures(figures)
    rollbacks, truncated = offsets.rollback_figures(figures)
    _split_queues(figures, queues)
    document: Row = {
        "schema": SCHEMA,
        "run": analysis.folder.run_id,
        "experiment": run.experiment,
        "arm": run.arm,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "engine": engine,
        "failback_version": _version(),
        "repetition": run.repetition,
        "seed": None if run.seed is None else str(run.seed),
        "evidence": _evidence(analysis),
        "source": {
            "deliver": run.source,
            "rule_set": run.rule_set,
            "time_scale": analysis.folder.time_scale,
            "log_mode": run.log_mode,
        },
        "definitions": analysis.folder.definitions.row,
        "system": _system(run),
        "window": _window(analysis.folder),
        "clock": _clock(figures),
        "faults": _planned(recovery.fault_figures(figures), run),
        "totals": totals_of(figures, groups, counts if complete else None),
        "groups": groups,
        "queues": queues,
        "queues_truncated": truncated_queues,
        "rollbacks": rollbacks,
        "truncated": truncated,
        "resume_points": resume.resume_figures(figures),
        "offset_drops": offsets.drop_figures(figures),
        "divergence": offsets.divergence_figures(figures),
        "loss": loss if complete else NO_LOSS,
        "order": analysis.order.rename_columns({"grp": "group"}).to_pylist(),
        "rto": with_gaps(figures, recovery.rto_figures(figures)),
        **(without_mechanisms(figures) if run.is_foreign else _of_mechanisms(figures)),
        "producer": producer_figures(figures),
        "compare": None,
        "quality": _quality(figures),
        "timings": dict(analysis.timings),
    }
    judged = checks.run_checks(figures, document, limits)
    document["checks"] = [check.row for check in judged]
    document["outcome"] = outcome_of(document["checks"])
    verdict = checks.verdict_of(judged, run)
    document["verdict"] = {"value": verdict, "sentence": "", "reasons": _reasons(judged)}
    document["verdict"]["sentence"] = summary.sentence(document)
    return document, points_table(figures)


def _of_mechanisms(figures: Figures) -> Row:
    """What rests on the mechanisms of RocketMQ."""
    return {
        "bounds": bounds.bound_figures(figures),
        "handover": bounds.handover_figures(figures),
        **forecast.forecast(figures),
    }


def _split_queues(figures: Figures, queues: Sequence[Row]) -> None:
    """Add to each queue its duplicates by report group."""
    found: Counter[tuple[GroupQueue, str]] = Counter()
    for each in figures.dups:
        found[each.queue, report_group(each.cause)] += each.count
    by_queue: dict[GroupQueue, Row] = {}
    for (queue, group), count in sorted(found.items()):
        by_queue.setdefault(queue, {})[group] = count
    for row in queues:
        key = GroupQueue(row["group"], row["broker"], row["topic"], row["qid"])
        row["report_groups"] = by_queue.get(key, {})


def _planned(faults: list[Row], run: Run) -> list[Row]:
    """Add until when each fault was meant to last, where the experiment says so."""
    scale = run.time_scale or 1.0
    lasting = {
        str(each.get("id")): (each.get("with") or {}).get("downSeconds")
        for each in run.faults or ()
    }
    for fault in faults:
        start, seconds = fault["intended_ns"], lasting.get(fault["fid"])
        fault["intended_end_ns"] = (
            None if start is None or seconds is None else start + round(seconds * scale * NS)
        )
    return faults


def _reasons(judged: Sequence[checks.Check]) -> list[Row]:
    """Why the verdict is not Pass: the checks that are not, worst first."""
    bad = [check for check in judged if check.value != checks.PASS]
    bad.sort(key=lambda check: check.value != checks.FAIL)
    return [
        {"code": check.code or check.id.split(".")[0].split(":")[0].upper(),
         "detail": check.detail or f"not so: {check.title}"}
        for check in bad
    ]  # fmt: skip


def _version() -> str:
    try:
        return metadata.version("failback")
    except metadata.PackageNotFoundError:
        return "0"


def _evidence(analysis: Analysis) -> Row:
    folder, lake = analysis.folder, analysis.lake
    parts = [part for found in lake.parts.values() for part in found]
    torn = {(s.get("proc"), s.get("index")) for s in lake.segments() if s.get("torn")}
    return {
        "run_sha256": folder.evidence.run_sha256,
        "manifest": "manifest.json" if folder.evidence.run_sha256 else None,
        "segments": sum(max(1, len(part.segments)) for part in parts),
        "rows": {table: lake.rows(table) for table in sorted(lake.parts)},
        "torn": len(torn),
        "gaps": _gaps(folder, lake),
        "recorder_gaps": folder.closed.recorder_gaps or [],
        "unreadable": sorted(lake.unreadable),
        "changed": list(folder.evidence.changed),
        "absent": list(folder.evidence.absent),
        "filled_columns": dict(sorted(lake.filled.items())),
    }


def _gaps(folder: RunFolder, lake: LakeRead) -> list[Row]:
    """Processes whose records do not add up to their highest seq, by their segments' ranges."""
    last = {int(proc): seq for proc, seq in (folder.closed.procs or {}).items()}
    names = ("proc_no", "index", "seq_lo", "seq_hi", "records")
    gaps = missing_records(([each[name] for name in names] for each in lake.segments()), last)
    declared = folder.closed.gaps or []
    return gaps + [gap for gap in declared if gap not in gaps]


def _system(run: Run) -> Row:
    """What the run was of; parts of ``run.json`` are handed on as they were written."""

    def as_written(name: str) -> Row:
        return run.written.get(name) or {}

    pairs = (run.topology.pairs if run.topology else None) or ()
    return {
        "engine": run.engine,
        "cluster": (run.target or {}).get("cluster"),
        "version": _broker_version(run),
        "versions": run.versions or {},
        "topology": as_written("topology"),
        "roles": [
            f"{pair.broker}/{member.broker_id}" for pair in pairs for member in pair.members or ()
        ],
        **as_written("system"),
        "workload": run.workload or {},
        "switches": run.switches or {},
        "image_digests": run.image_digests or {},
    }


def _broker_version(run: Run) -> str | None:
    """Of our brokers the package's, of others what their members said."""
    versions = dict(run.versions or {})
    ours = versions.pop("failback", None)
    if versions.get("broker") or run.engine == "failback" or not versions:
        return versions.get("broker") or ours
    return ", ".join(sorted(set(versions.values())))


def _window(folder: RunFolder) -> Row:
    phases = folder.phases
    warmup = phases.get("warmup_end_ns")
    return {
        "zero_wall_ns": str(folder.zero_wall_ns),
        "warmup_end_ns": folder.run.warmup_end_ns if warmup is None else warmup,
        **{
            name: phases.get(name)
            for name in ("first_fault_ns", "last_heal_ns", "drain_end_ns", "end_ns")
        },
    }


def _clock(figures: Figures) -> Row:
    clocks = figures.analysis.history.clocks
    closed = figures.analysis.folder.closed.clock
    ambiguous = sum(figures.group_sums(families.AMBIGUOUS).values())
    return {
        "hosts": [
            {"host": host, "offset_ns": clocks.offset[host], "error_ns": clocks.error[host]}
            for host in sorted(clocks.offset)
        ],
        "steps": (closed.steps if closed else None) or 0,
        "ambiguous_dup": ambiguous,
        "ambiguous_share": ratio(ambiguous, figures.dups_of_queues.total()),
    }


def _quality(figures: Figures) -> Row:
    stage, history = figures.analysis.counts, figures.analysis.history
    rows = sum(figures.analysis.lake.rows(t) for t in ("deliver", "produce", "scan"))
    unknown = _total(figures, families.UNKNOWN_INCARNATIONS)
    names = _unknown_names(figures)
    return {
        "binc_unknown": unknown + history.binc_unknown,
        "sampler_max_gap_ms": millis(figures.analysis.history.longest_pause),
        "runs_per_row": ratio(stage.runs, rows),
        "dropped_rows": {
            "et_before_bt": stage.dropped.et_before_bt,
            "negative_offset": stage.dropped.negative_offset,
            "end_without_begin": stage.orphan_ends,
        },
        "notes": _slow_paths(figures),
        "unknown_values": sum(names.values()),
        "unknown_names": names,
        "foreign_rows": sum(figures.group_sums(families.FOREIGN).values()),
        "trace_missing_end": (figures.analysis.folder.closed.trace or {}).get("missing_end"),
        "outside_assignment": _total(figures, families.OUTSIDE),
    }


def _total(figures: Figures, family: Family) -> int:
    return sum(row["value"] for row in figures.values(family))


def _slow_paths(figures: Figures) -> list[str]:
    """What made counting slower than usual; the figures are exact all the same."""
    found = []
    depths = {
        family: figures.depths(family)
        for _, family in families.all_families()
        if family.name in figures.analysis.counts.depths
    }
    # Lanes below 0 are of messages that are known by a text: their numbers are hashes.
    numbered = [
        table.filter(pc.greater_equal(table.column("lane"), 0))
        if families.LANE in family.key
        else table
        for family, table in depths.items()
    ]
    if any((pc.max(table.column("hi")).as_py() or 0) > 1 << VALUE_BITS for table in numbered):
        found.append("offsets or sequences are beyond 2^44")
    histories = sum(
        table.group_by(list(family.stored), use_threads=False).aggregate([]).num_rows
        for family, table in depths.items()
        if table.num_rows > 1 << NUMBER_BITS
    )
    if histories > 1 << NUMBER_BITS:
        found.append("there are more than 2^19 queues or lanes")
    if 2 * _total(figures, families.CANDIDATES) > figures.analysis.lake.rows("deliver"):
        found.append("more than half of all deliveries were looked at one by one")
    return found


def _unknown_names(figures: Figures) -> dict[str, int]:
    """Rows by the column whose value this version does not know."""
    found = Counter(figures.analysis.history.unknown_names)
    found["deliver.status"] += figures.analysis.counts.dropped.unknown_status
    found["produce.res"] += _total(figures, families.UNKNOWN_RESULTS)
    return {name: found[name] for name in sorted(found) if found[name]}
