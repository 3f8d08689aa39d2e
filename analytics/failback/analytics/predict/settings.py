"""What a prediction rests on: timers, limits, rates and guards of one pair and one group. Pure.

Fields are named after the keys of :mod:`failback.analytics.predict.keys`; rates are messages per
second of the group on the pair that is hit. :meth:`Settings.scaled` applies the time scale once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from failback.analytics.predict.keys import (
    ALIASES,
    GUARDS,
    KEYS,
    RULES,
    check_value,
    find_key,
    parse_value,
)
from failback.protocol.errors import ConfigError

CATCH_UP: Final = 3.0
"""A group that keeps up consumes, over a second or more, at most so many times what is produced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One cluster pair, one consumer group and its load. ``None`` is "not known"."""

    flush_consumer_offset_interval: float = 5_000
    flush_delay_offset_interval: float = 10_000
    slave_sync_interval: float = 10_000
    guard_returned_offsets: bool = False
    guard_slave_offsets: bool = False
    guard_consumer_list: bool = False
    guard_offset_file: bool = False
    persist_consumer_offset_interval: float = 5_000
    poll_name_server_interval: float = 30_000
    heartbeat_broker_interval: float = 30_000
    rebalance_interval: float = 20_000
    pull_error_delay: float = 1_000
    pull_batch_size: float = 32
    pull_threshold_for_queue: float = 1_000
    consume_concurrently_max_span: float = 2_000
    consume_threads: float = 20
    await_termination: float = 0
    rate: float = 400
    capacity: float | None = None
    peak_rate: float | None = None
    queues: float = 8
    members: float = 1
    slaves: float = 1
    pairs: float = 1
    backlog: float | None = None
    backlog_most: float | None = None
    handler_ms: float = 0
    handler_jitter_ms: float = 0
    handler_slack: float = 0.1
    delayed_rate: float = 0
    retry_rate: float = 0
    broker_start_seconds: float = 0.5
    broker_uptime_seconds: float | None = None
    client_uptime_seconds: float | None = None
    time_scale: float = 1.0
    slave_copies_offsets: bool = True
    """False for a slave of Apache 5.5.0: it has only what was committed to it."""
    constants: float = 1.0
    """Factor of the times that no key sets; :meth:`scaled` puts the time scale here."""

    def __post_init__(self) -> None:
        for key in KEYS.values():
            check_value(key, getattr(self, key.field))
        if self.peak_rate is not None and self.peak_rate < self.consume_rate:
            problem = f"must be at least the consume rate, {self.consume_rate:g}/s"
            raise ConfigError("peakRate", f"{problem}, got {self.peak_rate:g}")
        if self.backlog_most is not None and self.backlog_most < (self.backlog or 0):
            problem = f"must be at least backlog, {self.backlog:g}, got {self.backlog_most:g}"
            raise ConfigError("backlogMost", problem)

    @property
    def most_rate(self) -> float:
        """How fast the group can consume, as far as handlers and threads say: messages/s."""
        if self.capacity is not None:
            return self.capacity
        if self.handler_ms > 0:
            return max(self.rate, self.members * self.consume_threads * 1000 / self.handler_ms)
        return self.rate

    @property
    def behind(self) -> bool:
        """Whether messages wait at the kill, so that the group consumes as fast as it can."""
        return self.backlog is None or self.backlog > 0

    @property
    def consume_rate(self) -> float:
        """Messages/s that the group consumes on the pair when the master dies."""
        if self.capacity is not None or self.handler_ms > 0:
            return self.most_rate if self.behind else min(self.rate, self.most_rate)
        return self.rate

    @property
    def bound_rate(self) -> float:
        """R of the worst case: the highest consume rate, handlers at their fastest."""
        if self.peak_rate is not None:
            return self.peak_rate
        fastest = max(self.rate, self.most_rate)
        if self.capacity is None and self.handler_ms > 0:
            least_ms = max(self.handler_ms - self.handler_jitter_ms, 0.1)
            fastest = max(fastest, self.members * self.consume_threads * 1000 / least_ms)
        return fastest if self.behind else min(fastest, CATCH_UP * self.rate)

    @property
    def paced_by_handlers(self) -> bool:
        """Whether the consume rate follows from what handlers take, which is never exact."""
        return self.behind and self.capacity is None and self.handler_ms > 0

    @property
    def most_waiting(self) -> float | None:
        """The backlog of the worst case."""
        return self.backlog if self.backlog_most is None else self.backlog_most

    @property
    def cache(self) -> float:
        """Most messages that a group holds in memory, pulled and not consumed, on this pair."""
        most = self.queues * (self.pull_threshold_for_queue + self.pull_batch_size)
        return most if self.backlog is None else min(most, self.backlog)

    @property
    def widest_hole(self) -> float:
        """Q·W: most finished messages above unfinished ones, over all queues."""
        if self.consume_threads <= 1:
            return 0.0
        return self.queues * (self.consume_concurrently_max_span + self.pull_batch_size)

    def with_values(self, values: Mapping[str, Any]) -> Settings:
        """Return these settings with others under their keys; texts as ``--set`` gives them.

        Raises:
            ConfigError: Names the key that is unknown, or whose value is wrong.
        """
        changes: dict[str, Any] = {}
        for name, value in values.items():
            if name == RULES:
                changes |= dict.fromkeys((KEYS[name].field for name in GUARDS), _rules(value))
                continue
            alias = ALIASES.get(name)
            key = find_key(alias if alias is not None else name)
            parsed = parse_value(key, value)
            changes[key.field] = parsed * 1000 if alias is not None and parsed else parsed
        return replace(self, **changes)

    def value_of(self, name: str) -> Any:
        """The value under a key."""
        return getattr(self, find_key(name).field)

    def to_dict(self) -> dict[str, Any]:
        """Every value under its key, as given (unscaled)."""
        return {key.name: getattr(self, key.field) for key in KEYS.values()}

    def scaled(self) -> Settings:
        """Return a copy whose timers are multiplied by the time scale, and a scale of 1."""
        if self.time_scale == 1.0:
            return self
        changes = {
            key.field: value * self.time_scale
            for key in KEYS.values()
            if key.scales and (value := getattr(self, key.field)) is not None
        }
        return replace(self, **changes, time_scale=1.0, constants=self.time_scale)


def _rules(value: Any) -> bool:
    found = {"compat": False, "guarded": True}.get(str(value))
    if found is None:
        raise ConfigError(RULES, f'must be compat or guarded, got "{value}"')
    return found
