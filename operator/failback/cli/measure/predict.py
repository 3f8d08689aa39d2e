"""``failback predict``: what a fault would repeat, and what would prevent it, before the fault."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from failback.cli.shared.commands import command
from failback.cli.shared.errors import FAIL
from failback.cli.shared.options import JsonOption, argument, flag, option
from failback.cli.shared.output import print_json, print_table, say
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    from failback.analytics.predict.prediction import Prediction
    from failback.analytics.predict.prediction_document import Case


@command(
    "predict",
    "failback predict --rate 400 --members 4 --queues 8    a group by its figures",
    "failback predict runs/demo-1/handover                 a recorded run",
    "failback predict experiment.yaml --cluster c.yaml     an experiment to come",
)
def predict(
    source: Annotated[
        str,
        argument(
            "SOURCE",
            "Experiment file or bundled name, BrokerCluster file, or run folder;"
            " without one, options say everything.",
        ),
    ] = "",
    arm: Annotated[
        str, option("--arm", "NAME", "Of an experiment: only this arm (default: all).")
    ] = "",
    group: Annotated[
        str | None, option("--group", "GROUP", "Only this consumer group (default: all).")
    ] = None,
    cluster: Annotated[
        Path | None, option("--cluster", "FILE", "File of the BrokerCluster to predict for.")
    ] = None,
    fault: Annotated[
        list[str] | None,
        option("--fault", "NAME", "Only this fault, see --list (default: all that fit)."),
    ] = None,
    down: Annotated[
        float | None,
        option("--down", "SECONDS", "How long the master is down (default: the fault's)."),
    ] = None,
    rate: Annotated[
        float | None,
        option(
            "--rate",
            "NUMBER",
            "Messages/s that the group consumes on the pair (default: the source's, or 400).",
        ),
    ] = None,
    members: Annotated[
        int | None,
        option("--members", "N", "Consumers of the group (default: the source's, or 1)."),
    ] = None,
    queues: Annotated[
        int | None, option("--queues", "N", "Queues on the pair (default: the source's, or 8).")
    ] = None,
    backlog: Annotated[
        int | None,
        option(
            "--backlog",
            "N",
            "Messages that wait on the pair at the kill (default: enough for the outage).",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None, option("--set", "KEY=VALUE", "Another value of a setting, see --list.")
    ] = None,
    draws: Annotated[int, option("--draws", "N", "Monte-Carlo draws.")] = 10_000,
    seed: Annotated[int, option("--seed", "N", "Seed of the draws.")] = 42,
    top: Annotated[int, option("--top", "N", "How many knobs to show; 0: none.")] = 8,
    list_all: Annotated[bool, flag("--list", "List faults and settings.")] = False,
    schema: Annotated[bool, flag("--schema", "Print the schema of --json.")] = False,
    json: JsonOption = False,
) -> None:
    """Predict how much a fault would make a group re-consume, and which setting would help."""
    from failback.analytics.predict.keys import parse_assignments
    from failback.analytics.predict.prediction_document import document
    from failback.analytics.predict.prediction_document import schema as published
    from failback.analytics.predict.questions import Asked
    from failback.cli.measure.predict_sources import read_questions

    if schema:
        print_json(published())
        return
    if list_all:
        _list()
        return
    if top < 0:
        raise ConfigError("--top", f"must not be negative, got {top}")
    if seed < 0:
        raise ConfigError("--seed", f"must not be negative, got {seed}")
    if down is not None and not 0 < down <= 86_400:
        raise ConfigError("--down", f"must be above 0 and at most 86400 s, got {down:g}")
    given = {"rate": rate, "members": members, "queues": queues, "backlog": backlog}
    values: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    values |= parse_assignments(changes or ())
    asked = Asked(values, tuple(fault or ()), arm, group or "", cluster, down)
    questions = read_questions(source, asked)
    cases = [each.answer(draws, seed, top) for each in questions]
    if json:
        print_json(document(source or "options", cases, draws=draws, seed=seed))
    else:
        if not source and not values and cluster is None:
            say(f"Nothing was named, so these are defaults: {_load(cases[0])}.")
            say("Give --rate, --members and --queues of your group, or a run or an experiment.")
            say("")
        _show(cases, draws, seed)
    if any(case.exceeded for case in cases):
        raise typer.Exit(FAIL)


def _show(cases: Sequence[Case], draws: int, seed: int) -> None:
    with_observed = any(case.observed is not None for case in cases)
    headers = ["CASE", "FAULT", "EXPECTED", "90 % BAND", "MEAN", "WORST CASE", "CAUSES"]
    if with_observed:
        headers.insert(6, "OBSERVED")
    rows = []
    for case in cases:
        for each in case.predictions:
            row = [case.name, *_figures(each)]
            if with_observed:
                row.insert(6, _observed(case, each))
            rows.append(row)
    print_table(headers, rows)
    for case in cases:
        say(f"{case.name}: {_load(case)}")
        for note in case.notes:
            say(f"{case.name}: {note}")
        if case.exceeded:
            say(f"{case.name}: more than the worst case was observed: a bug or unknown mechanism")
    knobs = [
        [
            case.name,
            knob.key,
            _value(knob.before),
            _value(knob.after),
            f"{knob.saved:+,.0f}",
            f"{knob.saved_worst:+,}",
            knob.cost,
        ]
        for case in cases
        for knob in case.knobs
    ]
    if knobs:
        say("")
        faults = " and ".join(sorted({knob.fault for case in cases for knob in case.knobs}))
        say(f"Knobs, by the mean duplicates that each alone saves in fault {faults}:")
        print_table(["CASE", "SETTING", "FROM", "TO", "SAVES", "WORST SAVES", "COST"], knobs)
    say(f"{draws:,} draws, seed {seed}. Messages; see docs/explanation/predictor.md.")


def _figures(each: Prediction) -> list[str]:
    shown = sorted(each.causes.items(), key=lambda pair: -pair[1])
    causes = ", ".join(f"{cause} {value:,.0f}" for cause, value in shown if round(value))
    return [
        each.fault.name,
        f"{each.median:,.0f}",
        f"{each.p5:,.0f} to {each.p95:,.0f}",
        f"{each.mean:,.0f}",
        f"{each.worst:,}",
        causes or "-",
    ]


def _observed(case: Case, each: Prediction) -> str:
    if case.observed is None:
        return "-"
    where = "inside" if each.holds(case.observed) else "outside"
    return f"{case.observed:,} ({where})"


def _load(case: Case) -> str:
    s = case.settings
    waiting = "enough backlog for the outage" if s.backlog is None else f"backlog {s.backlog:,.0f}"
    members = "1 member" if s.members == 1 else f"{s.members:g} members"
    return (
        f"{s.consume_rate:,.4g} messages/s (at most {s.bound_rate:,.4g}), {s.queues:g} queues,"
        f" {members}, {waiting}"
    )


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float | int) else str(value)


def _list() -> None:
    from failback.analytics.predict.faults import FAULTS
    from failback.analytics.predict.keys import KEYS
    from failback.analytics.predict.settings import Settings

    print_table(
        ["FAULT", "ROWS", "WHAT HAPPENS"],
        [(plan.name, plan.rows, plan.title) for plan in FAULTS.values()],
    )
    say("")
    values = Settings().to_dict().items()
    defaults = {name: "-" if value is None else _value(value) for name, value in values}
    print_table(
        ["SETTING", "DEFAULT", "MEANING"],
        [(key.name, defaults[key.name], key.meaning) for key in KEYS.values()],
    )
