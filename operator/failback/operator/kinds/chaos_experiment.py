"""ChaosExperiment: one fault plan with its workload, run once per arm and repetition.

This is the schema of the object, not the deep check: which fault takes which parameter, and
whether two faults hit one victim at once, is for the harness to say, which reads the same YAML.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from failback.operator.kinds.base import (
    CommonStatus,
    DecimalText,
    EngineType,
    Image,
    Model,
    Named,
    ObjectName,
    PropertyValue,
    Resource,
    Resources,
    Status,
    Word,
    keyed_by,
)
from failback.operator.kinds.permits import EXPERIMENT_ACCOUNT
from failback.operator.kinds.workload import Workload

_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_PLAIN = r"^[^\x00-\x1f\x7f]*$"
"""Without control characters."""


class FaultTarget(Model):
    """The target of a fault: brokers, chosen by pair and role, or the members of a consumer
    group."""

    pair: str | None = Field(default=None, max_length=128, pattern=_PLAIN)
    """Broker name of the pair, such as demo-0."""
    pair_selector: str | None = Field(default=None, max_length=253, pattern=_PLAIN)
    """Chooses pairs by a shell pattern over their broker names, such as demo-*."""
    group: str | None = Field(default=None, max_length=120, pattern=_PLAIN)
    """Consumer group whose members are hit."""
    role: Literal["Master", "Slave"] | None = None
    """Role of the broker at the moment of the fault."""
    mode: Literal["One", "All", "Fixed", "FixedPercent", "RandomMaxPercent"] | None = None
    """How many of the matching brokers or members are hit. One and All need no value; Fixed takes
    value of them, FixedPercent and RandomMaxPercent take value as per cent."""
    value: float | None = Field(default=None, ge=0, le=10**6)
    """A number for mode Fixed, per cent for FixedPercent and RandomMaxPercent."""


class FaultParameters(Model):
    """Parameters of the fault. Each fault takes some of them; others are refused by the run."""

    after: str | None = Field(default=None, max_length=96, pattern=_PLAIN)
    """Starts the fault relative to another one, as MILESTONE:FAULT, such as accept:f1; at counts
    from there."""
    down_seconds: float | None = Field(default=None, ge=0, le=86400)
    """How long the broker is kept down. Unset: until Kubernetes restarts it."""
    duration_seconds: float | None = Field(default=None, ge=0, le=86400)
    """How long the effect lasts."""
    grace_seconds: float | None = Field(default=None, ge=0, le=86400)
    """Time between SIGTERM and SIGKILL."""
    restart: bool | None = None
    """Whether the broker starts again."""
    signal: Literal["KILL", "TERM"] | None = None
    """Signal that ends the consumers."""
    rolling: bool | None = None
    """Whether consumers are ended one after the other instead of together."""
    min_served: int | None = Field(default=None, ge=1, le=2**31 - 1)
    """Messages that the slave must have served before the milestone counts."""
    restart_after: str | None = Field(default=None, max_length=96, pattern=_PLAIN)
    """Wait with the restart for an instant of another fault, MILESTONE:FAULT."""
    restart_after_seconds: float | None = Field(default=None, ge=0, le=86400)
    """Time until the restart."""
    after_accept_seconds: float | None = Field(default=None, ge=0, le=86400)
    """Time between the broker's return and the end of the consumers."""
    consumer_at_seconds: float | None = Field(default=None, ge=0, le=86400)
    """Time between the end of the broker and that of the consumers."""
    consumer_signal: Literal["KILL", "TERM"] | None = None
    """Signal that ends the consumers of a fault that also ends a broker."""
    offset_policy: Literal["None", "WaitSync", "CopyMax"] | None = None
    """What a switch of roles does with consumer offsets, as spec.offsetPolicy of a RoleSwitch."""
    stop_owners: bool | None = None
    """Whether the consumers end while the slave serves."""
    return_after_stop_seconds: float | None = Field(default=None, ge=0, le=86400)
    """Time between the end of the consumers and the release of the broker."""
    start_owners_seconds: float | None = Field(default=None, ge=0, le=86400)
    """Time between the broker's return and the start of new consumers."""
    gap_seconds: float | None = Field(default=None, ge=0, le=86400)
    """Time between the broker's return and its next kill."""
    which: Literal["One", "All"] | None = None
    """Which name servers are hit: one of them, chosen by the seed, or all."""
    second: Literal["Same", "Slave"] | None = None
    """Which broker the next kill hits: the same one, or the pair's other one."""
    times: int | None = Field(default=None, ge=1, le=16)
    """How many kills, or how often a group is scaled there and back."""
    order: Literal["SlaveFirst", "MasterFirst", "Both"] | None = None
    """Which broker of the pair is restarted first, or that both are at a time."""
    to_version: str | None = Field(
        default=None, max_length=11, pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){2}$"
    )
    """Version of Apache RocketMQ as which the broker starts again."""
    lag_seconds: float | None = Field(default=None, ge=0, le=86400)
    """How long the slave is frozen before its master is killed."""
    members: int | None = Field(default=None, ge=1, le=64)
    """How many members the group is scaled to."""
    every_seconds: float | None = Field(default=None, ge=0, le=86400)
    """How long a group keeps each number of members."""
    content: Literal["Older", "Delete", "Empty", "Truncate"] | None = None
    """What is done to the offset file of the killed broker: an older copy of it, deleted, empty or
    cut off."""
    age_seconds: float | None = Field(default=None, ge=0, le=86400)
    """How old the offsets of an Older file are."""
    bak: Literal["Same", "Keep"] | None = None
    """Whether the backup of the offset file is treated the same way, or kept."""
    delay_ms: float | None = Field(default=None, ge=0, le=86400000)
    """Time by which every handler call, every packet of a link, or every sync of a slow disk takes
    longer."""
    fail_ratio: float | None = Field(default=None, ge=0, le=1)
    """Share of handler calls that ask for a retry."""
    throw_ratio: float | None = Field(default=None, ge=0, le=1)
    """Share of handler calls that raise."""
    direction: Literal["Both", "In", "Out"] | None = None
    """Which packets of a link are hit, as the victim sees them."""
    mode: Literal["Drop", "Reject"] | None = None
    """Whether packets of a link vanish or are answered with a reset."""
    loss_ratio: float | None = Field(default=None, ge=0, le=1)
    """Share of the packets of a link that is dropped."""
    bytes_per_second: int | None = Field(default=None, ge=1, le=2**31 - 1)
    """What a link carries; packets above it are dropped."""
    side: Literal["Broker", "Clients"] | None = None
    """Which side is cut off from the name servers."""
    operation: Literal["Sync", "Open", "Rename"] | None = None
    """Which calls on the broker's files fail."""
    error: Literal["EIO", "ENOSPC", "EROFS"] | None = None
    """The error that they fail with."""
    ratio: float | None = Field(default=None, ge=0, le=1)
    """Up to which share the disk under the broker's store is filled."""
    offset_seconds: float | None = Field(default=None, ge=-86400, le=86400)
    """By how much the broker's wall clock is ahead; negative: behind."""
    drift_ratio: float | None = Field(default=None, ge=0, le=1)
    """By which share the broker's wall clock runs too fast."""


