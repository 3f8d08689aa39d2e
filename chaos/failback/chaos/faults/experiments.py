"""Read experiments that may name any fault of the catalogue."""

from __future__ import annotations

from pathlib import Path

from failback.chaos.experiment import spec
from failback.chaos.experiment.expectation_checks import MetricProblem, any_metric
from failback.chaos.experiment.spec import ChaosExperiment
from failback.chaos.faults.catalogue import KINDS
from failback.common.text import why
from failback.protocol.errors import ConfigError


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
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), why(error)) from error
    return parse_experiment(text, file=file, metric_problem=metric_problem)


def parse_experiment(
    text: str, *, file: Path | None = None, metric_problem: MetricProblem = any_metric
) -> ChaosExperiment:
    """Check the text of an experiment file. Raises ``ConfigError`` like :func:`load_experiment`."""
    return spec.parse_experiment(text, KINDS, file=file, metric_problem=metric_problem)
