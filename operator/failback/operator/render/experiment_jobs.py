"""The Jobs of a ChaosExperiment: one for each run of an arm, and the one that heals. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from failback.operator.kinds.chaos_experiment import ChaosExperiment, Fault
from failback.operator.render.common import object_name
from failback.operator.render.context import Object
from failback.operator.render.jobs import RUNS, JobContext, Work, job, metadata

EXPERIMENT_FILE: Final = "/etc/failback/experiment.yaml"
ACCESS_FOLDER: Final = "/etc/failback-access"
HEAL_SECONDS: Final = 300
GRACE_SECONDS: Final = 330
"""How long a run that must stop may heal: its own deadline and half a minute."""
_REPORT_ALLOWANCE_SECONDS: Final = 600
_UNKNOWN_FAULT_SECONDS: Final = 60.0


def run_job_name(experiment: str, arm: str, repetition: int) -> str:
    return object_name("fbx", experiment, arm, str(repetition))


def heal_job_name(experiment: str) -> str:
    return object_name("fbx", experiment, "heal")


def config_map_name(experiment: str) -> str:
    return object_name("fbx", experiment)


def experiment_config_map(experiment: ChaosExperiment, seed: int, context: JobContext) -> Object:
    """Return the experiment as the file that a run reads: JSON, which is YAML too."""
    spec = experiment.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    spec.pop("job", None)
    spec.pop("abort", None)
    document = {
        "apiVersion": experiment.api_version,
        "kind": experiment.kind,
        "metadata": {"name": experiment.name, "namespace": context.namespace},
        "spec": {**spec, "seed": seed},
    }
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(experiment, config_map_name(experiment.name), "chaos", context),
        "data": {"experiment.yaml": text},
    }


def experiment_job(
    experiment: ChaosExperiment, arm: str, repetition: int, context: JobContext
) -> Object:
    """Return the Job of one repetition of one arm."""
    args = [
        *("experiment", "run", EXPERIMENT_FILE),
        *("--target", "kube", "--namespace", context.namespace),
        *("--arm", arm, "--repetition", str(repetition), "--runs", RUNS),
    ]
    marks = {"failback.dev/arm": arm, "failback.dev/repetition": str(repetition)}
    work = _work(experiment, args, longest_seconds(experiment, arm), context, marks)
    return job(experiment, run_job_name(experiment.name, arm, repetition), "chaos", work, context)


def heal_job(experiment: ChaosExperiment, context: JobContext) -> Object:
    """Return the Job that takes back what killed runs of this experiment left."""
    args = ["experiment", "heal", f"{RUNS}/{experiment.name}", "--if-there"]
    args += ["--namespace", context.namespace]
    work = _work(experiment, args, HEAL_SECONDS, context, {})
    return job(experiment, heal_job_name(experiment.name), "chaos", work, context)


def longest_seconds(experiment: ChaosExperiment, arm: str) -> int:
    """Return twice the sum of the phases' limits, and time for the report."""
    spec = experiment.spec
    if spec.timeout_seconds is not None:
        return round(spec.timeout_seconds) + _REPORT_ALLOWANCE_SECONDS
    own = [fault for each in spec.arms if each.name == arm for fault in each.faults]
    spread = max((group.start.spread_seconds for group in spec.workload.groups), default=0.0)
    phases = (
        60.0
        + spread
        + spec.warmup_seconds
        + spec.steady_state.timeout_seconds
        + sum(fault.at + fault.jitter_seconds + _lasts(fault) for fault in [*spec.faults, *own])
        + spec.recover_timeout_seconds
        + spec.cooldown_seconds
        + spec.drain.timeout_seconds
        + spec.scan_timeout_seconds
    )
    return round(2 * phases) + _REPORT_ALLOWANCE_SECONDS


def _lasts(fault: Fault) -> float:
    given = fault.with_
    values = (
        given.down_seconds,
        given.duration_seconds,
        given.grace_seconds,
        given.restart_after_seconds,
    )
    return sum(_UNKNOWN_FAULT_SECONDS if value is None else value for value in values)


def _work(
    experiment: ChaosExperiment,
    args: Sequence[str],
    seconds: int,
    context: JobContext,
    marks: Mapping[str, str],
) -> Work:
    own = experiment.spec.job
    config: Object = {
        "name": "experiment",
        "configMap": {"name": config_map_name(experiment.name), "optional": True},
    }
    mount: Object = {"name": "experiment", "mountPath": "/etc/failback", "readOnly": True}
    volumes, mounts, variables = [config], [mount], {}
    if own.access_secret_ref is not None:
        volumes.append({"name": "access", "secret": {"secretName": own.access_secret_ref.name}})
        mounts.append({"name": "access", "mountPath": ACCESS_FOLDER, "readOnly": True})
        variables = {
            "FAILBACK_ACCESS_KEY_FILE": f"{ACCESS_FOLDER}/tools.yml",
            "FAILBACK_TLS_CA": f"{ACCESS_FOLDER}/ca.crt",
        }
    return Work(
        image=own.image or context.chaos_image or f"failback/chaos:{context.version}",
        args=args,
        claim=own.run_volume.claim_name,
        seconds=seconds,
        grace_seconds=GRACE_SECONDS,
        account=context.experiment_account(own.service_account_name),
        resources=own.resources,
        marks=marks,
        volumes=volumes,
        mounts=mounts,
        variables=variables,
    )
