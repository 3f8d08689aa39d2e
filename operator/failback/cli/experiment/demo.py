"""``failback demo``: the main job. Bundled cluster and experiment, both arms, one report."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from failback.cli.experiment.arms import ArmRun
from failback.cli.shared.bundled import bundled
from failback.cli.shared.commands import EXPERIMENT, add
from failback.cli.shared.errors import INCONCLUSIVE, fail, guarded, worst
from failback.cli.shared.live import Board
from failback.cli.shared.options import RUNS, JsonOption, RunsOption
from failback.cli.shared.output import console, print_json, say
from failback.cli.shared.verdicts import print_verdicts, row_of, say_answers
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    from failback.analytics.report.make_report import ReportPaths
    from failback.chaos.experiment.spec import ChaosExperiment
    from failback.operator.kinds.base import Resource

QUICK_TIME_SCALE: Final = 0.1
APACHE_VERSION: Final = "4.9.7"
RULES: Final = ("compat", "guarded")
REPORT_ENGINES: Final = ("spark", "local", "auto")
_POLL_SECONDS: Final = 0.2


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    add(
        app,
        demo,
        "demo",
        panel=EXPERIMENT,
        examples=(
            "failback demo --quick                all timers at a tenth",
            "failback demo --rules guarded        with the counter-measures on",
        ),
    )


@guarded
def demo(
    quick: Annotated[
        bool, typer.Option("--quick", help="All timers at a tenth, under a minute.")
    ] = False,
    engine: Annotated[
        str, typer.Option("--engine", help="Whose brokers: failback or apache.")
    ] = "failback",
    rules: Annotated[
        str, typer.Option("--rules", help="Brokers' rules: compat (4.9.8's) or guarded.")
    ] = "compat",
    report_engine: Annotated[
        str, typer.Option("--report-engine", help="What counts: spark, local or auto.")
    ] = "spark",
    runs: RunsOption = RUNS,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the brokers' stores.")] = False,
    json: JsonOption = False,
) -> None:
    """Kill a master under load, with and without a consumer handover; count what comes twice."""
    experiment = load_demo(quick=quick, engine=engine, rules=rules)
    check_report_engine(report_engine)
    folder = _new_folder(runs)
    board = Board([arm.name for arm in experiment.arms], silent=json)
    if not json:
        _introduce(experiment, folder, quick)
    arms = [
        ArmRun(
            experiment,
            arm.name,
            demo_resources(arm.name, quick=quick, engine=engine, rules=rules),
            root=folder / "roots" / arm.name,
            run_dir=folder / arm.name,
            board=board,
        )
        for arm in experiment.arms
    ]
    with board.shown():
        _run_side_by_side(arms)
    done = _report(arms, report_engine, silent=json)
    if not keep:
        shutil.rmtree(folder / "roots")
    _show(arms, done, json)


def load_demo(*, quick: bool, engine: str, rules: str) -> ChaosExperiment:
    """Return the bundled experiment; refuse options that do not fit together.

    Raises:
        ConfigError: Names the option.
    """
    from failback.chaos.faults.experiments import load_experiment

    if engine not in ("failback", "apache"):
        raise ConfigError("--engine", f'must be failback or apache, got "{engine}"')
    if quick and engine == "apache":
        problem = "needs engine failback: the timers of Apache RocketMQ can't be scaled"
        raise ConfigError("--quick", problem)
    if rules not in RULES:
        raise ConfigError("--rules", f'must be {" or ".join(RULES)}, got "{rules}"')
    if rules != "compat" and engine == "apache":
        problem = "needs engine failback: Apache RocketMQ has no other rules than its own"
        raise ConfigError("--rules", problem)
    experiment = load_experiment(bundled("experiment.yaml"))
    return experiment.with_time_scale(QUICK_TIME_SCALE) if quick else experiment


def check_report_engine(name: str) -> None:
    """Refuse a report engine that can't start, before minutes are spent on a run.

    Raises:
        ConfigError: Names what to install.
    """
    if name not in REPORT_ENGINES:
        problem = f'must be one of {", ".join(REPORT_ENGINES)}, got "{name}"'
        raise ConfigError("--report-engine", problem)
    from failback.analytics.analysis.engines.spark.session import why_not

    if name == "spark" and (missing := why_not()):
        raise ConfigError("--report-engine spark", f"{missing}; or use --report-engine local")


def demo_resources(arm: str, *, quick: bool, engine: str, rules: str) -> list[Resource]:
    """Return the bundled cluster in a namespace of the arm, with the options put in."""
    from failback.operator.schema.decoding import decode
    from failback.operator.schema.loading import read_documents

    items = []
    for document in read_documents(bundled("cluster.yaml")):
        data: dict[str, Any] = document.data
        data["metadata"]["namespace"] = f"demo-{arm}"
        if quick:
            config = data["spec"].setdefault("config", {})
            config["failbackTimeScale"] = str(QUICK_TIME_SCALE)
        if engine == "apache":
            data["spec"]["engine"] = {"type": "apache", "version": APACHE_VERSION}
        elif rules != "compat":
            data["spec"]["engine"] = {"type": "failback", "rules": rules}
        items.append(decode(data))
    return items


def _new_folder(runs: Path) -> Path:
    base = (runs / time.strftime("demo-%Y%m%d-%H%M%S")).absolute()
    folder = base
    for number in range(2, 1000):
        if not folder.exists():
            break
        folder = base.with_name(f"{base.name}-{number}")
    folder.mkdir(parents=True)
    return folder


def _introduce(experiment: ChaosExperiment, folder: Path, quick: bool) -> None:
    how = "all timers at a tenth" if quick else "real timers, about four minutes"
    names = " and ".join(arm.name for arm in experiment.arms)
    say(f"kill -9 of a master under load; arms {names} side by side, {how}; runs in {folder}")


def _run_side_by_side(arms: Sequence[ArmRun]) -> None:
    """Run all arms; one that fails, or Ctrl-C, ends the others in order.

    Raises:
        KeyboardInterrupt: After everything was undone and stopped.
    """
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    interrupted = False
    for arm in arms:
        arm.start()
    try:
        while not all(arm.ended.is_set() for arm in arms):
            try:
                for arm in arms:
                    arm.ended.wait(_POLL_SECONDS)
                if any(arm.error is not None for arm in arms):
                    _cancel(arms)
            except KeyboardInterrupt:
                interrupted = True
                _cancel(arms)
    finally:
        signal.signal(signal.SIGTERM, previous)
    for arm in arms:
        arm.join()
    if interrupted:
        raise KeyboardInterrupt
    for arm in arms:
        if arm.error is not None:
            raise arm.error


def _cancel(arms: Sequence[ArmRun]) -> None:
    for arm in arms:
        if not arm.ended.is_set():
            arm.cancel()


def _report(arms: Sequence[ArmRun], engine: str, *, silent: bool) -> list[ReportPaths]:
    from failback.analytics.report.make_report import report_many

    folders = [arm.run_dir for arm in arms]
    if silent:
        return report_many(folders, engine)
    started = time.monotonic()
    with console.status(f"report of {len(folders)} runs, engine {engine}"):
        done = report_many(folders, engine)
    say(f"report of {len(folders)} runs, engine {engine}: {time.monotonic() - started:.1f} s")
    return done


def _show(arms: Sequence[ArmRun], done: Sequence[ReportPaths], json: bool) -> None:
    rows = [
        {**row_of(each.json), "report": str(each.json), "html": str(each.html or "")}
        for each in done
    ]
    outcomes = [arm.outcome for arm in arms]
    codes = [each.exit_code for each in done]
    codes += [each.exit_code if each is not None else INCONCLUSIVE for each in outcomes]
    code = worst(codes)
    if json:
        print_json({"arms": rows, "exit_code": code})
        raise typer.Exit(code)
    print_verdicts(rows)
    for row in rows:
        say_answers(row)
    for outcome in outcomes:
        if outcome is not None and outcome.message:
            fail(f"{outcome.arm}: {outcome.message}")
    for row in rows:
        say(f"report: {row['html'] or row['report']}")
    raise typer.Exit(code)
