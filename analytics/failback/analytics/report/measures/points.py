"""``figures-data.parquet``: points for plots, in the long form that figures read. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.causes.labels import report_group
from failback.analytics.analysis.causes.windows import cause_of
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials.sends import LATENCY_POINT_NS
from failback.analytics.report.measures.curves import extremes, summed
from failback.analytics.report.measures.exposures import exposure_curves, instants_of
from failback.analytics.report.measures.lookups import Figures
from failback.analytics.report.measures.numbers import NS
from failback.analytics.report.measures.point_rows import Point
from failback.analytics.report.measures.recovery import EFFECT_KINDS
from failback.analytics.run.history import GroupQueue
from failback.client.consumelog.schema import schema_of
from failback.protocol.message import RETRY_PREFIX

SCHEMA: Final = schema_of(
    "kind s, group s, broker s, topic s, qid i, t_ns l, value d, label s, exact l, width_s i"
)
MAX_QUEUES: Final = 64
MAX_REPEATED: Final = 200
MAX_EVENTS: Final = 200
MAX_POINTS: Final = 20_000
MAX_STAIRS: Final = 4_000
BEFORE_FAULT_NS: Final = 60 * NS
AFTER_FAULT_NS: Final = 120 * NS
_PLACE: Final = ("group", "broker", "topic", "qid")
_ORDER: Final = ("kind", *_PLACE, "t_ns", "label")
_EVENTS: Final = {
    **{kind: words for kind, words in EFFECT_KINDS.items() if words},
    "JOIN": "joined again",
    "CARRIED": "was given what its slaves knew",
    "ACCEPT": "accepts again",
    "RESUMED": "answers again",
    "REGISTERED": "registered",
    "SLAVE_SERVING": "slave serves",
    "SLAVE_SYNC": "slave synchronised",
    "CLIENT_START": "consumer started",
    "HEALED": "healed",
}
_SAMPLE_KINDS: Final = {("code43", True): "master_table", ("code43", False): "slave_table",
                        ("file", True): "master_file"}  # fmt: skip


def points_table(figures: Figures) -> pa.Table:
    """All points; those of rates, sends and offsets sorted by kind, queue and time.

    Behind them come repeats by queue, exposure, and when clients took queues or a route changed.
    """
    few = table_of([*_sends(figures), *_duplicates(figures), *_events(figures)])
    found = pa.concat_tables([*_rates(figures), *_staircases(figures), few])
    keys = [(name, "ascending") for name in _ORDER]
    found = found.take(pc.sort_indices(found, sort_keys=keys))
    more = [*_repeats(figures), *_exposure(figures), *_owners(figures), *_routes(figures)]
    return pa.concat_tables([found, table_of(more)])


def table_of(points: Sequence[Point]) -> pa.Table:
    """Points as rows of :data:`SCHEMA`."""
    rows = [
        (*each[:-1], _integer(point.value), None if each.width_s == 1 else each.width_s)
        for point in points
        for each in (point._replace(value=float(point.value)),)
    ]
    columns: Any = zip(*rows, strict=True) if rows else [[] for _ in SCHEMA]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def _integer(value: float) -> int | None:
    return value if isinstance(value, int) else None


def _curve(
    kind: str,
    key: GroupQueue | None,
    t_ns: Ints,
    value: Ints | NDArray[np.float64],
    width: Ints | None = None,
) -> pa.Table:
    """Points of one kind and of one queue, or of none; their seconds if they are not of one."""
    every = {"kind": kind, **dict(zip(_PLACE, key or (), strict=False))}
    columns = {"t_ns": pa.array(t_ns), "value": pa.array(value.astype(float))}
    if value.dtype == np.int64:
        columns["exact"] = pa.array(value)
    if width is not None:
        columns["width_s"] = pa.array(width.astype(np.int32), mask=width == 1)
    return pa.table(
        [
            columns[f.name] if f.name in columns
            else pa.repeat(pa.scalar(every.get(f.name), f.type), t_ns.size)
            for f in SCHEMA
        ],
        schema=SCHEMA,
    )  # fmt: skip


def _rates(figures: Figures) -> Iterator[pa.Table]:
    sent = Columns(figures.table(families.SEND_RATE))
    delivered = summed(figures.rates.values())
    spans = figures.spans
    for kind, second, count in (
        ("produce_rate", sent.ints("second"), sent.ints("value")),
        ("deliver_rate", delivered.at, delivered.value),
    ):
        width = spans.widths_of(second)
        rate = count if (width == 1).all() else count / width
        yield _curve(kind, None, spans.firsts_of(second) * NS, rate, width)


def _sends(figures: Figures) -> Iterator[Point]:
    """The slowest send of every tenth of a second, per result, from its due time."""
    c = Columns(figures.table(families.SLOWEST_SENDS))
    if not c.count:
        return
    tenth, latency = c.ints("tenth"), c.ints("value")
    place = c.dense_with(tenth // max(1, -(-c.count // MAX_POINTS)), "result")
    order = np.lexsort((tenth, latency, place))
    slowest = order[np.append(np.flatnonzero(np.diff(place[order])), c.count - 1)]
    results = c.take("result", slowest).to_pylist()
    for result, at in zip(results, slowest.tolist(), strict=True):
        t, value = int(tenth[at]) * LATENCY_POINT_NS, int(latency[at]) / 1e6
        yield Point("send_latency", None, None, None, None, t, value, result)


def _duplicates(figures: Figures) -> Iterator[Point]:
    total: Counter[int] = Counter()
    grouped: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for row in figures.values(families.CAUSE_SECONDS):
        at, count = row["second"], row["value"]
        total[at] += count
        grouped[row["grp"], report_group(cause_of(row["cause"]))][at] += count
    for at, width, count in _spans(figures, total):
        rate = count if width == 1 else count / width
        yield Point("dup_rate", None, None, None, None, at * NS, rate, None, width)
    for (group, label), counts in grouped.items():
        for at, width, count in _spans(figures, counts):
            yield Point("dup_by_group", group, None, None, None, at * NS, count, label, width)


def _spans(figures: Figures, counts: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
    """First second, width and count of counts by span."""
    last = np.fromiter(counts, np.int64, len(counts))
    firsts, widths = figures.spans.firsts_of(last), figures.spans.widths_of(last)
    yield from zip(firsts.tolist(), widths.tolist(), counts.values(), strict=True)


def _staircases(figures: Figures) -> Iterator[pa.Table]:
    """Every copy of an offset over time, for the queues with most duplicates.

    Where no delivery was recorded it is those whose offset fell furthest.
    """
    dups = figures.dups_of_queues
    fell = {} if figures.rates else _furthest_falls(figures)
    ranked = sorted(figures.rates or fell, key=lambda key: (-dups[key], -fell.get(key, 0), key))
    shown = set(ranked[:MAX_QUEUES])
    near = _near_faults(figures)
    for family, kind in (
        (families.DELIVERED_END, "delivered"),
        (families.MEMORY, "client_memory"),
    ):
        for key, curve in figures.curves(family).items():
            if key in shown:
                yield _stairs(kind, key, (curve.at + 1) * NS, curve.value, near)
    looks = figures.analysis.history.looks.curves(shown, near)
    for (key, source, bid), (t, off) in looks.items():
        name = _SAMPLE_KINDS.get((source, bid == 0))
        if name and t.size:
            # Flat stretches need their two ends only.
            changed = np.diff(off) != 0
            ends = np.append(True, changed) | np.append(changed, True)
            yield _stairs(name, key, t[ends], off[ends], near)


def _furthest_falls(figures: Figures) -> dict[GroupQueue, int]:
    """Of each queue that was sampled how far its offset fell at most."""
    found: dict[GroupQueue, int] = {}
    for (key, source, _), samples in figures.analysis.history.samples.items():
        if source == "code43":
            falls = (old.off - new.off for old, new in pairwise(samples))
            found[key] = max(found.get(key, 0), *falls, 0)
    return found


def _near_faults(figures: Figures) -> list[tuple[int, int]]:
    """From a minute before each fault's first step to two minutes after its last, in ns."""
    steps: dict[str, list[int]] = defaultdict(list)
    for step in figures.analysis.history.faults:
        if step.t >= 0:
            steps[step.fid].append(step.t)
    return [(min(t) - BEFORE_FAULT_NS, max(t) + AFTER_FAULT_NS) for t in steps.values()]


