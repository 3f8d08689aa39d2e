"""How much may be redelivered, against how much was: ``bounds[]`` and ``handover[]``. Pure.

The mechanisms are those of a RocketMQ 4.9 pair after a kill of its master. Which of them can have
acted is read off the assignments that followed:

==  =================================  =========================
8   no queue was assigned again         0
5   a start offset came from a slave   R·(I_s + c) + Q·W
10  ... which copies no offsets        all of the queue
6   ... from the returned master       R·(D + I_b + I_c) + Q·W
2   ... from a master that stayed up   R·I_c + Q·W
11  several members, partial lists     R·I_hb
19  retries delivered again            (retries/s)·I_d
==  =================================  =========================

Each applies per queue. R is the queue's highest one-second consume rate, measured within 30 s of
the outage; W the widest hole below finished messages that was seen; D runs from the kill
to the last affected queue's first assignment on the returned master. A run above its bound is a
bug or an unknown mechanism, and says so. Its partner is ``predict/worst.py``: it predicts the same
mechanisms from settings alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Final

from failback.analytics.analysis.causes.labels import OFFSET_GROUPS, report_group
from failback.analytics.analysis.counting.partials.context import Outage
from failback.analytics.report.measures.curves import Curve, summed
from failback.analytics.report.measures.lookups import Figures, declared_group, group_names
from failback.analytics.report.measures.numbers import NS, Row, ratio
from failback.analytics.run.documents import System
from failback.analytics.run.history import Assignment, GroupQueue, OffsetSample
from failback.protocol.message import RETRY_PREFIX

RATE_MARGIN_SECONDS: Final = 30
HEARTBEAT_SECONDS: Final = 30.0
_DEFAULTS: Final = {
    "flush_interval_ms": 5000,
    "slave_sync_interval_ms": 10000,
    "delay_flush_interval_ms": 10000,
    "client_commit_interval_ms": 5000,
}


def bound_figures(figures: Figures) -> list[Row]:
    """Bound and observation of every outage and group."""
    outages = figures.analysis.context.outages
    found = []
    for number in range(len(outages)):
        until = outages[number + 1].killed if number + 1 < len(outages) else None
        found += [_bound(figures, number, until, group) for group in group_names(figures)]
    return found


def _bound(figures: Figures, number: int, until: int | None, group: str) -> Row:
    outage = figures.analysis.context.outages[number]
    taken = [
        a
        for a in figures.analysis.history.assignments
        if a.key.grp == group and outage.killed < a.t and (until is None or a.t < until)
    ]
    inputs = _inputs(figures, outage, group, taken)
    terms = _terms(figures, outage, group, taken, inputs)
    bound = ceil(sum(value for _, value in terms.values()) - 1e-9)
    observed = figures.dups_after(
        number,
        group,
        lambda cause: report_group(cause) in OFFSET_GROUPS or cause == "DELAY_REPLAY",
    )
    return {
        "fid": outage.fid,
        "group": group,
        "mechanism": "rows " + "+".join(terms),
        "formula": " + ".join(formula for formula, _ in terms.values()),
        "inputs": inputs,
        "bound": bound,
        "observed": observed,
        "ratio": ratio(observed, bound),
        "exceeded": observed > bound,
    }


def _inputs(
    figures: Figures, outage: Outage, group: str, taken: Sequence[Assignment]
) -> dict[str, float]:
    """Measured rates and times, and the configured intervals as they ran (time scale applied)."""
    folder = figures.analysis.folder
    system = folder.run.system or System()

    def interval(name: str) -> float:
        value: float | None = getattr(system, name)
        return float(_DEFAULTS[name] if value is None else value) / 1000 * folder.time_scale

    first, last = _window(outage, taken)
    rates = {
        key: _peak_rate(figures, key, first // NS, last // NS) for key in {a.key for a in taken}
    }
    busy = [key for key, rate in rates.items() if rate]
    return {
        "R": float(sum(rates.values())),
        "Q": float(len(busy)),
        "QW": float(sum(_widest_hole(figures, key) for key in busy)),
        "D": round((last - first) / NS, 3),
        "I_b": interval("flush_interval_ms"),
        "I_c": interval("client_commit_interval_ms"),
        "I_s": interval("slave_sync_interval_ms"),
        "I_d": interval("delay_flush_interval_ms"),
        "I_hb": HEARTBEAT_SECONDS * folder.time_scale,
        "retries_per_s": float(_retry_rate(figures, group, first // NS, last // NS)),
    }


def _window(outage: Outage, taken: Sequence[Assignment]) -> tuple[int, int]:
    """From the kill to the last queue's first assignment on the returned master, else to ACCEPT."""
    back: dict[GroupQueue, int] = {}
    for a in taken:
        if _from_returned(a, outage):
            back[a.key] = min(back.get(a.key, a.t), a.t)
    accepted = outage.killed if outage.accepted is None else outage.accepted
    return outage.killed, max(back.values(), default=accepted)


