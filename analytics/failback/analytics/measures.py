"""Figures per group and queue, from result tables. Integers in, ratios at the very end. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics import tables
from failback.analytics.analysis import Analysis, columns_of
from failback.analytics.history import GroupQueue
from failback.analytics.intervals import IntervalSet
from failback.analytics.labels import REPORT_GROUPS, report_group
from failback.client.consumelog.lab_id import format_lab_id

Row = dict[str, Any]

NS: Final = 1_000_000_000
MAX_QUEUES: Final = 2_000
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
_DAY_NS: Final = 86_400 * NS
AGE_EDGES_NS: Final = (
    *(edge for k in range(30) if (edge := round(10 ** (7 + k / 4))) < _DAY_NS),
    _DAY_NS,
)
"""10 ms to one day, four bins per factor of ten."""
MAX_KEYS_LOG2: Final = 24


def ratio(part: int, whole: int) -> float | None:
    """A share, rounded half-even to four digits; null when there is nothing to share."""
    return float(round(Fraction(part, whole), 4)) if whole else None


def seconds(ns: int) -> float:
    """Nanoseconds as seconds, to the microsecond."""
    return float(round(Fraction(ns, NS), 6))


def millis(ns: int | None) -> float | int | None:
    """Nanoseconds as milliseconds to the microsecond; whole ones as integers."""
    if ns is None:
        return None
    exact = round(Fraction(ns, 1_000_000), 3)
    return int(exact) if exact.denominator == 1 else float(exact)


def quantile(ordered: Sequence[int], share: float) -> int | None:
    """Nearest-rank quantile of ascending values."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else None


class Dup(NamedTuple):
    """One unwanted delivery, as far as figures need it."""

    grp: str
    client_id: str | None
    broker: str
    ptopic: str
    qid: int
    qoff: int
    lane: int
    lseq: int
    fkey: str
    okey: str | None
    bt: int
    et: int | None
    ok_end: int | None
    store_ms: int
    cause: str | None
    after_success: bool | None
    ambiguous: bool
    nth_of_copy: int
    a_no: int | None
    inherited: bool
    partial_view: bool

    @property
    def queue(self) -> GroupQueue:
        return GroupQueue(self.grp, self.broker, self.ptopic, self.qid)


