"""Draws for faults in which the whole group ends and starts again. Pure, vectorised.

Values are progress in messages, 0 at the kill. What a broker holds is negative where it lags.

    file      the master's consumerOffset.json: what was committed at the last persist
    memory    what the master had received when it died
    copy      what the slave had copied last
    to_slave  what clients committed to the slave, from their next commit after the route changed

A new owner starts at what the broker that answers holds; everything from there to the end of what
was consumed is delivered again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from failback.analytics.predict.consumption import (
    Consumption,
    after_the_kill,
    commit_lag,
    draw_rate,
    hole,
    in_flight,
    route_change,
)
from failback.analytics.predict.faults import FaultPlan, Stop
from failback.analytics.predict.settings import Settings
from failback.analytics.predict.timers import (
    PERSIST_FIRST,
    Ages,
    Array,
    Flags,
    last_tick,
    next_tick,
    since_tick,
)

SNAPSHOT_SECONDS: Final = 5.0
"""From the last look at the offsets in a planned switch to the old master's end."""

Draws = dict[str, Array]


@dataclass(frozen=True, slots=True)
class _World:
    """What holds when the master dies."""

    file: Array
    memory: Array
    copy: Array
    back: float
    """When a master serves again."""
    slaves: float


def draw_restart(
    s: Settings, plan: FaultPlan, ages: Ages, draws: int, rng: np.random.Generator
) -> Draws:
    """Duplicates by cause, one array per cause. Scaled settings and plan."""
    assert plan.stop is not None
    slaves = s.slaves if plan.slaves is None else plan.slaves
    rate = draw_rate(s, draws, rng)
    world = _world(s, plan, ages, slaves, rate, rng)
    client = ages.clients[:, 0]
    route = route_change(s, client)
    serving = slaves if plan.kills_master else 0
    consumption = after_the_kill(s, serving, route, rate, 1.0, rng)
    stop = _stop_times(s, plan, plan.stop, consumption, client, route, world, rng)
    end, drained, seconds = _end(s, plan.stop, consumption, stop)
    ended = stop + seconds
    start = _start_times(plan, ended, world)

    period, first = _commits(s)
    last = last_tick(client, first, period, stop)
    on_slave = np.minimum(last, np.nextafter(world.back, -np.inf))
    # Commits reach the slave from the first one after the client learnt that the master is gone.
    reaches_slave = (next_tick(client, first, period, route) <= stop) & (route < world.back)
    to_slave = np.where(reaches_slave, consumption.progress(np.maximum(on_slave, 0)), -np.inf)
    clean = plan.stop.signal == "TERM"
    if clean:
        to_slave = np.where((route <= ended) & (ended < world.back), end, to_slave)
    to_slave = np.where(slaves > 0, to_slave, -np.inf)
    slave = np.maximum(world.copy, to_slave)

    held = world.file
    if not plan.kills_master:
        held = np.maximum(held, to_slave)  # in a switch the slave becomes the master
    elif s.guard_returned_offsets and slaves:
        held = np.maximum(held, slave)
    heard = np.where(last >= world.back, consumption.progress(np.maximum(last, 0)), -np.inf)
    if clean:
        heard = np.where(ended >= world.back, end, heard)
    master = np.maximum(held, heard)

    by_slave = (start < world.back) & (slaves > 0)
    value = np.where(by_slave, slave, master)
    sent = np.maximum(np.maximum(world.memory, to_slave), heard)
    # What is committed ends below the holes, unless a clean stop waited for all handlers.
    ragged = hole(s, draws, rng)
    value, sent = (
        np.where(drained & (offset >= end), offset, offset - ragged) for offset in (value, sent)
    )
    abandoned = np.where(drained, 0.0, in_flight(s))
    memory = world.memory - ragged
    return _by_cause(value, sent, end, abandoned, memory, by_slave, plan.stop)


