"""``failback report``: chooses the engine, and makes ``report.json`` and its pages of run folders.

:func:`report` does one run, :func:`report_many` several with one engine session. What is written
comes from one value, the report (schema ``failback.report/1``), and the points for plots;
:func:`write_outputs` turns those two into files and is the place where a further output is added.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from failback.analytics.analysis.analysis import analyse
from failback.analytics.analysis.engines.engine import Engine
from failback.analytics.errors import EngineUnavailable, ReportInputError
from failback.analytics.lake.lake import Lake, parquet_bytes
from failback.analytics.observe.lake import run_at
from failback.analytics.report import checks, summary
from failback.analytics.report.compare import compare_reports
from failback.analytics.report.document import build_report
from failback.analytics.report.measures.numbers import Row
from failback.analytics.report.measures.point_rows import points_of
from failback.analytics.report.observed import observed, with_observation
from failback.analytics.report.page.tables.over_time import file_tables
from failback.analytics.report.page.tables.registry import csv_bytes, to_arrow
from failback.analytics.report.results import ResultsTo
from failback.analytics.report.schema import (
    SCHEMA,
    check_report,
    read_report,
    report_bytes,
    report_schema,
)
from failback.analytics.run.definitions import Wanted
from failback.analytics.run.run_folder import RunFolder
from failback.analytics.run.run_source import RunSource
from failback.common.files import place_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "ENGINES",
    "SCHEMA",
    "ReportPaths",
    "build_report",
    "check_report",
    "read_report",
    "report",
    "report_many",
    "report_schema",
    "reports_of",
    "write_outputs",
]

AUTO_LOCAL_ROWS: Final = 200_000_000
AUTO_LOCAL_BYTES: Final = 8 << 30
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
        """0 Pass and Observed, 1 Fail, 3 Inconclusive."""
        return checks.EXIT_CODES[self.verdict]


def report(run_dir: Path | str, engine: str = "auto", out: Path | str | None = None) -> ReportPaths:
    """Analyse one run and write its report.

    Args:
        run_dir: The run folder; a folder without ``closed.json`` can only be Inconclusive.
        engine: ``local``, ``spark``, or ``auto``: local up to 200 M rows or 8 GB, unless
            ``spark-submit`` started the process. An active session changes nothing: ask for
            ``spark``, which uses it.
        out: Where to write; ``<run_dir>/report`` by default.

    Raises:
        ReportInputError: The folder cannot be reported on, or the engine cannot start. Exit code 2.
    """
    (paths,) = report_many([run_dir], engine, out)
    return paths


def report_many(
    run_dirs: Iterable[Path | str | RunSource],
    engine: str = "auto",
    out: Path | str | None = None,
    *,
    compare: Iterable[Path | str] = (),
    master: str | None = None,
    wanted: Wanted | None = None,
    limits: Sequence[Row] = (),
    pages: bool = True,
    results: ResultsTo | None = None,
) -> list[ReportPaths]:
    """Analyse several runs with one Spark session, if Spark it is, and compare them.

    With ``out`` and more than one run each report goes to a folder of its run's id below it.

    Args:
        run_dirs: The runs to report on. The first one's arm is the baseline of the comparison.
        engine: As for :func:`report`.
        out: As for :func:`report`.
        compare: Further runs to compare with: a ``report.json``, or a run folder, whose report is
            made where there is none.
        master: Spark's master; ``FAILBACK_SPARK_MASTER`` by default. Naming a cluster makes
            ``auto`` take it.
        wanted: What counts as the same message, and when; also for runs of ``compare`` whose
            report is made.
        limits: Of the user, on figures of ``run_dirs``, beside those of their experiments.
        pages: Draw the HTML pages, which takes the longest of small runs.
        results: Where the result tables of ``run_dirs`` go as well; nowhere by default.

    Raises:
        ReportInputError: As for :func:`report`; nothing has been written then.
    """

    def opened(each: Path | str | RunSource) -> RunSource:
        source = each if isinstance(each, RunSource) else run_at(each)
        return source if wanted is None else source.counted_as(wanted)

    sources = [opened(each) for each in run_dirs]
    several = len(sources) > 1
    targets = [(each, _target(each.folder, out, several=several)) for each in sources]
    against: list[Row] = []
    for path in map(Path, compare):
        known = path if path.is_file() else path / "report" / "report.json"
        if not known.exists():
            known = _built([(opened(path), path / "report")], engine, (), master)[0].json
        against.append(read_report(known))
    return _built(targets, engine, against, master, limits, pages=pages, results=results)


def _target(folder: RunFolder, out: Path | str | None, *, several: bool) -> Path:
    if out is None:
        return folder.path / "report"
    return Path(out) / folder.run_id if several else Path(out)


def _built(
    wanted: Sequence[tuple[RunSource, Path]],
    engine: str,
    against: Sequence[Row],
    master: str | None,
    limits: Sequence[Row] = (),
    *,
    pages: bool = True,
    results: ResultsTo | None = None,
) -> list[ReportPaths]:
    """Analyse, compare, write. What was analysed before an error is written all the same."""
    built: list[tuple[Row, pa.Table]] = []
    done: list[ReportPaths] = []
    try:
        sources = [source for source, _ in wanted]
        for made in reports_of(sources, engine, master, limits, results=results):
            built.append(made)  # noqa: PERF402 - what was made before an error is kept
    finally:
        comparison = compare_reports([document for document, _ in built], against)
        for (source, target), (document, points) in zip(wanted, built, strict=False):
            document["compare"] = comparison
            run_dir = source.folder.path
            done.append(write_outputs(document, points, target, run_dir=run_dir, page=pages))
    return done


def reports_of(
    sources: Sequence[RunSource],
    engine: str = "auto",
    master: str | None = None,
    limits: Sequence[Row] = (),
    spark: SparkSession | None = None,
    results: ResultsTo | None = None,
) -> Iterator[tuple[Row, pa.Table]]:
    """Analyse runs one after the other with one engine; only result tables are written.

    Args:
        sources: The runs.
        engine: As for :func:`report`.
        master: As for :func:`report_many`.
        limits: As for :func:`report_many`.
        spark: A session that is there; it is used instead of one of our own, and stays.
        results: As for :func:`report_many`.

    Yields:
        Of each run the report, without a comparison, and the points of its plots.

    Raises:
        ReportInputError: As for :func:`report`; also a session that the local engine was given.
    """
    lakes = [source.lake for source in sources]
    if results is not None:
        results.check()
    with _engines(_choose(engine, lakes, master, spark), lakes, master, spark) as made:
        for source, each in zip(sources, made, strict=True):
            started = time.monotonic()
            rows = results.rows(source.folder.run_id) if results is not None else None
            seen = observed(source)
            proved = None if seen is None else seen.causes
            analysis = analyse(source.folder, source.lake, each, rows, proved)
            document, points = build_report(analysis, each.name, limits)
            if seen is not None:
                with_observation(document, seen)
            document["timings"]["total"] = round(time.monotonic() - started, 3)
            if results is not None:
                results.write(analysis, document, points)
            yield document, points


def _choose(
    engine: str, lakes: Sequence[Lake], master: str | None, spark: SparkSession | None
) -> str:
    if engine not in ENGINES:
        raise ReportInputError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
    if spark is not None:
        if engine == "local":
            raise ReportInputError("a session of Spark was given to the local engine")
        return "spark"
    if engine != "auto":
        return engine
    from failback.analytics.analysis.engines.spark.session import is_cluster, is_given, why_not

    if is_given():
        return "spark"
    rows = max((sum(map(lake.rows, lake.parts)) for lake in lakes), default=0)
    size = max((lake.bytes for lake in lakes), default=0)
    remote = any(lake.store.folder is None for lake in lakes)
    small = rows <= AUTO_LOCAL_ROWS and size <= AUTO_LOCAL_BYTES
    if small and not (is_cluster(master) and (master or remote)):
        return "local"
    return "local" if why_not() else "spark"


@contextlib.contextmanager
def _engines(
    name: str, lakes: Sequence[Lake], master: str | None, given: SparkSession | None
) -> Iterator[list[Engine]]:
    if name == "local":
        from failback.analytics.analysis.engines.local import local_engine

        yield [local_engine(lake) for lake in lakes]
        return
    from failback.analytics.analysis.engines.spark.catalog import naming_files
    from failback.analytics.analysis.engines.spark.runner import spark_engine
    from failback.analytics.analysis.engines.spark.session import check_reach, session, why_not

    if given is not None:
        with naming_files():
            yield [spark_engine(lake, given) for lake in lakes]
        return
    problem = why_not()
    if problem:
        raise EngineUnavailable(f"{problem}; or use --engine local")
    check_reach(master, [lake.store for lake in lakes])
    with session(master) as spark, naming_files():
        yield [spark_engine(lake, spark) for lake in lakes]


def write_outputs(
    document: Row, points: pa.Table, out: Path, *, run_dir: Path, page: bool = True
) -> ReportPaths:
    """Check the report and write all outputs; an old report stays until the new one is whole.

    Raises:
        OSError: A link in the run's folder leads elsewhere, or the disk refused.
    """
    content = report_bytes(document)
    tables = out / "tables"
    if out.is_relative_to(run_dir):
        place_in(run_dir, tables)
    tables.mkdir(parents=True, exist_ok=True)
    paths = ReportPaths(
        run_dir=run_dir,
        folder=out,
        json=out / "report.json",
        summary=out / "summary.md",
        points=out / "figures-data.parquet",
        html=out / "report.html" if page and _html_can_be_made() else None,
        verdict=document["verdict"]["value"],
        sentence=document["verdict"]["sentence"],
    )
    written = {
        paths.points: parquet_bytes(points),
        paths.summary: summary.render(document).encode(),
        paths.json: content,
    }
    rows = points_of(points)
    for name, table in file_tables(document, rows).items():
        written[tables / f"{name}.csv"] = csv_bytes(table)
        written[tables / f"{name}.parquet"] = parquet_bytes(to_arrow(table))
    if paths.html is not None:
        from failback.analytics.report.page.html import render_html

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
    except OSError as error:
        error.filename = error.filename or os.fspath(path)  # a full disk names none
        raise
    finally:
        for temporary in hidden.values():
            temporary.unlink(missing_ok=True)
