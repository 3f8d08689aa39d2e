"""``failback run``: experiments, and what to do when one was killed."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from failback.cli.local.cluster import JsonOption, RootOption, open_root
from failback.cli.shared.bundled import EXPERIMENTS, bundled
from failback.cli.shared.errors import PASS, explain, fail, guarded, worst
from failback.cli.shared.output import print_json, print_table, say
from failback.cli.shared.termination import fit, write_termination
from failback.cli.shared.verdicts import print_verdicts, row_of, say_answers

if TYPE_CHECKING:
    from failback.chaos.experiment.spec import ChaosExperiment
    from failback.chaos.run.outcome import RunOutcome
    from failback.chaos.targets.location import Location


class Target(StrEnum):
    """Where the cluster of an experiment runs."""

    local = "local"
    kube = "kube"


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command("run")(run)


@guarded
def run(
    experiment: Annotated[
        str, typer.Argument(help="File of a ChaosExperiment, or a name that --list shows.")
    ] = "",
    arm: Annotated[list[str] | None, typer.Option("--arm", help="Only this arm.")] = None,
    repetition: Annotated[
        int | None, typer.Option("--repetition", help="Only this repetition, from 0.")
    ] = None,
    root: RootOption = None,
    target: Annotated[
        Target, typer.Option("--target", help="Where the cluster of the experiment runs.")
    ] = Target.local,
    namespace: Annotated[
        str, typer.Option("--namespace", help="With --target kube: not the experiment's own.")
    ] = "",
    kubeconfig: Annotated[
        str, typer.Option("--kubeconfig", help="With --target kube: not the usual one.")
    ] = "",
    runs: Annotated[Path, typer.Option("--runs", help="Folder of run folders.")] = Path("runs"),
    time_scale: Annotated[
        float | None, typer.Option(help="Scale all timers (the brokers' must match).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Use this seed instead of the file's.")] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Only run.")] = False,
    report_engine: Annotated[str, typer.Option(help="local, spark or auto.")] = "auto",
    list_names: Annotated[bool, typer.Option("--list", help="List bundled experiments.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and show the plan.")] = False,
    heal: Annotated[
        Path | None,
        typer.Option("--heal", metavar="RUN", help="Undo what a killed run (or all below) left."),
    ] = None,
    if_there: Annotated[
        bool, typer.Option("--if-there", help="With --heal: no such folder is no mistake.")
    ] = False,
    abort: Annotated[
        Path | None, typer.Option("--abort", metavar="RUN", help="Stop a live run in order.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run an experiment against a running cluster, then report on it."""
    if list_names:
        print_table(("NAME", "FILE"), [(name, bundled(file)) for name, file in EXPERIMENTS.items()])
        return
    if heal is not None:
        raise typer.Exit(_heal(heal, if_there=if_there))
    if abort is not None:
        from failback.chaos.run.abort_and_heal import abort as abort_run

        abort_run(abort)
        return
    from failback.chaos.run.summary import refused
    from failback.chaos.targets.location import Location

    plan = _load(experiment, time_scale, seed)
    repetitions = range(plan.spec.repetitions) if repetition is None else [repetition]
    wanted = [
        (each.name, number)
        for number in repetitions
        for each in plan.arm_order(number)
        if not arm or each.name in arm
    ]
    for name in arm or ():
        plan.arm(name)  # refuses an unknown name
    if dry_run:
        _show_plan(plan, wanted, json)
        return
    if target is Target.kube:
        location = Location(namespace=namespace or plan.namespace, kubeconfig=kubeconfig)
    else:
        location = Location(root=str(open_root(root).path.absolute()))
    try:
        outcomes = _run_all(plan, wanted, location, runs, json)
    except Exception as error:
        line, code = explain(error)
        write_termination(refused(code, line))
        raise
    _conclude(outcomes, report_engine if not no_report else None, json)


def _heal(path: Path, *, if_there: bool) -> int:
    """Heal one run, or every run below a folder of runs; the worst code of them."""
    from failback.chaos.run.abort_and_heal import heal, runs_to_heal

    if if_there and not path.exists():
        say(f"{path}: nothing to heal")
        return PASS
    return worst(heal(each, progress=say) for each in runs_to_heal(path))


def _load(name: str, time_scale: float | None, seed: int | None) -> ChaosExperiment:
    from failback.chaos.faults.experiments import load_experiment
    from failback.protocol.errors import ConfigError
    from failback.protocol.spelling import did_you_mean

    path = bundled(EXPERIMENTS[name]) if name in EXPERIMENTS else Path(name)
    if not name or (not path.exists() and path.suffix not in (".yaml", ".yml")):
        problem = f'no file and no bundled experiment "{name}"{did_you_mean(name, EXPERIMENTS)}'
        raise ConfigError("EXPERIMENT", f"{problem}; see failback run --list")
    plan = load_experiment(path)
    _check_metrics(plan, path)
    if seed is not None:
        plan = plan.with_seed(seed)
    return plan.with_time_scale(time_scale) if time_scale is not None else plan


