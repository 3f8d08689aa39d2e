"""Phases of timers, vectorised: one array element per draw, seconds before or after the kill. Pure.

A timer first ticks ``first`` seconds after its owner started and then every ``period``. An owner of
unknown age gets one from a wide range, so the phases of its timers are uniform. The timers of one
client stay tied to each other: its look at the route every 30 s and its commit every 5 s fall
together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from failback.analytics.predict.settings import Settings

Array: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

PERSIST_FIRST: Final = 10.0
"""First persist of offsets of a broker, and first commit of a client, after its start."""
HEARTBEAT_FIRST: Final = 1.0
ROUTE_FIRST: Final = 0.01
_OLD: Final = 3_600.0
_SPREAD: Final = 7_200.0


def since_tick(age: Array, first: float, period: float) -> Array:
    """Seconds since the last tick; since the start where there was none yet."""
    return np.where(age < first, age, np.mod(age - first, period))


def next_tick(age: Array, first: float, period: float, at: Array | float) -> Array:
    """The first tick at or after ``at``. ``age``: of the owner at the kill."""
    passed = np.ceil((age + at - first) / period - 1e-9)
    return first + np.maximum(passed, 0.0) * period - age


def last_tick(age: Array, first: float, period: float, at: Array | float) -> Array:
    """The last tick at or before ``at``; minus infinity where there was none."""
    passed = np.floor((age + at - first) / period + 1e-9)
    return np.where(passed < 0, -np.inf, first + passed * period - age)


@dataclass(frozen=True, slots=True)
class Ages:
    """How long broker and clients had run when the master died, and the age of the slave's copy."""

    broker: Array
    """Shape (draws,)."""
    clients: Array
    """Shape (draws, members)."""
    slave_copy: Array
    """Shape (draws,): seconds since the slave last copied the master's offsets."""


def draw_ages(s: Settings, uptime: float | None, draws: int, rng: np.random.Generator) -> Ages:
    """Draw phases. ``uptime``: of the killed master, where the fault says it; scaled settings."""
    shape = (draws, int(s.members))
    if s.client_uptime_seconds is None:
        clients = rng.uniform(_OLD, _OLD + _SPREAD, shape)
    else:
        # A plan knows when its clients start, but not to less than one of their commits.
        spread = s.persist_consumer_offset_interval / 1000
        known = s.client_uptime_seconds + rng.uniform(0, spread, (draws, 1))
        clients = np.broadcast_to(known, shape)
    known_uptime = s.broker_uptime_seconds if uptime is None else uptime
    if known_uptime is None:
        broker = rng.uniform(_OLD, _OLD + _SPREAD, draws)
    elif known_uptime < PERSIST_FIRST * s.constants:
        broker = np.full(draws, known_uptime)
    else:
        broker = known_uptime + rng.uniform(0, s.flush_consumer_offset_interval / 1000, draws)
    return Ages(broker, clients, rng.uniform(0, s.slave_sync_interval / 1000, draws))


def worst_age(s: Settings, uptime: float | None, interval_ms: float) -> float:
    """Oldest that a broker's file can be, s: one interval, or a start without a persist yet."""
    first = PERSIST_FIRST * s.constants
    known = s.broker_uptime_seconds if uptime is None else uptime
    period = interval_ms / 1000
    return max(period, min(known, first)) if known is not None and known < first else period
