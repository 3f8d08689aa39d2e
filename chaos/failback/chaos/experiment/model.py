"""The ChaosExperiment resource (failback.dev/v1alpha1): its fields, defaults and limits.

Field names are camelCase in a file and snake_case here. This module only says what one field may
hold; :mod:`failback.chaos.experiment.spec` checks what needs two fields or the catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError, PydanticKnownError

API_VERSION = "failback.dev/v1alpha1"
KIND = "ChaosExperiment"
MAX_SEED = 2**64 - 1
_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def _decimal(value: object) -> object:
    """A decimal number as text becomes a number: so it stands in the Kubernetes object."""
    return float(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value


Decimal = Annotated[float, BeforeValidator(_decimal)]


def written(word: str) -> str:
    """Return a word of our programs as a resource writes it; what is no such word stays."""
    if not word.islower():
        return word
    return "".join(part.capitalize() for part in word.split("-"))


def _called(word: str) -> str:
    """Return the word of our programs for one of a resource: ``fixed-percent`` of FixedPercent."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", word).lower()


def _spelled(*words: str, held: Callable[[str], str] = _called) -> BeforeValidator:
    """Return the validator of a field whose words a resource spells otherwise than it holds them.

    Args:
        words: Every word of the field, as a resource spells it.
        held: Returns the word that the field holds.
    """

    def read(value: object) -> str:
        if isinstance(value, str) and value in words:
            return held(value)
        expected = ", ".join(f"'{word}'" for word in words)
        raise PydanticKnownError("literal_error", {"expected": expected})

    return BeforeValidator(read)


_CALLED: Final = {
    written(word): word
    for word in (
        *("same", "slave", "older", "delete", "empty", "truncate", "keep"),
        *("both", "in", "out", "drop", "reject", "broker", "clients"),
        *("one", "all", "sync", "open", "rename"),
        *("slave-first", "master-first", "none", "wait-sync", "copy-max"),
    )
}
"""Words among the parameters of faults → what the faults call them."""


def as_called(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a fault with their words as the fault calls them."""
    return {
        key: _CALLED.get(value, value) if isinstance(value, str) else value
        for key, value in parameters.items()
    }


def _parameters(given: object) -> object:
    """Return :func:`as_called` of the parameters that a file gives.

    A word that is written as the fault calls it, and not as a resource does, is refused.
    """
    if not isinstance(given, dict):
        return given
    for key, value in given.items():
        if value in _CALLED.values():
            raise PydanticCustomError(
                "parameter_word", "", {"key": key, "word": value, "known": [written(value)]}
            )
    return as_called(given)


class Model(BaseModel):
    """Strict, closed and immutable: an unknown field is the user's typing error."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel, populate_by_name=False
    )


class Metadata(Model):
    name: str = Field(pattern=_NAME, max_length=63)
    namespace: str = Field(default="default", pattern=_NAME)
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ClusterRef(Model):
    name: str


class Burst(Model):
    """Every ``every_seconds`` the rate is ``factor`` times as high for one second."""

    every_seconds: float = Field(gt=0)
    factor: float = Field(gt=1)


class TopicLoad(Model):
    """What is produced to one topic. ``rate_per_second`` is open-loop, over all producers.

    ``preload_messages`` are sent as fast as the brokers take them before the rate begins, so that
    consumers start with a backlog and a slave has something to serve. ``delay_levels`` gives the
    share of messages that are sent with a delay level, ``resend_ratio`` of those that the
    application sends again, as a message of its own, after the first was acknowledged. A send that
    failed is repeated ``resend_failed`` times, with the very message.
    """

    name: str = Field(min_length=1, max_length=127, pattern=r"^[%|a-zA-Z0-9_-]+$")
    queues: int = Field(default=8, ge=1, le=1024)
    rate_per_second: float = Field(default=400.0, gt=0)
    burst: Burst | None = None
    body_bytes: int = Field(default=512, ge=64, le=4 * 1024 * 1024)
    keys: int = Field(default=1000, ge=1)
    ordered: bool = False
    preload_messages: int = Field(default=0, ge=0)
    delay_levels: dict[
        Annotated[str, Field(pattern=r"^([1-9]|1[0-8])$")], Annotated[float, Field(gt=0, le=1)]
    ] = {}
    resend_ratio: float = Field(default=0.0, ge=0, le=1)
    resend_failed: int = Field(default=0, ge=0, le=16)


