"""NameServer: N stateless name servers with stable addresses."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from failback.operator.kinds.base import (
    Engine,
    Metrics,
    Model,
    PodTemplate,
    PropertyValue,
    Resource,
    Resources,
    Spread,
    Switch,
)


def _default_resources() -> Resources:
    return Resources.model_validate({"requests": {"cpu": "100m", "memory": "128Mi"}})


class NameServerSpec(Model):
    """What is wanted of the name servers."""

    replicas: int = Field(default=2, ge=1, le=9)
    engine: Engine = Field(default_factory=Engine)
    port: int = Field(default=9876, ge=1024, le=65535)
    """Immutable. The local runtime chooses a free port of its own instead."""
    config: dict[str, PropertyValue] = Field(default={}, max_length=64)
    """Further keys of ``namesrv.conf``."""
    resources: Resources = Field(default_factory=_default_resources)
    pod_template: PodTemplate = Field(default_factory=PodTemplate)
    anti_affinity: Spread = "preferred"
    """Whether two name servers may share a node."""
    pod_disruption_budget: Switch = Field(default_factory=Switch)
    metrics: Metrics = Field(default_factory=Metrics)
    suspend: bool = False


class NameServer(Resource):
    """N stateless name servers with stable addresses."""

    kind: Literal["NameServer"] = "NameServer"
    spec: NameServerSpec = Field(default_factory=NameServerSpec)
