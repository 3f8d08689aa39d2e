"""``failback report``: from a run folder to report.json, summary.md and report.html."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from failback.cli.shared.commands import command
from failback.cli.shared.errors import worst
from failback.cli.shared.folders import check_folder, run_folders
from failback.cli.shared.options import ENGINE_HELP, Engine, JsonOption, argument, flag, option
from failback.cli.shared.output import note, print_json, say
from failback.cli.shared.verdicts import print_verdicts, row_of, say_answers
from failback.common.numbers import counted
from failback.common.text import typed
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    from failback.analytics.run.run_source import RunSource


class Key(StrEnum):
    """What makes two deliveries the same message."""

    lid = "lid"
    message_id = "messageId"
    business_key = "businessKey"


def _sources(
    given: list[Path], lake: str | None, runs: list[str], scratch: Path
) -> list[Path | RunSource]:
    """What was named, or the runs of a lake; a run folder with --lake gives the documents.

    ``scratch`` is an empty folder for rows of consume logs, for as long as they are worked on.
    """
    if lake is None:
        if runs or not given:
            raise ConfigError("RUN", "name at least one run folder, or --lake and --run")
        return [source for each in given for source in _in_folder(each, scratch)]
    from failback.analytics.run.run_source import source_in_lake

    if given and runs:
        raise ConfigError("--run", "the run folders say already which runs of the lake are meant")
    if given:
        return [source_in_lake(lake, documents=each) for each in run_folders(given)]
    if not runs:
        raise ConfigError("--run", f"name a run of {lake}")
    return [source_in_lake(lake, each) for each in runs]


def _in_folder(path: Path, scratch: Path) -> list[Path | RunSource]:
    """What a folder holds: runs, consume logs, or a lake with one run."""
    from failback.analytics.lake.layout import runs
    from failback.analytics.lake.store import open_store
    from failback.analytics.run.log_source import logs_in, source_of_logs
    from failback.analytics.run.run_source import source_in_lake

    if path.exists() and not path.is_dir():
        command = typed("failback", "report", path.parent)
        raise ConfigError("RUN", f"{path} is a file: name the folder that it lies in, {command}")
    if (path / "run.json").exists() or not path.is_dir():
        return list(run_folders([path]))
    if next(path.glob("table=*"), None) is not None:
        found = runs(open_store(path))
        if len(found) == 1:
            source = source_in_lake(path, found[0])
            note(f"{path} is a lake: run {found[0]}")
            return [source]
        command = typed("failback", "report", "--lake", path)
        raise ConfigError("RUN", f"{path} is a lake with {len(found)} runs: {command} --run ID")
    if any(path.rglob("closed.json")) or not (logs := logs_in(path)):
        return list(run_folders([path]))
    folder = scratch / str(len(list(scratch.iterdir())))
    folder.mkdir()
    made = source_of_logs(path, folder)
    files = counted(len(logs), "file")
    note(f"{path} has {files} of consume logs: all their processes are one run")
    return [made]


@contextmanager
def _read(
    given: list[Path], lake: str | None, runs: list[str], tables: str | None, engine: Engine,
    master: str | None,
) -> Iterator[tuple[list[Path | RunSource], str]]:  # fmt: skip
    """The runs and the engine; with ``tables`` in a session of Spark that reads them."""
    if tables is None:
        with tempfile.TemporaryDirectory(prefix="failback-logs-") as scratch:
            yield _sources(given, lake, runs, Path(scratch)), engine
        return
    from failback.analytics.analysis.engines.spark.catalog import OF_LAKE, source_in_tables
    from failback.analytics.analysis.engines.spark.session import session, why_not
    from failback.analytics.errors import EngineUnavailable
    from failback.analytics.lake.store import open_store

    if engine == Engine.local:
        raise ConfigError("--tables", "Spark reads them: leave --engine local out")
    if problem := why_not():
        raise EngineUnavailable(problem)
    if runs and lake is None:
        raise ConfigError("--lake", "name the lake that has the documents of the run")
    folders = run_folders(given) if given else []
    named: list[tuple[str, str | None, Path | None]] = [
        (lake or str(each / "lake"), None, each) for each in folders
    ]
    named += [(str(lake), each, None) for each in runs]
    if not named:
        raise ConfigError("RUN", "name at least one run folder, or --lake and --run")
    stores = [open_store(each) for each, *_ in named] if tables == OF_LAKE else []
    with session(master, stores) as spark:
        yield [source_in_tables(spark, tables, *each) for each in named], Engine.spark


def _write_summary(path: Path, reports: list[Path]) -> None:
    """Write the figures as the status of a ReconsumptionReport has them."""
    from failback.analytics.report.make_report import read_report
    from failback.analytics.report.status_summary import TRIMMABLE, status_of
    from failback.cli.shared.termination import VARIABLE, fit, write_termination

    read = [read_report(each) for each in reports]
    where = Path(os.path.commonpath([each.absolute().parent for each in reports]))
    document = fit(status_of(read, where.as_uri()), TRIMMABLE)
    write_termination(document, {VARIABLE: str(path)})


@command(
    "report",
    "failback report runs/demo-1/handover                 one run",
    "failback report runs/demo-1                          all runs below, compared",
    "failback report new --compare old                    against an earlier one",
    "failback report --lake s3://bucket/lake --run r1     rows from a lake",
)
def report(
    run: Annotated[
        list[Path] | None, argument("RUN", "Run folder, or a folder of runs; several are compared.")
    ] = None,
    engine: Annotated[Engine, option("--engine", "", ENGINE_HELP)] = Engine.auto,
    out: Annotated[
        Path | None, option("--out", "FOLDER", "Where to write (default: RUN/report).")
    ] = None,
    compare: Annotated[
        list[Path] | None,
        option(
            "--compare",
            "RUN",
            "Run folder or report.json to compare with. The arm of the first RUN is the baseline.",
        ),
    ] = None,
    json: JsonOption = False,
    summary: Annotated[
        Path | None, option("--summary", "FILE", "Leave the figures here in at most 4 KiB of JSON.")
    ] = None,
    textfile: Annotated[
        Path | None,
        option("--textfile", "FILE", "Write metrics for Prometheus' textfile collector here."),
    ] = None,
    lake: Annotated[
        str | None,
        option(
            "--lake",
            "LAKE",
            "Where the rows are: a folder or s3://bucket/prefix (default: in the run folder).",
        ),
    ] = None,
    run_id: Annotated[list[str] | None, option("--run", "ID", "A run of --lake.")] = None,
    tables: Annotated[
        str | None,
        option(
            "--tables",
            "SCHEMA",
            "Let Spark read the rows: tables of its catalog named as those of the consume log"
            " (CATALOG.SCHEMA), or 'lake' for the files of --lake.",
        ),
    ] = None,
    results: Annotated[
        str | None,
        option(
            "--results",
            "URI",
            "Write the result tables there as well: a folder or s3://bucket/prefix.",
        ),
    ] = None,
    master: Annotated[
        str | None,
        option(
            "--master",
            "URL",
            "Spark's: local[*], spark://HOST:PORT or k8s://URL (default: local[*]).",
        ),
    ] = None,
    key: Annotated[
        Key,
        option(
            "--key",
            "",
            "What messages are the same by: lid (the workload's), messageId (UNIQ_KEY),"
            " businessKey (KEYS).",
        ),
    ] = Key.lid,
    window: Annotated[
        str | None,
        option(
            "--window",
            "DURATION",
            "Deliveries further apart are no duplicates: 90s, 15m (default: no limit).",
        ),
    ] = None,
    ignore_retry_topics: Annotated[
        bool, flag("--ignore-retry-topics", "Leave deliveries from retry topics out.")
    ] = False,
    since: Annotated[
        str | None,
        option(
            "--since",
            "TIME",
            "Figures from then on: seconds after run zero, or an ISO time"
            " (default: all but the warm-up).",
        ),
    ] = None,
    until: Annotated[
        str | None, option("--until", "TIME", "Figures until then (default: the end).")
    ] = None,
    expect: Annotated[
        list[str] | None,
        option(
            "--expect",
            "LIMIT",
            "A limit of yours, as 'dup_ratio <= 1%' or 'billing: dup <= 100'; missed: exit 1.",
        ),
    ] = None,
    open_page: Annotated[
        bool, flag("--open", "Open report.html in a browser, of the first run.")
    ] = False,
    schema: Annotated[bool, flag("--schema", "Print the JSON Schema of report.json.")] = False,
) -> None:
    """Count what a run delivered twice, say why, and write the report.

    Beside report.json, summary.md and report.html the folder has every table behind a figure, as
    CSV and Parquet, in tables/.
    """
    from failback.analytics.report.make_report import report_many, report_schema
    from failback.analytics.report.metric_paths import parse_limits
    from failback.analytics.report.results import ResultsTo
    from failback.analytics.run.definitions import Wanted

    if schema:
        print_json(report_schema())
        return
    if out is not None:
        check_folder("--out", out)
    compared = run_folders(compare or [])
    wanted = Wanted(key, window, ignore_retry_topics, since, until, prefix="--")
    limits = parse_limits(expect or [])
    to = ResultsTo(results) if results is not None else None
    with _read(run or [], lake, run_id or [], tables, engine, master) as (sources, chosen):
        done = report_many(
            sources, chosen, out, compare=compared, master=master, wanted=wanted, limits=limits,
            results=to,
        )  # fmt: skip
    if summary is not None:
        _write_summary(summary, [each.json for each in done])
    if textfile is not None:
        _write_textfile(textfile, [each.json for each in done])
    rows = [
        {
            **row_of(each.json),
            "html": str(each.html) if each.html else None,
            "report": str(each.json),
        }
        for each in done
    ]
    if json:
        print_json(rows)
    else:
        counted = [row for row in rows if not row["observed"]]
        if counted:
            print_verdicts(counted)
        for row, each in zip(rows, done, strict=True):
            say_answers(row)
            say(f"report: {each.html or each.summary}")
    if open_page:
        _open(done[0].html)
    raise typer.Exit(worst(each.exit_code for each in done))


def _open(page: Path | None) -> None:
    import webbrowser

    if page is None or not webbrowser.open(page.absolute().as_uri()):
        note("no browser could be started; open the file above")


def _write_textfile(path: Path, reports: list[Path]) -> None:
    from failback.analytics.exporter.report_figures import write_textfile
    from failback.analytics.report.make_report import read_report

    write_textfile(path, [read_report(each) for each in reports])