def _check_metrics(plan: ChaosExperiment, path: Path) -> None:
    """Refuse an expectation of a figure that no report has, before anything is started."""
    from failback.analytics.report.metric_paths import metric_problem
    from failback.protocol.errors import ConfigError

    for where, wish in plan.expectations():
        if problem := metric_problem(wish.metric, of_group=wish.group is not None):
            raise ConfigError(f"{where}.metric", problem, file=path)


def _show_plan(plan: ChaosExperiment, wanted: Sequence[tuple[str, int]], json: bool) -> None:
    from failback.chaos.experiment.schedule import plan_run

    arms: list[dict[str, Any]] = []
    for name, number in wanted:
        schedule = plan_run(plan, plan.arm(name), number)
        arms.append(
            {
                "arm": name,
                "repetition": number,
                "at_most_seconds": schedule.longest_seconds * plan.spec.time_scale,
                "faults": [
                    {
                        "id": each.fault.id,
                        "fault": each.fault.fault,
                        "at_seconds": each.at_seconds,
                        "after": each.after,
                        "victim": each.fault.target.in_words(),
                    }
                    for each in schedule.faults
                ],
            }
        )
    if json:
        print_json({"experiment": plan.name, "seed": plan.seed, "arms": arms})
        return
    rows = []
    for arm in arms:
        say(f"{arm['arm']}-{arm['repetition']}: at most {arm['at_most_seconds']:.0f} s")
        for fault in arm["faults"]:
            after = f" after {fault['after']}" if fault["after"] else ""
            at = f"{fault['at_seconds']:g} s{after}"
            place = (arm["arm"], arm["repetition"])
            rows.append((*place, fault["id"], fault["fault"], at, fault["victim"]))
    print_table(("ARM", "REPETITION", "ID", "FAULT", "AT", "VICTIM"), rows)


def _run_all(
    plan: ChaosExperiment,
    wanted: Sequence[tuple[str, int]],
    location: Location,
    runs: Path,
    json: bool,
) -> list[RunOutcome]:
    from failback.chaos.run.progress import DEFAULT_PORT
    from failback.chaos.run.run import run_arm

    outcomes = []
    for name, number in wanted:
        started = time.monotonic()

        def progress(line: str, name: str = name, started: float = started) -> None:
            if not json:
                say(f"{name} {time.monotonic() - started:6.1f} s  {line}")

        outcome = run_arm(
            plan,
            name,
            number,
            location=location,
            runs=runs,
            progress_address=f"{_own_address()}:{DEFAULT_PORT}" if location.is_kubernetes else "",
            progress=progress,
        )
        outcomes.append(outcome)
        if outcome.message:
            fail(outcome.message)
        if any(check["code"] == "ABORTED" for check in outcome.checks):
            break  # whoever stops a run does not want the next one to kill brokers
    return outcomes


def _conclude(outcomes: Sequence[RunOutcome], report_engine: str | None, json: bool) -> None:
    """Report on every closed run; print; exit with the worst code."""
    codes = [outcome.exit_code for outcome in outcomes]
    rows: list[dict[str, Any]] = []
    if report_engine is not None:
        from failback.analytics.report.make_report import report_many

        closed = [each for each in outcomes if Path(each.run_dir, "closed.json").exists()]
        try:
            done = report_many([each.run_dir for each in closed], report_engine)
        except Exception as error:
            # The runs stand whatever the report says; their own codes must not be lost.
            line, code = explain(error)
            fail(f"report: {line}; the runs are complete, try: failback report RUN")
            raise typer.Exit(worst([*codes, code])) from None
        codes += [each.exit_code for each in done]
        rows = [{**row_of(each.json), "html": str(each.html or "")} for each in done]
    if len(outcomes) == 1:
        _leave_summary(outcomes[0], rows, worst(codes))
    if json:
        print_json(rows or [_plain(outcome) for outcome in outcomes])
    elif rows:
        print_verdicts(rows)
        for row in rows:
            say_answers(row)
            say(f"report: {row['html']}")
    else:
        for outcome in outcomes:
            say(f"{outcome.arm}-{outcome.repetition}: {outcome.verdict}  {outcome.run_dir}")
    raise typer.Exit(worst(codes))


def _own_address() -> str:
    """A pod's own address where there is one: pods of one machine may share all others."""
    return os.environ.get("POD_IP", "0.0.0.0")


def _leave_summary(outcome: RunOutcome, rows: Sequence[dict[str, Any]], code: int) -> None:
    """Leave the run's summary as the container's termination message, where there is one."""
    from json import loads

    from failback.chaos.run.summary import TRIMMABLE, reasons_of, summarize

    plain = _plain(outcome)
    verdict, reasons, uri = outcome.verdict, reasons_of(plain), ""
    if rows:
        verdict, uri = rows[0]["verdict"], Path(rows[0]["html"]).absolute().parent.as_uri()
        reasons = [f"{each['code']}: {each['detail']}" for each in rows[0]["reasons"]]
    evidence = Path(outcome.run_dir, "evidence.jsonl")
    lines = evidence.read_text(encoding="utf-8").splitlines() if evidence.exists() else []
    document = summarize(
        plain,
        map(loads, lines),
        exit_code=code,
        verdict=verdict,
        reasons=reasons or ([outcome.message] if outcome.message else []),
        report_uri=uri,
    )
    write_termination(fit(document, TRIMMABLE))


def _plain(outcome: RunOutcome) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(outcome)
