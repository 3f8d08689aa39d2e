"""``failback report``: from a run folder to report.json, summary.md and report.html."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from failback.cli.errors import guarded, worst
from failback.cli.output import print_json, say
from failback.cli.verdicts import print_verdicts, row_of

EngineOption = Annotated[
    str, typer.Option("--engine", help="local (in this process), spark, or auto.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command("report")(report)


def _run_folders(given: list[Path]) -> list[Path]:
    """Put the closed runs below a folder of runs in its place; what is a run folder stays."""
    found: list[Path] = []
    for each in given:
        below = [] if (each / "run.json").exists() else sorted(each.rglob("closed.json"))
        found += [path.parent for path in below] or [each]
    return found


def _write_summary(path: Path, reports: list[Path]) -> None:
    """Write the figures as the status of a ReconsumptionReport has them."""
    from json import loads

    from failback.analytics.status_summary import TRIMMABLE, status_of
    from failback.cli.termination import VARIABLE, fit, write_termination

    read = [loads(each.read_text(encoding="utf-8")) for each in reports]
    where = reports[0].parent if len(reports) == 1 else reports[0].parent.parent
    document = fit(status_of(read, where.absolute().as_uri()), TRIMMABLE)
    write_termination(document, {VARIABLE: str(path)})


@guarded
def report(
    run: Annotated[list[Path], typer.Argument(help="Run folder; several share one session.")],
    engine: EngineOption = "auto",
    out: Annotated[Path | None, typer.Option(help="Where to write (default: RUN/report).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
    summary: Annotated[
        Path | None, typer.Option("--summary", help="Leave the figures here in at most 4 KiB.")
    ] = None,
) -> None:
    """Count what a run delivered twice, say why, and write the report."""
    from failback.analytics.report import report_many

    done = report_many(_run_folders(run), engine, out)
    if summary is not None:
        _write_summary(summary, [each.json for each in done])
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
        print_verdicts(rows)
        for each in done:
            say(f"{each.verdict}: {each.sentence}")
            say(f"report: {each.html or each.summary}")
    raise typer.Exit(worst(each.exit_code for each in done))
