"""ReconsumptionReport: one analysis of run folders, its figures in the status."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from failback.operator.kinds.base import (
    CommonStatus,
    DecimalText,
    Image,
    Model,
    Named,
    ObjectName,
    Resource,
    Resources,
    Status,
    Word,
)
from failback.operator.kinds.permits import REPORT_ACCOUNT

_MASTER = r"^(local\[([1-9][0-9]*|\*)\]|k8s://[!-~]+)$"
_URI = r"^(s3a|hdfs|file)://[!-,.-~][!-~]*$"
_ARTIFACT_URI = r"^((s3a|hdfs|file)://|/)[!-,.-~][!-~]*$"
_RUN_NAME = r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$"
RunName = Annotated[str, Field(min_length=1, max_length=512, pattern=_RUN_NAME)]


def _driver_resources() -> Resources:
    return Resources.model_validate({"requests": {"cpu": "1", "memory": "2Gi"}})


class ReportInputs(Model):
    """Run folders that no experiment of this namespace made."""

    claim_name: ObjectName | None = None
    """A PersistentVolumeClaim of this namespace that holds them."""
    uri: str | None = Field(default=None, max_length=1024, pattern=_URI)
    """URI of the folder that holds the run folders: s3a://, hdfs:// or file://."""
    runs: list[RunName] = Field(default=[], max_length=64)
    """Names of run folders below. Empty: all."""


class SparkExecutor(Model):
    """The executors of a Spark job."""

    instances: int = Field(default=2, ge=1, le=256)
    """Number of executors."""
    resources: Resources = Field(default_factory=_driver_resources)
    """Requests and limits of each."""


class Spark(Model):
    """How Spark runs. Only for engine Spark."""

    mode: Literal["Job", "SparkApplication"] = "Job"
    """Job: a Job with the driver in its pod. SparkApplication: an object for the Spark operator."""
    master: str = Field(default="local[*]", max_length=253, pattern=_MASTER)
    """local[N], local[*] or k8s://ADDRESS, one that the chart allows."""
    image: Image | None = None
    """Image of driver and executors, one that the chart allows. Unset: the chart's."""
    service_account_name: ObjectName = REPORT_ACCOUNT
    """ServiceAccount of the driver, one that the chart allows."""
    driver: Resources = Field(default_factory=_driver_resources)
    """Requests and limits of the driver."""
    executor: SparkExecutor = Field(default_factory=SparkExecutor)
    """The executors, where they are pods of their own."""
    conf: dict[str, Word] = Field(default={}, max_length=64)
    """Further Spark settings, such as the chart allows. Never spark.kubernetes.*, nor what has
    Spark load code."""


class Definitions(Model):
    """How two deliveries are recognised as the same message."""

    key: Literal["LID", "MessageID", "BusinessKey"] = "LID"
    """LID: the identity that the workload writes. MessageID: RocketMQ's. BusinessKey: KEYS."""
    window: str | None = Field(default=None, max_length=32, pattern=r"^[0-9]+(ms|s|m|h)$")
    """The greatest distance in time between two deliveries that count as a duplicate, such as 15m.
    Unset: no limit."""
    ignore_retry_topics: bool = False
    """Whether deliveries from retry topics are left out."""


class ReportThresholds(Model):
    """The most that the verdict Pass allows of each run. Unset: not judged."""

    max_duplicate_ratio: DecimalText | None = None
    """Duplicates per distinct message, a decimal in quotes."""
    max_lost: int | None = Field(default=None, ge=0, le=2**53)
    """Messages that were acknowledged and never consumed."""
    max_out_of_order: int | None = Field(default=None, ge=0, le=2**53)
    """First deliveries that overtook an older message."""


class ReportJob(Model):
    """The Job that counts."""

    image: Image | None = None
    """Image of the Job for engine Local, one that the chart allows. Unset: the chart's."""
    resources: Resources | None = None
    """Requests and limits of the Job for engine Local. Unset: the chart's."""


