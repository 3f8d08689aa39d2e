"""The heal Job of an experiment: whether it ended, and how. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from failback.common.text import typed
from failback.operator.kinds.chaos_experiment import ChaosExperiment
from failback.operator.planning.jobs import results
from failback.operator.planning.jobs.observed_jobs import ObservedExperiment
from failback.operator.planning.observed.observed import Object
from failback.operator.render.experiment_jobs import heal_job_name


@dataclass(frozen=True, slots=True)
class Heal:
    """State of the heal Job; ``over`` and ``healed`` are false while there is none."""

    name: str
    job: Object | None = None
    over: bool = False
    healed: bool = False
    why: str = ""


def heal_state(experiment: ChaosExperiment, observed: ObservedExperiment) -> Heal:
    """Return what is known of an experiment's heal Job."""
    name = heal_job_name(experiment.name)
    job = observed.jobs.get(name)
    if job is None:
        return Heal(name)
    end = results.end_of(job)
    if end is None:
        return Heal(name, job)
    if end.succeeded:
        return Heal(name, job, over=True, healed=True)
    code = results.exit_code(observed.pods.get(name))
    how = f"exit code {code}" if code is not None else end.why
    folder = f"/runs/{experiment.name}"
    why = f"{name} ended with {how}: type {typed('failback', 'experiment', 'heal', folder)}"
    return Heal(name, job, over=True, why=why)
