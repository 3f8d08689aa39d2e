"""Jobs of experiments and reports, and the volume that keeps their run folders. Pure.

The operator injects nothing: it renders the Job that does. A run volume has no owner, because runs
outlive everything; all else belongs to its custom resource.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from failback.operator.kinds.base import Resource, Resources
from failback.operator.kinds.chaos_experiment import ChaosExperiment, Fault
from failback.operator.kinds.reconsumption_report import ReconsumptionReport
from failback.operator.render import common
from failback.operator.render.context import KUBERNETES_HOME, KUBERNETES_RUN_DIR, Object

RUNS: Final = "/runs"
"""Where the run volume is mounted."""
EXPERIMENT_FILE: Final = "/etc/failback/experiment.yaml"
CONTAINER: Final = "main"
HEAL_SECONDS: Final = 300
GRACE_SECONDS: Final = 330
"""How long a run that is told to stop may heal: its own deadline and half a minute."""
REPORT_SECONDS: Final = 3600
_REPORT_ALLOWANCE_SECONDS: Final = 600
_USER: Final = 10001
_ANSWERS: Final = (1, 2, 3)
"""Exit codes after which a second try would say the same."""
_MAX_NAME: Final = 63
_SPARK_MAIN: Final = "local:///opt/failback/bin/spark_main.py"
"""In the analytics image: the command line of failback, as a file that Spark starts."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """What the chart decided about Jobs."""

    namespace: str
    version: str
    domain: str = "cluster.local"
    chaos_image: str = ""
    analytics_image: str = ""
    runs_claim: str = "failback-runs"
    runs_size: str = "20Gi"
    runs_storage_class: str = ""
    """Empty: the cluster's default."""

    @classmethod
    def of_environment(
        cls, environment: Mapping[str, str], namespace: str, version: str, domain: str
    ) -> JobContext:
        """Read the operator's own variables; what is unset has this release's default."""
        return cls(
            namespace=namespace,
            version=version,
            domain=domain,
            chaos_image=environment.get("FAILBACK_IMAGE_CHAOS", ""),
            analytics_image=environment.get("FAILBACK_IMAGE_SPARK", ""),
            runs_claim=environment.get("FAILBACK_RUNS_CLAIM") or "failback-runs",
            runs_size=environment.get("FAILBACK_RUNS_SIZE") or "20Gi",
            runs_storage_class=environment.get("FAILBACK_RUNS_STORAGE_CLASS", ""),
        )


def object_name(*parts: str) -> str:
    """Join parts to a name of at most 63 characters; a longer one ends in a hash of itself."""
    name = "-".join(parts)
    if len(name) <= _MAX_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _MAX_NAME - 9]}-{digest}"


def run_job_name(experiment: str, arm: str, repetition: int) -> str:
    return object_name("fbx", experiment, arm, str(repetition))


def heal_job_name(experiment: str) -> str:
    return object_name("fbx", experiment, "heal")


def config_map_name(experiment: str) -> str:
    return object_name("fbx", experiment)


def report_job_name(report: str) -> str:
    return object_name("fbr", report)


def run_folder(experiment: str, arm: str, repetition: int) -> str:
    """Where a run keeps everything, as the harness names it."""
    return f"{RUNS}/{experiment}/{arm}-{repetition:03d}"


def run_claim(name: str, context: JobContext) -> Object:
    """Return the claim of the run volume. Several Jobs of one node may use it at once."""
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": context.runs_size}},
    }
    if context.runs_storage_class:
        spec["storageClassName"] = context.runs_storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": context.namespace,
            "labels": {
                "app.kubernetes.io/name": "failback",
                "app.kubernetes.io/component": "runs",
                "app.kubernetes.io/managed-by": "failback-operator",
            },
        },
        "spec": spec,
    }


# --- experiments ---------------------------------------------------------------------------------


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
        "metadata": _metadata(experiment, config_map_name(experiment.name), "chaos", context),
        "data": {"experiment.yaml": text},
    }


def experiment_job(
    experiment: ChaosExperiment, arm: str, repetition: int, context: JobContext
) -> Object:
    """Return the Job of one repetition of one arm."""
    args = [
        *("run", EXPERIMENT_FILE, "--target", "kube", "--namespace", context.namespace),
        *("--arm", arm, "--repetition", str(repetition), "--runs", RUNS),
    ]
    name = run_job_name(experiment.name, arm, repetition)
    marks = {"failback.dev/arm": arm, "failback.dev/repetition": str(repetition)}
    return _chaos_job(
        experiment, name, args, context, seconds=longest_seconds(experiment, arm), marks=marks
    )


