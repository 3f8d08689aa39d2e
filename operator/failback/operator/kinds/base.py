"""What the kinds share: the model base, metadata, engine, pod template, quantities.

Field names are camelCase in YAML and snake_case here. Types are strict, as the API server's
schema is: ``"1"`` is no integer and ``5000`` no string.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

API_VERSION: Final = "failback.dev/v1alpha1"

_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$")
_QUANTITY_FACTORS: Final[dict[str, Decimal]] = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** (power + 1) for power, unit in enumerate("kMGTPE")},
    **{f"{unit}i": Decimal(1024) ** (power + 1) for power, unit in enumerate("KMGTPE")},
}


def parse_quantity(text: str) -> Decimal:
    """Return a Kubernetes quantity (``500m``, ``1Gi``) as a number of its base unit.

    Raises:
        ValueError: It is not a quantity.
    """
    match = _QUANTITY.match(text)
    if match is None:
        raise ValueError(f'must be a quantity such as 500m or 1Gi, got "{text}"')
    return Decimal(match[1]) * _QUANTITY_FACTORS[match[2] or ""]


def _check_quantity(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(f"must be a quantity such as 500m or 1Gi, got {value!r}")
    parse_quantity(str(value))
    return str(value)


Quantity = Annotated[str, BeforeValidator(_check_quantity)]
FlushDiskType = Literal["ASYNC_FLUSH", "SYNC_FLUSH"]
MasterRole = Literal["ASYNC_MASTER", "SYNC_MASTER"]
PropertyValue = Annotated[str, Field(max_length=1024)]
Spread = Literal["preferred", "required", "none"]


class Model(BaseModel):
    """Base of every model: unknown fields are refused, values never change."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
    )


class Metadata(Model):
    """The object's ``metadata``: what people write, and what an API server adds."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=253)
    namespace: str = Field(default="default", pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    uid: str = ""
    generation: int = 1
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: list[str] = []
    owner_references: list[dict[str, Any]] = []
    managed_fields: list[dict[str, Any]] = []
    self_link: str | None = None


class Named(Model):
    """A reference to an object of the same namespace."""

    name: str = Field(min_length=1, max_length=253)


class Engine(Model):
    """Which broker runs: ours or Apache's. Stores and wire are interchangeable."""

    type: Literal["failback", "apache"] = "failback"
    image: str | None = Field(default=None, min_length=1, max_length=512)
    version: str | None = Field(default=None, min_length=1, max_length=32)
    """Required for apache (4.9.x or 5.x.y); for failback the release of the operator."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: list[Named] = Field(default=[], max_length=8)
    rules: Literal["compat", "guarded"] | None = None
    """Unset means compat: exactly RocketMQ 4.9.8. Only for failback."""
    java_options: str | None = Field(default=None, max_length=1024)
    """Options put last on the JVM's command line. Only for apache."""


class Resources(Model):
    """Requests and limits of the container."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class EnvironmentVariable(Model):
    """One more variable of the container, after the operator's own."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=256)
    value: str | None = None
    value_from: dict[str, Any] | None = None


class PodTemplate(Model):
    """What the user adds to the pods. Any change restarts them."""

    labels: dict[str, str] = Field(default={}, max_length=32)
    annotations: dict[str, str] = Field(default={}, max_length=32)
    node_selector: dict[str, str] = {}
    tolerations: list[dict[str, Any]] = Field(default=[], max_length=16)
    affinity: dict[str, Any] | None = None
    topology_spread_constraints: list[dict[str, Any]] = Field(default=[], max_length=8)
    priority_class_name: str | None = None
    service_account_name: str | None = None
    env: list[EnvironmentVariable] = Field(default=[], max_length=64)
    security_context: dict[str, Any] = {}


class Switch(Model):
    """A feature that is on or off."""

    enabled: bool = True


class PodMonitor(Model):
    """Whether a PodMonitor (Prometheus operator) is made, and how often it is scraped."""

    enabled: bool = False
    interval: str = Field(default="15s", pattern=r"^[0-9]+(ms|s|m)$")
    labels: dict[str, str] = {}


class Metrics(Model):
    """How the pods' metrics are collected."""

    pod_monitor: PodMonitor = Field(default_factory=PodMonitor)


class Resource(Model):
    """A whole object: every kind adds its ``spec``."""

    api_version: Literal["failback.dev/v1alpha1"] = API_VERSION
    kind: str
    metadata: Metadata
    status: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """``metadata.namespace``."""
        return self.metadata.namespace

    @property
    def label(self) -> str:
        """``Kind/name``, as messages name an object."""
        return f"{self.kind}/{self.metadata.name}"
