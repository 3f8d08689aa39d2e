"""``failback run``: the spelling of 0.1 for ``failback experiment``; goes with 0.3."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from failback.cli.experiment import experiments
from failback.cli.experiment.experiments import (
    ArmOption,
    NamespaceOption,
    RepetitionOption,
    SeedOption,
    TargetOption,
    TimeScaleOption,
)
from failback.cli.experiment.running import Target
from failback.cli.shared.commands import add
from failback.cli.shared.errors import guarded
from failback.cli.shared.options import (
    RUNS,
    JsonOption,
    KubeconfigOption,
    RootOption,
    RunsOption,
)
from failback.cli.shared.reporting import ENGINE_HELP, Engine
from failback.common.text import typed
from failback.protocol.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the old spelling; it is not shown."""
    add(app, guarded(run), "run", hidden=True)


def run(
    experiment: Annotated[
        str, typer.Argument(metavar="EXPERIMENT", help="File of a ChaosExperiment, or a name.")
    ] = "",
    arm: ArmOption = None,
    repetition: RepetitionOption = None,
    root: RootOption = None,
    target: TargetOption = Target.local,
    namespace: NamespaceOption = "",
    kubeconfig: KubeconfigOption = "",
    runs: RunsOption = RUNS,
    time_scale: TimeScaleOption = None,
    seed: SeedOption = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Only run.")] = False,
    report_engine: Annotated[
        Engine, typer.Option("--report-engine", help=ENGINE_HELP)
    ] = Engine.auto,
    list_names: Annotated[bool, typer.Option("--list", help="Now: experiment list.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Now: experiment check.")] = False,
    heal: Annotated[
        Path | None, typer.Option("--heal", metavar="RUN", help="Now: experiment heal RUN.")
    ] = None,
    if_there: Annotated[bool, typer.Option("--if-there", help="With --heal.")] = False,
    abort: Annotated[
        Path | None, typer.Option("--abort", metavar="RUN", help="Now: experiment abort RUN.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run an experiment: the old spelling of failback experiment."""
    if list_names:
        _note("list")
        experiments.list_(json)
    elif heal is not None:
        _note("heal", heal)
        experiments.heal_(heal, if_there)
    elif abort is not None:
        _note("abort", abort)
        experiments.abort(abort)
    elif not experiment:
        raise ConfigError("EXPERIMENT", "is missing; see: failback experiment run --help")
    elif dry_run:
        _note("check", experiment)
        experiments.check(experiment, arm, repetition, time_scale, seed, json)
    else:
        _note("run", experiment)
        places = (root, target, namespace, kubeconfig, runs)
        wanted = (time_scale, seed, no_report, report_engine, json)
        experiments.run(experiment, arm, repetition, *places, *wanted)


def _note(*words: object) -> None:
    new = typed("failback", "experiment", *words)
    print(f"note: this is now: {new} (failback run goes with 0.3)", file=sys.stderr)
