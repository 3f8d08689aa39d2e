"""Inputs of figures with a time axis: rates, offsets, repeats and exposure. Pure, no plotly.

Times are nanoseconds after run zero, counts are messages.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from failback.analytics.analysis.causes import labels
from failback.analytics.live.facts import is_canary
from failback.analytics.report.measures.curves import extremes
from failback.analytics.report.measures.point_rows import MAX_LINES, Point, Report
from failback.analytics.run.history import GroupQueue
from failback.protocol.message import RETRY_PREFIX

NS_PER_SECOND: Final = 1_000_000_000
MAX_POINTS_PER_TRACE: Final = 20_000
MAX_STAIRCASES: Final = 16
MAX_HEAT_QUEUES: Final = 30
MAX_HEAT_WINDOWS: Final = 200
MAX_BINS: Final = 600
MAX_HEAT_BINS: Final = 120
RATES: Final = {
    "produce_rate": "acknowledged sends",
    "deliver_rate": "deliveries",
    "dup_rate": "duplicates",
}
OFFSET_SERIES: Final[Mapping[str, tuple[str, str, str]]] = {
    "delivered": ("delivered to the handler", "#1B1B1B", "solid"),
    "client_memory": ("client memory (committed from)", "#332288", "dash"),
    "master_table": ("master, in memory", "#882255", "solid"),
    "master_file": ("master, consumerOffset.json", "#999933", "dot"),
    "slave_table": ("slave, in memory", "#44AA99", "dashdot"),
}
"""Copies of an offset: name, colour (light theme) and dash of each."""


@dataclass(frozen=True, slots=True)
class FaultBand:
    """One fault: what was intended and what a witness observed, in ns after run zero."""

    name: str
    intended_ns: int | None
    effect_ns: int | None
    heal_ns: int | None
    intended_end_ns: int | None = None
    proved: bool = True


@dataclass(frozen=True, slots=True)
class Series:
    """A curve: times in ns after run zero and values of one unit."""

    times_ns: Sequence[int]
    values: Sequence[float]

    def thinned(self, limit: int = MAX_POINTS_PER_TRACE) -> Series:
        """Keep the least and greatest value of each of ``limit / 2`` equal spans of points."""
        if len(self.times_ns) <= limit:
            return self
        chosen = extremes(self.values, limit).tolist()
        return Series([self.times_ns[i] for i in chosen], [self.values[i] for i in chosen])

    @property
    def is_long(self) -> bool:
        """Whether it has more points than are drawn."""
        return len(self.times_ns) > MAX_POINTS_PER_TRACE

    @property
    def seconds(self) -> list[float]:
        return [time / NS_PER_SECOND for time in self.times_ns]


@dataclass(frozen=True, slots=True)
class TimelineData:
    """Rates and latencies over a run, its faults and what else happened."""

    rates: Mapping[str, Series]
    """Messages per second: sends, deliveries, duplicates."""

    send_latency: Series
    """Milliseconds, per attempt."""

    failed_sends: Series
    """Milliseconds until they failed."""

    faults: Sequence[FaultBand]
    events: Sequence[tuple[int, str]] = ()
    """Route change, rebalance, registration, slave sync: (ns, text)."""

    window_ns: tuple[int, int] | None = None
    """The time to show; without it, that of the points."""

    title: str = "Rates and latency"

    @property
    def curves(self) -> list[Series]:
        return [*self.rates.values(), self.send_latency, self.failed_sends]

    @property
    def has_data(self) -> bool:
        """Whether anything would be drawn."""
        return any((self.faults, self.events, *(each.times_ns for each in self.curves)))


@dataclass(frozen=True, slots=True)
class StaircaseData:
    """One queue's offset as five parties know it, each a step curve."""

    group: str
    queue: str
    series: Mapping[str, Series]
    """By key of :data:`OFFSET_SERIES`."""

    faults: Sequence[FaultBand]
    drops: Sequence[tuple[int, float, str]] = ()
    """(ns, value after, text): each downward step, with its source."""

    window_ns: tuple[int, int] | None = None
    again: int | None = None
    """Duplicates of the queue, where they are known."""


@dataclass(frozen=True, slots=True)
class CauseTimeData:
    """Duplicates per second by report group, all on the same bins."""

    seconds: Sequence[float]
    """Where each bin begins."""

    rates: Mapping[str, Sequence[float]]
    faults: Sequence[FaultBand] = ()


@dataclass(frozen=True, slots=True)
class HeatData:
    """Re-deliveries per second: queues x bins of time."""

    queues: Sequence[str]
    seconds: Sequence[float]
    rates: Sequence[Sequence[float]]
    windows: Sequence[tuple[str, float, float]] = ()
    """(queue, from, to) in seconds: what one assignment repeated."""


