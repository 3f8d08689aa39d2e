"""``failback report``: from a run folder to ``report.json``, ``summary.md`` and ``report.html``.

:func:`report` does one run, :func:`report_many` several with one engine session. What is written
comes from one value, the report (schema ``failback.report/1``), and the points for plots;
:func:`write_outputs` turns those two into files and is the place where a further output is added.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any, Final

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics import bounds, checks, measures, offsets, recovery, summary
from failback.analytics.analysis import Analysis, analyse
from failback.analytics.engines.base import Engine
from failback.analytics.errors import EngineUnavailable, ReportInputError
from failback.analytics.lake import Lake, open_lake
from failback.analytics.measures import Figures, Row
from failback.analytics.points import points_table
from failback.analytics.run_folder import RunFolder, read_run_folder

SCHEMA: Final = "failback.report/1"
AUTO_LOCAL_ROWS: Final = 200_000_000
AUTO_LOCAL_BYTES: Final = 8 << 30
NO_LOSS: Final[Row] = {"fates": None, "groups": None, "examples": {}, "intervals": {}}
ENGINES: Final = ("auto", "local", "spark")


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """Where the outputs of one report are, and what it says."""

    run_dir: Path
    folder: Path
    json: Path
    summary: Path
    points: Path
    html: Path | None
    """``None`` when plotly or jinja2 is not installed."""
    verdict: str
    sentence: str

    @property
    def exit_code(self) -> int:
        """0 Pass, 1 Fail, 3 Inconclusive."""
        return checks.EXIT_CODES[self.verdict]


def report(run_dir: Path | str, engine: str = "auto", out: Path | str | None = None) -> ReportPaths:
    """Analyse one run and write its report.

    Args:
        run_dir: The run folder; a folder without ``closed.json`` can only be Inconclusive.
        engine: ``local``, ``spark``, or ``auto``: local up to 200 M rows or 8 GB.
        out: Where to write; ``<run_dir>/report`` by default.

    Raises:
        ReportInputError: The folder cannot be reported on, or the engine cannot start. Exit code 2.
    """
    (paths,) = report_many([run_dir], engine, out)
    return paths


def report_many(
    run_dirs: Iterable[Path | str], engine: str = "auto", out: Path | str | None = None
) -> list[ReportPaths]:
    """Analyse several runs with one Spark session, if Spark it is.

    With ``out`` and more than one run each report goes to a folder of its run's id below it.
    """
    folders = [read_run_folder(Path(run_dir)) for run_dir in run_dirs]
    lakes = [open_lake(folder.lake, folder.run_id) for folder in folders]
    chosen = _choose(engine, lakes)
    done = []
    with _engines(chosen, lakes) as made:
        for folder, lake, each in zip(folders, lakes, made, strict=True):
            target = Path(out) if out is not None else folder.path / "report"
            if out is not None and len(folders) > 1:
                target /= folder.run_id
            started = time.monotonic()
            analysis = analyse(folder, lake, each)
            document, points = build_report(analysis, each.name)
            document["timings"]["total"] = round(time.monotonic() - started, 3)
            done.append(write_outputs(document, points, target, run_dir=folder.path))
    return done


def _choose(engine: str, lakes: Sequence[Lake]) -> str:
    if engine not in ENGINES:
        raise ReportInputError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
    if engine != "auto":
        return engine
    rows = max((sum(map(lake.rows, lake.parts)) for lake in lakes), default=0)
    size = max(map(_size, lakes), default=0)
    if rows <= AUTO_LOCAL_ROWS and size <= AUTO_LOCAL_BYTES:
        return "local"
    from failback.analytics.engines.spark import why_not

    return "local" if why_not() else "spark"


def _size(lake: Lake) -> int:
    return sum(part.path.stat().st_size for parts in lake.parts.values() for part in parts)


@contextlib.contextmanager
def _engines(name: str, lakes: Sequence[Lake]) -> Iterator[list[Engine]]:
    if name == "local":
        from failback.analytics.engines.local import LocalEngine

        yield [LocalEngine(lake) for lake in lakes]
        return
    from failback.analytics.engines import spark

    problem = spark.why_not()
    if problem:
        raise EngineUnavailable(problem)
    with spark.session() as session:
        yield [spark.SparkEngine(lake, session) for lake in lakes]


def build_report(analysis: Analysis, engine: str) -> tuple[Row, pa.Table]:
    """The report of an analysed run, and the points for its plots."""
    figures = Figures(analysis)
    run = analysis.folder.run
    closed = analysis.folder.closed
    complete = bool(closed.get("drained")) and bool(closed.get("scan"))
    counts, loss = measures.losses_of(figures)
    groups = [
        measures.group_figures(figures, name, counts if complete else None)
        for name in measures.group_names(figures)
    ]
    queues, truncated_queues = measures.queue_figures(figures)
    rollbacks, truncated = offsets.rollback_figures(figures)
    document: Row = {
        "schema": SCHEMA,
        "run": analysis.folder.run_id,
        "experiment": run.get("experiment"),
        "arm": run.get("arm"),
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "engine": engine,
        "failback_version": _version(),
        "repetition": run.get("repetition"),
        "seed": None if run.get("seed") is None else str(run["seed"]),
        "evidence": _evidence(analysis),
        "source": {
            "deliver": "log",
            "rule_set": run.get("rule_set"),
            "time_scale": analysis.folder.time_scale,
            "log_mode": run.get("log_mode", "full"),
        },
        "system": _system(run),
        "window": _window(analysis.folder),
        "clock": _clock(figures),
        "faults": recovery.fault_figures(figures),
        "totals": measures.totals_of(figures, groups, counts if complete else None),
        "groups": groups,
        "queues": queues,
        "queues_truncated": truncated_queues,
        "rollbacks": rollbacks,
        "truncated": truncated,
        "resume_points": offsets.resume_figures(figures),
        "offset_drops": offsets.drop_figures(figures),
        "divergence": offsets.divergence_figures(figures),
        "loss": loss if complete else NO_LOSS,
        "order": _order(analysis),
        "rto": recovery.rto_figures(figures),
        "bounds": bounds.bound_figures(figures),
        "handover": bounds.handover_figures(figures),
        "prediction": [],
        "exposure": {},
        "knobs": [],
        "producer": measures.producer_figures(figures),
        "compare": None,
        "quality": _quality(figures),
        "timings": dict(analysis.timings),
    }
    judged = checks.run_checks(figures, document)
    document["checks"] = [check.row for check in judged]
    verdict = checks.merge(judged)
    document["verdict"] = {"value": verdict, "sentence": "", "reasons": _reasons(judged)}
    document["verdict"]["sentence"] = summary.sentence(document)
    return document, points_table(figures)


def _reasons(judged: Sequence[checks.Check]) -> list[Row]:
    """Why the verdict is not Pass: the checks that are not, worst first."""
    bad = [check for check in judged if check.value != checks.PASS]
    bad.sort(key=lambda check: check.value != checks.FAIL)
    return [
        {"code": check.code or check.id.split(".")[0].split(":")[0].upper(),
         "detail": f"{check.title}: {check.detail}" if check.detail else check.title}
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
    torn = {
        (part.segment.get("proc"), part.segment.get("index"))
        for part in parts
        if part.segment.get("torn")
    }
    recorder: list[str] = [str(gap) for gap in folder.closed.get("recorder_gaps") or []]
    return {
        "run_sha256": folder.evidence.run_sha256,
        "manifest": "manifest.json" if folder.evidence.run_sha256 else None,
        "segments": len(parts),
        "rows": {table: lake.rows(table) for table in sorted(lake.parts)},
        "torn": len(torn),
        "gaps": _gaps(folder, lake),
        "recorder_gaps": recorder,
        "unreadable": sorted(lake.unreadable),
        "changed": list(folder.evidence.changed),
        "absent": list(folder.evidence.absent),
        "filled_columns": dict(sorted(lake.filled.items())),
    }


def _gaps(folder: RunFolder, lake: Lake) -> list[Row]:
    """Processes whose records do not add up to their highest seq, by their segments' ranges."""
    last = {int(proc): int(seq) for proc, seq in (folder.closed.get("procs") or {}).items()}
    records: dict[int, int] = {}
    ranges: dict[int, dict[int, tuple[int, int]]] = {}
    for parts in lake.parts.values():
        for part in parts:
            s = part.segment
            if not s:
                continue
            proc = int(s["proc_no"])
            records[proc] = records.get(proc, 0) + int(s["records"])
            files = ranges.setdefault(proc, {})
            lo, hi = files.get(s["index"], (s["seq_lo"], s["seq_hi"]))
            files[s["index"]] = (min(lo, s["seq_lo"]), max(hi, s["seq_hi"]))
    gaps: list[Row] = []
    for proc in sorted({*last, *ranges}):
        highest = max([last.get(proc, 0), *(hi for _, hi in ranges.get(proc, {}).values())])
        if records.get(proc, 0) < highest:
            gaps += _holes(proc, highest, sorted(ranges.get(proc, {}).values()))
    declared = [dict(gap) for gap in folder.closed.get("gaps") or []]
    return gaps + [gap for gap in declared if gap not in gaps]


