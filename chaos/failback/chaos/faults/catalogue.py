"""All faults, and the experiments that name them.

A further fault is a module of this folder and a line here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from failback.chaos.cluster.target import Target
from failback.chaos.cluster.view import ClusterView
from failback.chaos.experiment import spec
from failback.chaos.experiment.expectation_checks import MetricProblem, any_metric
from failback.chaos.experiment.fault_kinds import FaultKinds
from failback.chaos.experiment.model import Fault as Written
from failback.chaos.experiment.spec import ChaosExperiment
from failback.chaos.faults import (
    clock_skew,
    cut_clients,
    cut_nameserver,
    cut_replication,
    disk_full,
    disk_read_only,
    double_kill,
    file_errors,
    kill,
    kill_and_restart,
    kill_consumer,
    kill_nameserver,
    lag_slave,
    limit_memory,
    long_outage,
    none,
    pause,
    replace_offset_file,
    roll_pair,
    scale_consumers,
    slow_disk,
    slow_handler,
    swap_roles,
    terminate,
    throttle_disk,
    unsubscribe,
)
from failback.chaos.faults.fault import Fault, Undo
from failback.common.bounded_yaml import read_text
from failback.common.text import why
from failback.protocol.errors import ConfigError

FAULTS: Final[tuple[Fault, ...]] = (
    none.FAULT,
    kill.FAULT,
    terminate.FAULT,
    kill_and_restart.THEN,
    kill_and_restart.DURING,
    long_outage.FAULT,
    pause.FAULT,
    cut_replication.FAULT,
    cut_clients.FAULT,
    cut_nameserver.FAULT,
    lag_slave.FAULT,
    kill_consumer.FAULT,
    roll_pair.FAULT,
    slow_disk.FAULT,
    throttle_disk.FAULT,
    file_errors.FAULT,
    disk_full.FAULT,
    disk_read_only.FAULT,
    clock_skew.FAULT,
    limit_memory.FAULT,
    kill_nameserver.FAULT,
    double_kill.FAULT,
    swap_roles.FAULT,
    replace_offset_file.FAULT,
    slow_handler.FAULT,
    unsubscribe.FAULT,
    scale_consumers.FAULT,
)
KINDS: Final[FaultKinds] = MappingProxyType({each.kind.name: each.kind for each in FAULTS})
UNDO: Final[Mapping[str, Undo]] = MappingProxyType(
    {each.undo.call: each.undo for each in FAULTS if each.undo is not None}
)
"""How each kind of ledger entry of a fault is taken back."""


def refuse_impossible(faults: Iterable[Written], target: Target, view: ClusterView) -> None:
    """Raise ``ConfigError`` for a fault that this cluster is not prepared for."""
    of_name = {each.kind.name: each for each in FAULTS}
    for fault in faults:
        refuse = of_name[fault.fault].refuse
        if refuse is not None and (problem := refuse(target, view, fault)):
            raise ConfigError(f"spec.faults: {fault.id}", problem)


def load_experiment(
    path: Path | str, *, metric_problem: MetricProblem = any_metric
) -> ChaosExperiment:
    """Read and check one experiment file.

    Args:
        metric_problem: Says why the metric of an expectation is no figure of a report.

    Raises:
        ConfigError: Names the file, the field's path and what is wrong with it.
    """
    file = Path(path)
    try:
        text = read_text(file)
    except (OSError, ValueError) as error:
        raise ConfigError(str(file), why(error)) from error
    return parse_experiment(text, file=file, metric_problem=metric_problem)


def parse_experiment(
    text: str, *, file: Path | None = None, metric_problem: MetricProblem = any_metric
) -> ChaosExperiment:
    """Check the text of an experiment file. Raises ``ConfigError`` like :func:`load_experiment`."""
    return spec.parse_experiment(text, KINDS, file=file, metric_problem=metric_problem)