class Handler(Model):
    """How long a handler takes and how often it asks for a retry."""

    mean_ms: float = Field(default=1.0, ge=0)
    jitter_ms: float = Field(default=0.0, ge=0)
    fail_ratio: float = Field(default=0.0, ge=0, le=1)


class Start(Model):
    """Members start spread over this time, each at its seeded phase."""

    spread_seconds: float = Field(default=30.0, ge=0, le=300)


class Group(Model):
    """One consumer group; each member is a process of its own."""

    name: str = Field(min_length=1, max_length=120, pattern=r"^[%|a-zA-Z0-9_-]+$")
    topic: str
    members: int = Field(default=1, ge=1, le=64)
    model: Annotated[Literal["push"], _spelled("Push")] = "push"
    message_model: Literal["CLUSTERING", "BROADCASTING"] = "CLUSTERING"
    handler: Handler = Handler()
    threads: int = Field(default=20, ge=1, le=1000)
    pull_threshold_for_queue: int = Field(default=1000, ge=1, le=65535)
    consume_from: Annotated[Literal["LAST", "FIRST"], _spelled("Last", "First", held=str.upper)] = (
        "FIRST"
    )
    max_reconsume_times: int = Field(default=-1, ge=-1, le=16)
    start: Start = Start()


class LogOptions(Model):
    """The consume log. Files are sealed when the run closes; fewer and longer ones seal faster."""

    mode: Annotated[Literal["full"], _spelled("Full")] = "full"
    segment_bytes: int = Field(default=4 * 1024 * 1024, ge=65536, le=1 << 30)
    segment_seconds: float = Field(default=5.0, gt=0, le=3600)


class Workload(Model):
    """Producers and consumer groups of a run."""

    topics: tuple[TopicLoad, ...] = Field(min_length=1)
    producers: int = Field(default=1, ge=1, le=64)
    send_timeout_ms: int = Field(default=3000, ge=100)
    retries: int = Field(default=2, ge=0, le=16)
    groups: tuple[Group, ...] = ()
    clients: Annotated[Literal["python"], _spelled("Python")] = "python"
    processes: Annotated[Literal["separate"], _spelled("Separate")] = "separate"
    log: LogOptions = LogOptions()
    switches: dict[str, bool | int | float | str] = {}


class FaultTarget(Model):
    """The victim of a fault: a broker by pair and role, or the members of a group."""

    pair: str = ""
    pair_selector: str = ""
    group: str = ""
    role: Annotated[Literal["master", "slave"], _spelled("Master", "Slave")] | None = None
    mode: (
        Annotated[
            Literal["one", "all", "fixed", "fixed-percent", "random-max-percent"],
            _spelled("One", "All", "Fixed", "FixedPercent", "RandomMaxPercent"),
        ]
        | None
    ) = None
    value: float = Field(default=0, ge=0)

    def in_words(self) -> str:
        """The victim in words: a broker, a group, or both; ``nobody`` where neither is named."""
        pair = self.pair or self.pair_selector
        names = [f"{self.role or 'master'} of {pair}"] if pair else []
        names += [f"group {self.group}"] if self.group else []
        return " and ".join(names) or "nobody"