class Fault(Model):
    """One fault of the plan."""

    id: str = Field(pattern=_NAME, max_length=63)
    """Name of this fault in results and in with.after of other faults."""
    fault: str = Field(min_length=1, max_length=63, pattern=_NAME)
    """Name of the fault; failback faults lists them."""
    at: float = Field(default=0.0, ge=0, le=86400)
    """Seconds after the end of the warm-up, or after the instant that with.after names."""
    jitter_seconds: float = Field(default=0.0, ge=0, le=3600)
    """Up to so many seconds later, drawn from the seed."""
    target: FaultTarget = Field(default_factory=FaultTarget)
    """The target: which brokers or consumers are hit."""
    with_: FaultParameters = Field(default_factory=FaultParameters, alias="with")
    """Parameters of the fault."""


class SteadyState(Model):
    """Conditions that must hold before the first fault is injected, and again after the last one is
    undone."""

    min_produce_per_second: float | None = Field(default=None, ge=0, le=10**9)
    """The least messages acknowledged per second. Unset: not checked."""
    max_lag_messages: int | None = Field(default=None, ge=0, le=2**53)
    """The most messages that consumer groups may lag. Unset: not checked."""
    max_sync_age_seconds: float | None = Field(default=None, gt=0, le=10**6)
    """The greatest age of the slaves' copy of metadata. Unset: not checked."""
    hold_seconds: float = Field(default=10.0, ge=0, le=86400)
    """How long the conditions must hold without a break."""
    timeout_seconds: float = Field(default=120.0, gt=0, le=86400)
    """How long it may take."""


class Drain(Model):
    """The last phase of a run: producers are stopped and consumers catch up."""

    timeout_seconds: float = Field(default=120.0, gt=0, le=3600)
    """How long it may take; longer makes the run inconclusive."""
    quiet_seconds: float = Field(default=5.0, ge=0, le=3600)
    """How long no message may be delivered before the run counts as drained."""


