"""One run from its folder to result tables, with any engine.

The order: small tables, truncation events, stage A, what was known at each assignment, stage B on
what occurs more than once, then what needs both: inherited causes, faults, windows, distances.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics import coverage, tables
from failback.analytics.classify import RETRY_PREFIX, CauseInputs
from failback.analytics.coverage import Distance, Progress, message_of
from failback.analytics.engines.base import Engine, Forbidden, StageA
from failback.analytics.epochs import Queue
from failback.analytics.history import (
    Assignment,
    FaultStep,
    GroupQueue,
    History,
    Row,
    add_events,
    read_history,
    starts,
)
from failback.analytics.intervals import IntervalSet
from failback.analytics.lake import Lake
from failback.analytics.partials import Context, Outage, context_of
from failback.analytics.run_folder import RunFolder

QUIET_NS: Final = 5_000_000_000
"""A send counts as recovered when no failing one starts within this time after it."""
_SAMPLE_SLACK_NS: Final = 1_000_000_000
_LONG_AGO: Final = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive offsets that one assignment delivered again, for one cause."""

    assignment: int | None
    key: GroupQueue
    lo: int
    hi: int
    size: int
    cause: str | None
    from_proc: int
    to_proc: int
    t: int
    fid: str | None


@dataclass(slots=True)
class Analysis:
    """All result tables of a run. Integers only; ratios and seconds are the report's."""

    folder: RunFolder
    lake: Lake
    history: History
    context: Context
    stage_a: StageA
    progress: Progress
    repeats: pa.Table
    """``tables.CLASSIFIED`` plus ``inherited``, ``partial_view``, ``fid``, ``a_no``."""
    order: pa.Table
    resumed: Mapping[int, int]
    """Per outage the end of the first lasting good send, ns after run zero."""
    failed_after: Mapping[int, bool]
    """Per outage whether any send failed after it."""
    distances: Sequence[Distance]
    """Per assignment."""
    redelivered: Mapping[int, tuple[int, int, int]]
    """Per assignment: repeats of copies of other holders, lowest offset, highest + 1."""
    windows: Sequence[Window]
    timings: dict[str, float] = field(default_factory=dict)


def analyse(folder: RunFolder, lake: Lake, engine: Engine) -> Analysis:
    """Compute everything that a report needs of one run."""
    clock = _Clock()
    history = read_history(folder, lake)
    clock.lap("read")
    boots: dict[str, list[int]] = defaultdict(list)
    for start in starts(history):
        boots[start.broker].append(start.boot_ms)
    known = _known(engine.known(boots)) if boots else {}
    add_events(history, known)
    outages = outages_of(history.faults)
    context = context_of(history, outages, resume_windows(history))
    clock.lap("normalise")
    stage_a = engine.stage_a(context)
    clock.lap("stage_a")
    progress = coverage.progress_of(history, stage_a.values)
    inputs = CauseInputs(
        assigned=coverage.assigned_table(history.assignments),
        cover=coverage.cover_table(history.assignments, progress),
        reset=coverage.reset_table(history, progress),
        sent_back=coverage.sent_back_table(history.sendbacks),
        produced=tables.PRODUCED.empty_table(),
    )
    classified = engine.stage_b(
        context, _twice(stage_a.depths, "message"), _twice(stage_a.depths, "copy"), inputs
    )
    order = engine.order(context, folder.ordered_topics, classified)
    clock.lap("stage_b")
    repeats = _attributed(history, classified)
    forbidden = [forbidden_of(stage_a.values, outage) for outage in outages]
    resumed = engine.resumed(context, forbidden).to_pylist() if forbidden else []
    analysis = Analysis(
        folder=folder,
        lake=lake,
        history=history,
        context=context,
        stage_a=stage_a,
        progress=progress,
        repeats=repeats,
        order=order,
        resumed={row["n1"]: row["value"] for row in resumed},
        failed_after={number: each.failed for number, each in enumerate(forbidden)},
        distances=[coverage.distance_of(history, progress, a) for a in history.assignments],
        redelivered=_redelivered(repeats),
        windows=_windows(history, repeats),
        timings=clock.laps,
    )
    clock.lap("measures")
    return analysis