class ReconsumptionReportSpec(Model):
    """The runs to count, how, and the limits to judge them by. Immutable as a whole."""

    experiment_ref: Named | None = None
    """The ChaosExperiment of this namespace. Exactly one of this and inputs."""
    inputs: ReportInputs | None = None
    """Run folders that no experiment of this namespace made."""
    engine: Literal["Auto", "Spark", "Local"] = "Auto"
    """Engine that counts: Local in one process, Spark, or Auto, which chooses by the size of the
    input. Results are equal."""
    spark: Spark = Field(default_factory=Spark)
    """How Spark runs."""
    definitions: Definitions = Field(default_factory=Definitions)
    """How two deliveries are recognised as the same message."""
    thresholds: ReportThresholds = Field(default_factory=ReportThresholds)
    """The most that the verdict Pass allows of each run. The runs' pages judge by it too."""
    artifact_uri: str | None = Field(default=None, max_length=1024, pattern=_ARTIFACT_URI)
    """URI under which pages and tables are written. Unset: the folder report/ of the run."""
    job: ReportJob = Field(default_factory=ReportJob)
    """The Job that counts."""


class RtoSeconds(Status):
    """How long nothing could be done."""

    produce: float | None = Field(default=None, ge=0)
    """Until producers were served again."""
    consume: float | None = Field(default=None, ge=0)
    """Until consumers were served again."""


class ReconsumptionReportStatus(CommonStatus):
    """The figures. Rows and pages stay in files."""

    phase: str | None = Field(default=None, max_length=32)
    """Waiting, Running, Done or Failed."""
    started_at: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When the Job was made."""
    finished_at: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When it ended."""
    blocked_by: list[str] = Field(default=[], max_length=32)
    """What the next step waits for."""
    verdict: str | None = Field(default=None, max_length=32)
    """Pass, Fail or Inconclusive."""
    outcome: str | None = Field(default=None, max_length=32)
    """What was re-consumed: limit met, limit missed, limit not judged or no limit set."""
    reasons: list[str] = Field(default=[], max_length=32)
    """Why it is not Pass."""
    produced: int | None = Field(default=None, ge=0)
    """Messages that were acknowledged."""
    delivered: int | None = Field(default=None, ge=0)
    """Deliveries to handlers."""
    distinct: int | None = Field(default=None, ge=0)
    """Different messages among them."""
    duplicates: int | None = Field(default=None, ge=0)
    """Deliveries beyond the first."""
    duplicate_ratio: str | None = Field(default=None, max_length=32)
    """Duplicates per distinct message, as a decimal text."""
    max_redelivery: int | None = Field(default=None, ge=0)
    """How often the most repeated message was re-consumed."""
    lost: int | None = Field(default=None, ge=0)
    """Messages that were acknowledged and never consumed."""
    out_of_order: int | None = Field(default=None, ge=0)
    """First deliveries that overtook an older message."""
    rewound_offsets: int | None = Field(default=None, ge=0)
    """Offsets by which queues fell back."""
    rto_seconds: RtoSeconds | None = None
    """How long nothing could be done."""
    by_cause: dict[str, int] = Field(default={}, max_length=32)
    """Duplicates by their cause."""
    per_group: list[dict[str, Any]] = Field(default=[], max_length=64)
    """The same figures by consumer group."""
    per_pair: list[dict[str, Any]] = Field(default=[], max_length=64)
    """The same figures by pair."""
    bound: int | None = Field(default=None, ge=0)
    """Duplicates that the theory allows at most."""
    bounds_exceeded: bool | None = None
    """Whether more were counted than the theory allows."""
    rule_set: str | None = Field(default=None, max_length=64)
    """Whose rules the brokers followed: a release of RocketMQ, and guarded if they did."""
    run_sha256: str | None = Field(default=None, max_length=64)
    """Digest of the input."""
    artifact_uri: str | None = Field(default=None, max_length=1024)
    """Where pages and tables are."""


class ReconsumptionReport(Resource):
    """One analysis of run folders: how many messages were re-consumed, and why.

    Conditions: Complete (the figures are here), WithinThresholds (the verdict is Pass), Stalled.
    """

    status_model: ClassVar[type[Status]] = ReconsumptionReportStatus

    kind: Literal["ReconsumptionReport"] = "ReconsumptionReport"
    spec: ReconsumptionReportSpec