def _by_cause(
    value: Array,
    sent: Array,
    end: Array,
    abandoned: Array,
    memory: Array,
    by_slave: Flags,
    stop: Stop,
) -> Draws:
    covered = np.maximum(0.0, np.minimum(sent, end) - value)
    total = np.maximum(0.0, end - value) + abandoned
    to_old_master = np.clip(np.minimum(memory, end) - value, 0.0, covered)
    return {
        "ROLLBACK_RESTART": np.where(by_slave, 0.0, to_old_master),
        "ROLLBACK_SLAVE_ONLY_PROGRESS": np.where(by_slave, 0.0, covered - to_old_master),
        "ROLLBACK_STALE_SLAVE": np.where(by_slave, covered, 0.0),
        "TAIL_CRASH" if stop.signal == "KILL" else "TAIL_SHUTDOWN": total - covered,
    }


def _world(
    s: Settings,
    plan: FaultPlan,
    ages: Ages,
    slaves: float,
    rate: Array,
    rng: np.random.Generator,
) -> _World:
    draws = len(rate)
    period = s.flush_consumer_offset_interval / 1000
    age = since_tick(ages.broker, PERSIST_FIRST * s.constants, period)
    memory = -commit_lag(s, draws, rng)
    file = np.minimum(-(rate * age + commit_lag(s, draws, rng)), memory)
    copy = np.minimum(-(rate * ages.slave_copy + commit_lag(s, draws, rng)), memory)
    match plan.offsets:
        case "None":
            file = copy
        case "WaitSync":
            # Nothing is consumed once producers are stopped and nothing waits.
            file = copy if s.behind else memory
        case "CopyMax":
            seen = SNAPSHOT_SECONDS * s.constants * rng.random(draws)
            old = np.minimum(memory, -rate * seen)
            file = np.maximum(copy, old) if plan.down_seconds and s.behind else memory
    back = plan.down_seconds + (s.broker_start_seconds if plan.down_seconds else 0.0)
    return _World(file, memory, copy, back, slaves)


def _commits(s: Settings) -> tuple[float, float]:
    return s.persist_consumer_offset_interval / 1000, PERSIST_FIRST * s.constants


def _stop_times(
    s: Settings,
    plan: FaultPlan,
    stop: Stop,
    consumption: Consumption,
    client: Array,
    route: Array,
    world: _World,
    rng: np.random.Generator,
) -> Array:
    anywhere = rng.random(client.shape)
    match stop.moment:
        case "return":
            return np.full(client.shape, world.back + (stop.seconds or 0.0))
        case "outage":
            if stop.seconds is not None:
                return np.full(client.shape, stop.seconds)
            latest = world.back if plan.start.after_return else world.back - plan.start.seconds
            return anywhere * max(0.0, latest)
        case "serving":
            begin = np.minimum(consumption.slave_at, world.back)
            return begin + anywhere * (world.back - begin)
        case "served":
            period, first = _commits(s)
            base = next_tick(client, first, period, route)
            wanted = consumption.progress(base) + stop.messages
            seen = next_tick(client, first, period, consumption.when(wanted))
            return np.minimum(np.where(np.isfinite(seen), seen, world.back), world.back)


def _end(
    s: Settings, stop: Stop, consumption: Consumption, at: Array
) -> tuple[Array, Flags, Array]:
    """What was consumed in the end, whether no handler was cut off, and how long that took, s."""
    done = consumption.progress(at)
    if stop.signal == "KILL":
        return done, np.zeros(at.shape, dtype=np.bool_), np.zeros(at.shape)
    cached = np.where(
        at < consumption.slave_at,
        consumption.cache - done,
        np.minimum(consumption.cache, consumption.available - done),
    )
    handled = s.consume_rate * s.await_termination / 1000
    waits = s.await_termination > s.handler_ms + s.handler_jitter_ms
    drained = np.full(at.shape, waits or in_flight(s) == 0)
    more = np.clip(cached, 0.0, handled)
    return done + more, drained, more / np.maximum(consumption.rate, 1e-9)


def _start_times(plan: FaultPlan, ended: Array, world: _World) -> Array:
    if plan.start.after_return:
        return np.maximum(ended, world.back) + plan.start.seconds
    start = ended + plan.start.seconds
    return start if world.slaves else np.maximum(start, world.back)