def _holes(proc: int, highest: int, files: Sequence[tuple[int, int]]) -> list[Row]:
    holes, following = [], 1
    for lo, hi in files:
        if lo > following:
            holes.append({"proc_no": proc, "from_seq": following, "to_seq": lo - 1})
        following = max(following, hi + 1)
    if following <= highest:
        holes.append({"proc_no": proc, "from_seq": following, "to_seq": highest})
    # Records are missing inside a file's range: which ones, the ranges cannot tell.
    return holes or [{"proc_no": proc, "from_seq": 1, "to_seq": highest}]


def _system(run: Any) -> Row:
    system, versions = dict(run.get("system") or {}), run.get("versions") or {}
    return {
        "engine": run.get("engine"),
        "version": versions.get("broker") or versions.get("failback"),
        "versions": versions,
        "topology": run.get("topology") or {},
        "roles": [
            f"{pair.get('broker')}/{member.get('broker_id')}"
            for pair in (run.get("topology") or {}).get("pairs") or []
            for member in pair.get("members") or []
        ],
        **system,
        "switches": run.get("switches") or {},
        "image_digests": run.get("image_digests") or {},
    }


def _window(folder: RunFolder) -> Row:
    phases = folder.phases
    warmup = phases.get("warmup_end_ns")
    return {
        "zero_wall_ns": str(folder.zero_wall_ns),
        "warmup_end_ns": folder.run.get("warmup_end_ns") if warmup is None else warmup,
        "first_fault_ns": phases.get("first_fault_ns"),
        "last_heal_ns": phases.get("last_heal_ns"),
        "drain_end_ns": phases.get("drain_end_ns"),
        "end_ns": phases.get("end_ns"),
    }


