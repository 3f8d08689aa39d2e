"""``figures-data.parquet``: points for plots, in the long form that ``figure_data`` reads. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from failback.analytics.columns import Columns
from failback.analytics.figure_data.points import Point
from failback.analytics.history import GroupQueue
from failback.analytics.labels import report_group
from failback.analytics.measures import NS, Figures
from failback.analytics.partials import LATENCY_POINT_NS

SCHEMA: Final = pa.schema(
    [
        ("kind", pa.utf8()),
        ("group", pa.utf8()),
        ("broker", pa.utf8()),
        ("topic", pa.utf8()),
        ("qid", pa.int32()),
        ("t_ns", pa.int64()),
        ("value", pa.float64()),
        ("label", pa.utf8()),
        ("exact", pa.int64()),
    ]
)
MAX_QUEUES: Final = 64
MAX_POINTS: Final = 20_000
_EVENTS: Final = {
    "KILL": "killed",
    "TERM": "asked to stop",
    "PAUSE": "paused",
    "ACCEPT": "accepts again",
    "RESUMED": "answers again",
    "REGISTERED": "registered",
    "SLAVE_SERVING": "slave serves",
    "SLAVE_SYNC": "slave synchronised",
    "CLIENT_KILL": "consumer killed",
    "CLIENT_TERM": "consumer stopped",
    "CLIENT_START": "consumer started",
    "HEALED": "healed",
}
_SAMPLE_KINDS: Final = {("code43", True): "master_table", ("code43", False): "slave_table",
                        ("file", True): "master_file"}  # fmt: skip


def points_table(figures: Figures) -> pa.Table:
    """All points, sorted by kind, queue and time."""
    found = [
        *_rates(figures),
        *_sends(figures),
        *_duplicates(figures),
        *_staircases(figures),
        *_events(figures),
    ]
    found.sort(key=_order)
    return table_of(found)


def table_of(points: Sequence[Point]) -> pa.Table:
    """Points as rows of :data:`SCHEMA`."""
    rows = [(*point._replace(value=float(point.value)), _integer(point.value)) for point in points]
    columns: Any = zip(*rows, strict=True) if rows else [[] for _ in SCHEMA]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def _integer(value: float) -> int | None:
    return value if isinstance(value, int) else None


def _order(point: Point) -> tuple[Any, ...]:
    names = ("" if value is None else str(value) for value in point[:4])
    return (*names, point.qid or 0, point.t_ns, point.label or "")


def _rates(figures: Figures) -> Iterator[Point]:
    for row in figures.values("send_rate"):
        yield Point("produce_rate", None, None, None, None, row["n1"] * NS, row["value"], None)
    total: Counter[int] = Counter()
    for seconds in figures.seconds.values():
        total.update(seconds)
    for at, count in total.items():
        yield Point("deliver_rate", None, None, None, None, at * NS, count, None)


def _sends(figures: Figures) -> Iterator[Point]:
    """The slowest send of every tenth of a second, per result, from its due time."""
    c = Columns(figures.table("send_point"))
    if not c.count:
        return
    tenth, latency = c.ints("n1"), c.ints("value")
    place = c.dense_with(tenth // max(1, -(-c.count // MAX_POINTS)), "grp")
    order = np.lexsort((tenth, latency, place))
    slowest = order[np.append(np.flatnonzero(np.diff(place[order])), c.count - 1)]
    results = c.take("grp", slowest).to_pylist()
    for result, at in zip(results, slowest.tolist(), strict=True):
        t, value = int(tenth[at]) * LATENCY_POINT_NS, int(latency[at]) / 1e6
        yield Point("send_latency", None, None, None, None, t, value, result)


def _duplicates(figures: Figures) -> Iterator[Point]:
    total: Counter[int] = Counter()
    grouped: Counter[tuple[str, str, int]] = Counter()
    seconds = figures.dups.ints("bt") // NS
    for (group, cause, at), count in figures.dups.counts("grp", "cause", seconds).items():
        total[at] += count
        grouped[group, report_group(cause), at] += count
    for at, count in total.items():
        yield Point("dup_rate", None, None, None, None, at * NS, count, None)
    for (group, label, at), count in grouped.items():
        yield Point("dup_by_group", group, None, None, None, at * NS, count, label)


def _staircases(figures: Figures) -> Iterator[Point]:
    """Every copy of an offset over time, for the queues with most duplicates."""
    dups = figures.dups.queues()
    shown = set(sorted(figures.seconds, key=lambda key: (-dups[key], key))[:MAX_QUEUES])
    for family, kind in (("front", "delivered"), ("memory", "client_memory")):
        for row in figures.values(family):
            key = GroupQueue(row["grp"], row["broker"], row["topic"], row["n1"])
            if key in shown:
                yield Point(kind, *key, (row["n2"] + 1) * NS, row["value"], None)
    for (key, source, bid), samples in figures.analysis.history.samples.items():
        name = _SAMPLE_KINDS.get((source, bid == 0))
        if key in shown and name:
            last: int | None = None
            for at, sample in enumerate(samples):
                # Flat stretches need their two ends only.
                following = samples[at + 1].off if at + 1 < len(samples) else None
                if not last == sample.off == following:
                    yield Point(name, *key, sample.t, sample.off, None)
                last = sample.off


def _events(figures: Figures) -> Iterator[Point]:
    seen: dict[str, set[str]] = defaultdict(set)
    for step in figures.analysis.history.faults:
        word = _EVENTS.get(step.kind)
        if word and step.observed is not None and step.kind not in seen[step.fid]:
            seen[step.fid].add(step.kind)
            who = f"{step.broker}/{step.bid} " if step.broker else ""
            yield Point("event", None, step.broker, None, None, step.t, 0.0, f"{who}{word}")
