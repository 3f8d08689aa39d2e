"""Draws for a kill while consumers run on: nothing, unless the group has several members. Pure.

A restarted broker knows no members. The first heartbeat makes its sender the only one: it claims
every queue, at the offset that the broker has, while the owners go on until they notice. Each owner
either drops its queues at its next rebalance, or its own heartbeat comes first and makes it the
next member. Until all are members the queues are divided among those that are, so an owner may lose
some of its own to others. When it gets them back, they begin where those others are. A member that
claims in the meantime goes on where the first one is: one claimant is drawn.

Without a slave, and with the topic on other brokers too, the route loses the broker. Owners drop
its queues, and their last commits fail. After the return they start from the master's file.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from failback.analytics.predict.consumption import (
    Consumption,
    after_the_kill,
    commit_lag,
    draw_rate,
    hole,
    route_change,
)
from failback.analytics.predict.faults import FaultPlan
from failback.analytics.predict.restarts import Draws
from failback.analytics.predict.settings import Settings
from failback.analytics.predict.timers import (
    HEARTBEAT_FIRST,
    PERSIST_FIRST,
    Ages,
    Array,
    Flags,
    last_tick,
    next_tick,
    since_tick,
)


def draw_running(
    s: Settings, plan: FaultPlan, ages: Ages, draws: int, rng: np.random.Generator
) -> Draws:
    """Duplicates by cause, one array per cause. Scaled settings and plan."""
    slaves = s.slaves if plan.slaves is None else plan.slaves
    share = 1 / s.members
    back = plan.down_seconds + s.broker_start_seconds
    route = route_change(s, ages.clients)
    rate = draw_rate(s, draws, rng)
    consumption = after_the_kill(s, slaves, route, rate[:, None], share, rng)
    period = s.flush_consumer_offset_interval / 1000
    since_persist = since_tick(ages.broker, PERSIST_FIRST * s.constants, period)
    memory = commit_lag(s, draws, rng)
    file = np.maximum(rate * since_persist + commit_lag(s, draws, rng), memory)
    copy = np.maximum(rate * ages.slave_copy + commit_lag(s, draws, rng), memory)
    gaps = np.stack([file, memory, copy, hole(s, draws, rng)], axis=1)[:, :, None] * share
    found: Draws = {}
    dropped: Flags = np.zeros(route.shape, dtype=np.bool_)
    if slaves == 0 and s.pairs > 1:
        rebalance = rng.uniform(0, s.rebalance_interval / 1000, route.shape)
        dropped = route + rebalance < back
        _add_dropped(found, consumption, gaps, dropped, back)
    if s.members > 1 and not s.guard_consumer_list:
        _add_claimed(found, s, slaves, ages, consumption, gaps, ~dropped, back, rng)
    return found


def _add(found: Draws, cause: str, values: Array) -> None:
    total: Array = np.sum(values, axis=1)
    found[cause] = found[cause] + total if cause in found else total


def _add_dropped(
    found: Draws, consumption: Consumption, gaps: Array, dropped: Flags, back: float
) -> None:
    """Queues that were dropped while the broker was out of the route."""
    file, memory, ragged = gaps[:, 0], gaps[:, 1], gaps[:, 3]
    consumed = consumption.progress(np.full(dropped.shape, back))
    _add(found, "ROLLBACK_RESTART", np.where(dropped, file - memory, 0.0))
    _add(found, "TAIL_REBALANCE", np.where(dropped, memory + ragged + consumed, 0.0))


def _add_claimed(
    found: Draws,
    s: Settings,
    slaves: float,
    ages: Ages,
    consumption: Consumption,
    gaps: Array,
    owners: Flags,
    back: float,
    rng: np.random.Generator,
) -> None:
    """Queues that the first sender of a heartbeat claims from their owners."""
    commits = s.persist_consumer_offset_interval / 1000
    first_commit = PERSIST_FIRST * s.constants
    heartbeat = s.heartbeat_broker_interval / 1000
    learnt = next_tick(ages.clients, first_commit, commits, back)
    beat = next_tick(ages.clients, HEARTBEAT_FIRST * s.constants, heartbeat, learnt)
    claim = np.min(beat, axis=1, keepdims=True)
    others = beat > claim
    # Of members whose heartbeats fall together one is the first; that they are equal is rare.
    others |= (np.cumsum(beat == claim, axis=1) > 1) & (beat == claim)
    others &= owners

    noticed = np.maximum(claim, learnt) + rng.uniform(0, s.rebalance_interval / 1000, beat.shape)
    keeps = beat < noticed
    until = np.minimum(beat, noticed)
    window = np.maximum(0.0, until - claim)

    committed = learnt <= claim
    last = np.maximum(last_tick(ages.clients, first_commit, commits, claim), 0.0)
    at_claim = consumption.progress(np.broadcast_to(claim, beat.shape))
    file, memory, copy, ragged = gaps[:, 0], gaps[:, 1], gaps[:, 2], gaps[:, 3]
    behind_file = at_claim + file
    if s.guard_returned_offsets and slaves:
        behind_slave = _behind_slave(s, ages, consumption, at_claim, copy, back)
        behind_file = np.minimum(behind_file, behind_slave)
    recent = at_claim - consumption.progress(last)
    gap = np.where(committed, recent, behind_file) + ragged
    own = consumption.progress(until) - at_claim
    fastest = min(s.most_rate, s.bound_rate) / s.members**2
    claimed = np.minimum(fastest * window, gap + np.maximum(own, consumption.rate * window))

    kept = np.where(keeps, _kept_share(s, beat, rng), 0.0)
    repeated = kept * claimed + (1 - kept) * np.minimum(claimed, gap + own)
    # An owner that drops its queues commits once more. The claimant's next commit is lower: in
    # time, if it is a commit interval long until the owner returns; else theirs cross at the end.
    away = np.where(keeps, 1.0, np.clip((beat - noticed) / commits, 0.0, 1.0))
    lower = rng.random(beat.shape) < (1 + away) / 2
    again = np.where(lower, (1 - kept) * np.maximum(0.0, gap + own - claimed), 0.0)
    rolled_back = np.where(committed, 0.0, np.minimum(repeated, np.maximum(0.0, gap - ragged)))
    from_file = np.minimum(rolled_back, np.maximum(0.0, np.broadcast_to(file - memory, beat.shape)))
    by_slave = rolled_back - from_file if slaves else np.zeros(beat.shape)
    for cause, values in {
        "ROLLBACK_RESTART": from_file,
        "ROLLBACK_SLAVE_ONLY_PROGRESS": by_slave,
        "OVERLAP": np.maximum(0.0, repeated - from_file - by_slave),
        "ROLLBACK_OVERWRITTEN": again,
    }.items():
        _add(found, cause, np.where(others, values, 0.0))
    if s.pairs > 1:
        # The queues of the topic on healthy brokers are claimed too, where the claimant asked
        # the returned broker for the members, and start at their owners' last commits there.
        asked = rng.random((len(claim), 1)) < 1 / s.pairs
        lag = memory + ragged
        healthy = np.minimum(fastest * window, lag + consumption.rate * window)
        values = np.where(others & asked, healthy * (s.pairs - 1), 0.0)
        _add(found, "OVERLAP", values)


def _behind_slave(
    s: Settings, ages: Ages, consumption: Consumption, at_claim: Array, copy: Array, back: float
) -> Array:
    """How far the slave's table is behind at the claim: by its copy, or by a commit sent to it."""
    commits = s.persist_consumer_offset_interval / 1000
    before = np.nextafter(back, -np.inf)
    committed = last_tick(ages.clients, PERSIST_FIRST * s.constants, commits, before)
    sent_to_slave = committed >= route_change(s, ages.clients)
    return np.where(sent_to_slave, at_claim - consumption.progress(committed), at_claim + copy)


def _kept_share(s: Settings, beat: Array, rng: np.random.Generator) -> Array:
    """The share of its queues that each owner is given when its heartbeat makes it a member.

    AVG parts neighbouring queues by the order of client ids; ``beat`` is in that order. How many
    of those that are members already come before it in that order is drawn.
    """
    members, queues = beat.shape[1], int(s.queues)
    places = np.broadcast_to(np.arange(members), beat.shape)
    joined = np.argsort(np.argsort(beat, axis=1), axis=1) + 1
    before = rng.hypergeometric(places, members - 1 - places, joined - 1)
    begin, end = _part(places, members, queues)
    its_begin, its_end = _part(before, joined, queues)
    common = np.minimum(end, its_end) - np.maximum(begin, its_begin)
    share: Array = np.where(end > begin, np.maximum(common, 0) / np.maximum(end - begin, 1), 1.0)
    return share


def _part(
    place: NDArray[np.int64], parts: NDArray[np.int64] | int, queues: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First queue and end of the part at a place: the first ones get one more."""
    least, more = np.divmod(queues, parts)
    begin = place * least + np.minimum(place, more)
    return begin, begin + least + (place < more)
