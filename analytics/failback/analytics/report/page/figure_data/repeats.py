"""Inputs of figures of redelivered messages: causes, intervals, ages, cost. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

from failback.analytics.analysis.causes import labels
from failback.analytics.report.measures.point_rows import MAX_LINES, QueueKey, Report
from failback.analytics.report.page.figure_types import (
    AgeData,
    CauseData,
    DedupeData,
    IntervalData,
)

UNATTRIBUTED: Final = "UNATTRIBUTED"


def report_group(cause: str | None) -> str:
    """Return the report group of a cause; ``None`` is *unattributed*."""
    return labels.report_group(None if cause == UNATTRIBUTED else cause)


def cause_data(report: Report) -> CauseData:
    """Sum the causes over the groups; the after-success split where the report has one."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for group in report.get("groups", []):
        split = group.get("causes_split", {})
        for cause, count in group.get("causes", {}).items():
            parts = split.get(cause)
            values = (
                [parts["after_success"], parts["before_success"], parts["unknown_order"]]
                if parts
                else [count, 0, 0]
            )
            totals[cause] = [a + b for a, b in zip(totals[cause], values, strict=True)]
        if group.get("unattributed"):
            totals[UNATTRIBUTED][2] += group["unattributed"]
    ordered = sorted(totals.items(), key=lambda item: -sum(item[1]))
    return CauseData(
        [
            (cause, report_group(cause), after, before, unknown)
            for cause, (after, before, unknown) in ordered
            if after + before + unknown
        ]
    )


def interval_data(report: Report) -> IntervalData:
    return IntervalData(
        [
            (
                QueueKey(row["group"], row["broker"], row["topic"], row["qid"]).text,
                window["lo"],
                window["hi"],
                window["size"],
                window.get("cause") or UNATTRIBUTED,
                report_group(window.get("cause")),
                window.get("t_ns") or 0,
            )
            for row in report.get("queues", [])
            for window in row.get("windows", [])
        ],
        sum(row.get("windows_left_out", 0) for row in report.get("queues", [])),
    )


def dedupe_data(report: Report) -> DedupeData:
    by_seconds, by_keys = {}, {}
    for group in _most_useless(report):
        dedupe = group.get("dedupe") or {}
        seconds = [
            (row["window"], row["share"])
            for row in dedupe.get("by_seconds", [])
            if row["share"] is not None
        ]
        if seconds:
            by_seconds[group["group"]] = seconds
            by_keys[group["group"]] = [
                (row["keys"], row["share"], row["error"])
                for row in dedupe.get("by_keys", [])
                if row["share"] is not None
            ]
    return DedupeData(by_seconds, by_keys)


def _most_useless(report: Report) -> list[Mapping[str, Any]]:
    groups = [group for group in report.get("groups", []) if group.get("dup_after_success")]
    groups.sort(key=lambda group: (-group["dup_after_success"], group["group"]))
    return groups[:MAX_LINES]


def age_data(report: Report) -> AgeData:
    """All groups together; bins in which nothing lies at either end are left out."""
    counts: Counter[float] = Counter()
    for group in report.get("groups", []):
        below = 0
        for row in (group.get("repeat_age_seconds") or {}).get("histogram", []):
            counts[row["le"]] += row["count"] - below
            below = row["count"]
    edges = sorted(counts)
    held = [number for number, edge in enumerate(edges) if counts[edge]]
    if not held:
        return AgeData([])
    bins, total = [], sum(counts.values())
    for number in range(held[0], held[-1] + 1):
        low = edges[number - 1] if number else 0.0
        bins.append((low, edges[number], counts[edges[number]]))
    reached, median = 0, None
    for _, high, number in bins:
        reached += number
        if median is None and 2 * reached >= total:
            median = high
    return AgeData(bins, _median_age(report, median))


def _median_age(report: Report, of_bins: float | None) -> float | None:
    """The exact one where there is one group, else the edge of the bin that holds it."""
    known = [g["repeat_age_seconds"]["p50"] for g in report["groups"] if g["dup_after_success"]]
    return known[0] if len(known) == 1 else of_bins