class Fault(Model):
    """One fault of the schedule. ``at`` and ``jitter_seconds`` are seconds after run zero, or after
    the milestone that ``with.after`` names."""

    id: str = Field(pattern=_NAME)
    fault: str
    at: float = Field(default=0.0, ge=0, le=86400)
    jitter_seconds: float = Field(default=0.0, ge=0, le=3600)
    target: FaultTarget = FaultTarget()
    with_: Annotated[dict[str, Any], BeforeValidator(_parameters)] = Field(default={}, alias="with")


class SteadyState(Model):
    min_produce_per_second: float | None = Field(default=None, ge=0)
    max_lag_messages: int | None = Field(default=None, ge=0)
    max_sync_age_seconds: float | None = Field(default=None, gt=0)
    hold_seconds: float = Field(default=10.0, ge=0)
    timeout_seconds: float = Field(default=120.0, gt=0)


class Drain(Model):
    timeout_seconds: float = Field(default=120.0, gt=0)
    quiet_seconds: float = Field(default=5.0, ge=0)


class Expectation(Model):
    """A check on a path of report.json; evaluated by the analysis, not here."""

    metric: str
    group: str | None = None
    arm: str | None = None
    op: Annotated[
        Literal["<=", ">=", "==", ">", "<", "between", "within-bound"],
        _spelled("<=", ">=", "==", ">", "<", "Between", "WithinBound"),
    ]
    value: int | float | tuple[float, float] | None = None


class Thresholds(Model):
    max_duplicate_ratio: Decimal | None = Field(default=None, ge=0)
    max_lost: int = Field(default=0, ge=0)
    max_out_of_order_first: int | None = Field(default=None, ge=0)


class Guard(Model):
    max_pairs_down: int = Field(default=1, ge=1)
    """Without effect: a fault hits one broker."""
    require_namespace_label: bool | None = None
    """Without effect: a namespace consents by its label, and no experiment for it."""
    consent: tuple[str, ...] = ()


class Arm(Model):
    """One configuration: only what differs from the cluster and from ``spec.workload``.

    ``faults`` are appended to the experiment's own.
    """

    name: str = Field(pattern=_NAME, max_length=40)
    engine: Annotated[Literal["failback", "apache"], _spelled("Failback", "Apache")] | None = None
    broker_config: dict[str, str] = {}
    client_switches: dict[str, bool | int | float | str] = {}
    workload: dict[str, Any] = {}
    faults: tuple[Fault, ...] = ()
    expect: tuple[Expectation, ...] = ()


class Spec(Model):
    cluster_ref: ClusterRef
    seed: int | None = Field(default=None, ge=0, le=MAX_SEED)
    repetitions: int = Field(default=1, ge=1, le=50)
    arms: tuple[Arm, ...] = (Arm(name="base"),)
    faults: tuple[Fault, ...] = ()
    workload: Workload
    steady_state: SteadyState = SteadyState()
    warmup_seconds: float = Field(default=30.0, ge=0)
    cooldown_seconds: float = Field(default=60.0, ge=0)
    drain: Drain = Drain()
    time_scale: Decimal = Field(default=1.0, ge=0.05, le=1.0)
    expect: tuple[Expectation, ...] = ()
    thresholds: Thresholds = Thresholds()
    guard: Guard = Guard()
    on_not_honest: Annotated[Literal["stop", "continue"], _spelled("Stop", "Continue")] = "stop"
    recover_timeout_seconds: float = Field(default=300.0, gt=0)
    scan_timeout_seconds: float = Field(default=300.0, gt=0)
    heal_deadline_seconds: float = Field(default=300.0, gt=0)
    timeout_seconds: float | None = Field(default=None, gt=0)
    abort: bool = False
    backend: Annotated[Literal["native"], _spelled("Native")] = "native"
    job: dict[str, Any] = {}
    """How Kubernetes runs it; nothing here reads it."""


class ChaosExperimentResource(Model):
    """The object of a file, as written."""

    api_version: Literal["failback.dev/v1alpha1"]
    kind: Literal["ChaosExperiment"]
    metadata: Metadata
    spec: Spec
    status: dict[str, Any] | None = None
