"""What producers sent, and the fate of every message per group. Pure.

The fates are written twice: ``lake/views/losses.sql`` has them for queries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import ceil
from typing import Any, Final

from failback.analytics.analysis.arrays.intervals import IntervalSet
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.families import Family
from failback.analytics.report.measures.lookups import (
    Figures,
    declared_group,
    group_names,
    topics_of,
)
from failback.analytics.report.measures.numbers import Row
from failback.client.consumelog.lab_id import format_lab_id

MAX_EXAMPLES: Final = 32
FATES: Final = (
    "OK",
    "DLQ",
    "STORE_LOST",
    "SKIPPED",
    "FAILED_NOT_DLQ",
    "UNACKED_PRESENT",
    "UNACKED_ABSENT",
)
LOST_FATES: Final = ("STORE_LOST", "SKIPPED", "FAILED_NOT_DLQ")


def losses_of(figures: Figures) -> tuple[dict[str, Row], Row]:
    """Fate of every message, per group: counts by group, and the ``loss`` block of the report."""
    sent = figures.sets(families.SENT, figures_only=True)
    acked = union_of(figures, families.ACKED, families.DEGRADED)
    lanes = {lane for _, lane in sent}
    done = figures.sets(families.DONE, lanes=lanes)
    # Of the message that was sent, whatever counts as the same one elsewhere.
    all_by_lid = figures.analysis.context.definitions.counts_all_by_lid
    handed = (families.MESSAGE, families.HANDED) if all_by_lid else (families.HANDED,)
    delivered = union_of(figures, *handed, lanes=lanes)
    stored = figures.sets(families.STORED, lanes=lanes)
    empty = IntervalSet()
    counts: dict[str, Row] = {}
    sets: dict[str, dict[int, IntervalSet]] = {fate: {} for fate in FATES}
    for name in group_names(figures):
        group = declared_group(figures, name)
        fates: Counter[str] = Counter()
        for topic in topics_of(figures, name):
            for (_, lane), all_ in ((key, s) for key, s in sent.items() if key[0] == topic):
                copies = stored.get((topic, lane), empty) | stored.get(
                    (f"%RETRY%{group}", lane), empty
                )
                dead = stored.get((f"%DLQ%{group}", lane), empty)
                found = _fates(
                    all_,
                    acked.get((topic, lane), empty),
                    done.get((name, lane), empty),
                    delivered.get((name, lane), empty),
                    copies,
                    dead,
                )
                for fate, members in found.items():
                    fates[fate] += len(members)
                    sets[fate][lane] = sets[fate].get(lane, empty) | members
        counts[name] = {fate: fates[fate] for fate in FATES}
    shown = [fate for fate in FATES if fate != "OK"]
    return counts, {
        "fates": {fate: sum(c[fate] for c in counts.values()) for fate in FATES},
        "groups": counts,
        "examples": {
            fate: _examples(sets[fate]) for fate in shown if any(map(len, sets[fate].values()))
        },
        "intervals": {
            fate: {
                str(lane): [[lo, hi] for lo, hi in members][:1000]
                for lane, members in sorted(sets[fate].items())
                if len(members)
            }
            for fate in shown
        },
    }


def _fates(
    sent: IntervalSet,
    acked: IntervalSet,
    done: IntervalSet,
    delivered: IntervalSet,
    copies: IntervalSet,
    dead: IntervalSet,
) -> dict[str, IntervalSet]:
    open_ = sent - done
    in_dlq = open_ & dead
    open_ = open_ - in_dlq
    known, unknown = open_ & acked, open_ - acked
    there = known & (copies | dead)
    return {
        "OK": sent & done,
        "DLQ": in_dlq,
        "STORE_LOST": known - there,
        "SKIPPED": there - delivered,
        "FAILED_NOT_DLQ": there & delivered,
        "UNACKED_PRESENT": unknown & copies,
        "UNACKED_ABSENT": unknown - copies,
    }


def _name(lane: int, sequence: int) -> str:
    """The LAB_ID; of numbers that none has, the numbers."""
    try:
        return format_lab_id(lane, sequence)
    except ValueError:
        return f"{lane}/{sequence}"


def _examples(lanes: Mapping[int, IntervalSet]) -> list[str]:
    found: list[str] = []
    for lane, members in sorted(lanes.items()):
        found += [_name(lane, lseq) for lseq in members.first(MAX_EXAMPLES - len(found))]
        if len(found) >= MAX_EXAMPLES:
            break
    return found


def send_figures(figures: Figures, topics: Sequence[str]) -> Row:
    """Messages sent to ``topics``: distinct, acknowledged, and of open outcome."""
    sent = figures.sets(families.SENT, figures_only=True)
    acked = union_of(figures, families.ACKED, families.DEGRADED)
    doubtful = figures.sets(families.DOUBTFUL)
    empty = IntervalSet()
    mine = {key: found for key, found in sent.items() if key[0] in topics}
    return {
        "produced": sum(len(found) for found in mine.values()),
        "acknowledged": sum(len(found & acked.get(key, empty)) for key, found in mine.items()),
        "ambiguous_sends": sum(
            len((found - acked.get(key, empty)) & doubtful.get(key, empty))
            for key, found in mine.items()
        ),
    }


def union_of(
    figures: Figures, *wanted: Family, lanes: Collection[int] | None = None
) -> dict[tuple[Any, ...], IntervalSet]:
    """Interval sets of families by their key, which is the same; of some lanes, where given."""
    found: dict[tuple[Any, ...], IntervalSet] = {}
    for family in wanted:
        for key, members in figures.sets(family, lanes=lanes).items():
            found[key] = found[key] | members if key in found else members
    return found


def producer_figures(figures: Figures) -> Row:
    """``producer``: attempts by outcome, resends, and latency of answered sends from their due."""
    attempts = Counter({row["result"]: row["value"] for row in figures.values(families.ATTEMPTS)})
    produced = sum(len(s) for s in figures.sets(families.SENT, figures_only=True).values())
    bins = sorted(
        (row["latency_bin"], row["value"]) for row in figures.values(families.SEND_LATENCIES)
    )
    total = sum(count for _, count in bins)

    def latency(share: float) -> float | None:
        reached = 0
        for number, count in bins:
            reached += count
            if reached >= ceil(share * total):
                return float(round((number + 1) / 10, 1))  # upper edge of a bin of 0.1 ms
        return None

    return {
        "attempts": attempts.total(),
        "timeouts": attempts["TIMEOUT"],
        "conn_errors": attempts["CONN"],
        "degraded": attempts["OK_DEGRADED"],
        "resends": attempts.total() - produced if attempts else 0,
        "latency_ms": {
            name: latency(share)
            for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))
        },
    }