def fault_bands(report: Report) -> list[FaultBand]:
    return [
        FaultBand(
            name=f"{fault.get('fid', '')} {fault.get('name') or fault.get('kind') or ''}".strip(),
            intended_ns=fault.get("intended_ns"),
            effect_ns=fault.get("effect_ns"),
            heal_ns=fault.get("heal_ns"),
            intended_end_ns=fault.get("intended_end_ns"),
            proved=bool(fault.get("proved", True)),
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
    """What else happened, in order: steps of faults, new owners, stored offsets that went down."""
    found = [(point.t_ns, point.label or "") for point in points if point.kind == "event"]
    drops: dict[tuple[int, str], list[Mapping[str, Any]]] = defaultdict(list)
    for drop in report.get("offset_drops", []):
        if drop.get("source", "code43") == "code43":
            drops[drop["t_ns"] // NS_PER_SECOND, drop["label"]].append(drop)
    for (_, label), mine in drops.items():
        lost = sum(drop["from"] - drop["to"] for drop in mine)
        word = "overwritten" if label == "OVERWRITE" else "restarted"
        queues = "1 queue" if len(mine) == 1 else f"{len(mine)} queues"
        text = f"{word}: {lost:,} offsets less, {queues}"
        found.append((min(drop["t_ns"] for drop in mine), text))
    return sorted(found)


def _timeline_title(report: Report) -> str:
    down = [
        fault["down_seconds"]
        for fault in report.get("faults", [])
        if fault.get("down_seconds") is not None
    ]
    if not down:
        return "No outage was observed"
    again = report["totals"]["dup"]
    came = f"{again:,} messages were re-consumed" if again else "nothing was re-consumed"
    return f"The master was down for {max(down):.1f} s, and {came}"


def _window(report: Report) -> tuple[int, int] | None:
    """From the end of the warm-up to the end: a backlog made before would dwarf all."""
    window = report.get("window") or {}
    start, end = window.get("warmup_end_ns"), window.get("end_ns")
    return None if start is None or end is None else (start, end)


def staircases(report: Report, points: Sequence[Point]) -> list[StaircaseData]:
    """One staircase per queue, at most ``MAX_STAIRCASES``.

    Those with most duplicates come first, of equal ones that whose offset fell furthest. Of an
    observed run those of the group with most possible repeats come first; a canary's last.
    """
    if "foreign" in report:
        return []  # what it says of itself
    curves: dict[GroupQueue, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        if point.kind in OFFSET_SERIES and point.qid is not None:
            curves[_key(point)][point.kind].append(point)
    duplicates = {
        GroupQueue(row["group"], row["broker"], row["topic"], row["qid"]): row["dup"]
        for row in report.get("queues", [])
    }
    drops: dict[GroupQueue, list[tuple[int, float, str]]] = defaultdict(list)
    fell: Counter[GroupQueue] = Counter()
    for drop in report.get("offset_drops", []):
        key = GroupQueue(drop["group"], drop.get("broker", ""), drop["topic"], drop["qid"])
        fell[key] = max(fell[key], drop["from"] - drop["to"])
        text = f"{drop['label'].lower()}: {drop['from']} → {drop['to']}"
        for known in curves:
            same = known._replace(broker=key.broker) == key and key.broker in ("", known.broker)
            if same and text not in (said for _, _, said in drops[known]):
                drops[known].append((drop["t_ns"], float(drop["to"]), text))
    most = _most_of_groups(report)

    def rank(key: GroupQueue) -> tuple[Any, ...]:
        of_group = most.get((key.grp, key.ptopic), 0)
        counted = -duplicates.get(key, 0), -fell[key]
        return is_canary(key.grp), -of_group, *counted, key

    ordered = sorted(curves, key=rank)
    return [
        StaircaseData(
            group=key.grp,
            queue=key.text,
            series={kind: _series(found) for kind, found in curves[key].items()},
            faults=fault_bands(report),
            drops=drops.get(key, []),
            window_ns=_window(report),
            again=duplicates.get(key),
        )
        for key in ordered
        if not key.ptopic.startswith(RETRY_PREFIX) or duplicates.get(key)
    ][:MAX_STAIRCASES]


def _most_of_groups(report: Report) -> Counter[tuple[str, str]]:
    """The upper ends of an observed run by group and topic."""
    found: Counter[tuple[str, str]] = Counter()
    for back in (report.get("observation") or {}).get("returns", []):
        for group in back["groups"]:
            found[group["group"], group["topic"]] += group["hi"]
    return found


def cause_time_data(report: Report, points: Sequence[Point]) -> CauseTimeData:
    """Duplicates per second by report group, in at most ``MAX_BINS`` bins."""
    mine = [point for point in points if point.kind == "dup_by_group"]
    if not mine:
        return CauseTimeData([], {})
    bins, width = _bins(mine)
    found: dict[str, list[float]] = {}
    for point in mine:
        rates = found.setdefault(point.label or "unattributed", [0.0] * len(bins))
        for at, share in _shares(point, bins, width):
            rates[at] += share * point.value / width
    ordered: dict[str, list[float]] = {
        name: found[name] for name in labels.REPORT_GROUPS if name in found
    }
    return CauseTimeData(bins, ordered, fault_bands(report))


def heat_data(report: Report, points: Sequence[Point]) -> HeatData:
    """Queues with most duplicates against time; windows begin with their assignment."""
    mine = [p for p in points if p.kind == "dup_by_queue" and p.qid is not None]
    if not mine:
        return HeatData([], [], [])
    bins, width = _bins(mine, MAX_HEAT_BINS)
    totals: Counter[GroupQueue] = Counter()
    for point in mine:
        totals[_key(point)] += int(point.value)
    shown = sorted(totals, key=lambda key: (-totals[key], key))[:MAX_HEAT_QUEUES]
    rates = {key: [0.0] * len(bins) for key in shown}
    times: dict[GroupQueue, list[float]] = defaultdict(list)
    for point in mine:
        key = _key(point)
        if key in rates:
            for at, share in _shares(point, bins, width):
                rates[key][at] += share * point.value / width
            begin = point.t_ns / NS_PER_SECOND
            times[key] += [begin, begin + point.width_s - 1]
    several = len({key.grp for key in shown}) > 1
    names = {key: f"{key.grp}: {key.text}" if several else key.text for key in shown}
    return HeatData(
        [names[key] for key in shown],
        bins,
        [rates[key] for key in shown],
        _outlines(report, times, names, width),
    )


def _outlines(
    report: Report,
    times: Mapping[GroupQueue, Sequence[float]],
    names: Mapping[GroupQueue, str],
    width: float,
) -> list[tuple[str, float, float]]:
    found = []
    for row in report.get("queues", []):
        key = GroupQueue(row["group"], row["broker"], row["topic"], row["qid"])
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


def _key(point: Point) -> GroupQueue:
    return GroupQueue(point.group or "", point.broker or "", point.topic or "", point.qid or 0)


def _bins(points: Sequence[Point], most: int = MAX_BINS) -> tuple[list[float], float]:
    """Where equal bins of whole seconds begin, one empty one at the end, and their width."""
    first = min(point.t_ns for point in points) // NS_PER_SECOND
    last = max(point.t_ns // NS_PER_SECOND + point.width_s for point in points) - 1
    width = max(1, -(-(last - first + 2) // most))
    return [float(at) for at in range(first, last + 2, width)], float(width)


def _shares(point: Point, bins: Sequence[float], width: float) -> Iterator[tuple[int, float]]:
    """The bins in which a point's seconds lie, and the share of its seconds in each."""
    begin = point.t_ns // NS_PER_SECOND - bins[0]
    end = begin + point.width_s
    for at in range(int(begin // width), int(-(-end // width))):
        seconds = min(end, (at + 1) * width) - max(begin, at * width)
        yield min(at, len(bins) - 1), seconds / point.width_s


def exposures(points: Sequence[Point]) -> dict[str, Series]:
    """Messages that a kill would have repeated, over time, by ``group on broker``."""
    curves: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        if point.kind == "exposure":
            curves[f"{point.group} on {point.broker}"].append(point)
    ordered = sorted(curves, key=lambda name: (-max(p.value for p in curves[name]), name))
    return {name: _series(curves[name]) for name in ordered[:MAX_LINES]}


def _rate(points: Iterable[Point]) -> Series:
    """A rate has a point only where something happened: it is zero in the seconds between."""
    times: list[int] = []
    values: list[float] = []
    behind = None
    for point in sorted(points, key=lambda point: point.t_ns):
        if behind is not None and behind < point.t_ns:
            zeros = sorted({behind, point.t_ns - NS_PER_SECOND})
            times += zeros
            values += [0.0] * len(zeros)
        times.append(point.t_ns)
        values.append(point.value)
        behind = point.t_ns + point.width_s * NS_PER_SECOND
    return Series(times, values)


def _series(points: Iterable[Point]) -> Series:
    ordered = sorted(points, key=lambda point: point.t_ns)
    return Series([point.t_ns for point in ordered], [point.value for point in ordered])
