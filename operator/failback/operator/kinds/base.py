"""What the kinds share: the model base, metadata, engine, pod template, quantities.

Field names are camelCase in YAML and snake_case here. Types are strict, as the API server's
schema is: ``"1"`` is no integer and ``5000`` no string. The docstring under a field is what
``kubectl explain`` shows, so it is written for the author of the YAML.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from failback.operator.kinds.pod_parts import (
    KEY,
    SUBDOMAIN,
    Affinity,
    SecurityContext,
    Toleration,
    TopologySpread,
)

API_VERSION: Final = "failback.dev/v1alpha1"
FINALIZER: Final = "failback.dev/finalizer"
PAUSE: Final = "failback.dev/pause-reconciliation"

_QUANTITY_PATTERN: Final = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?\Z")
_QUANTITY_FACTORS: Final[dict[str, Decimal]] = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** (power + 1) for power, unit in enumerate("kMGTPE")},
    **{f"{unit}i": Decimal(1024) ** (power + 1) for power, unit in enumerate("KMGTPE")},
}
_LONGEST_QUANTITY: Final = 32
_ADDRESS_PATTERN: Final = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?:[0-9]{2,5}$"
_DECIMAL_PATTERN: Final = r"^[0-9]{1,9}(\.[0-9]{1,9})?$"


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
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        quotes = "; put it in quotes" if isinstance(value, float) else ""
        raise ValueError(f"must be a quantity such as 500m or 1Gi, got {value!r}{quotes}")
    parse_quantity(str(value))
    if len(str(value)) > _LONGEST_QUANTITY:
        raise ValueError(f"must be at most {_LONGEST_QUANTITY} characters long")
    return str(value)


def _check_size(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a quantity such as 20Gi, got {value!r}; put it in quotes")
    return _check_quantity(value)


def _check_address(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(_ADDRESS_PATTERN, value):
        raise ValueError(f'must be host:port, got "{value}"')
    return value


def _check_decimal(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(_DECIMAL_PATTERN, value):
        raise ValueError(f'must be a decimal number in quotes such as "0.05", got {value!r}')
    return value


Quantity = Annotated[
    str,
    BeforeValidator(_check_quantity),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": _QUANTITY_PATTERN,
            "maxLength": 32,
            "x-kubernetes-int-or-string": True,
        }
    ),
]
"""CPU, memory: a whole number or a text with a unit."""
Size = Annotated[
    str,
    BeforeValidator(_check_size),
    WithJsonSchema({"type": "string", "pattern": _QUANTITY_PATTERN, "maxLength": 32}),
]
"""Size of a volume, always a text: rules compare it as ``quantity()``."""
Address = Annotated[
    str,
    BeforeValidator(_check_address),
    WithJsonSchema({"type": "string", "pattern": _ADDRESS_PATTERN, "maxLength": 270}),
]
"""``host:port``."""
DecimalText = Annotated[
    str,
    BeforeValidator(_check_decimal),
    WithJsonSchema({"type": "string", "pattern": _DECIMAL_PATTERN, "maxLength": 19}),
]
"""A decimal number as text, because floating point numbers don't compare reliably."""
FlushDiskType = Literal["ASYNC_FLUSH", "SYNC_FLUSH"]
MasterRole = Literal["ASYNC_MASTER", "SYNC_MASTER"]
PropertyValue = Annotated[
    str,
    Field(max_length=1024, pattern=r"^([!-#%-\[\]-~\r\n]([ -#%-\[\]-~\r\n]*[!-#%-\[\]-~\r\n])?)?$"),
]
r"""Printable ASCII, which every reader of a file of properties reads alike. Without \, which begins
an escape, $, which begins a variable of the pod, and blanks at the ends, which readers cut off. The
ends of lines are refused by a rule, BC9 or NS2, in its own words."""
Word = Annotated[str, Field(max_length=253, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""Without control characters: it stays one value in lines, labels and messages."""
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=rf"^{SUBDOMAIN}$")]
"""Name of an object of Kubernetes."""
OptionalName = Annotated[str, Field(max_length=253, pattern=rf"^({SUBDOMAIN})?$")]
"""The same; empty means none."""
Image = Annotated[
    str,
    Field(
        min_length=1,
        max_length=512,
        pattern=r"^([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]+)?/)?"
        r"[a-z0-9]+(([._]|__|-+|/)[a-z0-9]+)*"
        r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@[a-z0-9]+:[a-f0-9]{32,128})?$",
    ),
]
"""Reference of a container image. The kubelet does not start a pod with another text."""
KEY_NAME: Final = rf"^{KEY}$"
"""What a label or annotation may be called."""
LabelValue = Annotated[
    str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")
]
AnnotationValue = Annotated[str, Field(max_length=7168)]
"""32 of them stay below what the API server keeps of one object."""
RESOURCE_NAME: Final = (
    r"^(cpu|memory|ephemeral-storage|hugepages-[0-9]+[KMG]i"
    rf"|{SUBDOMAIN}/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)$"
)
"""What a container may ask for."""
Spread = Literal["Preferred", "Required", "None"]
EngineType = Literal["Failback", "Apache"]


def keyed_by(key: str, **settings: Any) -> Any:
    """Return the ``Field`` of a list that has an entry of each value of a key at most once."""
    kind: dict[str, Any] = {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
    }
    return Field(json_schema_extra=kind, **settings)


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

    name: str = Field(pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", max_length=253)
    namespace: str = Field(default="default", pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    generate_name: str | None = None
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

    @property
    def is_paused(self) -> bool:
        """Nothing but the status may be written."""
        return self.annotations.get(PAUSE) == "true"


class Named(Model):
    """A reference to an object of the same namespace."""

    name: ObjectName
    """Name of the object."""


class Logs(Model):
    """The log files of Apache's servers. The kubelet evicts a pod whose files pass the size."""

    size_limit: Size = "1Gi"
    """Size of the volume; the files of the operator's own configuration stay below half of 1Gi."""
    config_map: ObjectName | None = None
    """A ConfigMap of this namespace with a configuration of logback under the key logback.xml, one
    that the chart allows. Its files must stay below sizeLimit. Unset: the operator's own."""


class Engine(Model):
    """Which broker runs: Failback's or Apache's. Stores and wire are interchangeable.

    A change restarts pods one by one. To Apache 5.x it asks first (annotation
    failback.dev/accept-quirk=storeUpgrade): from there back to 4.x or to Failback is refused.
    """

    type: EngineType = "Failback"
    """Failback's own program, or Apache RocketMQ's."""
    image: Image | None = None
    """Image of the container, one that the chart allows. Unset: the chart's image for this type and
    version."""
    version: str | None = Field(
        default=None, max_length=32, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
    )
    """Required for Apache (4.9.x or 5.x.y). Unset for Failback: the release of the operator that
    made the cluster; a newer operator changes nothing until a version is written here."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the node pulls the image."""
    image_pull_secrets: list[Named] = Field(default=[], max_length=8)
    """Secrets of this namespace with the credentials of the registry, such as the chart allows."""
    rules: Literal["compat", "guarded"] | None = None
    """Unset means compat: exactly RocketMQ 4.9.8, flaws included. guarded adds the
    counter-measures against re-consumption. Only for Failback."""
    java_options: str | None = Field(default=None, max_length=1024, pattern=r"^[^\x00-\x1f\x7f]*$")
    """Options put last on the JVM's command line. Only for Apache. Without -Xmx half of
    limits.memory is heap; without -XX:MaxDirectMemorySize an eighth is direct memory."""
    logs: Logs = Field(default_factory=Logs)
    """Size and configuration of the log files. Only for Apache."""

    @property
    def program(self) -> str:
        """What images, catalogue and records call the type: ``failback`` or ``apache``."""
        return self.type.lower()


class Resources(Model):
    """Requests and limits of the container, as in a Pod. A change restarts pods."""

    requests: dict[str, Quantity] = Field(default={}, max_length=16)
    """What the scheduler reserves, by resource name."""
    limits: dict[str, Quantity] = Field(default={}, max_length=16)
    """What the container may use at most, by resource name. Unset, memory of Apache's servers is
    what they request, at least 1Gi for a broker and 512Mi for a name server."""


class EnvironmentSource(Model):
    """Where the value of a variable comes from, as in a Pod."""

    field_ref: dict[str, Any] | None = None
    """A field of the pod."""
    resource_field_ref: dict[str, Any] | None = None
    """A resource of the container."""
    secret_key_ref: dict[str, Any] | None = None
    """A key of a Secret that the chart allows."""
    config_map_key_ref: dict[str, Any] | None = None
    """A key of a ConfigMap that the chart allows."""


class EnvironmentVariable(Model):
    """One more variable of the container, after the operator's own."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=256)
    """Name of the variable; the operator's own names are refused."""
    value: str | None = Field(default=None, max_length=4096, pattern=r"^[^\x00]*$")
    """Value of the variable."""
    value_from: EnvironmentSource | None = None
    """Source of the value, as in a Pod."""


class PodTemplate(Model):
    """Additions to the pods. A change restarts them one by one."""

    labels: dict[str, LabelValue] = Field(default={}, max_length=32)
    """Further labels. Prefixes failback.dev/ and app.kubernetes.io/ are the operator's."""
    annotations: dict[str, AnnotationValue] = Field(default={}, max_length=32)
    """Further annotations. Prefixes failback.dev/ and app.kubernetes.io/ are the operator's."""
    node_selector: dict[str, LabelValue] = Field(default={}, max_length=32)
    """Labels that a node must have."""
    tolerations: list[Toleration] = Field(default=[], max_length=16)
    """Taints that the pods tolerate, as in a Pod."""
    affinity: Affinity | None = None
    """Affinity as in a Pod; antiAffinity of this object is added to it."""
    topology_spread_constraints: list[TopologySpread] = Field(default=[], max_length=8)
    """Topology spread constraints as in a Pod."""
    priority_class_name: OptionalName | None = None
    """PriorityClass of the pods; none of the system's."""
    service_account_name: OptionalName | None = None
    """ServiceAccount of the pods, one that the chart allows. They get no token of it."""
    env: list[EnvironmentVariable] = Field(default=[], max_length=64)
    """Further variables of the container."""
    security_context: SecurityContext = {}
    """Merged over the pod's security context. What Pod Security "restricted" forbids is refused,
    unless the chart allows it."""


class Switch(Model):
    """A feature that is on or off."""

    enabled: bool = True
    """Whether it is on."""


class PodMonitor(Model):
    """Whether a PodMonitor (Prometheus operator) is made, and how often it is scraped."""

    enabled: bool = False
    """Needs the CRD podmonitors.monitoring.coreos.com, else a warning says so."""
    interval: str = Field(default="15s", pattern=r"^[0-9]+(ms|s|m)$", max_length=16)
    """Time between two scrapes."""
    labels: dict[str, LabelValue] = Field(default={}, max_length=32)
    """Labels of the PodMonitor, by which a Prometheus selects it."""


class Metrics(Model):
    """How the pods' metrics are collected."""

    pod_monitor: PodMonitor = Field(default_factory=PodMonitor)
    """Collection by the Prometheus operator."""


class Status(BaseModel):
    """Base of what the operator reports. Written by it alone, never decoded strictly."""

    model_config = ConfigDict(
        alias_generator=to_camel, frozen=True, use_attribute_docstrings=True, extra="forbid"
    )


class Condition(Status):
    """One statement about the object, in the shape of ``metav1.Condition``."""

    type: str = Field(max_length=316)
    """Type of the condition, such as Ready."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: str = Field(max_length=1024)
    """One CamelCase word for programs."""
    message: str = Field(default="", max_length=512)
    """A sentence for people. Holds no time and no counter."""
    observed_generation: int | None = Field(default=None, ge=0)
    """The metadata.generation that this was found at."""
    last_transition_time: str = Field(json_schema_extra={"format": "date-time"})
    """When the status last changed."""


Conditions = Annotated[
    list[Condition],
    keyed_by("type", default=[], max_length=16),
]


class CommonStatus(Status):
    """What every kind reports."""

    observed_generation: int | None = Field(default=None, ge=0)
    """The metadata.generation that was carried out and read back completely; with Stalled=True
    the one that can't be."""
    operator_version: str | None = Field(default=None, max_length=64)
    """Version of the operator that wrote this."""
    conditions: Conditions
    """Statements about the object, one per type."""


class Resource(Model):
    """A whole object: every kind adds its ``spec``."""

    status_model: ClassVar[type[Status]] = CommonStatus
    """The schema of ``status``."""

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


def schema_words(error: ValidationError) -> str:
    """Return what is wrong with an object that the schema of this release refuses."""
    first = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"] if part != "[key]")
    return f"schema {path}: {first['msg']}"
