"""All faults, and the experiments that name them.

A further fault is a module of this folder, a line here and one in ``toolkit/actions.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from failback.chaos.experiment import spec
from failback.chaos.experiment.expectation_checks import MetricProblem, any_metric
from failback.chaos.experiment.fault_kinds import FaultKinds
from failback.chaos.experiment.spec import ChaosExperiment
from failback.chaos.faults import (
    cut_clients,
    cut_nameserver,
    cut_replication,
    double_kill,
    kill,
    kill_and_restart,
    kill_consumer,
    long_outage,
    none,
    pause,
    replace_offset_file,
    slow_handler,
    terminate,
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
    kill_consumer.FAULT,
    double_kill.FAULT,
    replace_offset_file.FAULT,
    slow_handler.FAULT,
    unsubscribe.FAULT,
)
KINDS: Final[FaultKinds] = MappingProxyType({each.kind.name: each.kind for each in FAULTS})
UNDO: Final[Mapping[str, Undo]] = MappingProxyType(
    {each.undo.call: each.undo for each in FAULTS if each.undo is not None}
)
"""How each kind of ledger entry of a fault is taken back."""


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
