"""``failback experiment``: run, list, check, heal, abort."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from failback.cli.experiment.running import (
    Target,
    heal,
    load,
    location_of,
    plan_rows,
    run_experiment,
    show_plan,
    wanted_arms,
)
from failback.cli.shared.bundled import bundled_experiments
from failback.cli.shared.commands import command, new_group
from failback.cli.shared.options import (
    ENGINE_HELP,
    RUNS,
    Engine,
    JsonOption,
    KubeconfigOption,
    RootOption,
    RunsOption,
    argument,
    flag,
    option,
)
from failback.cli.shared.output import print_json, print_table, say
from failback.common.text import typed

_MANY: Final = 6
"""So many experiments of one cluster are counted, not named."""
ExperimentArgument = Annotated[
    str, argument("EXPERIMENT", "File of a ChaosExperiment, or a name of failback experiment list.")
]
ArmOption = Annotated[list[str] | None, option("--arm", "NAME", "Only this arm (default: all).")]
RepetitionOption = Annotated[
    int | None, option("--repetition", "N", "Only this repetition, from 0 (default: all).")
]
TimeScaleOption = Annotated[
    float | None,
    option("--time-scale", "NUMBER", "Scale all timers, as the brokers do (default: the file's)."),
]
SeedOption = Annotated[int | None, option("--seed", "N", "Another seed (default: the file's).")]
NamespaceOption = Annotated[
    str,
    option(
        "--namespace",
        "NAME",
        "With --target kube: where the cluster is (default: the experiment's own).",
    ),
]


@command(
    "run",
    "failback experiment run failback-demo                on the cluster that is up",
    "failback experiment run my.yaml --arm handover       one arm of a file",
    "failback experiment run my.yaml --target kube        on Kubernetes",
)
def run(
    experiment: ExperimentArgument,
    arm: ArmOption = None,
    repetition: RepetitionOption = None,
    root: RootOption = None,
    target: Annotated[Target, option("--target", "", "Where the cluster runs.")] = Target.local,
    namespace: NamespaceOption = "",
    kubeconfig: KubeconfigOption = "",
    runs: RunsOption = RUNS,
    time_scale: TimeScaleOption = None,
    seed: SeedOption = None,
    no_report: Annotated[bool, flag("--no-report", "Only run.")] = False,
    report_engine: Annotated[Engine, option("--report-engine", "", ENGINE_HELP)] = Engine.auto,
    json: JsonOption = False,
) -> None:
    """Run an experiment against a running cluster, then report on it."""
    run_experiment(
        experiment,
        arms=arm or (),
        repetition=repetition,
        location=location_of(target, root, namespace, kubeconfig),
        runs=runs,
        time_scale=time_scale,
        seed=seed,
        report_engine=None if no_report else report_engine.value,
        json=json,
    )


@command("list", "failback experiment list")
def list_(json: JsonOption = False) -> None:
    """List the experiments that come with the program."""
    found = bundled_experiments()
    if json:
        keys = ("name", "question", "expected", "source", "lasts", "catalogue", "start")
        print_json(
            [
                {key: getattr(each, key) for key in keys}
                | {"file": str(each.path), "cluster": str(each.cluster)}
                for each in found
            ]
        )
        return
    rows = [(each.name, each.catalogue, each.lasts, each.question) for each in found]
    print_table(("NAME", "FAULT", "LASTS", "QUESTION"), rows)
    say("")
    starts = [(each.cluster, *each.start.split()) for each in found]
    for start in dict.fromkeys(starts):
        names = [each.name for each, its in zip(found, starts, strict=True) if its == start]
        which = ", ".join(names) if len(names) < _MANY else f"the {len(names)} such as {names[0]}"
        say(f"For {which}, first: {typed('failback', 'up', *start, '-d')}")


@command("check", "failback experiment check my.yaml")
def check(
    experiment: ExperimentArgument,
    arm: ArmOption = None,
    repetition: RepetitionOption = None,
    time_scale: TimeScaleOption = None,
    seed: SeedOption = None,
    json: JsonOption = False,
) -> None:
    """Check an experiment without a cluster and show what it would do."""
    plan = load(experiment, time_scale, seed)
    rows = plan_rows(plan, wanted_arms(plan, arm or (), repetition))
    if json:
        print_json({"experiment": plan.name, "seed": plan.seed, "arms": rows})
    else:
        show_plan(rows)


@command(
    "heal",
    "failback experiment heal runs/my-handover-0          one run",
    "failback experiment heal runs                        all that are not healed",
)
def heal_(
    run: Annotated[Path, argument("RUN", "Run folder, or a folder of them: all below.")],
    if_there: Annotated[
        bool, flag("--if-there", "Where there is no such folder, do nothing.")
    ] = False,
    root: RootOption = None,
    namespace: NamespaceOption = "",
    kubeconfig: KubeconfigOption = "",
    yes: Annotated[
        bool, flag("--yes", "Undo although the cluster's lease names another run.")
    ] = False,
) -> None:
    """Undo what a killed run left in a cluster, and close its folder."""
    from failback.chaos.targets.location import Location

    location = None
    if namespace:
        location = Location(namespace=namespace, kubeconfig=kubeconfig)
    elif root:
        location = Location(root=str(root.absolute()))
    raise typer.Exit(heal(run, location, if_there=if_there, insists=yes))


@command("abort", "failback experiment abort runs/my-handover-0")
def abort(
    run: Annotated[Path, argument("RUN", "Folder of a run that is going on.")],
) -> None:
    """Stop a run that is going on: its faults are undone, its folder is closed."""
    from failback.chaos.run.abort_and_heal import abort as abort_run

    abort_run(run)
    say(f"{run}: asked to stop; its own command says when all is undone")


app = new_group(
    "Run experiments on a cluster, check them, and undo what a killed one left.",
    *(run, list_, check, heal_, abort),
    examples=(
        "failback experiment list",
        "failback experiment run long-outage",
        "failback experiment heal runs/long-outage-0",
    ),
)