def _stairs(
    kind: str, key: GroupQueue, t_ns: Ints, value: Ints, near: Sequence[tuple[int, int]]
) -> pa.Table:
    """A curve of ascending times, whole near faults; elsewhere thinned out if it is long."""
    kept = np.zeros(t_ns.size, np.bool_)
    kept[extremes(value, MAX_STAIRS)] = True
    for span in near:
        lo, hi = np.searchsorted(t_ns, span)
        kept[lo:hi] = True
    return _curve(kind, key, t_ns[kept], value[kept])


def _events(figures: Figures) -> Iterator[Point]:
    seen: dict[str, set[str]] = defaultdict(set)
    for step in figures.analysis.history.faults:
        word = _EVENTS.get(step.kind)
        if word and step.observed is not None and step.kind not in seen[step.fid]:
            seen[step.fid].add(step.kind)
            who = f"{step.broker}/{step.bid} " if step.broker else ""
            yield Point("event", None, step.broker, None, None, step.t, 0.0, f"{who}{word}")


def _repeats(figures: Figures) -> Iterator[Point]:
    totals = figures.dups_of_queues
    shown = set(sorted(totals, key=lambda key: (-totals[key], key))[:MAX_REPEATED])
    for queue, curve in sorted(figures.curves(families.DUP_SECONDS).items()):
        if queue in shown:
            firsts, widths = figures.spans.firsts_of(curve.at), figures.spans.widths_of(curve.at)
            columns = (each.tolist() for each in (firsts, curve.value, widths))
            for second, count, width in zip(*columns, strict=True):
                yield Point("dup_by_queue", *queue, second * NS, count, None, width)


