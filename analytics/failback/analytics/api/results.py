"""Analyse a run and compare runs: figures by path, tables as Arrow or pandas, files on demand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import pyarrow as pa

from failback.analytics.api.runs import Run, open_run, to_frame
from failback.analytics.errors import ReportInputError
from failback.analytics.lake.parquet_guard import read_table
from failback.analytics.lake.store import readable
from failback.analytics.report.blocks.report import Report
from failback.analytics.report.compare import compare_reports
from failback.analytics.report.make_report import ReportPaths, reports_of, write_outputs
from failback.analytics.report.measures.point_rows import points_of
from failback.analytics.report.measures.points import SCHEMA as POINTS
from failback.analytics.report.metric_paths import is_field, is_path, parse_limits
from failback.analytics.report.page.tables import advice
from failback.analytics.report.page.tables.over_time import file_tables
from failback.analytics.report.page.tables.registry import Table, to_arrow
from failback.analytics.report.schema import read_report
from failback.analytics.run.definitions import LID, Wanted
from failback.common.files import open_file
from failback.common.numbers import whole
from failback.common.text import near_or_all, nearest
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

Figure = int | float | str | bool | None
"""A value of a report. ``None``: it was not, or could not be, measured."""
Engine = Literal["auto", "local", "spark"]
Key = Literal["lid", "messageId", "businessKey"]

POINTS_FILE: Final = "figures-data.parquet"


@dataclass(frozen=True)
class Result:
    """What an analysis found: the report of one run."""

    document: dict[str, Any]
    """As ``report.json`` has it; docs/reference/report-json.md says what each field means."""
    points: pa.Table = field(repr=False)
    """The points of its plots: ``kind, group, broker, topic, qid, t_ns, value, label, exact``."""
    folder: Path | None = None
    """The run folder, where there is one."""

    def __repr__(self) -> str:
        return f"Result({self.run!r}, {self.verdict}: {self.sentence})"

    @property
    def run(self) -> str:
        """Id of the run."""
        return str(self.document["run"])

    @property
    def verdict(self) -> str:
        """``Pass``, ``Fail`` or ``Inconclusive``."""
        return str(self.document["verdict"]["value"])

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        return str(self.document["verdict"]["sentence"])

    @cached_property
    def report(self) -> Report:
        """The report with types: ``result.report.totals.dup`` is an ``int`` to a type checker."""
        return msgspec.convert(self.document, Report)

    def __getitem__(self, path: str | tuple[str | int, ...]) -> Figure:
        """A figure by its path.

        Args:
            path: ``totals.dup``, ``groups.billing.dup_ratio``, ``checks.0.value``: names of fields;
                an entry of a list by its number, or by its group, fault or id. A tuple where a name
                has a dot: ``("groups", "my.group", "dup")``.

        Raises:
            ReportInputError: The report has no such path, or it leads to no single value.
        """
        found = self.block(path)
        if isinstance(found, Mapping | list):
            names = ", ".join(_names(found)) or "nothing"
            shown = path if isinstance(path, str) else ".".join(map(str, path))
            raise ReportInputError(f'"{shown}" is no single figure; it has {names}')
        figure: Figure = found
        return figure

    def block(self, path: str | tuple[str | int, ...]) -> Any:
        """A part of the report by its path, as JSON has it: a value, a list or a mapping.

        Raises:
            ReportInputError: The report has no such path.
        """
        parts = path.split(".") if isinstance(path, str) else [str(part) for part in path]
        found: Any = self.document
        for number, part in enumerate(parts):
            entry = _entry(found, part)
            if entry is _NOTHING:
                if is_path(parts) if found is None else is_field(parts[: number + 1]):
                    return None  # below what could not be measured, or left out
                known = _names(found)
                near = near_or_all(nearest(part, known), known) if known else ""
                where = ".".join(parts[:number]) or "the report"
                raise ReportInputError(f'{where} has no "{part}"{near}')
            found = entry
        return found

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables; docs/reference/report-tables.md says what their columns mean."""
        return tuple(sorted(self._tables))

    @cached_property
    def _tables(self) -> dict[str, Table]:
        return file_tables(self.document, points_of(self.points))

    def table(self, name: str) -> pa.Table:
        """A table of the report, as ``tables/NAME.parquet`` has it.

        Raises:
            ReportInputError: There is no such table.
        """
        if name not in self._tables:
            near = near_or_all(nearest(name, self._tables), self.tables)
            raise ReportInputError(f'a report has no table "{name}"{near}')
        return to_arrow(self._tables[name])

    def frame(self, name: str) -> pd.DataFrame:
        """The same for pandas; integers are ``Int64``, so that a missing one leaves them exact."""
        return to_frame(self.table(name))

    def write(self, out: Path | str | None = None, *, page: bool = True) -> ReportPaths:
        """Write ``report.json``, ``summary.md``, the tables, and the page if plotly is installed.

        Args:
            out: A folder; ``report`` in the run folder by default.
            page: Whether to draw ``report.html``, which takes the longest of small runs.

        Raises:
            ReportInputError: The run is of a lake and no folder is named.
        """
        if out is None and self.folder is None:
            raise ReportInputError(f"run {self.run} has no folder: name one to write to")
        target = Path(out) if out is not None else (self.folder or Path()) / "report"
        run_dir = self.folder or target
        return write_outputs(self.document, self.points, target, run_dir=run_dir, page=page)


