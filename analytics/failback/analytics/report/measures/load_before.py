"""How a group was loaded when a master died, as settings of the predictor. Pure.

The documents of the run say what was configured; the rate, the handlers' time, what waited and how
long clients had run are measured, from the last half minute before the kill, or a
scaled run's warm-up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials.context import Outage
from failback.analytics.predict.settings import CATCH_UP, Settings
from failback.analytics.predict.sources import SWITCHES, with_system
from failback.analytics.report.measures.curves import Curve, summed
from failback.analytics.report.measures.lookups import Figures, declared_group
from failback.analytics.report.measures.numbers import NS
from failback.analytics.run.documents import Run
from failback.analytics.run.history import GroupQueue
from failback.protocol.errors import ConfigError
from failback.protocol.message import RETRY_PREFIX

BEFORE_SECONDS: Final = 30
SAME_START_NS: Final = NS
_SWITCHES: Final = SWITCHES | {
    "consume_threads": "consumeThreadMax",
    "pull_threshold_for_queue": "pullThresholdForQueue",
}
_OF_GROUP: Final = {
    "threads": "consumeThreadMax",
    "pullThresholdForQueue": "pullThresholdForQueue",
}


def measured_settings(figures: Figures, number: int, group: str) -> Settings:
    """Settings of a group on the pair that outage ``number`` hit.

    Raises:
        ConfigError: The group consumed nothing there before, or a document's value is out of range.
    """
    outage = figures.analysis.context.outages[number]
    run = figures.analysis.folder.run
    settings = _with_clients(
        with_system(Settings(), run.written), run, declared_group(figures, group)
    )
    seconds = _seconds_before(figures, number, group)
    queues = {
        key: rate.within(seconds)
        for key, rate in figures.rates.items()
        if key.grp == group and key.broker == outage.broker
    }
    work = {key: each for key, each in queues.items() if not key.ptopic.startswith(RETRY_PREFIX)}
    rate = _mean(work.values(), seconds)
    if not rate:
        raise ConfigError("rate", "the group consumed nothing from the pair before the kill")
    busy = [key for key, each in work.items() if each.at.size]
    backlog = _backlog(figures, outage, busy)
    fastest = summed(work.values()).most()
    waits = None if backlog is None else (0.0 if backlog < rate else float(backlog))
    first = _first_assignments(figures, outage, group)
    uptime = None
    if first and max(first) - min(first) <= SAME_START_NS * settings.time_scale:
        uptime = (outage.killed - min(first)) / NS / settings.time_scale
    retries = [each for key, each in queues.items() if key not in work]
    return replace(
        settings,
        rate=rate,
        capacity=rate,
        peak_rate=float(max(rate, CATCH_UP * rate if waits == 0 else 0, fastest)),
        queues=float(len(busy)),
        members=float(max(1, len(first))),
        backlog=waits,
        backlog_most=None if backlog is None else max(float(backlog), CATCH_UP * rate),
        handler_ms=_handler_ms(figures, group),
        broker_start_seconds=0.0,
        client_uptime_seconds=uptime,
        retry_rate=_mean(retries, seconds),
    )


def _with_clients(settings: Settings, run: Run, group: str) -> Settings:
    """Client switches, and what the workload says of the group."""
    workload = run.workload or {}
    switches = (run.switches or {}) | (workload.get("switches") or {})
    of_group = [each for each in workload.get("groups") or [] if each.get("name") == group]
    said = [(_SWITCHES, switches), *((_OF_GROUP, each) for each in of_group)]
    values: dict[str, Any] = {
        key: found[name]
        for keys, found in said
        for name, key in keys.items()
        if found.get(name) is not None
    }
    return settings.with_values(values)


def _seconds_before(figures: Figures, number: int, group: str) -> range:
    """Full seconds before the kill, none of an outage before.

    The warm-up is left out where a full second lies behind it. A run with scaled timers may have
    none, and the load of its warm-up is the same.
    """
    outages = figures.analysis.context.outages
    last = outages[number].killed // NS
    earlier = max((each.accepted or each.killed for each in outages[:number]), default=None)
    begin = -(-max(figures.warmup_end_ns, earlier or figures.warmup_end_ns) // NS)
    if begin < last or earlier is not None:
        return range(max(begin, last - BEFORE_SECONDS), last)
    scaled = max(1, round(BEFORE_SECONDS * figures.analysis.folder.time_scale))
    return range(max(last - scaled, min(_second_after_start(figures, group), last - 1)), last)


def _second_after_start(figures: Figures, group: str) -> int:
    """The first second that the group lived through as a whole."""
    begun = (int(rate.at[0]) for key, rate in figures.rates.items() if key.grp == group)
    return min((first + 1 for first in begun), default=0)


def _mean(queues: Iterable[Curve], seconds: range) -> float:
    """Deliveries per second, over the seconds in which the group was seen to live."""
    every = summed(queues)
    return every.total() / (seconds.stop - int(every.at[0])) if every.at.size else 0.0


def _handler_ms(figures: Figures, group: str) -> float:
    spent = figures.group_sums(families.HANDLER_NS)[group]
    delivered = figures.group_sums(families.DELIVERED)[group]
    return spent / delivered / 1e6 if delivered else 0.0


def _backlog(figures: Figures, outage: Outage, queues: list[GroupQueue]) -> int | None:
    """Messages that waited in the queues at the kill; ``None``: no queue was sampled before."""
    ends: dict[tuple[str, int], int] = {}
    for row in figures.analysis.history.queue_samples:
        if row["broker"] == outage.broker and row["bid"] == 0 and row["t"] <= outage.killed:
            place = (row["ptopic"], row["qid"])
            ends[place] = max(ends.get(place, 0), row["max"])
    known = [key for key in queues if (key.ptopic, key.qid) in ends]
    if not known:
        return None
    last = np.array([(outage.killed - 1) // NS])
    begun = figures.curves(families.DELIVERED_END)
    return sum(
        max(0, ends[key.ptopic, key.qid] - int(begun[key].highest(last)[0])) for key in known
    )


def _first_assignments(figures: Figures, outage: Outage, group: str) -> list[int]:
    """When each client that held a queue of the pair at the kill got its first one."""
    firsts: dict[int, int] = {}
    holding = set()
    for a in figures.analysis.history.assignments:
        if a.key.grp != group or a.t > outage.killed:
            continue
        firsts[a.inc] = min(firsts.get(a.inc, a.t), a.t)
        open_ = a.end_t is None or a.end_t > outage.killed
        if open_ and a.key.broker == outage.broker:
            holding.add(a.inc)
    return [firsts[inc] for inc in sorted(holding)]