def heal_job(experiment: ChaosExperiment, context: JobContext) -> Object:
    """Return the Job that takes back what killed runs of this experiment left."""
    folder = f"{RUNS}/{experiment.name}"
    args = ["run", "--heal", folder, "--if-there", "--target", "kube"]
    name = heal_job_name(experiment.name)
    return _chaos_job(experiment, name, args, context, seconds=HEAL_SECONDS, marks={})


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
    return sum(60.0 if value is None else value for value in values)


def _chaos_job(
    experiment: ChaosExperiment,
    name: str,
    args: Sequence[str],
    context: JobContext,
    *,
    seconds: int,
    marks: Mapping[str, str],
) -> Object:
    job = experiment.spec.job
    config = {
        "name": "experiment",
        "configMap": {"name": config_map_name(experiment.name), "optional": True},
    }
    mount = {"name": "experiment", "mountPath": "/etc/failback", "readOnly": True}
    return _job(
        experiment,
        name,
        "chaos",
        context,
        image=job.image or context.chaos_image or f"failback/chaos:{context.version}",
        args=args,
        claim=job.run_volume.claim_name,
        account=job.service_account_name,
        resources=job.resources,
        seconds=seconds,
        grace_seconds=GRACE_SECONDS,
        retries=0,
        marks=marks,
        volumes=[config],
        mounts=[mount],
    )


# --- reports -------------------------------------------------------------------------------------


def report_arguments(report: ReconsumptionReport, runs: Sequence[str], engine: str) -> list[str]:
    """Return the words behind ``failback`` that count ``runs``."""
    out = report.spec.artifact_uri
    where = ["--out", out.removeprefix("file://")] if out else []
    return ["report", *runs, "--engine", engine, *where, "--summary", "/dev/termination-log"]


def spark_submit_arguments(report: ReconsumptionReport) -> list[str]:
    """Return what ``spark-submit`` is given; the driver is the Job's own process.

    pyspark starts ``spark-submit`` itself with the words of ``PYSPARK_SUBMIT_ARGS``.
    """
    spark = report.spec.spark
    settings = {"spark.app.name": report_job_name(report.name), **spark.conf}
    if spark.master.startswith("k8s://"):
        settings = {**_executor_settings(report), **settings}
    conf = [word for key in sorted(settings) for word in ("--conf", f"{key}={settings[key]}")]
    return ["--master", spark.master, "--deploy-mode", "client", *conf, "pyspark-shell"]


def _executor_settings(report: ReconsumptionReport) -> dict[str, str]:
    spark = report.spec.spark
    requests = spark.executor.resources.requests
    found = {
        "spark.executor.instances": str(spark.executor.instances),
        "spark.kubernetes.authenticate.driver.serviceAccountName": spark.service_account_name,
        "spark.kubernetes.namespace": report.namespace,
    }
    if spark.image:
        found["spark.kubernetes.container.image"] = spark.image
    if "cpu" in requests:
        found["spark.executor.cores"] = requests["cpu"]
    if "memory" in requests:
        found["spark.executor.memory"] = requests["memory"].removesuffix("i").lower()
    return found


def report_job(
    report: ReconsumptionReport, runs: Sequence[str], claim: str, context: JobContext
) -> Object:
    """Return the Job that counts; a failed one is tried once more."""
    spec = report.spec
    image = context.analytics_image or f"failback/analytics:{context.version}"
    account: str | None = None
    resources: Resources | None = spec.job.resources
    more: dict[str, str] = {}
    if spec.engine == "spark":
        image, resources = spec.spark.image or image, spec.spark.driver
        more["FAILBACK_SPARK_MASTER"] = spec.spark.master
        more["PYSPARK_SUBMIT_ARGS"] = shlex.join(spark_submit_arguments(report))
        if spec.spark.master.startswith("k8s://"):
            account = spec.spark.service_account_name
    else:
        image = spec.job.image or image
    return _job(
        report,
        report_job_name(report.name),
        "report",
        context,
        image=image,
        args=report_arguments(report, runs, spec.engine),
        claim=claim,
        account=account,
        resources=resources,
        seconds=REPORT_SECONDS,
        grace_seconds=30,
        retries=1,
        marks={},
        more=more,
    )


