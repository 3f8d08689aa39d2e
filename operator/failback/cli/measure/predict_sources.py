"""Sources of ``failback predict``: files and folders, read and checked, as cases.

A source is the name of a bundled experiment, an experiment file, a resource file with a
BrokerCluster, a run folder, or none: then all is given by options.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from failback.analytics.predict.questions import Asked, Question, chosen_groups, of_run
from failback.analytics.predict.settings import Settings
from failback.analytics.predict.sources import (
    START_SECONDS,
    plan_of,
    uptimes_of,
    with_broker_config,
    with_workload,
)
from failback.analytics.run.documents import checked_run
from failback.cli.shared.bundled import EXPERIMENTS, bundled
from failback.cli.shared.folders import run_folders
from failback.common.files import read_object
from failback.common.text import why
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    from failback.chaos.experiment.spec import ChaosExperiment, ResolvedArm
    from failback.operator.kinds.broker_cluster import BrokerCluster


def read_questions(source: str, asked: Asked) -> list[Question]:
    """Read the source.

    Raises:
        ConfigError: Names file and field of what is wrong, or the option that does not fit.
    """
    path = Path(source)
    if not source:
        return _of_options(asked)
    if source in EXPERIMENTS:
        cluster = asked.cluster or bundled("cluster.yaml")
        return _of_experiment(bundled(EXPERIMENTS[source]), replace(asked, cluster=cluster))
    if path.is_dir():
        return [question for run in run_folders([path]) for question in _of_run(run, asked)]
    if not path.exists():
        names = ", ".join(EXPERIMENTS)
        raise ConfigError(source, f"no such file or folder, and no bundled experiment ({names})")
    from failback.operator.schema.loading import read_documents

    kinds = [document.data.get("kind") for document in read_documents(path)]
    if "ChaosExperiment" in kinds:
        beside = path if "BrokerCluster" in kinds else None
        return _of_experiment(path, replace(asked, cluster=asked.cluster or beside))
    if "BrokerCluster" in kinds:
        return _of_cluster(path, asked)
    raise ConfigError(source, "holds neither a ChaosExperiment nor a BrokerCluster")


def _only_for(asked: Asked, what: str, *, group: bool = False) -> None:
    for option, given in (("--arm", asked.arm), ("--group", "" if group else asked.group)):
        if given:
            raise ConfigError(option, f"there is none in {what}")


def _of_options(asked: Asked) -> list[Question]:
    _only_for(asked, "options alone: name an experiment or a run")
    settings = Settings()
    if asked.cluster is not None:
        settings = _with_cluster(settings, _cluster_of(asked.cluster), 0)
    settings = settings.with_values(asked.values)
    return [Question("options", settings, asked.plans(None))]


def _of_cluster(path: Path, asked: Asked) -> list[Question]:
    _only_for(asked, "a BrokerCluster: name an experiment or a run")
    cluster = _cluster_of(path)
    base = _with_topic(Settings(), path, cluster.name)
    found: dict[Settings, list[str]] = {}
    for index in range(cluster.spec.pairs):
        settings = _with_cluster(base, cluster, index).with_values(asked.values)
        found.setdefault(settings, []).append(f"pair-{index}")
    return [
        Question(f"{cluster.name}: {_span(names)}", settings, asked.plans(None))
        for settings, names in found.items()
    ]


def _with_topic(settings: Settings, path: Path, cluster: str) -> Settings:
    """Take the queues of the only topic that the file has for the cluster."""
    from failback.operator.schema.decoding import Topic
    from failback.operator.schema.loading import load_resources

    topics = [
        each for each in load_resources([path]).of(Topic) if each.spec.cluster_ref.name == cluster
    ]
    return (
        replace(settings, queues=topics[0].spec.read_queue_nums) if len(topics) == 1 else settings
    )


def _span(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]} ({len(names)} alike)"


def _of_experiment(path: Path, asked: Asked) -> list[Question]:
    from failback.chaos.faults.catalogue import load_experiment

    experiment = load_experiment(path)
    arms = [experiment.arm(asked.arm)] if asked.arm else list(experiment.arms)
    cluster = _cluster_of(asked.cluster, experiment.cluster) if asked.cluster else None
    base = Settings()
    if cluster is not None:
        base = _with_cluster(base, cluster, 0)
    base = replace(base, time_scale=experiment.spec.time_scale).with_values(asked.values)
    return [
        _question(experiment, arm, group, base, asked)
        for arm in arms
        for group in chosen_groups([each.name for each in arm.workload.groups], asked.group)
    ]


def _question(
    experiment: ChaosExperiment, arm: ResolvedArm, group: str, base: Settings, asked: Asked
) -> Question:
    workload = arm.workload.model_dump(mode="json", by_alias=True)
    faults = [each.model_dump(mode="json", by_alias=True) for each in arm.faults]
    settings = with_broker_config(base, arm.broker_config)
    if arm.engine is not None:
        settings = replace(settings, broker_start_seconds=START_SECONDS[arm.engine])
    spec = experiment.spec
    steady = spec.steady_state.model_dump()
    uptime, longest = uptimes_of(spec.warmup_seconds, steady, faults)
    settings = with_workload(
        settings, workload, group, uptime_seconds=uptime, longest_uptime_seconds=longest
    ).with_values(asked.values)
    plan = None if asked.faults else plan_of(faults, group, f"spec.arms[{arm.name}].faults")
    return Question(f"{arm.name}/{group}", settings, asked.plans(plan))


def _of_run(path: Path, asked: Asked) -> list[Question]:
    _only_for(asked, "a run folder, which is one arm", group=True)
    file = path / "run.json"
    run = _json(file)
    if "schema" in run:  # a person may have written down no more than a prediction needs
        checked_run(run, file)
    try:
        return of_run(run, asked, _observed(path))
    except ConfigError as error:
        if error.field in run or error.problem != "is missing":
            raise
        raise ConfigError(error.field, error.problem, file=file) from error


def _observed(path: Path) -> dict[str, int]:
    """Return duplicates by group of the run's report; none without a report."""
    report = path / "report" / "report.json"
    if not report.exists():
        return {}
    return {str(each["group"]): int(each["dup"]) for each in _json(report).get("groups") or ()}


