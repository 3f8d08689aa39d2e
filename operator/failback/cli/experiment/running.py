"""What ``failback experiment`` does: load, show the plan, run, report, heal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import StrEnum
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

from failback.cli.shared.bundled import bundled_experiments, bundled_paths
from failback.cli.shared.errors import PASS, explain, fail, worst
from failback.cli.shared.folders import check_folder
from failback.cli.shared.options import open_root
from failback.cli.shared.output import print_json, print_table, say
from failback.cli.shared.termination import fit, write_termination
from failback.cli.shared.verdicts import print_verdicts, row_of, say_answers
from failback.common.text import typed
from failback.protocol.errors import ConfigError, FailbackError

if TYPE_CHECKING:
    from failback.chaos.experiment.spec import ChaosExperiment
    from failback.chaos.run.outcome import RunOutcome
    from failback.chaos.targets.location import Location

    LocationOf: TypeAlias = Callable[[ChaosExperiment], Location]


class Target(StrEnum):
    """Where the cluster of an experiment runs."""

    local = "local"
    kube = "kube"


def run_experiment(
    name: str,
    *,
    arms: Sequence[str],
    repetition: int | None,
    location: Callable[[ChaosExperiment], Location],
    runs: Path,
    time_scale: float | None,
    seed: int | None,
    report_engine: str | None,
    json: bool,
) -> None:
    """Run the wanted arms of an experiment one after the other, then report on them."""
    from failback.chaos.run.summary import refused

    plan = load(name, time_scale, seed)
    wanted = wanted_arms(plan, arms, repetition)
    check_folder("--runs", runs)
    try:
        outcomes = _run_all(plan, wanted, location(plan), runs, json)
    except Exception as error:
        line, code = explain(error)
        write_termination(refused(code, line))
        raise
    _conclude(outcomes, report_engine, json)


def wanted_arms(
    plan: ChaosExperiment, arms: Sequence[str], repetition: int | None
) -> list[tuple[str, int]]:
    """Return the arms to run, in the order of the plan.

    Raises:
        ConfigError: There is no such arm or repetition.
    """
    for name in arms:
        plan.arm(name)  # refuses an unknown name
    if repetition is not None and not 0 <= repetition < plan.spec.repetitions:
        last = plan.spec.repetitions - 1
        raise ConfigError("--repetition", f"must be from 0 to {last}, got {repetition}")
    repetitions = range(plan.spec.repetitions) if repetition is None else [repetition]
    return [
        (each.name, number)
        for number in repetitions
        for each in plan.arm_order(number)
        if not arms or each.name in arms
    ]


def location_of(target: Target, root: Path | None, namespace: str, kubeconfig: str) -> LocationOf:
    """Return what finds the cluster of an experiment.

    Raises:
        ConfigError: No local cluster is up.
    """
    from failback.chaos.targets.location import Location

    def of(plan: ChaosExperiment) -> Location:
        if target is Target.kube:
            return Location(namespace=namespace or plan.namespace, kubeconfig=kubeconfig)
        return Location(root=str(_local_cluster(root, plan)))

    return of


def _local_cluster(root: Path | None, plan: ChaosExperiment) -> Path:
    from failback.operator.local.control import RuntimeAway, call

    where = open_root(root)
    try:
        call(where, "view")
    except RuntimeAway as error:
        raise ConfigError("--root", f"{error}{_cluster_of(plan)}") from error
    return where.path.absolute()


def _cluster_of(plan: ChaosExperiment) -> str:
    """Say which cluster an experiment of ours needs."""
    found = [each for each in bundled_experiments() if each.path.read_text("utf-8") == plan.source]
    if not found:
        return ""
    return f"; this experiment is made for: {typed('failback', 'up', found[0].cluster, '-d')}"


def heal(path: Path, location: Location | None, *, if_there: bool, insists: bool) -> int:
    """Heal one run, or every run below a folder of runs; the worst code of them."""
    from failback.chaos.run import abort_and_heal

    if if_there and not path.exists():
        say(f"{path}: nothing to heal")
        return PASS
    found = abort_and_heal.runs_to_heal(path)
    if not found:
        say(f"{path}: nothing to heal")
    codes: list[int] = []
    for each in found:
        try:
            codes.append(
                abort_and_heal.heal(each, location=location, insists=insists, progress=say)
            )
        except (FailbackError, OSError) as error:  # of one: the others are healed too
            line, code = explain(error)
            fail(line if len(found) == 1 else f"{each}: {line}")
            codes.append(code)
    return worst(codes)


def load(name: str, time_scale: float | None = None, seed: int | None = None) -> ChaosExperiment:
    """Read an experiment from a file, or one that comes with the program.

    Raises:
        ConfigError: No such experiment exists, or its file is wrong.
    """
    from failback.analytics.report.metric_paths import metric_problem
    from failback.chaos.faults.catalogue import load_experiment
    from failback.common.text import did_you_mean

    known = bundled_paths()
    path = known.get(name) or Path(name)
    if not path.exists():
        if name not in known and path.suffix in (".yaml", ".yml"):
            raise ConfigError(name, "no such file")
        # "did you mean none?" would read as if no name were near.
        near = did_you_mean(name, known.keys() - {"none"}) or "; see: failback experiment list"
        raise ConfigError("EXPERIMENT", f'"{name}" is no file and no bundled experiment{near}')
    plan = load_experiment(path, metric_problem=metric_problem)
    if seed is not None:
        plan = plan.with_seed(seed)
    return plan.with_time_scale(time_scale) if time_scale is not None else plan


def plan_rows(plan: ChaosExperiment, wanted: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """Return what would happen: one row for each arm and repetition, with its faults."""
    from failback.chaos.experiment.schedule import plan_run

    rows: list[dict[str, Any]] = []
    for name, number in wanted:
        schedule = plan_run(plan, plan.arm(name), number)
        faults = [
            {
                "id": each.fault.id,
                "fault": each.fault.fault,
                "at_seconds": each.at_seconds,
                "after": each.after,
                "victim": each.fault.target.in_words(),
            }
            for each in schedule.faults
        ]
        longest = schedule.longest_seconds * plan.spec.time_scale
        rows.append(
            {"arm": name, "repetition": number, "at_most_seconds": longest, "faults": faults}
        )
    return rows


def show_plan(rows: Sequence[dict[str, Any]]) -> None:
    """Print what would happen."""
    table = []
    for row in rows:
        say(f"{row['arm']}-{row['repetition']}: at most {row['at_most_seconds']:.0f} s")
        for each in row["faults"]:
            at = f"{each['at_seconds']:g} s" + (f" after {each['after']}" if each["after"] else "")
            fault = (each["id"], each["fault"], at, each["victim"])
            table.append((row["arm"], row["repetition"], *fault))
    print_table(("ARM", "REPETITION", "ID", "FAULT", "AT", "VICTIM"), table)


def _run_all(
    plan: ChaosExperiment,
    wanted: Sequence[tuple[str, int]],
    location: Location,
    runs: Path,
    json: bool,
) -> list[RunOutcome]:
    from failback.chaos.run.progress import DEFAULT_PORT
    from failback.chaos.run.run import run_arm

    # A pod's own address where there is one: pods of one machine may share all others.
    own = os.environ.get("POD_IP", "0.0.0.0")
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
            progress_address=f"{own}:{DEFAULT_PORT}" if location.is_kubernetes else "",
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
            if len(outcomes) == 1:
                _leave_summary(outcomes[0], [], worst([*codes, code]), no_report=line)
            raise typer.Exit(worst([*codes, code])) from None
        codes += [each.exit_code for each in done]
        rows = [{**row_of(each.json), "html": str(each.html or "")} for each in done]
    if len(outcomes) == 1:
        _leave_summary(outcomes[0], rows, worst(codes))
    if json:
        print_json(rows or [asdict(outcome) for outcome in outcomes])
    elif rows:
        print_verdicts(rows)
        for row in rows:
            say_answers(row)
            say(f"report: {row['html']}")
    else:
        for outcome in outcomes:
            say(f"{outcome.arm}-{outcome.repetition}: {outcome.verdict}  {outcome.run_dir}")
    raise typer.Exit(worst(codes))


def _leave_summary(
    outcome: RunOutcome, rows: Sequence[dict[str, Any]], code: int, *, no_report: str = ""
) -> None:
    """Write the run's summary into the container's termination message, outside of pods nowhere.

    Args:
        rows: The report on the run; empty where none was wanted.
        no_report: Why a wanted report could not be made.
    """
    from failback.chaos.run.summary import TRIMMABLE, reasons_of, summarize

    plain = asdict(outcome)
    verdict, reasons, uri = outcome.verdict, reasons_of(plain), ""
    if rows:
        verdict, uri = rows[0]["verdict"], Path(rows[0]["html"]).absolute().parent.as_uri()
        reasons = [f"{each['code']}: {each['detail']}" for each in rows[0]["reasons"]]
    if no_report:
        verdict = "Inconclusive" if verdict == "Pass" else verdict
        reasons = [f"NO_REPORT: {no_report}", *reasons]
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