def spark_application(
    report: ReconsumptionReport, runs: Sequence[str], claim: str, context: JobContext
) -> Object:
    """Return the object for the Spark operator, which runs driver and executors."""
    spark = report.spec.spark
    image = spark.image or context.analytics_image or f"failback/analytics:{context.version}"
    volume = {"name": "runs", "persistentVolumeClaim": {"claimName": claim}}
    mount = {"name": "runs", "mountPath": RUNS}

    def role(resources: Resources, **more: Any) -> Object:
        requests = resources.requests
        return {
            "cores": int(float(requests.get("cpu", "1"))),
            "memory": requests.get("memory", "2Gi").removesuffix("i").lower(),
            "volumeMounts": [mount],
            **more,
        }

    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": _metadata(report, report_job_name(report.name), "report", context),
        "spec": {
            "type": "Python",
            "mode": "cluster",
            "image": image,
            "mainApplicationFile": _SPARK_MAIN,
            "arguments": report_arguments(report, runs, "spark"),
            "sparkVersion": "4.0.0",
            "sparkConf": dict(sorted(spark.conf.items())),
            "restartPolicy": {"type": "Never"},
            "volumes": [volume],
            "driver": role(spark.driver, serviceAccount=spark.service_account_name),
            "executor": role(spark.executor.resources, instances=spark.executor.instances),
        },
    }


# --- what both share -----------------------------------------------------------------------------


def _metadata(owner: Resource, name: str, component: str, context: JobContext) -> Object:
    found = common.labels(owner, component)
    return {
        "name": name,
        "namespace": context.namespace,
        "labels": common.versioned(found, context.version),
        "ownerReferences": [
            {
                "apiVersion": owner.api_version,
                "kind": owner.kind,
                "name": owner.name,
                "uid": owner.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def _job(
    owner: Resource,
    name: str,
    component: str,
    context: JobContext,
    *,
    image: str,
    args: Sequence[str],
    claim: str,
    account: str | None,
    resources: Resources | None,
    seconds: int,
    grace_seconds: int,
    retries: int,
    marks: Mapping[str, str],
    volumes: Sequence[Object] = (),
    mounts: Sequence[Object] = (),
    more: Mapping[str, str] | None = None,
) -> Object:
    metadata = _metadata(owner, name, component, context)
    metadata["labels"] |= marks
    container: Object = {
        "name": CONTAINER,
        "image": image,
        "command": list(common.INIT),
        "args": list(args),
        "env": _environment(context, more or {}),
        "ports": [{"name": "http", "containerPort": common.HTTP_PORT}],
        "resources": common.resources_of(resources) if resources is not None else {},
        "securityContext": common.container_security(),
        "terminationMessagePath": "/dev/termination-log",
        "volumeMounts": [
            *mounts,
            {"name": "runs", "mountPath": RUNS},
            {"name": "scratch", "mountPath": f"{KUBERNETES_HOME}/scratch"},
            {"name": "run", "mountPath": KUBERNETES_RUN_DIR},
        ],
    }
    pod: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_seconds,
        "automountServiceAccountToken": account is not None,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            *volumes,
            {"name": "runs", "persistentVolumeClaim": {"claimName": claim}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "run", "emptyDir": {"sizeLimit": "16Mi"}},
        ],
    }
    if account is not None:
        pod["serviceAccountName"] = account
    spec: Object = {
        "backoffLimit": retries,
        "activeDeadlineSeconds": seconds,
        "template": {"metadata": {"labels": dict(metadata["labels"])}, "spec": pod},
    }
    if retries:  # an answer is an answer, also if it is no good one
        answers = {"containerName": CONTAINER, "operator": "In", "values": list(_ANSWERS)}
        rule = {"action": "FailJob", "onExitCodes": answers}
        spec["podFailurePolicy"] = {"rules": [rule]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _environment(context: JobContext, more: Mapping[str, str]) -> list[Object]:
    ours: list[Object] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in (
            ("POD_NAME", "metadata.name"),
            ("POD_NAMESPACE", "metadata.namespace"),
            ("POD_IP", "status.podIP"),
        )
    ]
    values = {
        "HOME": KUBERNETES_HOME,
        "TMPDIR": f"{KUBERNETES_HOME}/scratch",
        "FAILBACK_CLUSTER_DOMAIN": context.domain,
        **more,
    }
    return ours + [{"name": name, "value": value} for name, value in values.items()]
