"""``failback compare``: the same question asked of Kafka and of Redis Streams."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from failback.cli.shared.commands import command
from failback.cli.shared.errors import worst
from failback.cli.shared.folders import dated_folder
from failback.cli.shared.options import RUNS, JsonOption, RunsOption, argument, option
from failback.cli.shared.output import note, print_json, print_table, say
from failback.common import numbers
from failback.common.files import read_object

HEADERS: Final = (
    "SETTING",
    "GROUP",
    "DELIVERED",
    "RE-CONSUMED",
    "SHARE",
    "WHY",
    "LOST",
    "SEND OUTAGE",
    "RECEIVE OUTAGE",
)


@command(
    "compare",
    "failback compare kafka                             all settings, about eight minutes",
    "failback compare redis --setting lagging-replica   one setting",
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
    from failback.chaos.compare.run import run_setting
    from failback.chaos.compare.settings import setting_of, settings_of

    wanted = [setting_of(engine, setting)] if setting else settings_of(engine)
    folder = dated_folder(runs, f"compare-{engine}")
    for each in wanted:
        if not json:
            say(f"{each.name}: {each.says}; the run is in {folder / each.name}")
        run_setting(each, folder / each.name, note)
    done = report_many([folder / each.name for each in wanted], "local")
    rows = [row for made in done for row in rows_of(made.json)]
    code = worst(made.exit_code for made in done)
    if json:
        print_json({"groups": rows, "exit_code": code})
    else:
        print_table(HEADERS, [_cells(row) for row in rows])
        for made in done:
            say(made.sentence)
            say(f"report: {made.html or made.json}")
    raise typer.Exit(code)


def rows_of(report_file: Path) -> list[dict[str, Any]]:
    """Return the figures of each group of a ``report.json``; ``None`` = not measured."""
    report = read_object(report_file)
    outages = [each["produce_ms"] for each in report["rto"] if each["produce_ms"] is not None]
    return [
        {
            "setting": report["arm"],
            "group": group["group"],
            **{name: group[name] for name in ("delivered", "distinct", "dup", "dup_ratio", "lost")},
            "causes": group["causes"],
            "unattributed": group["unattributed"],
            "produce_ms": max(outages, default=None),
            "receive_ms": report["foreign"]["receive_ms"].get(group["group"]),
            "verdict": report["verdict"]["value"],
            "run": report["run"],
        }
        for group in report["groups"]
    ]


def _cells(row: dict[str, Any]) -> list[str]:
    why = [f"{name} {numbers.count(count)}" for name, count in row["causes"].items()]
    if row["unattributed"]:
        why.append(f"not known {numbers.count(row['unattributed'])}")
    return [
        row["setting"],
        row["group"],
        numbers.count(row["delivered"]),
        numbers.count(row["dup"]),
        numbers.percent(row["dup_ratio"]),
        ", ".join(why),
        numbers.count(row["lost"]),
        numbers.milliseconds(row["produce_ms"]),
        numbers.milliseconds(row["receive_ms"]),
    ]