_NOTHING: Final = object()


def _entry(found: Any, part: str) -> Any:
    if isinstance(found, Mapping):
        return found.get(part, _NOTHING)
    if not isinstance(found, list):
        return _NOTHING
    at = whole(part)
    if at is not None:
        return found[at] if at < len(found) else _NOTHING
    return next((row for row in found if part in _labels(row)), _NOTHING)


def _labels(row: Any) -> list[str]:
    if not isinstance(row, Mapping):
        return []
    return [str(row[name]) for name in ("group", "fid", "id") if row.get(name) is not None]


def _names(found: Any) -> list[str]:
    """What can be asked of a part of the report."""
    if isinstance(found, Mapping):
        return list(found)
    if not isinstance(found, list):
        return []
    labels = [label for row in found for label in _labels(row)[:1]]
    return list(dict.fromkeys(labels)) or [str(number) for number in range(len(found))]


def analyse(
    run: Run | Path | str,
    engine: Engine = "auto",
    spark: SparkSession | None = None,
    *,
    master: str | None = None,
    key: Key = LID,
    window: str | None = None,
    ignore_retry_topics: bool = False,
    since: str | None = None,
    until: str | None = None,
    expect: Sequence[str] = (),
) -> Result:
    """Count what a run delivered twice, and say why. Nothing is written.

    Args:
        run: A run, or the path of a run folder.
        engine: ``local`` works in this process, ``spark`` in a session; ``auto`` takes Spark beyond
            200 million rows or 8 GiB, and where a session or a cluster is named.
        spark: A session of yours. Without one a session of our own is started and stopped.
        master: Spark's master for a session of our own.
        key: What makes two deliveries the same message: ``lid`` (what the workload writes),
            ``messageId`` (UNIQ_KEY) or ``businessKey`` (KEYS).
        window: ``90s``, ``15m``: deliveries further apart are no duplicates.
        ignore_retry_topics: Leave deliveries from retry topics out.
        since: Figures from then on: seconds after run zero, or an ISO time.
        until: Figures until then.
        expect: Limits, such as ``totals.dup_ratio <= 1%`` or ``billing: dup <= 100``; they decide
            ``outcome`` and the verdict.

    Raises:
        ReportInputError: The run cannot be read, or an argument is wrong.
        EngineUnavailable: Spark was asked for and cannot start.
    """
    opened = run if isinstance(run, Run) else open_run(run)
    wanted = Wanted(key, window, ignore_retry_topics, since, until)
    source = opened.source if wanted == Wanted() else opened.source.counted_as(wanted)
    try:
        limits = parse_limits(expect)
    except ConfigError as error:
        raise ReportInputError(str(error)) from error
    ((document, points),) = reports_of([source], engine, master, limits, spark)
    return Result(document, points, opened.folder)


def read_result(path: Path | str) -> Result:
    """Read a report that was written.

    Args:
        path: ``report.json``, the folder that has it, or a run folder.

    Raises:
        ReportInputError: There is none, or it cannot be read.
    """
    given = Path(path)
    places = (given, given / "report.json", given / "report" / "report.json")
    file = next((place for place in places if place.is_file()), given)
    points = file.with_name(POINTS_FILE)
    table = POINTS.empty_table()
    if points.exists() or points.is_symlink():
        with readable(str(points)), open_file(points) as content:
            table = read_table(content)
    return Result(read_report(file), table)


@dataclass(frozen=True)
class Comparison:
    """Runs side by side: arms with median and range, differences with a confidence interval."""

    document: dict[str, Any]
    """As ``compare`` of ``report.json``: ``baseline``, ``arms``, ``difference``."""

    @property
    def baseline(self) -> str:
        """The arm that the others are compared with."""
        return str(self.document["baseline"])

    def runs(self) -> pa.Table:
        """A row per run: its arm, its verdict, and each figure that is compared."""
        return to_arrow(advice.compare_runs(self._report))

    def arms(self) -> pa.Table:
        """A row per arm and figure: ``median``, ``least`` and ``most`` of its runs."""
        return to_arrow(advice.compare_arms(self._report))

    def difference(self) -> pa.Table:
        """A row per other arm and figure: by how much its median differs from the baseline's.

        ``ci_low`` and ``ci_high`` are the 95 % interval; ``significant`` is null where an arm has
        fewer than five runs.
        """
        return to_arrow(advice.compare_difference(self._report))

    @property
    def _report(self) -> dict[str, Any]:
        return {"compare": self.document}


def compare(results: Iterable[Result | Path | str], baseline: str | None = None) -> Comparison:
    """Compare runs by their arms.

    Args:
        results: Results, or what :func:`read_result` reads: two at least.
        baseline: The arm to compare with; that of the first result by default.

    Raises:
        ReportInputError: There are fewer than two, or none is of that arm.
    """
    found = [each if isinstance(each, Result) else read_result(each) for each in results]
    if baseline is not None:
        found.sort(key=lambda each: each.document["arm"] != baseline)
        if not found or found[0].document["arm"] != baseline:
            arms = sorted({str(each.document["arm"]) for each in found})
            near = near_or_all(nearest(baseline, arms), arms)
            raise ReportInputError(f'no result is of arm "{baseline}"{near}')
    compared = compare_reports([each.document for each in found])
    if compared is None:
        raise ReportInputError(f"compare takes two results or more, not {len(found)}")
    return Comparison(compared)