def _from_returned(a: Assignment, outage: Outage) -> bool:
    return (
        a.src_bid == 0
        and outage.accepted is not None
        and a.t >= outage.accepted
        and (outage.broker is None or a.key.broker == outage.broker)
    )


def _terms(
    figures: Figures,
    outage: Outage,
    group: str,
    taken: Sequence[Assignment],
    i: Mapping[str, float],
) -> dict[str, tuple[str, float]]:
    """The mechanisms that can have acted: by row number the formula, and messages summed up.

    Every queue is judged by its own assignments, with its own rate and hole: a queue that moved on
    the slave does not widen the bound of one that only came back.
    """
    first, last = _window(outage, taken)
    system = figures.analysis.folder.run.system or System()
    by_queue: dict[GroupQueue, list[Assignment]] = defaultdict(list)
    for a in taken:
        by_queue[a.key].append(a)
    terms: dict[str, tuple[str, float]] = {}

    def add(name: str, formula: str, value: float) -> None:
        if value:
            terms[name] = (formula, terms.get(name, ("", 0.0))[1] + value)

    for key, mine in sorted(by_queue.items()):
        rate, hole = _peak_rate(figures, key, first // NS, last // NS), _widest_hole(figures, key)
        returned = any(_from_returned(a, outage) for a in mine)
        from_slave = any(a.src_bid is not None and a.src_bid > 0 for a in mine)
        if from_slave and system.slave_copies_offsets is False:
            add("10", "all that was consumed", float(_consumed(figures, mine)))
        elif from_slave:
            add("5", "R·(I_s + c) + Q·W", rate * (i["I_s"] + i["I_c"]) + hole)
        if returned:
            value = rate * (i["D"] + i["I_b"] + i["I_c"]) + hole
            add("1+2+3+6", "R·(D + I_b + I_c) + Q·W", value)
        if not returned and not from_slave:
            add("2+3", "R·I_c + Q·W", rate * i["I_c"] + hole)
        if _members(figures, group) > 1:
            add("11", "R·I_hb", rate * i["I_hb"])
    add("19", "(retries/s)·I_d", i["retries_per_s"] * i["I_d"])
    return terms or {"8": ("0", 0.0)}


def _consumed(figures: Figures, taken: Sequence[Assignment]) -> int:
    """How far a queue had been processed at the latest of its assignments."""
    mine = {id(each) for each in taken}
    distances = figures.analysis.distances
    return max(
        (distances[number].processed or 0)
        for number, each in enumerate(figures.analysis.history.assignments)
        if id(each) in mine
    )


def _members(figures: Figures, group: str) -> int:
    name = declared_group(figures, group)
    if name != group:
        return 1  # every client of a broadcasting group is alone with its queues
    declared = [g.members for g in figures.analysis.folder.groups if g.name == name]
    return max(declared, default=1)


def _peak_rate(figures: Figures, key: GroupQueue, first: int, last: int) -> int:
    """Most deliveries of a queue in one second, near the outage."""
    window = range(first - RATE_MARGIN_SECONDS, last + RATE_MARGIN_SECONDS + 1)
    rate = figures.rates.get(key)
    return _most(figures, rate.within(window)) if rate else 0


def _retry_rate(figures: Figures, group: str, first: int, last: int) -> int:
    window = range(first - RATE_MARGIN_SECONDS, last + RATE_MARGIN_SECONDS + 1)
    every = summed(
        rate.within(window)
        for key, rate in figures.rates.items()
        if key.grp == group and key.ptopic.startswith(RETRY_PREFIX)
    )
    return _most(figures, every)


def _most(figures: Figures, rate: Curve) -> int:
    """The highest rate per second, rounded up."""
    return int((-(-rate.value // figures.spans.widths_of(rate.at))).max(initial=0))


def _widest_hole(figures: Figures, key: GroupQueue) -> int:
    """Most finished messages above an unfinished one in a process queue, seen at full seconds."""
    widest = 0
    finished = figures.finished.get(key, {})
    for holder, lowest in figures.unfinished.get(key, {}).items():
        if holder in finished:
            holes = finished[holder].highest(lowest.at) - 1 - lowest.value
            widest = max(widest, int(holes.max()))
    return widest


def handover_figures(figures: Figures) -> list[Row]:
    """Queue by queue: what a new owner repeats is what was consumed minus what the master had.

    For every queue's first assignment answered by the returned master whose previous owner had
    ended. ``loaded`` is the first sample of that incarnation's table, ``consumed`` the processed
    frontier at the assignment: what was in hand when the owner ended, above it, is redelivered too
    and is not counted. ``had`` is what the table held when the new owner asked: other than
    ``loaded`` where an owner that was slow to stop committed to the master after its return.
    """
    found = []
    history = figures.analysis.history
    no_retries = figures.analysis.context.definitions.ignore_retry_topics
    for outage in figures.analysis.context.outages:
        seen: set[GroupQueue] = set()
        for number, a in enumerate(history.assignments):
            if not _from_returned(a, outage) or a.key in seen:
                continue
            seen.add(a.key)
            if no_retries and a.key.ptopic.startswith(RETRY_PREFIX):
                continue  # its repeats are left out
            earlier = [p for p in history.assignments if p.key == a.key and p.t < a.t]
            if not earlier or any(p.end_t is None or p.end_t > a.t for p in earlier):
                continue
            looks = _looks(figures, a, outage)
            loaded, source = _loaded(a, looks)
            consumed = figures.analysis.distances[number].processed
            if loaded is None or consumed is None:
                continue
            had = _had(figures, number, a, looks, loaded)
            again = figures.analysis.redelivered.get(number)
            found.append(
                {
                    "fid": outage.fid,
                    **a.key.place,
                    "consumed": consumed,
                    "loaded": loaded,
                    "loaded_source": source,
                    "had": had,
                    "start": a.start_off,
                    "expected": max(0, consumed - had),
                    "observed": again.finished if again else 0,
                    "clean_end": max(earlier, key=lambda p: p.t).end_reason == "SHUTDOWN",
                }
            )
    return found


def _loaded(a: Assignment, looks: Sequence[OffsetSample]) -> tuple[int | None, str | None]:
    if looks:
        return looks[0].off, "code43"
    return (a.start_off, "answer") if a.start_off >= 0 else (None, None)


def _looks(figures: Figures, a: Assignment, outage: Outage) -> list[OffsetSample]:
    """What the returned master's table had of the queue before the new owner asked, in order."""
    accepted = outage.accepted if outage.accepted is not None else a.t
    return [
        sample
        for sample in figures.analysis.history.samples.get((a.key, "code43", 0), ())
        if accepted <= sample.t <= a.t and (a.src_binc is None or sample.binc == a.src_binc)
    ]


def _had(
    figures: Figures, number: int, a: Assignment, looks: Sequence[OffsetSample], loaded: int
) -> int:
    """The last look before the assignment, and what was committed to that incarnation since."""
    committed = [
        commit.off
        for commit in figures.resume_commits.get(number, ())
        if commit.bid == 0 and commit.binc == a.src_binc is not None
    ]
    return max([looks[-1].off if looks else loaded, *committed])


def handover_sums(rows: Iterable[Row]) -> dict[str, tuple[int, int]]:
    """Expected and observed repeats per group, where every previous owner ended cleanly."""
    by_group: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_group[row["group"]].append(row)
    return {
        group: (sum(r["expected"] for r in mine), sum(r["observed"] for r in mine))
        for group, mine in by_group.items()
        if all(r["clean_end"] for r in mine)
    }