class Figures:
    """Lookups shared by the parts of a report."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.warmup_end_ns = analysis.folder.warmup_end_ns
        in_figures = pc.greater_equal(analysis.repeats.column("bt"), self.warmup_end_ns)
        shown = analysis.repeats.filter(in_figures)
        self.outside_assignment: int = shown.column("a_no").null_count
        retries = shown.filter(pc.equal(shown.column("cls"), "RETRY"))
        self.retries: Counter[str] = Counter(retries.column("grp").to_pylist())
        dups = shown.filter(pc.equal(shown.column("cls"), "DUP"))
        self.dups: list[Dup] = list(map(Dup._make, columns_of(dups, *Dup._fields)))
        self.dups_of_group: dict[str, list[Dup]] = defaultdict(list)
        self.dups_of_assignment: dict[int | None, list[Dup]] = defaultdict(list)
        for dup in self.dups:
            self.dups_of_group[dup.grp].append(dup)
            self.dups_of_assignment[dup.a_no].append(dup)
        self._values: dict[str, list[Row]] = {}

    def values(self, family: str) -> list[Row]:
        if family not in self._values:
            found = self.analysis.stage_a.values.get(family)
            self._values[family] = found.to_pylist() if found is not None else []
        return self._values[family]

    @cached_property
    def seconds(self) -> dict[GroupQueue, dict[int, int]]:
        """Deliveries per queue and second of the run."""
        found: dict[GroupQueue, dict[int, int]] = defaultdict(dict)
        for row in self.values("rate"):
            key = GroupQueue(row["grp"], row["broker"], row["topic"], row["n1"])
            found[key][row["n2"]] = row["value"]
        return found

    @cached_property
    def told(self) -> dict[int, set[tuple[int, int, int]]]:
        """Per assignment the commits near its answer: (broker id, incarnation, offset)."""
        found: dict[int, set[tuple[int, int, int]]] = defaultdict(set)
        for row in self.values("told"):
            found[row["n2"]].add((row["n4"], row["n5"], row["n3"]))
        return found

    def depths(self, family: str) -> pa.Table:
        return self.analysis.stage_a.depths.get(family, tables.DEPTHS.empty_table())

    def group_sums(self, family: str) -> Counter[str]:
        return Counter({row["grp"]: row["value"] for row in self.values(family)})

    def sets(
        self, family: str, *key: str, figures_only: bool = False
    ) -> dict[tuple[Any, ...], IntervalSet]:
        """Interval sets of a family by key columns."""
        found: dict[tuple[Any, ...], tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
        table = self.depths(family)
        if figures_only:
            table = table.filter(pc.greater(table.column("figure"), 0))
        columns = [table.column(name).to_pylist() for name in (*key, "lo", "hi")]
        for *names, lo, hi in zip(*columns, strict=True):
            los, his = found[tuple(names)]
            los.append(lo)
            his.append(hi)
        return {
            names: IntervalSet.of(np.array(lo, np.int64), np.array(hi, np.int64))
            for names, (lo, hi) in found.items()
        }


def group_names(figures: Figures) -> list[str]:
    """Groups that are declared, assigned or delivered to; broadcasting ones per client."""
    folder = figures.analysis.folder
    seen = set(figures.group_sums("delivered"))
    seen |= {a.key.grp for a in figures.analysis.history.assignments}
    seen |= {group.name for group in folder.groups if not group.broadcasting}
    return sorted(seen)


def declared_group(figures: Figures, name: str) -> str:
    """The name in ``run.json``: without the client of a broadcasting group."""
    group = name.rsplit("@", 1)[0]
    return group if group in figures.analysis.folder.broadcasting else name


def topics_of(figures: Figures, name: str) -> list[str]:
    """Topics that the group reads, as declared, else as assigned; its own retry topic left out."""
    declared = declared_group(figures, name)
    topics = {g.topic for g in figures.analysis.folder.groups if g.name == declared}
    if not topics:
        keys = (a.key for a in figures.analysis.history.assignments if a.key.grp == name)
        topics = {key.ptopic for key in keys if not key.ptopic.startswith("%")}
    return sorted(topics)


def group_figures(figures: Figures, name: str, losses: Mapping[str, Row] | None) -> Row:
    """One entry of ``groups[]``."""
    depths = figures.depths("message")
    mine = depths.filter(
        pc.and_(pc.equal(depths.column("grp"), name), pc.greater(depths.column("figure"), 0))
    )
    counts: Counter[int] = Counter()
    for lo, hi, depth in zip(
        *(mine.column(c).to_pylist() for c in ("lo", "hi", "figure")), strict=True
    ):
        counts[depth] += hi - lo
    delivered, distinct = figures.group_sums("delivered")[name], sum(counts.values())
    dups = figures.dups_of_group[name]
    retry = figures.retries[name]
    messages = {(dup.lane, dup.lseq, dup.fkey) for dup in dups}
    causes = Counter(dup.cause for dup in dups if dup.cause is not None)
    by_group = Counter(report_group(dup.cause) for dup in dups)
    useless = [dup for dup in dups if dup.after_success is True]
    order = [row for row in figures.analysis.order.to_pylist() if row["grp"] == name]
    declared = [
        group
        for group in figures.analysis.folder.groups
        if group.name == declared_group(figures, name)
    ]
    fates = None if losses is None else losses.get(name, {})
    return {
        "group": name,
        "topic": ",".join(topics_of(figures, name)),
        "members": declared[0].members if declared else None,
        "model": declared[0].model if declared else None,
        **send_figures(figures, topics_of(figures, name)),
        "delivered": delivered,
        "distinct": distinct,
        "primary": delivered - retry - len(dups),
        "retry": retry,
        "dup": len(dups),
        "dup_after_success": len(useless),
        "dup_before_success": sum(dup.after_success is False for dup in dups),
        "dup_unknown_order": sum(dup.after_success is None for dup in dups),
        "dup_messages": len(messages),
        "lost": None if fates is None else sum(fates.get(fate, 0) for fate in LOST_FATES),
        "skipped": None if fates is None else fates.get("SKIPPED", 0),
        "store_lost": None if fates is None else fates.get("STORE_LOST", 0),
        "ooo_first": sum(row["ooo_first"] for row in order),
        "ooo_replay": sum(row["ooo_replay"] for row in order),
        "max_redelivery": max(counts, default=0),
        "abandoned": figures.group_sums("abandoned")[name],
        "dup_ratio": ratio(len(dups), distinct),
        "dup_msg_ratio": ratio(len(messages), distinct),
        "amplification": ratio(delivered, distinct),
        "wasted_seconds": seconds(sum(d.et - d.bt for d in useless if d.et is not None)),
        "handler_seconds": seconds(figures.group_sums("handler_ns")[name]),
        "causes": dict(sorted(causes.items())),
        "causes_split": _split(dups),
        "report_groups": {group: by_group[group] for group in REPORT_GROUPS},
        "unattributed": by_group["unattributed"],
        "inherited": sum(dup.inherited for dup in dups),
        "partial_view": sum(dup.partial_view for dup in dups),
        "redelivery_counts": {str(k): counts[k] for k in sorted(counts)},
        "repeat_age_seconds": _ages(useless),
        "dedupe": _dedupe(figures, name, useless),
        "blast": _blast(figures, name, dups),
    }


def _split(dups: Iterable[Dup]) -> Row:
    found: dict[str, Row] = {}
    names = {True: "after_success", False: "before_success", None: "unknown_order"}
    for dup in dups:
        if dup.cause is not None:
            counts = found.setdefault(dup.cause, dict.fromkeys(names.values(), 0))
            counts[names[dup.after_success]] += 1
    return dict(sorted(found.items()))


def _ages(useless: Sequence[Dup]) -> Row:
    ages = sorted(_age(dup) for dup in useless)
    at = np.searchsorted(np.array(ages, np.int64), np.array(AGE_EDGES_NS), "right").tolist()
    points = {
        name: quantile(ages, share)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
    }
    return {
        **{name: None if value is None else seconds(value) for name, value in points.items()},
        "histogram": [
            {"le": seconds(edge), "count": count}
            for edge, count in zip(AGE_EDGES_NS, at, strict=True)
        ],
    }


def _age(dup: Dup) -> int:
    """How long after the first success a useless repeat began."""
    assert dup.ok_end is not None
    return dup.bt - dup.ok_end


def _dedupe(figures: Figures, name: str, useless: Sequence[Dup]) -> Row:
    """What share of provably useless repeats a memory of T seconds or N keys would have caught."""
    ages = np.sort(np.array([_age(dup) for dup in useless], np.int64))
    by_seconds = [
        {
            "window": seconds(edge),
            "share": ratio(int(np.searchsorted(ages, edge, "right")), len(ages)),
        }
        for edge in AGE_EDGES_NS
    ]
    if not useless:
        return {"by_seconds": [], "by_keys": []}
    bins, total, width = _first_successes(figures, name)
    width_ns = figures.analysis.context.ok_bin_ns
    begin = np.array([dup.bt for dup in useless], np.int64) // width_ns
    end = np.array([dup.ok_end for dup in useless], np.int64) // width_ns
    needed = _at(bins, total, begin) - _at(bins, total, end)
    error = _at(bins, width, begin) + _at(bins, width, end)
    by_keys = []
    for power in range(MAX_KEYS_LOG2 + 1):
        keys = 1 << power
        caught = int((needed <= keys).sum())
        open_ = int((np.abs(needed - keys) <= error).sum())
        by_keys.append(
            {
                "keys": keys,
                "share": ratio(caught, len(useless)),
                "error": ratio(open_, len(useless)),
            }
        )
        if (needed + error <= keys).all():
            break
    return {"by_seconds": by_seconds, "by_keys": by_keys}


def _first_successes(figures: Figures, name: str) -> tuple[Any, Any, Any]:
    """Per 10 ms bin: first successes up to and with it, and in it. Repeated ones are taken out."""
    counts: Counter[int] = Counter(
        {row["n1"]: row["value"] for row in figures.values("ok_bin") if row["grp"] == name}
    )
    everything = figures.analysis.repeats
    width_ns = figures.analysis.context.ok_bin_ns
    good = pc.and_(
        pc.equal(everything.column("grp"), name), pc.equal(everything.column("status"), "SUCCESS")
    )
    ends = columns_of(everything.filter(good), "et", "did", "lane", "lseq", "fkey")
    seen: set[tuple[Any, ...]] = set()
    for et, _, *message in sorted(ends):
        if tuple(message) in seen:
            counts[et // width_ns] -= 1
        seen.add(tuple(message))
    bins = np.array(sorted(counts), np.int64)
    width = np.array([counts[one] for one in bins.tolist()], np.int64)
    return bins, np.cumsum(width), width


def _at(bins: Any, values: Any, wanted: Any) -> Any:
    """The value of the last bin at or before each wanted one; 0 before the first."""
    at = np.searchsorted(bins, wanted, "right") - 1
    return np.where(at >= 0, values[np.maximum(at, 0)], 0) if bins.size else np.zeros(len(wanted))


def _blast(figures: Figures, name: str, dups: Sequence[Dup]) -> Row:
    hit = {dup.queue for dup in dups}
    depths = figures.depths("copy")
    mine = depths.filter(pc.equal(depths.column("grp"), name))
    all_ = set(zip(*(mine.column(c).to_pylist() for c in ("broker", "topic", "n1")), strict=True))
    return {
        "queues": len(hit),
        "queue_share": ratio(len(hit), len(all_)),
        "members": len({dup.client_id for dup in dups}),
        "keys": len({dup.okey for dup in dups if dup.okey is not None}),
    }


def send_figures(figures: Figures, topics: Sequence[str]) -> Row:
    """Messages sent to ``topics``: distinct, acknowledged, and of open outcome."""
    sent = figures.sets("sent", "topic", "n1", figures_only=True)
    acked = _union(figures, "acked", "degraded")
    doubtful = figures.sets("doubtful", "topic", "n1")
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


def _union(figures: Figures, *families: str) -> dict[tuple[Any, ...], IntervalSet]:
    found: dict[tuple[Any, ...], IntervalSet] = {}
    for family in families:
        for key, members in figures.sets(family, "topic", "n1").items():
            found[key] = found[key] | members if key in found else members
    return found


def losses_of(figures: Figures) -> tuple[dict[str, Row], Row]:
    """Fate of every message, per group: counts by group, and the ``loss`` block of the report."""
    sent = figures.sets("sent", "topic", "n1", figures_only=True)
    acked = _union(figures, "acked", "degraded")
    done = figures.sets("done", "grp", "n1")
    delivered = figures.sets("message", "grp", "n1")
    stored = figures.sets("stored", "topic", "n1")
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


def _examples(lanes: Mapping[int, IntervalSet]) -> list[str]:
    found: list[str] = []
    for lane, members in sorted(lanes.items()):
        found += [format_lab_id(lane, lseq) for lseq in members.first(MAX_EXAMPLES - len(found))]
        if len(found) >= MAX_EXAMPLES:
            break
    return found


def queue_figures(figures: Figures) -> tuple[list[Row], bool]:
    """``queues[]``, and whether some were left out."""
    found: dict[GroupQueue, Row] = {}
    names = ("grp", "broker", "topic", "n1", "n2", "lo", "hi", "depth", "figure")
    table = figures.depths("copy")
    for grp, broker, topic, qid, epoch, lo, hi, depth, figure in zip(
        *(table.column(name).to_pylist() for name in names), strict=True
    ):
        key = GroupQueue(grp, broker, topic, qid)
        row = found.setdefault(key, _empty_queue(key))
        row["epochs"].add(epoch)
        row["delivered"] += figure * (hi - lo)
        row["distinct"] += hi - lo if figure else 0
        if depth > 1 and figure:
            row["depth_ranges"].append({"lo": lo, "hi": hi, "depth": depth, "epoch": epoch})
    for key, count in Counter(dup.queue for dup in figures.dups).items():
        found[key]["dup"] = count
    for window in figures.analysis.windows:
        found[window.key]["windows"].append(
            {
                "lo": window.lo,
                "hi": window.hi,
                "size": window.size,
                "cause": window.cause,
                "from_proc": window.from_proc,
                "to_proc": window.to_proc,
                "t_ns": window.t,
                "fid": window.fid,
            }
        )
    for key, row in found.items():
        row["epochs"] = len(row["epochs"])
        row |= _offsets_now(figures, key)
    kept = sorted(found, key=lambda key: (-found[key]["dup"], key))[:MAX_QUEUES]
    return [found[key] for key in sorted(kept)], len(kept) < len(found)


def _empty_queue(key: GroupQueue) -> Row:
    return {
        "group": key.grp,
        "broker": key.broker,
        "topic": key.ptopic,
        "qid": key.qid,
        "epochs": set(),
        "delivered": 0,
        "distinct": 0,
        "dup": 0,
        "depth_ranges": [],
        "windows": [],
    }


def _offsets_now(figures: Figures, key: GroupQueue) -> Row:
    """What the brokers' tables hold at the end, and an offset that loses and repeats nothing."""
    samples = figures.analysis.history.samples
    master, slave = None, None
    for (queue, source, bid), found in samples.items():
        if queue == key and source == "code43" and found:
            if bid == 0:
                master = found[-1].off
            else:
                slave = found[-1].off if slave is None else max(slave, found[-1].off)
    taken = max((off for _, off in figures.analysis.progress.taken.get(key, ())), default=None)
    known = [value for value in (master, slave, taken) if value is not None]
    return {
        "master_offset": master,
        "slave_offset": slave,
        "safe_offset": max(known, default=None),
    }