class Expectation(Model):
    """One check on a figure of the report."""

    metric: str = Field(min_length=1, max_length=253, pattern=_PLAIN)
    """Path in report.json, such as totals.lost."""
    group: str | None = Field(default=None, max_length=120, pattern=_PLAIN)
    """Only this consumer group."""
    arm: str | None = Field(default=None, max_length=40, pattern=_PLAIN)
    """Only this arm."""
    op: Literal["<=", ">=", "==", ">", "<", "Between", "WithinBound"]
    """Comparison; WithinBound takes the predicted bound as its value."""
    value: int | float | list[float] | None = Field(
        default=None, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}
    )
    """A number; two numbers for Between; nothing for WithinBound."""


class Thresholds(Model):
    """Limits that a run must keep for the verdict Pass."""

    max_duplicate_ratio: DecimalText | None = None
    """Duplicates per distinct message, a decimal in quotes. Unset: not judged."""
    max_lost: int = Field(default=0, ge=0, le=2**53)
    """Messages that were acknowledged and never consumed."""
    max_out_of_order_first: int | None = Field(default=None, ge=0, le=2**53)
    """First deliveries that overtook an older message. Unset: not judged."""


class Guard(Model):
    """Safety checks before any fault is injected."""

    max_pairs_down: int = Field(default=1, ge=1, le=64)
    """How many pairs may be hit at once."""
    require_namespace_label: bool | None = None
    """Has no effect: the namespace consents by its label failback.dev/chaos-allowed=true, or the
    chart does. It goes in the next release; false is refused."""
    consent: list[Word] = Field(default=[], max_length=8)
    """Words that permit what is dangerous, such as role-swap."""


class Arm(Model):
    """One configuration under test. Name only what differs from the cluster and from
    spec.workload."""

    name: str = Field(pattern=_NAME, max_length=40)
    """Name of the arm."""
    engine: EngineType | None = None
    """Which broker program runs in this arm: Failback's or Apache's."""
    broker_config: dict[str, PropertyValue] = Field(default={}, max_length=128)
    """Keys of broker.conf, laid over the cluster's while the arm runs; values are texts."""
    client_switches: dict[str, bool | int | float | str] = Field(default={}, max_length=64)
    """Settings of the workload's clients."""
    workload: dict[str, Any] = Field(default={})
    """Changes of spec.workload; topics and groups are merged by name."""
    faults: list[Fault] = Field(default=[], max_length=16)
    """Faults after those of the experiment."""
    expect: list[Expectation] = Field(default=[], max_length=32)
    """Checks of this arm only."""


class RunVolume(Model):
    """Where run folders are kept."""

    claim_name: ObjectName = "failback-runs"
    """A PersistentVolumeClaim of this namespace."""


class JobSettings(Model):
    """The Job that runs the experiment. Ignored by failback experiment run."""

    image: Image | None = None
    """Image of the Job, one that the chart allows. Unset: the chart's."""
    resources: Resources | None = None
    """Requests and limits of the Job. Unset: the chart's."""
    service_account_name: ObjectName = EXPERIMENT_ACCOUNT
    """ServiceAccount of the Job, one that the chart allows. It has the right to inject, the
    operator has not."""
    run_volume: RunVolume = Field(default_factory=RunVolume)
    """Where run folders are kept."""
    access_secret_ref: Named | None = None
    """Secret of this namespace for a guarded cluster: with tools.yml, the key by which harness and
    workload sign, and ca.crt where they speak TLS. Its account needs admin: true."""


def _base_arm() -> list[Arm]:
    return [Arm(name="base")]


