"""The Job, or the SparkApplication, of a ReconsumptionReport. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import Any, Final

from failback.operator.kinds.base import Resources, parse_quantity
from failback.operator.kinds.reconsumption_report import ReconsumptionReport
from failback.operator.render import common
from failback.operator.render.context import Object
from failback.operator.render.jobs import RUNS, JobContext, Work, job, metadata

REPORT_SECONDS: Final = 3600
_GRACE_SECONDS: Final = 30
_KEYS: Final = {"MessageID": "messageId", "BusinessKey": "businessKey"}
"""Words of ``failback report --key``."""
_MIB: Final = 1 << 20
SPARK_VERSION: Final = "4.3.0"
"""Of the analytics image."""
_SPARK_MAIN: Final = "local:///opt/failback/bin/spark_main.py"
"""In the analytics image: the command line of failback, as a file that Spark starts."""


def report_job_name(report: str) -> str:
    return common.object_name("fbr", report)


def report_arguments(report: ReconsumptionReport, runs: Sequence[str], engine: str) -> list[str]:
    """Return the words behind ``failback`` that count ``runs``."""
    out = report.spec.artifact_uri
    where = ["--out", out.removeprefix("file://")] if out else []
    words = ["report", "--engine", engine, *where, *_definition_words(report)]
    words += _limit_words(report)
    return [*words, "--summary", "/dev/termination-log", "--", *runs]


def _definition_words(report: ReconsumptionReport) -> list[str]:
    """What differs from the default definitions."""
    wanted = report.spec.definitions
    found = [] if wanted.key == "LID" else ["--key", _KEYS[wanted.key]]
    found += [] if wanted.window is None else ["--window", wanted.window]
    return [*found, "--ignore-retry-topics"] if wanted.ignore_retry_topics else found


def _limit_words(report: ReconsumptionReport) -> list[str]:
    """The thresholds, so that every run's page judges by them as the status does."""
    limits = report.spec.thresholds
    figures = (
        ("dup_ratio", limits.max_duplicate_ratio),
        ("lost", limits.max_lost),
        ("ooo_first", limits.max_out_of_order),
    )
    given = [f"{name} <= {most}" for name, most in figures if most is not None]
    return [word for limit in given for word in ("--expect", limit)]


def spark_submit_arguments(report: ReconsumptionReport, image: str, claim: str) -> list[str]:
    """Return what ``spark-submit`` is given; the driver is the Job's own process.

    Executors of ``image`` mount the run volume where the driver has it.

    pyspark starts ``spark-submit`` itself with the words of ``PYSPARK_SUBMIT_ARGS``.
    """
    spark = report.spec.spark
    settings = {"spark.app.name": report_job_name(report.name), **spark.conf}
    if spark.master.startswith("k8s://"):
        settings |= _executor_settings(report, image, claim)
    conf = [word for key in sorted(settings) for word in ("--conf", f"{key}={settings[key]}")]
    return ["--master", spark.master, "--deploy-mode", "client", *conf, "pyspark-shell"]


def _executor_settings(report: ReconsumptionReport, image: str, claim: str) -> dict[str, str]:
    spark = report.spec.spark
    volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.runs"
    found = {
        "spark.executor.instances": str(spark.executor.instances),
        "spark.kubernetes.authenticate.driver.serviceAccountName": spark.service_account_name,
        "spark.kubernetes.namespace": report.namespace,
        "spark.kubernetes.container.image": image,
        f"{volume}.options.claimName": claim,
        f"{volume}.mount.path": RUNS,
    }
    requests, limits = spark.executor.resources.requests, spark.executor.resources.limits
    if "cpu" in requests:
        found["spark.executor.cores"] = str(_cores(requests["cpu"]))
        found["spark.kubernetes.executor.request.cores"] = requests["cpu"]
    if "cpu" in limits:
        found["spark.kubernetes.executor.limit.cores"] = limits["cpu"]
    if "memory" in requests:
        found["spark.executor.memory"] = _memory(requests["memory"])
    return found


def _cores(quantity: str) -> int:
    """Return how many tasks run at once: whole cores, one at least."""
    return max(1, math.ceil(parse_quantity(quantity)))


def _memory(quantity: str) -> str:
    """Return a quantity in Spark's words, which know no fractions: MiB."""
    return f"{max(1, int(parse_quantity(quantity) / _MIB))}m"


def _with_account(report: ReconsumptionReport, context: JobContext) -> ReconsumptionReport:
    spark = report.spec.spark
    update = {"service_account_name": context.report_account(spark.service_account_name)}
    spec = report.spec.model_copy(update={"spark": spark.model_copy(update=update)})
    return report.model_copy(update={"spec": spec})


def report_job(
    report: ReconsumptionReport, runs: Sequence[str], claim: str, context: JobContext
) -> Object:
    """Return the Job that counts. It is tried once more unless it ended with an answer.

    A missed limit is one: ``failback report`` ends with 1 then, and the Job is Failed.
    """
    report = _with_account(report, context)
    spec = report.spec
    image = context.analytics_image or f"failback/analytics:{context.version}"
    account: str | None = None
    resources: Resources | None = spec.job.resources
    variables: dict[str, str] = {}
    if spec.engine == "Spark":
        image, resources = spec.spark.image or image, spec.spark.driver
        variables["FAILBACK_SPARK_MASTER"] = spec.spark.master
        variables["PYSPARK_SUBMIT_ARGS"] = shlex.join(spark_submit_arguments(report, image, claim))
        if spec.spark.master.startswith("k8s://"):
            account = spec.spark.service_account_name
    else:
        image = spec.job.image or image
    work = Work(
        image=image,
        args=report_arguments(report, runs, spec.engine.lower()),
        claim=claim,
        seconds=REPORT_SECONDS,
        grace_seconds=_GRACE_SECONDS,
        account=account,
        resources=resources,
        retries=1,
        variables=variables,
    )
    return job(report, report_job_name(report.name), "report", work, context)


def spark_application(
    report: ReconsumptionReport, runs: Sequence[str], claim: str, context: JobContext
) -> Object:
    """Return the object for the Spark operator, which runs driver and executors."""
    spark = _with_account(report, context).spec.spark
    image = spark.image or context.analytics_image or f"failback/analytics:{context.version}"
    volume = {"name": "runs", "persistentVolumeClaim": {"claimName": claim}}
    mount = {"name": "runs", "mountPath": RUNS}
    # Spark writes into its working folder.
    security = common.container_security() | {"readOnlyRootFilesystem": False}

    def role(resources: Resources, **more: Any) -> Object:
        requests = resources.requests
        return {
            "cores": _cores(requests.get("cpu", "1")),
            "memory": _memory(requests.get("memory", "2Gi")),
            "volumeMounts": [mount],
            "podSecurityContext": common.pod_security_of(common.USER),
            "securityContext": security,
            **more,
        }

    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": metadata(report, report_job_name(report.name), "report", context),
        "spec": {
            "type": "Python",
            "mode": "cluster",
            "image": image,
            "mainApplicationFile": _SPARK_MAIN,
            "arguments": report_arguments(report, runs, "spark"),
            "sparkVersion": SPARK_VERSION,
            "sparkConf": dict(sorted(spark.conf.items())),
            "restartPolicy": {"type": "Never"},
            "volumes": [volume],
            "driver": role(spark.driver, serviceAccount=spark.service_account_name),
            "executor": role(spark.executor.resources, instances=spark.executor.instances),
        },
    }
