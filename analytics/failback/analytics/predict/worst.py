"""The worst case of a prediction in closed form, from settings alone. Pure.

Its partner is ``report/measures/bounds.py``: reports judge a run by the same mechanisms, with
measured figures in place of settings.

R is the highest consume rate, Q·W the widest holes; what was consumed after the kill is at most
R times its length, and at most what waited. Each term applies to all queues of the pair together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from failback.analytics.predict.consumption import in_flight
from failback.analytics.predict.faults import OFFSET_FREE, FaultPlan, Stop
from failback.analytics.predict.restarts import SNAPSHOT_SECONDS
from failback.analytics.predict.settings import Settings
from failback.analytics.predict.timers import PERSIST_FIRST, worst_age

SLOW_START: Final = 4.0
"""In the worst case a broker takes so many times as long to start."""


@dataclass(frozen=True, slots=True)
class Term:
    """One summand: its formula in the symbols of the settings, and messages."""

    formula: str
    messages: float


def worst_terms(s: Settings, plan: FaultPlan) -> tuple[Term, ...]:
    """The summands of the worst case. Scaled settings and plan."""
    terms: list[Term] = []
    if plan.name not in OFFSET_FREE:
        terms += _running(s, plan) if plan.stop is None else _restart(s, plan)
    if plan.down_seconds > 0:
        terms += _delayed(s, plan)
    return tuple(term for term in terms if term.messages > 0)


def worst_case(terms: tuple[Term, ...]) -> int:
    """Their sum, rounded up to whole messages."""
    return ceil(sum(term.messages for term in terms) - 1e-6)


def _back(s: Settings, plan: FaultPlan) -> float:
    """Latest return of the master, s after the kill."""
    start = SLOW_START * s.broker_start_seconds
    return plan.down_seconds + (start if plan.down_seconds else 0.0)


def _commit_gap(s: Settings) -> float:
    """Longest time without a commit of a client, s."""
    period, first = s.persist_consumer_offset_interval / 1000, PERSIST_FIRST * s.constants
    known = s.client_uptime_seconds
    return max(period, first) if known is not None and known < first else period


def _served(s: Settings, seconds: float) -> float:
    most = s.bound_rate * max(0.0, seconds)
    return most if s.most_waiting is None else min(most, s.most_waiting)


def _restart(s: Settings, plan: FaultPlan) -> list[Term]:
    stop = plan.stop
    assert stop is not None
    rate = s.bound_rate
    slaves = s.slaves if plan.slaves is None else plan.slaves
    found = max(_answers(s, plan, stop, slaves), key=lambda terms: sum(t.messages for t in terms))
    found.append(Term("R·I_c", rate * s.persist_consumer_offset_interval / 1000))
    found.append(Term("Q·W", s.widest_hole))
    if stop.signal == "TERM":
        found.append(Term("cache", min(s.cache, rate * s.await_termination / 1000)))
    if stop.signal == "KILL" or s.await_termination <= s.handler_ms + s.handler_jitter_ms:
        found.append(Term("handlers", in_flight(s)))
    return found


def _answers(s: Settings, plan: FaultPlan, stop: Stop, slaves: float) -> list[list[Term]]:
    """For each broker that may answer the new owner: how old its offsets are, what came after."""
    rate, gap = s.bound_rate, _commit_gap(s)
    back = _back(s, plan)
    first, last = _stops(plan, stop, back)
    by_slave = slaves > 0 and not plan.start.after_return and first + plan.start.seconds < back
    # A clean stop that waits for handlers may last into the master's return.
    begins = last + plan.start.seconds
    begins += s.await_termination / 1000 if stop.signal == "TERM" else 0.0
    # A stop at a known instant may meet a master that came back sooner than at its slowest.
    known = stop.moment == "outage" and stop.seconds is not None
    soonest = plan.down_seconds + s.broker_start_seconds if known else back
    by_master = plan.start.after_return or begins >= soonest or not by_slave
    unheard = Term("cache + R·I_c", min(_served(s, last), s.cache + rate * gap))
    copied = s.slave_sync_interval / 1000
    found = []
    if by_slave:
        found.append([Term("R·I_s", rate * copied), unheard])
    if by_master and s.guard_returned_offsets and slaves > 0 and plan.offsets == "file":
        # The returned master took the better of its file and its slave's table.
        copied = min(
            copied, worst_age(s, plan.broker_uptime_seconds, s.flush_consumer_offset_interval)
        )
        found.append([Term("R·min(I_s, I_b)", rate * copied), unheard])
    elif by_master:
        cached = Term("cache", min(s.cache, _served(s, last)))
        after = Term("R·D", _served(s, last)) if plan.kills_master else cached
        found.append([_persisted(s, plan), after])
    return found


def _stops(plan: FaultPlan, stop: Stop, back: float) -> tuple[float, float]:
    """Earliest and latest end of the members, s after the kill."""
    match stop.moment:
        case "return":
            return back + (stop.seconds or 0.0), back + (stop.seconds or 0.0)
        case "outage" if stop.seconds is not None:
            return stop.seconds, stop.seconds
        case "outage":
            latest = back if plan.start.after_return else back - plan.start.seconds
            # The latest is never quite reached, so that the members are back before the master.
            return 0.0, max(0.0, latest) * (1 - 1e-9)
        case _:
            return 0.0, back


def _persisted(s: Settings, plan: FaultPlan) -> Term:
    """How old what the answering master knows can be."""
    rate = s.bound_rate
    match plan.offsets:
        case "None":
            return Term("R·I_s", rate * s.slave_sync_interval / 1000)
        case "WaitSync":
            return Term("R·I_s", rate * s.slave_sync_interval / 1000 if s.behind else 0.0)
        case "CopyMax":
            seen = min(SNAPSHOT_SECONDS * s.constants, s.slave_sync_interval / 1000)
            return Term("R·5 s", rate * seen if s.behind and plan.down_seconds else 0.0)
        case "file":
            age = worst_age(s, plan.broker_uptime_seconds, s.flush_consumer_offset_interval)
            return Term("R·I_b", rate * age)


def _running(s: Settings, plan: FaultPlan) -> list[Term]:
    slaves = s.slaves if plan.slaves is None else plan.slaves
    rate, gap = s.bound_rate, _commit_gap(s)
    back = _back(s, plan)
    commits, rebalance = s.persist_consumer_offset_interval / 1000, s.rebalance_interval / 1000
    file = worst_age(s, plan.broker_uptime_seconds, s.flush_consumer_offset_interval)
    claims = s.members > 1 and not s.guard_consumer_list
    dropped = slaves == 0 and s.pairs > 1
    if not claims and not dropped:
        return []
    window = gap + rebalance if claims else 0.0
    found = [
        Term("R·(I_b + I_c)", rate * (file + commits)),
        Term("R·(D + I_c + I_rb)" if claims else "R·D", _served(s, back + window)),
        Term("Q·W", s.widest_hole),
    ]
    if claims:
        found.append(Term("R·(I_c + I_rb)", rate * window))
        if s.pairs > 1:
            healthy = rate * (commits + 2 * window) + s.widest_hole
            found.append(Term("healthy pairs", (s.pairs - 1) * healthy))
    return found


def _delayed(s: Settings, plan: FaultPlan) -> list[Term]:
    age = worst_age(s, plan.broker_uptime_seconds, s.flush_delay_offset_interval)
    if not plan.kills_master:
        age = s.slave_sync_interval / 1000
    return [Term("(delayed/s)·I_d", (s.delayed_rate + s.retry_rate) * age)]