class ChaosExperimentSpec(Model):
    """The faults, the load during them, and the results to expect. Immutable but for abort.

    The same YAML runs without Kubernetes: failback experiment run FILE.
    """

    cluster_ref: Named
    """The BrokerCluster of this namespace."""
    seed: int | None = Field(default=None, ge=0, le=2**63 - 1)
    """Seed of all random choices. Unset: drawn once and written to the status."""
    repetitions: int = Field(default=1, ge=1, le=50)
    """Runs per arm."""
    arms: list[Arm] = keyed_by("name", default_factory=_base_arm, max_length=8)
    """The configurations that are compared. One run per arm and repetition."""
    faults: list[Fault] = Field(default=[], max_length=16)
    """The plan of faults of every arm."""
    workload: Workload
    """Producers and consumers of the run."""
    steady_state: SteadyState = Field(default_factory=SteadyState)
    """Conditions that must hold before the first fault is injected, and again after the last one is
    undone."""
    warmup_seconds: float = Field(default=30.0, ge=0, le=3600)
    """Seconds of traffic before the measurement begins; left out of all figures."""
    cooldown_seconds: float = Field(default=60.0, ge=0, le=3600)
    """Seconds of traffic after the last fault was undone."""
    drain: Drain = Field(default_factory=Drain)
    """The last phase of a run: producers are stopped and consumers catch up."""
    time_scale: DecimalText = "1.0"
    """Scales every interval of broker, client and harness together, from 0.05 to 1.0, a decimal in
    quotes. Only engine Failback."""
    expect: list[Expectation] = Field(default=[], max_length=32)
    """Checks on figures of the report."""
    thresholds: Thresholds = Field(default_factory=Thresholds)
    """Limits that a run must keep for the verdict Pass."""
    guard: Guard = Field(default_factory=Guard)
    """Safety checks before any fault is injected."""
    on_not_honest: Literal["Stop", "Continue"] = "Stop"
    """Whether the experiment stops or goes on when a fault could not be proved."""
    recover_timeout_seconds: float = Field(default=300.0, gt=0, le=86400)
    """How long recovery may take."""
    scan_timeout_seconds: float = Field(default=300.0, gt=0, le=86400)
    """How long reading the brokers' logs may take."""
    heal_deadline_seconds: float = Field(default=300.0, gt=0, le=86400)
    """How long undoing may take before it is reported as failed."""
    timeout_seconds: float | None = Field(default=None, gt=0, le=10**6)
    """How long one run may take. Unset: twice the sum of its phases."""
    abort: bool = False
    """Set to true to stop and heal. It cannot be set back to false."""
    backend: Literal["Native"] = "Native"
    """What injects the faults. Native, the only one, is failback itself."""
    job: JobSettings = Field(default_factory=JobSettings)
    """The Job that runs the experiment."""


class ResolvedTarget(Status):
    """A broker that was hit."""

    pair: str | None = Field(default=None, max_length=253)
    """Broker name of the pair."""
    member: str | None = Field(default=None, max_length=253)
    """Name of the member."""
    broker_id: int | None = None
    """Its broker id at that moment."""
    address: str | None = Field(default=None, max_length=300)
    """Its host:port."""
    pod: str | None = Field(default=None, max_length=253)
    """Its pod."""


class TimelineEntry(Status):
    """One instant of a run."""

    t: float | None = None
    """Seconds after run zero."""
    event: str = Field(max_length=253)
    """What happened."""
    pod: str | None = Field(default=None, max_length=253)
    """The pod it happened to."""
    broker_id: int | None = None
    """Broker id of that pod."""


class RunResult(Status):
    """The end of one run."""

    arm: str = Field(max_length=40, pattern=_NAME)
    """Name of the arm."""
    repetition: int = Field(ge=0)
    """Number of the repetition, from 0."""
    verdict: str | None = Field(default=None, max_length=32)
    """Pass, Fail or Inconclusive."""
    report_uri: str | None = Field(default=None, max_length=1024)
    """Where the run folder or its report is."""
    run: str | None = Field(default=None, max_length=512)
    """Name of the run folder on the run volume."""
    run_sha256: str | None = Field(default=None, max_length=64)
    """Digest of the run folder's manifest."""
    reasons: list[str] = Field(default=[], max_length=32)
    """Why it is not Pass."""


class ChaosExperimentStatus(CommonStatus):
    """How far the experiment is."""

    phase: str | None = Field(default=None, max_length=32)
    """Pending until the first run begins; of each run Preparing, SteadyState, Injecting,
    Recovering, Draining; at the end Completed, Aborted or Failed."""
    active_arm: str | None = Field(default=None, max_length=40)
    """The arm that is laid over the cluster now."""
    active_repetition: int | None = Field(default=None, ge=0)
    """The repetition that runs now, from 0."""
    seed: int | None = Field(default=None, ge=0, le=2**63 - 1)
    """The seed of all runs."""
    started_at: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When the first Job was made."""
    finished_at: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When the last one ended."""
    blocked_by: list[str] = Field(default=[], max_length=32)
    """What the next step waits for."""
    resolved_targets: list[ResolvedTarget] = Field(default=[], max_length=64)
    """The brokers that were hit."""
    timeline: list[TimelineEntry] = Field(default=[], max_length=200)
    """The instants of the run: kills, returns, milestones."""
    timeline_truncated: bool | None = None
    """Whether more happened than the timeline holds."""
    verdict: str | None = Field(default=None, max_length=32)
    """The worst of all runs: Pass, Fail or Inconclusive."""
    runs: list[RunResult] = Field(default=[], max_length=400)
    """The runs that have ended."""


class ChaosExperiment(Resource):
    """One fault plan with its workload, run once per arm and repetition.

    Conditions: Injected (every fault was proved), Recovered (everything is healed),
    SteadyStateRestored, Stalled, Paused, Warning.
    """

    status_model: ClassVar[type[Status]] = ChaosExperimentStatus

    kind: Literal["ChaosExperiment"] = "ChaosExperiment"
    spec: ChaosExperimentSpec
