"""``failback compare``: the same question asked of Kafka and of Redis Streams."""

from __future__ import annotations

from typing import Annotated

import typer

from failback.cli.shared.commands import command
from failback.cli.shared.errors import worst
from failback.cli.shared.folders import dated_folder
from failback.cli.shared.options import RUNS, JsonOption, RunsOption, argument, option
from failback.cli.shared.output import note, print_json, say
from failback.cli.shared.verdicts import row_of


@command(
    "compare",
    "failback compare kafka                            about eight minutes",
    "failback compare redis --setting lagging-replica  one setting, two minutes",
)
def compare(
    engine: Annotated[str, argument("ENGINE", "kafka or redis.")],
    setting: Annotated[
        str, option("--setting", "NAME", "One setting alone; a wrong name lists them.")
    ] = "",
    runs: RunsOption = RUNS,
    json: JsonOption = False,
) -> None:
    """Kill a server of Kafka or Redis under load; count what each group re-consumes."""
    from failback.analytics.report.make_report import report_many
    from failback.chaos.compare.run import check, run_setting
    from failback.chaos.compare.settings import settings_of

    wanted = settings_of(engine, setting)
    check(engine)
    folder = dated_folder(runs, f"compare-{engine}")
    for each in wanted:
        note(f"{each.name}: {each.says}; the run is in {folder / each.name}")
        run_setting(each, folder / each.name, note)
    done = report_many([folder / each.name for each in wanted], "local")
    code = worst(made.exit_code for made in done)
    if json:
        print_json({"settings": [row_of(made.json) for made in done], "exit_code": code})
    else:
        for made in done:
            say(made.summary.read_text(encoding="utf-8"))
            say(f"report: {made.html or made.json}")
    raise typer.Exit(code)
