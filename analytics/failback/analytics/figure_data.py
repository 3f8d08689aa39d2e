"""Builds the inputs of :mod:`figures` from ``report.json`` and the points of a run. Pure.

The points are a table in long form, one row per point, that the engines write as
``figures-data.parquet``::

    kind string, group string?, broker string?, topic string?, qid int32?, t_ns int64,
    value double, label string?

``kind`` is one of ``produce_rate``, ``deliver_rate``, ``dup_rate`` (messages/s, one point per
second), ``send_latency`` (ms; label = result of the attempt), the five offset copies of
:data:`figures.OFFSET_SERIES`, and ``event`` (label = text).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from failback.analytics.figures import (
    NS_PER_SECOND,
    OFFSET_SERIES,
    BoundData,
    CauseData,
    FaultBand,
    IntervalData,
    Series,
    StaircaseData,
    TimelineData,
    WaterfallData,
)

Report = Mapping[str, Any]

MAX_STAIRCASES: Final = 16
RATES: Final = {
    "produce_rate": "acknowledged sends",
    "deliver_rate": "deliveries",
    "dup_rate": "duplicates",
}
REPORT_GROUPS: Final[Mapping[str, str]] = {
    "OVERLAP": "rebalance",
    "TAIL_REBALANCE": "rebalance",
    "TAIL_PULL_EXPIRED": "rebalance",
    "TAIL_UNSUBSCRIBE": "rebalance",
    "TAIL_CRASH": "consumer_end",
    "TAIL_SHUTDOWN": "consumer_end",
    "SENDBACK_DUP": "retry",
    "SENDBACK_ORPHAN": "retry",
    "DELAY_REPLAY": "retry",
    "CONSUME_TIMEOUT": "retry",
    "APP_RESEND": "producer",
    "SEND_TIMEOUT_DUP": "producer",
    "NOT_STORE_OK_RESEND": "producer",
    "CLIENT_BUG": "other",
    "OFFSET_RESET": "other",
    "BROKER_COPY": "other",
}


class Point(NamedTuple):
    """One row of the points table."""

    kind: str
    group: str | None
    broker: str | None
    topic: str | None
    qid: int | None
    t_ns: int
    value: float
    label: str | None


class QueueKey(NamedTuple):
    """One queue as one group sees it."""

    group: str
    broker: str
    topic: str
    qid: int

    @property
    def text(self) -> str:
        return f"{self.topic} {self.broker}/{self.qid}"


def report_group(cause: str | None) -> str:
    """Return the report group of a cause; ``None`` is *unattributed*."""
    if cause is None or cause == "UNATTRIBUTED":
        return "unattributed"
    return "rollback" if cause.startswith("ROLLBACK_") else REPORT_GROUPS.get(cause, "other")


def fault_bands(report: Report) -> list[FaultBand]:
    return [
        FaultBand(
            name=f"{fault.get('fid', '')} {fault.get('name') or fault.get('kind') or ''}".strip(),
            intended_ns=fault.get("intended_ns"),
            effect_ns=fault.get("effect_ns"),
            heal_ns=fault.get("heal_ns"),
        )
        for fault in report.get("faults", [])
    ]


def timeline_data(report: Report, points: Sequence[Point]) -> TimelineData:
    window = _window(report)
    if window is not None:
        points = [point for point in points if window[0] <= point.t_ns <= window[1]]
    sends = [point for point in points if point.kind == "send_latency"]
    good = [point for point in sends if (point.label or "").startswith("OK")]
    bad = [point for point in sends if not (point.label or "").startswith("OK")]
    rates = {
        name: _rate(point for point in points if point.kind == kind) for kind, name in RATES.items()
    }
    down = [
        fault["down_seconds"]
        for fault in report.get("faults", [])
        if fault.get("down_seconds") is not None
    ]
    title = f"The master was away for {max(down):.1f} s" if down else "No outage was observed"
    return TimelineData(
        rates=rates,
        send_latency=_series(good),
        failed_sends=_series(bad),
        faults=fault_bands(report),
        events=[(p.t_ns, p.label or "") for p in points if p.kind == "event"],
        window_ns=window,
        title=title,
    )


def _window(report: Report) -> tuple[int, int] | None:
    """From the end of the warm-up to the end: a backlog made before would dwarf all."""
    window = report.get("window") or {}
    start, end = window.get("warmup_end_ns"), window.get("end_ns")
    return None if start is None or end is None else (start, end)


def staircases(report: Report, points: Sequence[Point]) -> list[StaircaseData]:
    """One staircase per queue, those with most duplicates first, at most ``MAX_STAIRCASES``."""
    curves: dict[QueueKey, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        if point.kind in OFFSET_SERIES and point.qid is not None:
            key = QueueKey(point.group or "", point.broker or "", point.topic or "", point.qid)
            curves[key][point.kind].append(point)
    duplicates = {
        QueueKey(row["group"], row["broker"], row["topic"], row["qid"]): row["dup"]
        for row in report.get("queues", [])
    }
    drops: dict[QueueKey, list[tuple[int, float, str]]] = defaultdict(list)
    for drop in report.get("offset_drops", []):
        key = QueueKey(drop["group"], drop.get("broker", ""), drop["topic"], drop["qid"])
        text = f"{drop['label'].lower()}: {drop['from']} → {drop['to']}"
        for known in curves:
            same = (known.group, *known[2:]) == (key.group, *key[2:])
            if same and key.broker in ("", known.broker) and text not in _texts(drops[known]):
                drops[known].append((drop["t_ns"], float(drop["to"]), text))
    ordered = sorted(curves, key=lambda key: (-duplicates.get(key, 0), key))
    return [
        StaircaseData(
            group=key.group,
            queue=key.text,
            series={kind: _series(found) for kind, found in curves[key].items()},
            faults=fault_bands(report),
            drops=drops.get(key, []),
        )
        for key in ordered
        if not key.topic.startswith("%RETRY%") or duplicates.get(key)
    ][:MAX_STAIRCASES]


def _texts(drops: Iterable[tuple[int, float, str]]) -> set[str]:
    return {text for _, _, text in drops}


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
            totals["UNATTRIBUTED"][2] += group["unattributed"]
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
                window.get("cause") or "UNATTRIBUTED",
                report_group(window.get("cause")),
                window.get("t_ns") or 0,
            )
            for row in report.get("queues", [])
            for window in row.get("windows", [])
        ]
    )


def bound_data(report: Report) -> BoundData:
    return BoundData(
        [
            (
                f"{row['fid']} {row['group']}: {row['mechanism']}",
                row["observed"],
                row["bound"],
                bool(row["exceeded"]),
            )
            for row in report.get("bounds", [])
        ]
    )


def waterfalls(report: Report) -> list[WaterfallData]:
    kills = {fault["fid"]: fault.get("effect_ns") for fault in report.get("faults", [])}
    found = []
    for row in report.get("rto", []):
        start = kills.get(row["fid"]) or 0
        phases = [
            (name, None if at is None else max(at - start, 0))
            for name, at in (row.get("phases") or {}).items()
        ]
        title = f"{row['fid']}: from the kill of {row.get('broker', 'the master')} to recovery"
        found.append(WaterfallData(title, phases))
    return found


def _rate(points: Iterable[Point]) -> Series:
    """A rate has a point only where something happened: the seconds between are zero."""
    known = {point.t_ns: point.value for point in points}
    if not known:
        return Series([], [])
    times = range(min(known), max(known) + 1, NS_PER_SECOND)
    return Series(times, [known.get(time_ns, 0.0) for time_ns in times])


def _series(points: Iterable[Point]) -> Series:
    ordered = sorted(points, key=lambda point: point.t_ns)
    return Series([point.t_ns for point in ordered], [point.value for point in ordered])
