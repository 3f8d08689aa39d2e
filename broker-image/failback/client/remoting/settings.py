"""What can be set on a client: every interval, limit and switch, with the reference's defaults.

One frozen value serves producers and consumers. Intervals are milliseconds as the Java client's
fields are; :meth:`ClientSettings.scaled` applies ``time_scale`` once, and only the scaled copy is
used inside the package. :meth:`ClientSettings.to_dict` is what a run records.

Source of names and values: ClientConfig, DefaultMQProducer, DefaultMQPushConsumer,
DefaultMQPushConsumerImpl, RemoteBrokerOffsetStore, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, Self

from failback.client.remoting.guarded.access import ClusterAccess
from failback.protocol.errors import ConfigError

OffsetBrokerRule = Literal["master_first_refresh", "admin_first_entry"]
"""Whom offset calls ask: the rule of 4.9.3 and later, or that of 4.9.2 and earlier."""

START_PHASE_SPREAD_MS: Final = 30_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings of one producer or consumer.

    Fields that end in ``_ms`` are intervals and scale with ``time_scale``; sizes and counts don't.
    """

    namesrv_addrs: tuple[str, ...] = ()
    """``host:port`` of the name servers. Shuffled once; one is kept while it accepts."""
    access: ClusterAccess | None = None
    """Of a guarded cluster. No part of what a run records."""
    client_ip: str | None = None
    """First part of the client id; ``None`` finds an address of this host."""
    instance_name: str = "DEFAULT"
    """``DEFAULT`` becomes ``pid#nanotime`` except for BROADCASTING consumers."""
    unit_name: str | None = None

    # Timers of the instance
    poll_name_server_interval_ms: float = 30_000
    poll_name_server_first_ms: float = 10
    heartbeat_interval_ms: float = 30_000
    heartbeat_first_ms: float = 1_000
    persist_offset_interval_ms: float = 5_000
    persist_offset_first_ms: float = 10_000
    rebalance_interval_ms: float = 20_000

    # Timeouts of calls
    api_timeout_ms: float = 3_000
    route_lock_wait_ms: float = 3_000
    offset_timeout_ms: float = 5_000
    admin_timeout_ms: float = 6_000
    send_back_timeout_ms: float = 5_000
    connect_timeout_ms: float = 3_000
    connection_idle_ms: float = 120_000

    # Producer
    send_timeout_ms: float = 3_000
    retry_times_when_send_failed: int = 2
    retry_times_when_send_async_failed: int = 2
    retry_another_broker_when_not_store_ok: bool = False
    send_latency_fault_enable: bool = False
    compress_over_bytes: int = 4_096
    compress_level: int = 5
    max_message_bytes: int = 4 * 1024 * 1024
    default_topic: str = "TBW102"
    default_topic_queue_nums: int = 4

    # Pulling
    pull_batch_size: int = 32
    pull_interval_ms: float = 0
    broker_suspend_max_ms: float = 15_000
    pull_timeout_ms: float = 30_000
    pull_error_delay_ms: float = 1_000
    pull_flow_control_delay_ms: float = 50
    broker_flow_control_delay_ms: float = 20
    pull_paused_delay_ms: float = 1_000
    offset_illegal_delay_ms: float = 10_000
    pull_expired_ms: float = 120_000
    pull_threshold_for_queue: int = 1_000
    pull_threshold_mib_for_queue: int = 100
    pull_threshold_for_topic: int = -1
    pull_threshold_mib_for_topic: int = -1
    consume_concurrently_max_span: int = 2_000
    post_subscription_when_pull: bool = False

    # Consuming
    consume_threads: int = 20
    consume_message_batch_max_size: int = 1
    consume_timeout_ms: float = 15 * 60_000
    resubmit_delay_ms: float = 5_000
    reset_wait_ms: float = 10_000
    max_reconsume_times: int = -1
    local_offset_store_dir: Path = field(default_factory=lambda: Path.home() / ".rocketmq_offsets")

    # Switches that change what a run measures
    fail_inflight_on_eof: bool = False
    """Off as in 4.9.8: calls in flight on a connection closed by FIN run to their timers."""
    strict_single_thread: bool = True
    """One scheduler task and one pull issuer, so that a slow step delays the others."""
    start_phase_ms: float | None = 0
    """Delay of the instance's start; ``None`` draws 0 to 30 s, so that ticks of members differ."""
    offset_broker_rule: OffsetBrokerRule = "master_first_refresh"
    ref_bugs: bool = True
    """H1: any error code to an offset query means "no offset". Off: only code 22 does."""
    slave_behind_backoff_ms: float = 0
    """Wait before pulling again from a slave that is behind; 0 is the reference's hot loop."""
    drain_on_shutdown_ms: float = 0
    """How long a shutdown waits for handlers and what is queued for them."""
    ack_commits: bool = False
    """Commit with an answer instead of one-way: shows what arrived, changes the timing."""
    heartbeat_on_connect: bool = False
    """Counter-measure: heartbeat to a broker as soon as a connection to it is made."""
    monotonic_start: bool = False
    """Counter-measure: never start a queue below this client's own last known offset."""

    time_scale: float = 1.0
    """Multiplies every interval and timeout above. Bounds scale only if brokers scale too."""

    def __post_init__(self) -> None:
        for name in _INTERVALS:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ConfigError(name, f"must not be negative: {value}")
        if self.time_scale <= 0:
            raise ConfigError("time_scale", f"must be positive: {self.time_scale}")
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(name, f"must be between {low} and {high}: {value}")
        if self.offset_broker_rule not in ("master_first_refresh", "admin_first_entry"):
            raise ConfigError("offset_broker_rule", f"unknown rule {self.offset_broker_rule!r}")

    def scaled(self) -> Self:
        """Return a copy whose intervals are multiplied by ``time_scale``, and a scale of 1."""
        if self.time_scale == 1.0:
            return self
        scaled = {
            name: value * self.time_scale
            for name in _INTERVALS
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **scaled, time_scale=1.0)

    def with_phase(self, rng: random.Random) -> Self:
        """Return a copy with a drawn ``start_phase_ms`` where none is given."""
        if self.start_phase_ms is not None:
            return self
        return replace(self, start_phase_ms=rng.uniform(0, START_PHASE_SPREAD_MS))

    def to_dict(self) -> dict[str, Any]:
        """Return every setting as plain JSON values, unscaled: the ``switches`` of a run."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "access"}
        values["namesrv_addrs"] = list(self.namesrv_addrs)
        values["local_offset_store_dir"] = str(self.local_offset_store_dir)
        return values


_INTERVALS: Final = tuple(f.name for f in fields(ClientSettings) if f.name.endswith("_ms"))
_RANGES: Final = (
    # DefaultMQPushConsumerImpl.checkConfig; a violation there also refuses the start.
    ("pull_batch_size", 1, 1024),
    ("consume_message_batch_max_size", 1, 1024),
    ("consume_threads", 1, 1000),
    ("pull_threshold_for_queue", 1, 65_535),
    ("pull_threshold_mib_for_queue", 1, 1024),
    ("consume_concurrently_max_span", 1, 65_535),
)