def _clock(figures: Figures) -> Row:
    clocks = figures.analysis.history.clocks
    closed = figures.analysis.folder.closed.get("clock") or {}
    ambiguous = sum(dup.ambiguous for dup in figures.dups)
    return {
        "hosts": [
            {"host": host, "offset_ns": clocks.offset[host], "error_ns": clocks.error[host]}
            for host in sorted(clocks.offset)
        ],
        "steps": int(closed.get("steps") or 0),
        "ambiguous_dup": ambiguous,
        "ambiguous_share": measures.ratio(ambiguous, len(figures.dups)),
    }


def _order(analysis: Analysis) -> list[Row]:
    return [
        {
            "group": row["grp"],
            "topic": row["topic"],
            "ooo_first": row["ooo_first"],
            "ooo_replay": row["ooo_replay"],
            "first_key": row["first_key"],
        }
        for row in analysis.order.to_pylist()
    ]


def _quality(figures: Figures) -> Row:
    stage, history = figures.analysis.stage_a, figures.analysis.history
    rows = sum(figures.analysis.lake.rows(t) for t in ("deliver", "produce", "scan"))
    unknown = sum(row["value"] for row in figures.values("binc_unknown"))
    return {
        "binc_unknown": unknown + history.binc_unknown,
        "sampler_max_gap_ms": _sampler_gap(figures),
        "runs_per_row": measures.ratio(stage.runs, rows),
        "dropped_rows": {
            "et_before_bt": stage.dropped.et_before_bt,
            "negative_offset": stage.dropped.negative_offset,
            "end_without_begin": stage.orphan_ends,
        },
        "unknown_values": stage.dropped.unknown_status,
        "foreign_rows": sum(figures.group_sums("foreign").values()),
        "trace_missing_end": None,
        "outside_assignment": figures.outside_assignment,
    }