def _exposure(figures: Figures) -> Iterator[Point]:
    instants = instants_of(figures)
    for (group, broker), curve in sorted(exposure_curves(figures, instants).items()):
        for at, value in zip(instants.tolist(), curve.tolist(), strict=True):
            yield Point("exposure", group, broker, None, None, at, value, None)


def _owners(figures: Figures) -> Iterator[Point]:
    """One event per client and second in which it was given queues of a group."""
    taken: dict[tuple[int, str, str], set[GroupQueue]] = defaultdict(set)
    for a in figures.analysis.history.assignments:
        shown = figures.warmup_end_ns <= a.t < figures.until_ns
        if shown and not a.key.ptopic.startswith(RETRY_PREFIX):
            taken[a.t // NS, a.key.grp, a.client_id or f"process {a.inc}"].add(a.key)
    for (second, group, client), queues in sorted(taken.items())[:MAX_EVENTS]:
        number = "1 queue" if len(queues) == 1 else f"{len(queues)} queues"
        text = f"{number} of {group} to {_short(client)}"
        yield Point("event", group, None, None, None, second * NS, 0.0, text)


def _routes(figures: Figures) -> Iterator[Point]:
    """When name servers showed another route, and when clients took one over."""
    shown: dict[int, set[str]] = defaultdict(set)
    taken: dict[int, set[int]] = defaultdict(set)
    for change in figures.analysis.history.routes:
        if change.entry is not None:
            shown[change.second].add(change.entry)
        else:
            taken[change.second].add(change.proc_no)
    found = {second: f"route: {', '.join(sorted(what))}" for second, what in shown.items()}
    for second, clients in taken.items():
        number = "1 client" if len(clients) == 1 else f"{len(clients)} clients"
        text = f"{number} took the new route"
        found[second] = f"{found[second]}; {text}" if second in found else text
    for second, text in sorted(found.items())[:MAX_EVENTS]:
        yield Point("event", None, None, None, None, second * NS, 0.0, text)


def _short(client: str) -> str:
    """A client id without what is alike in all of them."""
    return client.split("@")[-1].split("#")[0] or client
