"""RoleSwitch: one swap of master and slave in one pair, carried out once."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from failback.operator.kinds.base import CommonStatus, Model, Named, Resource, Status
from failback.operator.kinds.broker_cluster import BrokerCluster

_BROKER_NAME: Final = r"^[A-Za-z0-9_-]{1,64}-[0-9]{1,2}$"


def _check_pair(value: object) -> object:
    if not isinstance(value, str) or not re.match(_BROKER_NAME, value) or value.endswith("\n"):
        text = json.dumps(value, default=str)
        raise ValueError(f"must be the broker name of a pair, such as orders-1, got {text}")
    return value


class RoleSwitchSpec(Model):
    """The member that becomes master, and how. Immutable as a whole."""

    cluster_ref: Named
    """The BrokerCluster of this namespace."""
    pair_: Annotated[
        str,
        BeforeValidator(_check_pair),
        WithJsonSchema({"type": "string", "pattern": _BROKER_NAME, "maxLength": 67}),
    ] = Field(alias="pair")
    """Broker name of the pair, as the status shows it: orders-1 is the second of the cluster
    orders."""
    target_member: int = Field(ge=0, le=3)
    """Ordinal of the member that becomes master. It must not be master already."""
    mode: Literal["Planned", "Forced"] = "Planned"
    """Planned: the old master is alive and hands over. Forced: it is gone for good; needs
    failover.mode Manual on the cluster, and may lose what was not replicated."""
    max_lag_bytes: int = Field(default=0, ge=0, le=2**53)
    """How many bytes of the log the target may lack when the old master stops."""
    offset_policy: Literal["CopyMax", "WaitSync", "None"] = "CopyMax"
    """What happens to consumer offsets. CopyMax: the larger value of both members goes to the
    target. WaitSync: wait until the slave has copied them. None: nothing, so that the
    re-consumption of a careless switch can be measured."""
    timeout_seconds: int = Field(default=600, ge=60, le=7200)
    """How long the whole switch may take."""
    on_timeout: Literal["Rollback", "Fail"] = "Rollback"
    """Rollback gives the roles back while that is still possible, Fail stops where it is."""
    ttl_seconds_after_finished: int | None = Field(default=None, ge=60, le=2**31 - 1)
    """Seconds after its end at which this object is deleted. Unset: it stays."""

    @property
    def pair(self) -> int:
        """Index of the pair, if the name is one of the cluster's."""
        return int(self.pair_.rpartition("-")[2])

    def names_pair_of(self, cluster: BrokerCluster) -> bool:
        """Tell whether the cluster has the pair."""
        known = self.pair < cluster.spec.pairs
        return known and self.pair_ == cluster.broker_name(self.pair)


class RoleSwitchStep(Status):
    """One step of the switch."""

    name: str = Field(max_length=64)
    """Name of the step."""
    started_at: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When it began."""
    finished_at: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When it ended."""
    evidence: dict[str, Any] | None = None
    """What was read back from brokers and name servers."""


class RoleSwitchStatus(CommonStatus):
    """How far the switch is."""

    phase: str | None = Field(default=None, max_length=32)
    """Pending, Running, RollingBack, Complete or Failed."""
    from_member: str | None = Field(default=None, max_length=253)
    """The member that was master."""
    to_member: str | None = Field(default=None, max_length=253)
    """The member that becomes master."""
    target_lag: str | None = Field(default=None, max_length=32)
    """How far the target was behind the master before the switch: Zero, Under1Mi, Under256Mi or
    FallenBehind; for a forced one, what was last known, or Unknown."""
    steps: list[RoleSwitchStep] = Field(default=[], max_length=16)
    """The steps so far, in order."""
    blocked_by: list[str] = Field(default=[], max_length=32)
    """What the next step waits for."""
    started_at: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When the switch left Pending."""
    finished_at: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When it ended."""
    write_outage_seconds: float | None = Field(default=None, ge=0)
    """How long the pair took no messages."""
    read_outage_seconds: float | None = Field(default=None, ge=0)
    """How long no member of the pair served consumers. One that was connected to the old master
    learns of the new one by its next look at routes or its next heartbeat, up to 30 s later."""
    offsets_copied: int | None = Field(default=None, ge=0)
    """Consumer offsets that were raised on the target."""
    offsets_lowered: int | None = Field(default=None, ge=0)
    """Consumer offsets that the policy refused to lower."""


class RoleSwitch(Resource):
    """One swap of master and slave in one pair, carried out once.

    Conditions: Complete, Failed, Stalled, Safe (False says why messages may be lost or repeated).
    """

    status_model: ClassVar[type[Status]] = RoleSwitchStatus

    kind: Literal["RoleSwitch"] = "RoleSwitch"
    spec: RoleSwitchSpec
