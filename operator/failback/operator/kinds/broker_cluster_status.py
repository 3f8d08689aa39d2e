"""What the operator reports about a BrokerCluster: pairs, members, the operation in progress."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from failback.operator.kinds.base import CommonStatus, Status, keyed_by


class CurrentOperation(Status):
    """A piece of long work in progress. It survives a restart of the operator."""

    id: str = Field(max_length=253)
    """Identity of this piece of work."""
    type: str = Field(max_length=64)
    """What is done: Roll, ScaleDown, Switch, ..."""
    pair: int | None = Field(default=None, ge=0)
    """Index of the pair."""
    member: int | None = Field(default=None, ge=0)
    """Ordinal of the member that is worked on."""
    step: str | None = Field(default=None, max_length=64)
    """The step that was begun last."""
    started_at: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When the work began."""
    step_started_at: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When the step began."""
    attempts: int | None = Field(default=None, ge=0)
    """How often the step was tried."""
    blocked_by: list[str] = Field(default=[], max_length=32)
    """What the next step waits for."""
    data: dict[str, Any] | None = None
    """What later steps need to know."""


class PendingRestart(Status):
    """A member that runs with an older template than wanted."""

    member: str = Field(max_length=253)
    """Name of the member."""
    reasons: list[str] = Field(default=[], max_length=16)
    """What changed since it started."""


class CarriedStatus(Status):
    """What a member was given of its slaves' consumer offsets when it started last."""

    at: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When."""
    outcome: str | None = Field(default=None, max_length=32)
    """Carried, WouldCarry, NothingToCarry, or why not: SlaveSilent, OtherLog, Unsupported,
    DiskFailed, Refused."""
    offsets: int | None = Field(default=None, ge=0)
    """Offsets that were raised."""
    groups: int | None = Field(default=None, ge=0)
    """Groups that these are of."""
    messages: int | None = Field(default=None, ge=0)
    """Messages that are not delivered again."""
    cut: int | None = Field(default=None, ge=0)
    """Offsets that were cut at the end of this member's log."""
    sources: list[str] = Field(default=[], alias="from", max_length=4)
    """The slaves that answered."""


class MemberStatus(Status):
    """One broker process, as it was last seen."""

    ordinal: int = Field(ge=0, le=3)
    """Identity of the member within its pair, for ever."""
    pod: str | None = Field(default=None, max_length=253)
    """Name of the pod."""
    claim_uid: str | None = Field(default=None, max_length=64)
    """uid of the volume claim."""
    broker_id: int | None = None
    """0 for the master, else the slave's id."""
    desired_role: str | None = Field(default=None, max_length=32)
    """ASYNC_MASTER, SYNC_MASTER or SLAVE, as wanted."""
    observed_role: str | None = Field(default=None, max_length=32)
    """The same as the broker itself says."""
    address: str | None = Field(default=None, max_length=300)
    """host:port that clients are told."""
    ready: bool | None = None
    """Whether the pod is ready."""
    restart_hash: str | None = Field(default=None, max_length=64)
    """Hash of what the running pod was made from."""
    applied_config: str | None = Field(default=None, max_length=64)
    """Hash of the live keys as the broker echoed them."""
    slave_read_enable: bool | None = None
    """As the broker itself says."""
    flush_disk_type: str | None = Field(default=None, max_length=32)
    """As the broker itself says."""
    engine_version: str | None = Field(default=None, max_length=64)
    """As the broker itself says."""
    rules: str | None = Field(default=None, max_length=32)
    """compat or guarded, as a broker of Failback itself says."""
    lag: str | None = Field(default=None, max_length=32)
    """Bytes behind the master: Zero, Under1Mi, Under256Mi, FallenBehind or Unknown."""
    last_lag: str | None = Field(default=None, max_length=32)
    """What lag was before it became Unknown: a forced switch to this member may lose so much."""
    metadata_synced: bool | None = None
    """Whether topics, groups and offsets follow the master."""
    prefix: str | None = Field(default=None, max_length=32)
    """Whether the log is a prefix of the master's: Verified, Unverified or Diverged."""
    restarts: int | None = Field(default=None, ge=0)
    """How often the container was restarted."""
    carried: CarriedStatus | None = None
    """What it was given of its slaves' offsets when it started last as master (engine Apache)."""


class PairStatus(Status):
    """One pair, as it was last seen."""

    name: str = Field(max_length=253)
    """Broker name."""
    index: int = Field(ge=0)
    """Index of the pair."""
    phase: str | None = Field(default=None, max_length=32)
    """Pending, Running, Degraded, Updating, Draining or Switching."""
    master: str | None = Field(default=None, max_length=253)
    """The member that is registered as master, or empty."""
    master_member: int | None = Field(default=None, ge=0, le=3)
    """The ordinal that holds brokerId 0; absent while it cannot be told (MasterUnclear)."""
    first_master: int | None = Field(default=None, ge=0, le=3)
    """What masterMember of the spec said when the pair was first seen: a later edit is a
    warning."""
    master_claim: str | None = Field(default=None, max_length=64)
    """uid of the master's volume claim."""
    epoch: int | None = Field(default=None, ge=0)
    """How often the pair has had another master, from 1; the same is on its claims."""
    writable: bool | None = None
    """Whether the pair takes messages."""
    members: list[MemberStatus] = keyed_by("ordinal", default=[], max_length=4)
    """The members. Beyond 16 pairs only those that are not as wanted."""


class BrokerClusterStatus(CommonStatus):
    """What was last seen of the brokers."""

    replicas: int | None = Field(default=None, ge=0)
    """Pairs that exist."""
    ready_pairs: int | None = Field(default=None, ge=0)
    """Pairs whose members are all ready."""
    masters: str | None = Field(default=None, max_length=4096)
    """The member that is registered as master of each pair, pair by pair; - for none."""
    leftover_claims: list[str] = Field(default=[], max_length=64)
    """Volumes of pairs and slaves that left by scaling: kept until somebody deletes them."""
    selector: str | None = Field(default=None, max_length=512)
    """Label selector of the pods, for the scale subresource."""
    current_operation: CurrentOperation | None = None
    """The piece of long work in progress that comes first, absent when there is none."""
    other_operations: list[CurrentOperation] = Field(default=[], max_length=256)
    """Long work that goes on or waits beside it, in other pairs."""
    pending_restarts: list[PendingRestart] = Field(default=[], max_length=64)
    """Members that wait for a restart."""
    active_overlay: dict[str, Any] | None = None
    """Configuration that an experiment's arm lays over spec.config while it runs."""
    pairs: list[PairStatus] = keyed_by("name", default=[], max_length=128)
    """The pairs, those that are leaving among them."""