def _cluster_of(path: Path, name: str = "") -> BrokerCluster:
    from failback.operator.schema.decoding import BrokerCluster
    from failback.operator.schema.loading import load_resources

    found = load_resources([path]).of(BrokerCluster)
    chosen = [each for each in found if not name or each.name == name]
    if not chosen:
        problem = f'no BrokerCluster "{name}"' if name else "no BrokerCluster"
        raise ConfigError(str(path), problem)
    if len(chosen) > 1:
        raise ConfigError(str(path), "more than one BrokerCluster: predict one file at a time")
    return chosen[0]


def _with_cluster(settings: Settings, cluster: BrokerCluster, index: int) -> Settings:
    from failback.operator.engines.quirks import quirk

    pair = cluster.pair(index)
    engine = cluster.spec.engine
    values: dict[str, Any] = {
        "pairs": cluster.spec.pairs,
        "slavesPerPair": pair.slaves,
        "brokerStartSeconds": START_SECONDS[engine.program],
    }
    if engine.rules is not None:
        values["failbackRules"] = engine.rules
    if engine.program == "apache" and engine.version:
        copied = quirk("slaveSyncSeconds", engine.program, engine.version)
        values["slaveSyncInterval"] = int(copied) * 1000
        copies = quirk("slaveCopiesOffsets", engine.program, engine.version)
        settings = replace(settings, slave_copies_offsets=bool(copies))
    return with_broker_config(settings.with_values(values), pair.config)


def _json(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except (OSError, ValueError) as error:
        raise ConfigError(str(path), why(error)) from error