def totals_of(figures: Figures, groups: Sequence[Row], losses: Mapping[str, Row] | None) -> Row:
    """``totals``: sums over groups where that adds up; messages of a topic count once."""
    topics = sorted({topic for row in groups for topic in row["topic"].split(",")})
    summed = {
        name: sum(row[name] for row in groups)
        for name in (
            "delivered", "distinct", "primary", "retry", "dup", "dup_after_success",
            "dup_before_success", "dup_unknown_order", "dup_messages", "ooo_first", "ooo_replay",
            "abandoned",
        )
    }  # fmt: skip
    fates = [row["group"] for row in groups] if losses is not None else None
    return {
        **send_figures(figures, topics),
        **summed,
        **{
            name: None if fates is None else sum(row[name] for row in groups)
            for name in ("lost", "skipped", "store_lost")
        },
        "max_redelivery": max((row["max_redelivery"] for row in groups), default=0),
        "dup_ratio": ratio(summed["dup"], summed["distinct"]),
        "dup_msg_ratio": ratio(summed["dup_messages"], summed["distinct"]),
        "amplification": ratio(summed["delivered"], summed["distinct"]),
        "wasted_seconds": round(sum(row["wasted_seconds"] for row in groups), 6),
        "handler_seconds": round(sum(row["handler_seconds"] for row in groups), 6),
    }


def producer_figures(figures: Figures) -> Row:
    """``producer``: attempts by outcome, resends, and latency of answered sends from their due."""
    attempts = Counter({row["grp"]: row["value"] for row in figures.values("attempts")})
    produced = sum(len(s) for s in figures.sets("sent", "topic", "n1", figures_only=True).values())
    bins = sorted((row["n1"], row["value"]) for row in figures.values("send_bin"))
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
