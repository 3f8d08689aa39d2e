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


@guarded
def report(
    run: Annotated[list[Path], typer.Argument(help="Run folder; several share one session.")],
    engine: EngineOption = "auto",
    out: Annotated[Path | None, typer.Option(help="Where to write (default: RUN/report).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Count what a run delivered twice, say why, and write the report."""
    from failback.analytics.report import report_many

    done = report_many(run, engine, out)
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