class _Clock:
    """Seconds per stage."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name] = round(now - self._last, 3)
        self._last = now


def _known(found: pa.Table) -> dict[tuple[Any, int], int]:
    return {
        (Queue(row["broker"], row["topic"], row["n1"]), row["n2"]): row["value"]
        for row in found.to_pylist()
    }


def _twice(depths: Mapping[str, pa.Table], family: str) -> pa.Table:
    found = depths.get(family, tables.DEPTHS.empty_table())
    return found.filter(pc.greater_equal(found.column("depth"), 2))


def outages_of(faults: Sequence[FaultStep]) -> list[Outage]:
    """Kills and stops of brokers: from GONE (else the kill itself) to ACCEPT."""
    by_fid: dict[str, list[FaultStep]] = defaultdict(list)
    for step in faults:
        by_fid[step.fid].append(step)
    found = []
    for fid, steps in by_fid.items():
        down = [step for step in steps if step.kind in ("KILL", "TERM") and step.bid is not None]
        if not down:
            continue
        gone = [step for step in steps if step.kind == "GONE"]
        killed = (gone or down)[0]
        back = [step.t for step in steps if step.kind == "ACCEPT" and step.t >= killed.t]
        found.append(
            Outage(
                fid=fid,
                broker=down[0].broker,
                addr=down[0].addr,
                killed=killed.t,
                accepted=min(back, default=None),
            )
        )
    return sorted(found, key=lambda outage: (outage.killed, outage.fid))


def resume_windows(history: History) -> dict[GroupQueue, list[tuple[int, int, int]]]:
    """Per assignment from a store: since when commits may explain its start offset."""
    found: dict[GroupQueue, list[tuple[int, int, int]]] = defaultdict(list)
    for number, a in enumerate(history.assignments):
        if a.src in ("STORE", "NO_ENTRY"):
            polls = history.polls.get((a.src_addr or "", "code43"), ())
            before = [t for t, binc in polls if t <= a.t and binc == a.src_binc]
            lo = before[-1] - _SAMPLE_SLACK_NS if before else _LONG_AGO
            found[a.key].append((number, lo, a.t))
    return dict(found)


@dataclass(frozen=True, slots=True)
class _Forbidden(Forbidden):
    failed: bool


def forbidden_of(values: Mapping[str, pa.Table], outage: Outage) -> _Forbidden:
    """When a good send does not end the outage: a failure starts within the quiet time after it."""
    rows = values.get("failed", tables.VALUES.empty_table()).to_pylist()
    t0 = np.array(
        sorted(
            row["n1"]
            for row in rows
            if (outage.broker is None or row["broker"] == outage.broker)
            and row["n2"] >= outage.killed
        ),
        np.int64,
    )
    if not t0.size:
        nothing = np.empty(0, np.int64)
        return _Forbidden(outage.killed, nothing, nothing, failed=False)
    # t0 of a good send must not lie in (bad - quiet, bad]: the failure would start in its quiet.
    blocked = IntervalSet.of(t0 - QUIET_NS + 1, t0 + 1)
    return _Forbidden(int(t0[0]), blocked.lo, blocked.hi, failed=True)


def _attributed(history: History, classified: pa.Table) -> pa.Table:
    """Add inherited causes, the assignment, its partial view, and the fault behind each repeat."""
    numbers = {a.holder: number for number, a in enumerate(history.assignments)}
    cause, inherited = _inherit(history, classified)
    zero_ms = history.folder.zero_wall_ns // 1_000_000
    a_no: list[int | None] = []
    partial: list[bool] = []
    fids: list[str | None] = []
    at_fault = _FaultFinder(history.faults)
    names = ("grp", "broker", "ptopic", "qid", "inc", "pqe", "cls", "nth_of_copy", "bt", "store_ms")
    for *queue, inc, pqe, cls, nth_of_copy, bt, store_ms in columns_of(classified, *names):
        number = numbers.get((GroupQueue(*queue), inc, pqe))
        a_no.append(number)
        taken = None if number is None else history.assignments[number]
        same_copy = cls == "DUP" and nth_of_copy > 1
        partial.append(bool(same_copy and taken and taken.partial_view))
        if cls != "DUP":
            fids.append(None)
        elif same_copy:
            fids.append(at_fault(taken.t if taken else bt))
        else:
            fids.append(at_fault((store_ms - zero_ms) * 1_000_000))
    at = classified.schema.get_field_index("cause")
    table = classified.set_column(at, "cause", pa.array(cause, pa.utf8()))
    for name, values, kind in (
        ("inherited", inherited, pa.bool_()),
        ("partial_view", partial, pa.bool_()),
        ("fid", fids, pa.utf8()),
        ("a_no", a_no, pa.int64()),
    ):
        table = table.append_column(name, pa.array(values, kind))
    return table


def columns_of(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    """Rows of some columns, as tuples."""
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


class _FaultFinder:
    """The fault whose latest step is the latest at or before an instant."""

    def __init__(self, steps: Sequence[FaultStep]) -> None:
        self._fids = [step.fid for step in steps]  # steps come sorted
        self._times = np.array([step.t for step in steps], np.int64)

    def __call__(self, t: int) -> str | None:
        at = int(np.searchsorted(self._times, t, "right")) - 1
        return self._fids[at] if at >= 0 else None


def _inherit(history: History, classified: pa.Table) -> tuple[list[str | None], list[bool]]:
    """Causes, with retry copies of a repeated handling given that repeat's cause; and which were.

    The k-th copy of a message at one retry count, by begin, comes from the k-th stored send-back,
    by time. If the handling that was sent back was itself a DUP, its retry copy is that DUP's echo.
    """
    cause: list[str | None] = classified.column("cause").to_pylist()
    inherited = [False] * len(cause)
    sent: dict[tuple[Any, ...], dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for back in history.sendbacks:
        identity = message_of(back)
        if identity is not None and back["ok"]:
            sent[back["grp"], *identity][back["rt_next"]].append(back)
    if not sent:
        return cause, inherited
    of_message: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for number, message in enumerate(columns_of(classified, "grp", "lane", "lseq")):
        if message in sent:
            (row,) = classified.slice(number, 1).to_pylist()
            of_message[message].append({**row, "number": number})
    for message, by_rt in sent.items():
        mine = sorted(of_message[message], key=lambda row: (row["bt"], row["did"]))
        for rt, backs in sorted(by_rt.items()):  # ascending: an echo may have an echo
            copies = [
                row
                for row in mine
                if row["rt"] == rt
                and row["nth_of_copy"] == 1
                and row["ptopic"].startswith(RETRY_PREFIX)
            ]
            for row, back in zip(copies, _last_of_each_way(backs), strict=False):
                source = _handling_of(back, mine)
                if row["cls"] == "DUP" and source and source["cls"] == "DUP":
                    cause[row["number"]] = cause[source["number"]]
                    inherited[row["number"]] = True
    return cause, inherited


def _last_of_each_way(backs: Sequence[Row]) -> list[Row]:
    last: dict[tuple[Any, ...], Row] = {}
    for back in sorted(backs, key=lambda row: (row["t0"], row["seq"])):
        last[back["proc_no"], back["omid"], back["reason"], back["path"]] = back
    return sorted(last.values(), key=lambda row: (row["t0"], row["proc_no"], row["seq"]))


def _handling_of(back: Row, rows: Sequence[Row]) -> Row | None:
    """The delivery whose failure was sent back: same process and copy, latest begun before."""
    found = [
        row
        for row in rows
        if row["proc_no"] == back["proc_no"]
        and row["rt"] == back["rt_next"] - 1
        and row["bt"] <= back["t0"]
        and (back["omid"] is None or row["omid"] == back["omid"])
    ]
    return max(found, key=lambda row: (row["bt"], row["did"]), default=None)


def _same_copy_repeats(repeats: pa.Table) -> pa.Table:
    """Deliveries of a copy that another holder had delivered before."""
    other = pc.or_(
        pc.not_equal(repeats.column("prev_inc"), repeats.column("inc")),
        pc.not_equal(repeats.column("prev_pqe"), repeats.column("pqe")),
    )
    again = pc.greater(repeats.column("nth_of_copy"), 1)
    return repeats.filter(pc.fill_null(pc.and_(again, other), False))


def _redelivered(repeats: pa.Table) -> dict[int, tuple[int, int, int]]:
    offsets: dict[int, set[int]] = defaultdict(set)
    found = _same_copy_repeats(repeats)
    for number, qoff in columns_of(found, "a_no", "qoff"):
        if number is not None:
            offsets[number].add(qoff)
    return {number: (len(q), min(q), max(q) + 1) for number, q in offsets.items()}


def _windows(history: History, repeats: pa.Table) -> list[Window]:
    """Runs of repeated offsets per assignment, cause and previous holder, of rows in figures."""
    found = _same_copy_repeats(repeats)
    in_figures = pc.greater_equal(found.column("bt"), history.folder.warmup_end_ns)
    found = found.filter(pc.and_(in_figures, pc.equal(found.column("cls"), "DUP")))
    groups: dict[tuple[Any, ...], set[int]] = defaultdict(set)
    first: dict[tuple[Any, ...], int] = {}
    names = ("grp", "broker", "ptopic", "qid", "inc", "a_no", "cause", "prev_inc", "fid")
    for *parts, qoff, bt in columns_of(found, *names, "qoff", "bt"):
        key = tuple(parts)
        groups[key].add(qoff)
        first[key] = min(first.get(key, bt), bt)
    windows = []
    for key, offsets in groups.items():
        *place, inc, number, cause, prev_inc, fid = key
        taken: Assignment | None = None if number is None else history.assignments[number]
        t = taken.t if taken else first[key]
        values = np.array(sorted(offsets), np.int64)
        queue = GroupQueue(*place)
        windows += [
            Window(number, queue, lo, hi, hi - lo, cause, prev_inc, inc, t, fid)
            for lo, hi in IntervalSet.of(values, values + 1)
        ]
    return sorted(windows, key=lambda w: (w.key, w.t, w.lo, w.cause or "", w.from_proc, w.to_proc))
