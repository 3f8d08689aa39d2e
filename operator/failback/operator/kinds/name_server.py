"""NameServer: N stateless name servers with stable addresses."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from failback.operator.kinds.base import (
    Address,
    CommonStatus,
    Engine,
    Metrics,
    Model,
    PodTemplate,
    PropertyValue,
    Resource,
    Resources,
    Spread,
    Status,
    Switch,
)
from failback.operator.kinds.external import NameServerExternal
from failback.operator.kinds.guarding import Tls


def _default_resources() -> Resources:
    return Resources.model_validate({"requests": {"cpu": "100m", "memory": "128Mi"}})


class NameServerSpec(Model):
    """The desired name servers: number, program, configuration."""

    replicas: int = Field(default=2, ge=1, le=9)
    """How many name servers run. Brokers register at all of them."""
    engine: Engine = Field(default_factory=Engine)
    """Which name server program runs: failback's or apache's, and its version. A change restarts
    the pods one by one."""
    port: int = Field(default=9876, ge=1024, le=65535)
    """Port for brokers and clients. Immutable. The local runtime chooses a free port instead."""
    config: dict[str, PropertyValue] = Field(default={}, max_length=64)
    """Further keys of namesrv.conf. A change restarts the pods one by one."""
    resources: Resources = Field(default_factory=_default_resources)
    """Requests and limits of the container. A change restarts the pods one by one."""
    pod_template: PodTemplate = Field(default_factory=PodTemplate)
    """Additions to the pods. A change restarts them one by one."""
    anti_affinity: Spread = "Preferred"
    """Whether two name servers may share a node (kubernetes.io/hostname)."""
    pod_disruption_budget: Switch = Field(default_factory=Switch)
    """A budget that lets evictions take one name server at a time."""
    external: NameServerExternal | None = None
    """Access for clients outside the Kubernetes cluster. Unset: none."""
    tls: Tls | None = None
    """TLS. Enforcing begins once the BrokerClusters of this namespace speak it. Unset: none."""
    metrics: Metrics = Field(default_factory=Metrics)
    """How metrics are collected."""
    suspend: bool = False
    """While true the operator changes nothing but the status."""


class NameServerStatus(CommonStatus):
    """What was last seen of the name servers."""

    replicas: int | None = Field(default=None, ge=0)
    """Name servers that exist."""
    ready_replicas: int | None = Field(default=None, ge=0)
    """Name servers that are ready."""
    selector: str | None = Field(default=None, max_length=512)
    """Label selector of the pods, for the scale subresource."""
    addresses: list[Address] = Field(default=[], max_length=9)
    """host:port of each, derived from the spec and DNS, never from which pods are ready."""
    external_addresses: list[str] = Field(default=[], max_length=64)
    """host:port for clients outside the Kubernetes cluster, once they are known."""


class NameServer(Resource):
    """N stateless name servers with stable addresses.

    Conditions: Ready, ExternalAccess, TLS, Reconciling, Stalled, Paused, Warning.
    """

    status_model: ClassVar[type[Status]] = NameServerStatus

    kind: Literal["NameServer"] = "NameServer"
    spec: NameServerSpec = Field(default_factory=NameServerSpec)
