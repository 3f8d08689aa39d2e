"""``failback dashboard``: the page for people on duty. Here it learns what it can start."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from failback.analytics.dashboard.settings import (
    Choice,
    DashboardSettings,
    Option,
    Scenario,
)
from failback.cli.shared.bundled import EXPERIMENTS, bundled
from failback.cli.shared.clusters import NO_CLUSTER, ClusterOptions, cluster_options
from failback.cli.shared.commands import command
from failback.cli.shared.errors import Debug, explain
from failback.cli.shared.folders import check_folder
from failback.cli.shared.options import RootOption, open_root
from failback.cli.shared.output import note
from failback.cli.shared.settings_options import Typed, settings_options
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    from failback.chaos.experiment.spec import ChaosExperiment


@command(
    "dashboard",
    "failback dashboard --runs runs                       runs, and the local cluster",
    "failback dashboard -n 10.0.0.1:9876                  a cluster that is there",
    "failback dashboard --kube-namespace shop             BrokerClusters of a namespace",
)
@cluster_options(root=False, tls_prefix="cluster-")
@settings_options(DashboardSettings)
def dashboard(
    settings: Typed[DashboardSettings],
    cluster: ClusterOptions = NO_CLUSTER,
    root: RootOption = None,
) -> None:
    """Show clusters, offsets and runs on a web page; start experiments and watch them."""
    from failback.analytics.dashboard.serve import serve

    _log_little()
    runs, local = settings.values["runs"].absolute(), open_root(root).path
    named = cluster.named()  # the local cluster is shown without it
    made = settings.make(
        runs=runs,
        roots=(local,),
        namesrv=named.name_servers,
        access=named.access,
    )
    made.check_access()
    _make_folder(settings.values["runs"])
    serve(made, *startable(runs, local))


def _log_little() -> None:
    """Log warnings only, so that the terminal shows the address alone; --debug logs more."""
    import logging

    from failback.client.program import begin_logging

    level = logging.INFO if Debug.on else logging.WARNING
    begin_logging(level)


def _make_folder(runs: Path) -> None:
    """Make the folder of runs where it is missing.

    An existing folder need not be writable: only experiments write into it.
    """
    if not runs.is_dir():
        check_folder("--runs", runs)
        note(f"{runs} does not exist yet: it is made, and empty until something runs")
        runs.mkdir(parents=True, exist_ok=True)


def startable(runs: Path, root: Path) -> tuple[list[Scenario], Callable[[Path], None]]:
    """Return the scenarios, and what aborts a run; no scenario without the extra chaos."""
    try:
        from failback.chaos.run.abort_and_heal import abort

        on_local = (_bundled_scenario(*each, runs, root) for each in EXPERIMENTS.items())
        scenarios = [demo_scenario(runs), *on_local]
    except ModuleNotFoundError as error:
        missing = explain(error)[0]
        print(f"no experiment can be started: {missing}", file=sys.stderr)

        def refuse(_: Path) -> None:
            raise ConfigError("experiments", missing)

        return [], refuse

    def abort_run(path: Path) -> None:
        abort(path, "asked from the dashboard")

    return scenarios, abort_run


def demo_scenario(runs: Path) -> Scenario:
    """The demo: brings its own cluster for each arm."""

    def command(options: Mapping[str, str]) -> Sequence[str]:
        words = _failback("demo", "--runs", str(runs), "--no-spark")
        if options["quick"] == "yes":
            words.append("--quick")
        return [*words, "--rules", options["rules"], "--engine", options["engine"]]

    return Scenario(
        name="demo",
        title="Kill a master under load, with and without a handover",
        what_happens=(
            "Starts a name server and a broker pair for each arm, kills the master, lets the slave"
            " serve, brings the master back, and reports what was re-consumed and why."
        ),
        needs_cluster=False,
        arms=("stay", "handover"),
        faults=_faults("experiment.yaml"),
        command=command,
        takes="Under half a minute with timers at a tenth, two and a half to three with real ones.",
        options={
            "quick": Option(
                "Timers",
                "yes",
                (
                    Choice("yes", "a tenth: under half a minute"),
                    Choice("no", "real: about two and a half minutes, three with Apache's brokers"),
                ),
            ),
            "rules": Option(
                "Rules of the brokers",
                "compat",
                (
                    Choice("compat", "compat: as Apache RocketMQ 4.9.8, flaws included"),
                    Choice("guarded", "guarded: with the counter-measures on"),
                ),
            ),
            "engine": Option(
                "Brokers",
                "failback",
                (
                    Choice("failback", "Failback's own"),
                    Choice("apache", "Apache RocketMQ 4.9, needs Java and real timers",
                           not_with=("quick", "yes")),
                ),
            ),
        },
    )  # fmt: skip


def _bundled_scenario(name: str, file: str, runs: Path, root: Path) -> Scenario:
    """A bundled experiment, on the local cluster that is up."""
    from failback.chaos.faults.catalogue import load_experiment

    experiment = load_experiment(bundled(file))

    def command(options: Mapping[str, str]) -> Sequence[str]:
        words = _failback("experiment", "run", name, "--root", str(root), "--runs", str(runs))
        words += ["--report-engine", "local"]
        for option in ("seed", "time-scale"):
            if options[option]:
                words += [f"--{option}", options[option]]
        return words

    return Scenario(
        name=name,
        title=f"{name} on the cluster {experiment.cluster} that is up",
        what_happens=(
            "Runs every arm one after the other on the local cluster, then reports. The cluster"
            " stays up afterwards."
        ),
        needs_cluster=True,
        arms=tuple(arm.name for arm in experiment.arms),
        faults=_faults(file),
        command=command,
        takes=_longest(experiment),
        options={
            "seed": Option("Seed; empty: that of the file", "", most=2**53, whole=True),
            "time-scale": Option(
                "Scale of all timers, as the brokers have it; empty: 1", "", least=0.01, most=10
            ),
        },
    )


def _longest(experiment: ChaosExperiment) -> str:
    """The limit of all steps: an experiment ends when its group has drained, mostly long before."""
    from failback.chaos.experiment.schedule import plan_run

    arms = experiment.arms
    seconds = sum(plan_run(experiment, experiment.arm(arm.name), 0).longest_seconds for arm in arms)
    minutes = seconds * max(1, experiment.spec.repetitions) / 60
    return (
        f"At most {minutes:.0f} minutes for {len(arms)} arms, times the scale of the timers;"
        " mostly a fraction of that."
    )


def _faults(file: str) -> tuple[str, ...]:
    """Return the faults of an experiment with their targets, one sentence each."""
    from failback.chaos.faults.catalogue import load_experiment

    experiment = load_experiment(bundled(file))
    seen: dict[str, str] = {}
    for arm in experiment.arms:
        for each in experiment.arm(arm.name).faults:
            seen.setdefault(each.id, f"{each.fault}: {each.target.in_words()}")
    return tuple(seen.values())


def _failback(*words: str) -> list[str]:
    return [sys.executable, "-m", "failback.cli", *words]
