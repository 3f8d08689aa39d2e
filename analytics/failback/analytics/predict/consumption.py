"""How far a group has come: consumption before and after the kill, and what commits lag behind.

Also exposure: what a kill at this moment would cost. Progress is counted in messages of all the
group's queues on the pair, 0 at the kill. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from failback.analytics.predict.settings import Settings
from failback.analytics.predict.timers import ROUTE_FIRST, Array, next_tick

_INDEPENDENT_QUEUES: Final = 8
_NEVER: Final = 1e12
"""Seconds; finite, so that nothing times never is nothing."""


@dataclass(frozen=True, slots=True)
class Consumption:
    """What one share of the group consumes after the kill, each array of one shape.

    First what its clients have cached, then, from ``slave_at`` on, what the slave serves.
    """

    rate: Array
    """Messages/s; of shape (draws,) or (draws, 1)."""
    cache: Array
    slave_at: Array
    available: float

    def progress(self, at: Array) -> Array:
        """Messages consumed ``at`` seconds after the kill."""
        cached = np.minimum(self.rate * np.minimum(at, self.slave_at), self.cache)
        served = self.rate * np.maximum(0.0, at - self.slave_at)
        return np.minimum(np.maximum(cached, 0.0) + served, self.available)

    def when(self, messages: Array) -> Array:
        """The instant at which so many are consumed, infinity if never. After ``slave_at``."""
        cached = np.minimum(self.rate * self.slave_at, self.cache)
        rate = np.maximum(self.rate, 1e-9)
        at = self.slave_at + np.maximum(0.0, messages - cached) / rate
        return np.where(messages > self.available, np.inf, at)


def route_change(s: Settings, ages: Array) -> Array:
    """When clients learn that the master is gone: their next look at the route."""
    period = s.poll_name_server_interval / 1000
    return next_tick(ages, ROUTE_FIRST * s.constants, period, 0.0)


def draw_rate(s: Settings, draws: int, rng: np.random.Generator) -> Array:
    """The group's consume rate, messages/s: handlers take longer than they say, never shorter."""
    slack = s.handler_slack if s.paced_by_handlers else 0.0
    found: Array = s.consume_rate * (1.0 - slack * rng.random(draws))
    return found


def after_the_kill(
    s: Settings,
    slaves: float,
    route: Array,
    rate: Array,
    share: float,
    rng: np.random.Generator,
) -> Consumption:
    """Consumption of ``share`` of the group, with caches and pull retries drawn.

    ``rate`` is the group's, and broadcasts to the shape of ``route``.
    """
    delay = rng.uniform(0, s.pull_error_delay / 1000, route.shape)
    slave_at = route + delay if slaves else np.full(route.shape, _NEVER)
    available = np.inf if s.backlog is None else s.backlog * share
    if s.behind:
        full = s.pull_threshold_for_queue + s.pull_batch_size * rng.random(route.shape)
        cache = np.minimum(s.queues * share * full, available)
    else:
        cache = np.zeros(route.shape)
    return Consumption(rate * share, cache, slave_at, available)


def commit_lag(s: Settings, draws: int, rng: np.random.Generator) -> Array:
    """Messages consumed and not yet committed to a live master: pulls carry commits."""
    pulled = s.pull_batch_size if s.behind else 1.0
    spread = rng.random((draws, min(int(s.queues), _INDEPENDENT_QUEUES)))
    most = s.consume_rate * s.persist_consumer_offset_interval / 1000
    found: Array = np.minimum(s.queues * pulled * np.mean(spread, axis=1), most)
    return found


def in_flight(s: Settings) -> float:
    """Messages inside handlers at one instant."""
    threads = s.members * s.consume_threads
    if s.behind:
        return min(threads, s.queues * (s.pull_threshold_for_queue + s.pull_batch_size))
    return min(threads, s.consume_rate * s.handler_ms / 1000)


def hole(s: Settings, draws: int, rng: np.random.Generator) -> Array:
    """Messages finished above unfinished ones: handlers that differ in time, side by side."""
    beside = max(0.0, in_flight(s) - min(s.queues, in_flight(s)))
    spread = min(1.0, s.handler_jitter_ms / s.handler_ms) if s.handler_ms else 1.0
    return np.minimum(beside * spread * rng.random(draws), s.widest_hole)


@dataclass(frozen=True, slots=True)
class Exposure:
    """Messages of one group on one pair, at one instant; ``None`` where no answer is possible."""

    after_return: float
    """Answered by the master's file."""
    on_slave: float | None
    """Answered by the slave's table."""

    @property
    def most(self) -> float:
        """The figure to alert on."""
        return max(self.after_return, self.on_slave or 0.0)


def exposure(settings: Settings, *, file_behind: float, copy_behind: float | None) -> Exposure:
    """What would be redelivered if the master died now, from what is seen instead of phases.

    Of the two faults that cost most while nothing is wrong yet: all members start again after the
    master's return, or while only the slave is known. Neither counts what would be consumed
    afterwards. The group consumes ``settings.rate`` messages/s.

    Args:
        settings: Of group and pair.
        file_behind: Messages that were committed and are not in the master's file.
        copy_behind: Messages that were committed and are not in the slave's table; ``None``: no
            slave, or it is not known.
    """
    s = settings.scaled()
    lag = _lag(s)
    on_slave = None if copy_behind is None else copy_behind + lag
    after_return = file_behind + lag
    if s.guard_returned_offsets and on_slave is not None:
        after_return = min(after_return, on_slave)
    return Exposure(after_return, on_slave)


def _lag(s: Settings) -> float:
    """What is consumed and not committed, or not finished, on average: λ·c and E[W]."""
    if not s.rate:
        return 0.0  # nothing is under way
    pulled = s.pull_batch_size if s.behind else 1.0
    commits = s.consume_rate * s.persist_consumer_offset_interval / 1000
    uncommitted = min(s.queues * pulled, commits) / 2
    return uncommitted + (in_flight(s) / 2 if s.consume_threads > 1 else 0.0)