def _sampler_gap(figures: Figures) -> int | float | None:
    """The longest time without a look into a table of a broker that was up."""
    widest = None
    for (_, source), polls in figures.analysis.history.polls.items():
        if source != "code43":
            continue
        lives: dict[int | None, list[int]] = {}
        for t, binc in polls:
            lives.setdefault(binc, []).append(t)
        for times in lives.values():
            for before, after in itertools.pairwise(times):
                widest = max(widest or 0, after - before)
    return measures.millis(widest)


@cache
def report_schema() -> Row:
    """The JSON Schema of ``report.json``."""
    text = resources.files("failback.analytics").joinpath("report.schema.json").read_text("utf-8")
    found: Row = json.loads(text)
    return found


@cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(report_schema())


def check_report(document: Row) -> None:
    """Raise ``jsonschema.ValidationError`` where a report does not match its schema."""
    _validator().validate(document)


def read_report(path: Path) -> Row:
    """Read and check a ``report.json``.

    Raises:
        ReportInputError: It cannot be read, or is of another schema.
    """
    try:
        document: Row = json.loads(path.read_bytes())
        check_report(document)
    except (OSError, ValueError) as error:
        raise ReportInputError(f"cannot be read: {error}", path) from error
    except jsonschema.ValidationError as error:
        raise ReportInputError(f"{error.json_path}: {error.message}", path) from error
    return document


def write_outputs(document: Row, points: pa.Table, out: Path, *, run_dir: Path) -> ReportPaths:
    """Check the report and write all outputs; an old report stays until the new one is whole."""
    check_report(document)
    out.mkdir(parents=True, exist_ok=True)
    paths = ReportPaths(
        run_dir=run_dir,
        folder=out,
        json=out / "report.json",
        summary=out / "summary.md",
        points=out / "figures-data.parquet",
        html=out / "report.html" if _html_can_be_made() else None,
        verdict=document["verdict"]["value"],
        sentence=document["verdict"]["sentence"],
    )
    written = {
        paths.points: _parquet_bytes(points),
        paths.summary: summary.render(document).encode(),
        paths.json: json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n",
    }
    if paths.html is not None:
        from failback.analytics.figure_data import Point
        from failback.analytics.html import render_html

        rows = [Point(**row) for row in points.to_pylist()]
        written[paths.html] = render_html(document, rows).encode()
    _replace_all(written)
    return paths


def _html_can_be_made() -> bool:
    try:
        import jinja2  # noqa: F401
        import plotly  # noqa: F401
    except ImportError:
        return False
    return True


def _parquet_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _replace_all(files: dict[Path, bytes]) -> None:
    """Write every file under another name, sync, then rename all."""
    hidden = {path: path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in files}
    try:
        for path, data in files.items():
            with hidden[path].open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        for path, temporary in hidden.items():
            temporary.replace(path)
    finally:
        for temporary in hidden.values():
            temporary.unlink(missing_ok=True)
