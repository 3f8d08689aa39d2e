"""The workload of a ChaosExperiment: producers and consumer groups of a run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from failback.operator.kinds.base import Model, keyed_by

_NAME = r"^[%|a-zA-Z0-9_-]+$"


class Burst(Model):
    """A rate that rises for one second at a time."""

    every_seconds: float = Field(gt=0, le=86400)
    """Time from one burst to the next."""
    factor: float = Field(gt=1, le=10**6)
    """How many times as high the rate is."""


class TopicLoad(Model):
    """What is produced to one topic."""

    name: str = Field(min_length=1, max_length=127, pattern=_NAME)
    """Name of the topic; it is created if need be."""
    queues: int = Field(default=8, ge=1, le=1024)
    """Queues per pair."""
    rate_per_second: float = Field(default=400.0, gt=0, le=10**6)
    """Messages per second, over all producers. A late message keeps its planned time."""
    burst: Burst | None = None
    """A rate that rises for one second at a time."""
    body_bytes: int = Field(default=512, ge=64, le=4 * 1024 * 1024)
    """Size of a body."""
    keys: int = Field(default=1000, ge=1, le=2**31 - 1)
    """Different ordering keys."""
    ordered: bool = False
    """Whether messages of one key go to one queue."""
    preload_messages: int = Field(default=0, ge=0, le=10**9)
    """Sent as fast as the brokers take them before the rate begins, as a backlog to start with."""
    delay_levels: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(default={}, max_length=18)
    """Share of the messages per delay level, by the level's number."""
    resend_ratio: float = Field(default=0.0, ge=0, le=1)
    """Share of the messages that the application sends again after they were acknowledged."""
    resend_failed: int = Field(default=0, ge=0, le=16)
    """How often the application sends a message again whose send failed."""


class Handler(Model):
    """Handler behaviour: time per message and share of retries."""

    mean_ms: float = Field(default=1.0, ge=0, le=86_400_000)
    """Mean time per message."""
    jitter_ms: float = Field(default=0.0, ge=0, le=86_400_000)
    """Spread of that time."""
    fail_ratio: float = Field(default=0.0, ge=0, le=1)
    """Share of messages that are sent back for a retry."""


class Start(Model):
    """When the members of the group start."""

    spread_seconds: float = Field(default=30.0, ge=0, le=300)
    """They start spread over this time, each at a moment drawn from the seed."""


class WorkloadGroup(Model):
    """One consumer group; each member is a process of its own."""

    name: str = Field(min_length=1, max_length=120, pattern=_NAME)
    """Name of the group."""
    topic: str = Field(min_length=1, max_length=127, pattern=_NAME)
    """The topic that it consumes, one of workload.topics."""
    members: int = Field(default=1, ge=1, le=64)
    """How many consumers it has."""
    model: Literal["Push"] = "Push"
    """Kind of consumer; Push is the only one."""
    message_model: Literal["CLUSTERING", "BROADCASTING"] = "CLUSTERING"
    """Whether members share the messages or each gets all."""
    handler: Handler = Field(default_factory=Handler)
    """Handler behaviour: time per message and share of retries."""
    threads: int = Field(default=20, ge=1, le=1000)
    """Handlers that run at once in one member."""
    pull_threshold_for_queue: int = Field(default=1000, ge=1, le=65535)
    """Messages that a member caches per queue."""
    consume_from: Literal["Last", "First"] = "First"
    """Where a group that has no offsets yet begins: at the last or the first message."""
    max_reconsume_times: int = Field(default=-1, ge=-1, le=16)
    """Retries of a message; -1 leaves it to the broker."""
    start: Start = Field(default_factory=Start)
    """When the members of the group start."""


class LogOptions(Model):
    """The consume log."""

    mode: Literal["Full"] = "Full"
    """Full: one row per delivery."""
    segment_bytes: int = Field(default=4 * 1024 * 1024, ge=65536, le=1 << 30)
    """Size at which a file is sealed."""
    segment_seconds: float = Field(default=5.0, gt=0, le=3600)
    """Age at which a file is sealed."""


class Workload(Model):
    """Producers and consumer groups of a run."""

    topics: list[TopicLoad] = keyed_by("name", min_length=1, max_length=16)
    """The topics that producers write to."""
    producers: int = Field(default=1, ge=1, le=64)
    """Producer processes."""
    send_timeout_ms: int = Field(default=3000, ge=100, le=86_400_000)
    """How long a producer waits for an acknowledgement."""
    retries: int = Field(default=2, ge=0, le=16)
    """How often a producer tries again."""
    groups: list[WorkloadGroup] = keyed_by("name", default=[], max_length=16)
    """The consumer groups that read."""
    clients: Literal["Python"] = "Python"
    """Which client library runs the workload."""
    processes: Literal["Separate"] = "Separate"
    """Separate: each member is a process of its own."""
    log: LogOptions = Field(default_factory=LogOptions)
    """The consume log."""
    switches: dict[str, bool | int | float | str] = Field(default={}, max_length=64)
    """Settings of all clients."""
