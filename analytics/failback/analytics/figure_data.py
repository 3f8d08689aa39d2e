"""Builds the inputs of :mod:`figures` from ``report.json`` and the points of a run. Pure.

The points are a table in long form, one row per point, that the engines write as
``figures-data.parquet``::

    kind string, group string?, broker string?, topic string?, qid int32?, t_ns int64,
    value double, label string?

``kind`` is one of ``produce_rate``, ``deliver_rate``, ``dup_rate`` (messages/s, one point per
second), ``dup_by_group`` (the same by report group: the label), ``dup_by_queue``, ``send_latency``
(ms; label = result of the attempt), the five offset copies of :data:`figure_types.OFFSET_SERIES`,
``exposure`` (messages), and ``event`` (label = text).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from failback.analytics import labels
from failback.analytics.figure_types import (
    NS_PER_SECOND,
    OFFSET_SERIES,
    AgeData,
    ArmData,
    BoundData,
    CauseData,
    CauseTimeData,
    ClockData,
    CountData,
    DedupeData,
    ExposureData,
    FaultBand,
    HeatData,
    IntervalData,
    KnobData,
    LossData,
    PredictionData,
    Series,
    StaircaseData,
    TimelineData,
    WasteData,
    WaterfallData,
)

Report = Mapping[str, Any]

MAX_STAIRCASES: Final = 16
MAX_LINES: Final = 6
"""Groups that get a curve of their own in one figure; the tables have all."""
MAX_HEAT_QUEUES: Final = 30
MAX_HEAT_WINDOWS: Final = 200
MAX_BINS: Final = 600
MAX_EVENTS: Final = 40
UNATTRIBUTED: Final = "UNATTRIBUTED"
LOSSES: Final = frozenset({"STORE_LOST", "SKIPPED", "FAILED_NOT_DLQ"})
RATES: Final = {
    "produce_rate": "acknowledged sends",
    "deliver_rate": "deliveries",
    "dup_rate": "duplicates",
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
    return labels.report_group(None if cause == UNATTRIBUTED else cause)


def fault_bands(report: Report) -> list[FaultBand]:
    return [
        FaultBand(
            name=f"{fault.get('fid', '')} {fault.get('name') or fault.get('kind') or ''}".strip(),
            intended_ns=fault.get("intended_ns"),
            effect_ns=fault.get("effect_ns"),
            heal_ns=fault.get("heal_ns"),
            intended_end_ns=fault.get("intended_end_ns"),
            honest=bool(fault.get("honest", True)),
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
    return TimelineData(
        rates=rates,
        send_latency=_series(good),
        failed_sends=_series(bad),
        faults=fault_bands(report),
        events=events(report, points),
        window_ns=window,
        title=_timeline_title(report),
    )


def events(report: Report, points: Sequence[Point]) -> list[tuple[int, str]]:
    """What else happened, in order: rungs of faults, new owners, stored offsets that went down."""
    found = [(point.t_ns, point.label or "") for point in points if point.kind == "event"]
    drops: dict[tuple[int, str], list[Mapping[str, Any]]] = defaultdict(list)
    for drop in report.get("offset_drops", []):
        if drop.get("source", "code43") == "code43":
            drops[drop["t_ns"] // NS_PER_SECOND, drop["label"]].append(drop)
    for (_, label), mine in drops.items():
        lost = sum(drop["from"] - drop["to"] for drop in mine)
        word = "overwritten" if label == "OVERWRITE" else "restarted"
        text = f"{word}: {lost:,} offsets less, {_queues(len(mine))}"
        found.append((min(drop["t_ns"] for drop in mine), text))
    return sorted(found)


def _queues(number: int) -> str:
    return "1 queue" if number == 1 else f"{number} queues"


def _timeline_title(report: Report) -> str:
    down = [
        fault["down_seconds"]
        for fault in report.get("faults", [])
        if fault.get("down_seconds") is not None
    ]
    if not down:
        return "No outage was observed"
    again = report["totals"]["dup"]
    came = f"{again:,} messages came again" if again else "nothing came again"
    return f"The master was away for {max(down):.1f} s, and {came}"


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
            window_ns=_window(report),
            again=duplicates.get(key),
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
        found.append(WaterfallData(_rto_title(row), phases))
    return found


def _rto_title(row: Mapping[str, Any]) -> str:
    produce, consume = row.get("produce_ms"), (row.get("consume_ms") or {}).get("max")
    said = []
    for what, value in (("sends", produce), ("pulls", consume)):
        if value is not None:
            said.append(f"{what} back after {value / 1000:.1f} s" if value else f"no {what} failed")
    finding = ", ".join(said) or "nothing was measured"
    return f"{row['fid']}: {finding} from the loss of {row.get('broker') or 'the master'}"


def cause_time_data(report: Report, points: Sequence[Point]) -> CauseTimeData:
    """Duplicates per second by report group, in at most ``MAX_BINS`` bins."""
    mine = [point for point in points if point.kind == "dup_by_group"]
    if not mine:
        return CauseTimeData([], {})
    bins, width = _bins(mine)
    found: dict[str, list[float]] = {}
    for point in mine:
        rates = found.setdefault(point.label or "unattributed", [0.0] * len(bins))
        rates[_bin(point, bins, width)] += point.value / width
    ordered: dict[str, list[float]] = {
        name: found[name] for name in labels.REPORT_GROUPS if name in found
    }
    return CauseTimeData(bins, ordered, fault_bands(report))


def heat_data(report: Report, points: Sequence[Point]) -> HeatData:
    """Queues with most duplicates against time; windows begin with their assignment."""
    mine = [p for p in points if p.kind == "dup_by_queue" and p.qid is not None]
    if not mine:
        return HeatData([], [], [])
    bins, width = _bins(mine)
    totals: Counter[QueueKey] = Counter()
    for point in mine:
        totals[_key(point)] += int(point.value)
    shown = sorted(totals, key=lambda key: (-totals[key], key))[:MAX_HEAT_QUEUES]
    rates = {key: [0.0] * len(bins) for key in shown}
    times: dict[QueueKey, list[float]] = defaultdict(list)
    for point in mine:
        key = _key(point)
        if key in rates:
            rates[key][_bin(point, bins, width)] += point.value / width
            times[key].append(point.t_ns / NS_PER_SECOND)
    several = len({key.group for key in shown}) > 1
    names = {key: f"{key.group}: {key.text}" if several else key.text for key in shown}
    return HeatData(
        [names[key] for key in shown],
        bins,
        [rates[key] for key in shown],
        _outlines(report, times, names, width),
    )


def _outlines(
    report: Report,
    times: Mapping[QueueKey, Sequence[float]],
    names: Mapping[QueueKey, str],
    width: float,
) -> list[tuple[str, float, float]]:
    found = []
    for row in report.get("queues", []):
        key = QueueKey(row["group"], row["broker"], row["topic"], row["qid"])
        if key not in names:
            continue
        starts = sorted(
            {window["t_ns"] / NS_PER_SECOND for window in row["windows"] if window.get("t_ns")}
        )
        for number, start in enumerate(starts):
            until = starts[number + 1] if number + 1 < len(starts) else float("inf")
            mine = [at for at in times[key] if start - 1 <= at < until]
            if mine:
                found.append((names[key], min(start, *mine), max(mine) + width))
    return found[:MAX_HEAT_WINDOWS]


def _key(point: Point) -> QueueKey:
    return QueueKey(point.group or "", point.broker or "", point.topic or "", point.qid or 0)


def _bins(points: Sequence[Point]) -> tuple[list[float], float]:
    """Where equal bins of whole seconds begin, one empty one at the end, and their width."""
    first = min(point.t_ns for point in points) // NS_PER_SECOND
    last = max(point.t_ns for point in points) // NS_PER_SECOND
    width = max(1, -(-(last - first + 2) // MAX_BINS))
    return [float(at) for at in range(first, last + 2, width)], float(width)


def _bin(point: Point, bins: Sequence[float], width: float) -> int:
    at = int((point.t_ns // NS_PER_SECOND - bins[0]) // width)
    return min(at, len(bins) - 1)


def prediction_data(report: Report) -> PredictionData:
    rows = [row for row in report.get("prediction", []) if "p5" in row]
    return PredictionData(
        [
            (f"{row['fid']} {row['group']}", row["p5"], row["p50"], row["p95"],
             row.get("worst", row["max"]), row["observed"])
            for row in rows
        ],
        validated=bool(rows) and all(row.get("validated") for row in rows),
    )  # fmt: skip


def exposure_data(report: Report, points: Sequence[Point]) -> ExposureData:
    curves: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        if point.kind == "exposure":
            curves[f"{point.group} on {point.broker}"].append(point)
    ordered = sorted(curves, key=lambda name: (-max(p.value for p in curves[name]), name))
    return ExposureData(
        {name: _series(curves[name]) for name in ordered[:MAX_LINES]}, fault_bands(report)
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


def waste_data(report: Report) -> WasteData:
    rows = [
        (group["group"], group["wasted_seconds"], group.get("handler_seconds") or 0.0)
        for group in report.get("groups", [])
    ]
    rows.sort(key=lambda row: (-row[1], row[0]))
    return WasteData(rows[:MAX_HEAT_QUEUES] if any(row[1] for row in rows) else [])


def count_data(report: Report) -> CountData:
    """Messages by how often they were delivered; more than 20 times is one bar each no more."""
    counts: Counter[int] = Counter()
    for group in report.get("groups", []):
        for times, number in (group.get("redelivery_counts") or {}).items():
            counts[int(times)] += number
    return CountData(sorted(counts.items())[:20])


def loss_data(report: Report) -> LossData:
    fates = (report.get("loss") or {}).get("fates") or {}
    rows = [(fate, number, fate in LOSSES) for fate, number in fates.items()]
    return LossData(rows, report["totals"]["lost"])


def knob_data(report: Report) -> KnobData:
    return KnobData(
        [
            (row["name"], f"{_plain(row['from'])} → {_plain(row['to'])}",
             row["predicted_reduction"])
            for row in report.get("knobs", [])
        ]
    )  # fmt: skip


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,.6g}" if isinstance(value, int | float) else str(value)


METRIC_TITLES: Final[Mapping[str, tuple[str, float]]] = {
    "dup": ("duplicates", 1),
    "produce_rto_ms": ("produce RTO (s)", 1000),
    "consume_rto_ms": ("consume RTO (s)", 1000),
}


def arm_data(report: Report) -> ArmData | None:
    """Repetitions by arm; ``None`` where nothing was compared."""
    compare = report.get("compare")
    if not compare:
        return None
    metrics = {
        title: {
            arm["name"]: [
                run[metric] / scale for run in arm.get("runs", []) if run[metric] is not None
            ]
            for arm in compare["arms"]
        }
        for metric, (title, scale) in METRIC_TITLES.items()
    }
    return ArmData(metrics, _arm_title(compare))


def _arm_title(compare: Mapping[str, Any]) -> str:
    found = [row for row in compare["difference"] if row["metric"] == "dup"]
    known = [row for row in found if row["median"] is not None]
    if not known:
        return f"All runs are of arm {compare['baseline']}"
    row = max(known, key=lambda each: abs(each["median"]))
    more = "more" if row["median"] > 0 else "fewer"
    much = f"{abs(row['median']):,.6g} {more} duplicates" if row["median"] else "as many duplicates"
    sure = {True: "significant", False: "within chance"}.get(
        row["significant"], "too few runs to judge chance"
    )
    return f"{row.get('arm', '?')}: {much} than {compare['baseline']} ({sure})"


def clock_data(report: Report) -> ClockData:
    hosts = (report.get("clock") or {}).get("hosts", [])
    return ClockData(
        [(host["host"], host["offset_ns"] / 1e6, host["error_ns"] / 1e6) for host in hosts]
    )


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
