"""Stage A: what one batch of rows contributes to a run's history, small and order-free. Pure.

Both engines call these functions, on different batches of the same rows, and add the results up:
interval rows by :func:`failback.analytics.intervals.sweep`, value rows by sum, max or min. All
operations are associative and commutative, so the batches do not matter.

A partial row is ``op, fam, grp, broker, topic, n1..n6, lo, hi, weight, figure``. ``op`` says how
rows with an equal key are joined; ``lo`` is the value of all but interval rows. Absent names are
``""`` and absent numbers 0; ``NULL_NUMBER`` stands for a null that is part of a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from failback.analytics.align import Clocks
from failback.analytics.epochs import Queue, QueueEvents
from failback.analytics.history import GroupQueue, History
from failback.analytics.intervals import Ints, layers
from failback.client.consumelog.schema import COMMIT_KINDS

INTERVAL: Final = 0
SUM: Final = 1
MAX: Final = 2
MIN: Final = 3

NULL_NUMBER: Final = -(1 << 62)
NS: Final = 1_000_000_000
OK_BIN_NS: Final = 10_000_000
MAX_OK_BINS: Final = 1 << 16
LATENCY_BIN_NS: Final = 100_000
LATENCY_POINT_NS: Final = 100_000_000
NAMES: Final = ("grp", "broker", "topic")
NUMBERS: Final = ("n1", "n2", "n3", "n4", "n5", "n6")
SCHEMA: Final = pa.schema(
    [
        ("op", pa.int8()),
        ("fam", pa.utf8()),
        *((name, pa.utf8()) for name in NAMES),
        *((name, pa.int64()) for name in NUMBERS),
        *((name, pa.int64()) for name in ("lo", "hi", "weight", "figure")),
    ]
)

DOUBTFUL_RESULTS: Final = frozenset({"TIMEOUT", "CONN", "UNKNOWN"})
TAKEN_RESULTS: Final = frozenset({"OK", "SENT", *COMMIT_KINDS})
"""Results of commits that nothing contradicts: one-way ones are only known to have been sent."""

DELIVER_COLUMNS: Final = (
    "grp", "broker", "ptopic", "qid", "epoch", "qoff", "lane", "lseq", "inc", "pqe", "bt", "et",
    "done",
)  # fmt: skip
PRODUCE_COLUMNS: Final = (
    "host", "topic", "broker", "qid", "bid", "addr", "lane", "lseq", "res", "due", "t0", "t1",
)  # fmt: skip
PULL_COLUMNS: Final = (
    "host", "grp", "broker", "ptopic", "qid", "bid", "addr", "res", "t0", "t1",
)  # fmt: skip
COMMIT_COLUMNS: Final = (
    "host", "grp", "client_id", "broker", "ptopic", "qid", "off", "addr", "bid", "binc", "t",
    "sent", "result",
)  # fmt: skip
SCAN_COLUMNS: Final = ("ptopic", "lane", "lseq")


@dataclass(frozen=True, slots=True)
class Outage:
    """One kill of a broker, as far as the client tables are asked about it; ns after run zero."""

    fid: str
    broker: str | None
    addr: str | None
    killed: int
    accepted: int | None


@dataclass(frozen=True, slots=True)
class Context:
    """What a batch needs to know beside its rows. Sent to Spark's workers: small and picklable."""

    clocks: Clocks
    warmup_end_ns: int
    broadcasting: frozenset[str]
    boundaries: Mapping[GroupQueue, Sequence[int]]
    events: Mapping[Queue, QueueEvents]
    lives: Mapping[str, Sequence[tuple[int, int | None, int]]]
    """Per address: (first seen, until, bootTimestamp)."""
    ok_bin_ns: int = OK_BIN_NS
    """Width of the bins of successes: 10 ms, wider in runs of more than 11 minutes."""
    outages: tuple[Outage, ...] = ()
    resume_windows: Mapping[GroupQueue, Sequence[tuple[int, int, int]]] = field(
        default_factory=dict
    )
    """Per queue: (assignment number, from, to): commits in between may explain its start."""


def context_of(
    history: History,
    outages: Sequence[Outage],
    resume_windows: Mapping[GroupQueue, Sequence[tuple[int, int, int]]],
) -> Context:
    end_ns = history.folder.phases.get("end_ns") or 0
    return Context(
        clocks=history.clocks,
        warmup_end_ns=history.folder.warmup_end_ns,
        broadcasting=history.folder.broadcasting,
        boundaries=history.boundaries(),
        events=history.events,
        lives={
            addr: [(life.first_seen, life.until, life.boot_ms) for life in lives]
            for addr, lives in history.incarnations.items()
        },
        ok_bin_ns=max(OK_BIN_NS, -(-end_ns // MAX_OK_BINS)),
        outages=tuple(outages),
        resume_windows=resume_windows,
    )


def deliver_partials(batch: pa.Table, context: Context) -> pa.Table:
    """Of normalised deliveries (:data:`DELIVER_COLUMNS`): copies, messages, progress, rates."""
    rows = Rows(batch)
    out = Partials()
    if not rows.count:
        return out.table()
    grp, broker, topic = rows.codes("grp"), rows.codes("broker"), rows.codes("ptopic")
    qid, qoff, bt, et = rows["qid"], rows["qoff"], rows["bt"], rows["et"]
    ended = rows.valid("et")
    done = ended & rows.true("done")
    figure = bt >= context.warmup_end_ns
    queue = Key(grp=grp, broker=broker, topic=topic, n1=qid)
    epoch_queue = queue.and_(n2=rows["epoch"])
    lane = Key(grp=grp, n1=rows["lane"])
    out.intervals("copy", epoch_queue, qoff, figure)
    out.intervals("message", lane, rows["lseq"], figure)
    out.intervals("done", lane.at(done), rows["lseq"][done], figure[done])
    bucket = buckets(rows, ("grp", "broker", "ptopic"), et, context.boundaries)
    out.values(MAX, "progress", epoch_queue.and_(n3=bucket).at(done), qoff[done] + 1)
    by_second = queue.and_(n2=bt // NS)
    out.values(SUM, "rate", by_second, np.ones(rows.count, np.int64))
    out.values(MAX, "front", by_second, qoff + 1)
    holder = queue.and_(n2=rows["inc"], n3=rows["pqe"])
    out.values(MAX, "finished", holder.and_(n4=et // NS).at(ended), qoff[ended] + 1)
    spans = ended & (et // NS > bt // NS)
    for_seconds = np.flatnonzero(spans)
    if for_seconds.size:
        length = (et // NS - bt // NS)[for_seconds]
        which = np.repeat(for_seconds, length)
        step = np.arange(which.size) - np.repeat(np.cumsum(length) - length, length)
        second = bt[which] // NS + step
        out.values(MIN, "open", holder.at(which).and_(n4=second), qoff[which])
    out.values(
        SUM,
        "ok_bin",
        Key(grp=grp, n1=et // context.ok_bin_ns).at(done),
        np.ones(int(done.sum()), np.int64),
    )
    group = Key(grp=grp)
    for name, counted in (
        ("delivered", figure.astype(np.int64)),
        ("handler_ns", np.where(figure & ended, et - bt, 0)),
        ("abandoned", (figure & ~ended).astype(np.int64)),
        ("foreign", (figure & (rows["lane"] < 0)).astype(np.int64)),
    ):
        out.values(SUM, name, group, counted)
    return out.table()


def produce_partials(batch: pa.Table, context: Context) -> pa.Table:
    """Of raw send attempts (:data:`PRODUCE_COLUMNS`): what was sent and acknowledged, and when."""
    rows = Rows(batch)
    out = Partials()
    if not rows.count:
        return out.table()
    shift = rows.shifts(context.clocks)
    due, t0, t1 = rows["due"] + shift, rows["t0"] + shift, rows["t1"] + shift
    topic, broker = rows.codes("topic"), rows.codes("broker")
    figure = t0 >= context.warmup_end_ns
    good = rows.starts_with("res", "OK")
    known = rows.valid("lane") & rows.valid("lseq")
    lane = Key(topic=topic, n1=rows["lane"])
    doubtful = rows.one_of("res", DOUBTFUL_RESULTS)
    for name, chosen in (
        ("sent", known),
        ("acked", known & rows.equals("res", "OK")),
        ("degraded", known & rows.equals("res", "OK_DEGRADED")),
        ("doubtful", known & doubtful),
    ):
        out.intervals(name, lane.at(chosen), rows["lseq"][chosen], figure[chosen])
    ones = np.ones(rows.count, np.int64)
    # The result of an attempt takes the place of a group's name.
    result = Key(grp=rows.codes("res"))
    out.values(SUM, "attempts", result.at(figure), ones[figure])
    answered = good & figure
    bins = Key(n1=np.maximum(t1 - due, 0) // LATENCY_BIN_NS)
    out.values(SUM, "send_bin", bins.at(answered), ones[answered])
    out.values(MAX, "send_point", result.and_(n1=t1 // LATENCY_POINT_NS), np.maximum(t1 - due, 0))
    out.values(SUM, "send_rate", Key(n1=t1 // NS).at(good), ones[good])
    bad = ~good
    out.values(SUM, "failed", Key(broker=broker, n1=t0, n2=t1).at(bad), ones[bad])
    for number, outage in enumerate(context.outages):
        here = rows.is_broker(outage.broker) & (t0 >= outage.killed)
        _note_route(out, rows, outage, number, t0)
        if outage.accepted is not None:
            sent = here & good & (t0 >= outage.accepted) & (rows["bid"] == 0)
            out.values(MIN, "first_send", Key(n1=_same(rows, number)).at(sent), t1[sent])
    return out.table()


def resumed_partials(
    batch: pa.Table, context: Context, forbidden: Sequence[tuple[int, Ints, Ints]]
) -> pa.Table:
    """First good send after each outage that no failure follows too soon.

    Args:
        batch: Raw send attempts.
        context: As everywhere.
        forbidden: Per outage: first failure's begin, and disjoint [lo, hi) that ``t0`` must avoid.
    """
    rows = Rows(batch)
    out = Partials()
    if not rows.count:
        return out.table()
    shift = rows.shifts(context.clocks)
    t0, t1 = rows["t0"] + shift, rows["t1"] + shift
    good = rows.starts_with("res", "OK")
    for number, (outage, (first_bad, lo, hi)) in enumerate(
        zip(context.outages, forbidden, strict=True)
    ):
        at = np.searchsorted(lo, t0, "right") - 1
        inside = (at >= 0) & (t0 < hi[np.maximum(at, 0)]) if lo.size else np.zeros(t0.size, bool)
        kept = good & rows.is_broker(outage.broker) & (t1 > first_bad) & ~inside
        kept &= t1 >= outage.killed
        out.values(MIN, "resumed", Key(n1=_same(rows, number)).at(kept), t1[kept])
    return out.table()


def pull_partials(batch: pa.Table, context: Context) -> pa.Table:
    """Of raw pulls (:data:`PULL_COLUMNS`): when each queue was served again after each outage."""
    rows = Rows(batch)
    out = Partials()
    if not rows.count:
        return out.table()
    shift = rows.shifts(context.clocks)
    t0, t1 = rows["t0"] + shift, rows["t1"] + shift
    good = rows.one_of("res", frozenset({"FOUND", "NO_NEW_MSG"}))
    queue = Key(
        grp=rows.codes("grp"),
        broker=rows.codes("broker"),
        topic=rows.codes("ptopic"),
        n1=rows["qid"],
    )
    bid = rows["bid"]
    known_bid = rows.valid("bid")
    for number, outage in enumerate(context.outages):
        here = rows.is_broker(outage.broker)
        marked = queue.and_(n2=_same(rows, number))
        before = here & (t0 < outage.killed)
        out.values(MAX, "pulled_before", marked.at(before), t0[before])
        after = here & good & (t0 >= outage.killed)
        out.values(MIN, "pulled_after", marked.at(after), t1[after])
        fault = Key(n1=_same(rows, number))
        slave = after & known_bid & (bid > 0)
        out.values(MIN, "first_slave_pull", fault.at(slave), t1[slave])
        _note_route(out, rows, outage, number, t0)
        if outage.accepted is not None:
            back = here & good & (t0 >= outage.accepted)
            out.values(MIN, "pulled_accepted", marked.at(back), t1[back])
            master = back & known_bid & (bid == 0)
            out.values(MIN, "first_master_pull", fault.at(master), t1[master])
    return out.table()


def commit_partials(batch: pa.Table, context: Context) -> pa.Table:
    """Of raw commits (:data:`COMMIT_COLUMNS`): the highest offset each incarnation was told."""
    rows = Rows(batch)
    out = Partials()
    if not rows.count:
        return out.table()
    t = rows["t"] + rows.shifts(context.clocks)
    rows.rename_broadcast(context.broadcasting)
    names = ("grp", "broker", "ptopic")
    off = rows["off"]
    sent = rows.true("sent")
    binc = np.where(rows.valid("binc"), rows["binc"], rows.incarnations(t, context.lives))
    epoch = rows.epochs_at(t, context.events)
    bucket = buckets(rows, names, t, context.boundaries)
    queue = Key(
        grp=rows.codes("grp"),
        broker=rows.codes("broker"),
        topic=rows.codes("ptopic"),
        n1=rows["qid"],
    )
    bid = np.where(rows.valid("bid"), rows["bid"], NULL_NUMBER)
    place = queue.and_(n2=bucket, n3=epoch)
    out.values(MAX, "covered", place.and_(n4=bid, n5=binc).at(sent), off[sent])
    taken = sent & (~rows.valid("result") | rows.one_of("result", TAKEN_RESULTS))
    out.values(MAX, "taken", queue.and_(n2=bucket).at(taken), off[taken])
    out.values(MAX, "memory", queue.and_(n2=t // NS).at(sent), off[sent])
    lost = sent & rows.valid("addr") & (binc == NULL_NUMBER)
    out.values(SUM, "binc_unknown", Key().at(lost), np.ones(int(lost.sum()), np.int64))
    windows = rows.windows(names, t, context.resume_windows)
    if windows is not None:
        which, number = windows
        near = sent[which]
        key = queue.at(which).and_(n2=number, n3=off[which], n4=bid[which], n5=binc[which])
        out.values(SUM, "told", key.at(near), np.ones(int(near.sum()), np.int64))
    return out.table()


def scan_partials(batch: pa.Table, context: Context) -> pa.Table:
    """Of scanned copies (:data:`SCAN_COLUMNS`): which messages are stored where."""
    rows = Rows(batch)
    out = Partials()
    if not rows.count:
        return out.table()
    known = rows.valid("lane") & rows.valid("lseq")
    lane = Key(topic=rows.codes("ptopic"), n1=rows["lane"])
    out.intervals("stored", lane.at(known), rows["lseq"][known], known[known])
    return out.table()


def known_partials(
    batch: pa.Table, offset: str, topic: str, boots: Mapping[str, Sequence[int]]
) -> pa.Table:
    """Highest offset + 1 per queue that existed before each start of its master.

    Args:
        batch: Rows with ``broker``, ``qid``, column ``topic``, column ``offset`` and ``when_ms``:
            the broker clock's instant from which on the offset existed.
        offset: Name of the queue offset's column.
        topic: Name of the topic's column.
        boots: Per broker the ``bootTimestamp`` of masters that began inside the run, ascending.
    """
    rows = Rows(batch)
    out = Partials()
    if not rows.count:
        return out.table()
    queue = Key(broker=rows.codes("broker"), topic=rows.codes(topic), n1=rows["qid"])
    known = rows.valid(offset) & rows.valid("when_ms")
    for broker, times in boots.items():
        for boot_ms in times:
            before = known & rows.is_broker(broker) & (rows["when_ms"] < boot_ms)
            key = queue.and_(n2=np.full(rows.count, boot_ms, np.int64))
            out.values(MAX, "known", key.at(before), rows[offset][before] + 1)
    return out.table()


def _same(rows: Rows, number: int) -> Ints:
    return np.full(rows.count, number, np.int64)


def _note_route(out: Partials, rows: Rows, outage: Outage, number: int, t0: Ints) -> None:
    """When somebody last tried the dead address before it was back."""
    if outage.addr is None:
        return
    tried = rows.equals("addr", outage.addr) & (t0 > outage.killed)
    if outage.accepted is not None:
        tried &= t0 < outage.accepted
    out.values(MAX, "old_route", Key(n1=_same(rows, number)).at(tried), t0[tried])


@dataclass(frozen=True, slots=True)
class Codes:
    """A name column as dense codes into ``names``; null is the name ``""``."""

    codes: Ints
    names: list[str]


class Rows:
    """A batch as numpy columns, converted on first use."""

    def __init__(self, batch: pa.Table) -> None:
        self._batch = batch.combine_chunks()
        self.count: int = batch.num_rows
        self._numbers: dict[str, Ints] = {}
        self._codes: dict[str, Codes] = {}

    def column(self, name: str) -> pa.Array:
        """A column as one Arrow array."""
        column = self._batch.column(name)
        if column.num_chunks == 1:
            return column.chunk(0)
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)

    def __getitem__(self, name: str) -> Ints:
        """A number column as int64; nulls are 0."""
        found = self._numbers.get(name)
        if found is None:
            column = self.column(name)
            filled = pc.fill_null(column, 0) if column.null_count else column
            found = np.asarray(filled.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)
            self._numbers[name] = found
        return found

    def valid(self, name: str) -> NDArray[np.bool_]:
        return np.asarray(self.column(name).is_valid().to_numpy(zero_copy_only=False), bool)

    def true(self, name: str) -> NDArray[np.bool_]:
        return np.asarray(
            pc.fill_null(self.column(name), False).to_numpy(zero_copy_only=False), bool
        )

    def codes(self, name: str) -> Codes:
        found = self._codes.get(name)
        if found is None:
            column = self.column(name)
            if not pa.types.is_dictionary(column.type):
                column = column.dictionary_encode()
            names = column.dictionary.to_pylist()
            indices = pc.fill_null(column.indices, len(names)).to_numpy(zero_copy_only=False)
            found = Codes(indices.astype(np.int64), [*names, ""])
            self._codes[name] = found
        return found

    def texts(self, name: str, rows: Ints) -> list[str | None]:
        """A text column's values of some rows; all null where the batch lacks the column."""
        if name not in self._batch.schema.names:
            return [None] * rows.size
        found: list[str | None] = self.column(name).take(pa.array(rows)).to_pylist()
        return found

    def equals(self, name: str, value: str) -> NDArray[np.bool_]:
        return self._named(name, lambda text: text == value)

    def one_of(self, name: str, values: frozenset[str]) -> NDArray[np.bool_]:
        return self._named(name, lambda text: text in values)

    def starts_with(self, name: str, prefix: str) -> NDArray[np.bool_]:
        return self._named(name, lambda text: text.startswith(prefix))

    def is_broker(self, broker: str | None) -> NDArray[np.bool_]:
        """Rows of a broker; of any broker when the fault did not name one."""
        return np.ones(self.count, bool) if broker is None else self.equals("broker", broker)

    def _named(self, name: str, test: Callable[[str], bool]) -> NDArray[np.bool_]:
        codes = self.codes(name)
        return np.array([test(text) for text in codes.names], bool)[codes.codes]

    def shifts(self, clocks: Clocks) -> Ints:
        codes = self.codes("host")
        return np.array([clocks.shift_of(name) for name in codes.names], np.int64)[codes.codes]

    def rename_broadcast(self, groups: frozenset[str]) -> None:
        """Make ``grp`` the group of each client where every client gets every message."""
        grp = self.codes("grp")
        if not groups.intersection(grp.names):
            return
        client = self.codes("client_id")
        pairs = grp.codes * len(client.names) + client.codes
        kept, codes = np.unique(pairs, return_inverse=True)
        names: dict[str, int] = {}  # several clients of one other group share its name
        ranks = []
        for pair in kept.tolist():
            group, one = divmod(pair, len(client.names))
            name = grp.names[group]
            name = f"{name}@{client.names[one]}" if name in groups else name
            ranks.append(names.setdefault(name, len(names)))
        self._codes["grp"] = Codes(np.array(ranks, np.int64)[codes], list(names))

    def by_queue(self, names: Sequence[str]) -> list[tuple[tuple[Any, ...], Ints]]:
        """Indices of the rows of each queue: ``((names..., qid), rows)``."""
        columns = [self.codes(name) for name in names]
        code, radices = np.zeros(self.count, np.int64), []
        for column in columns:
            code = code * len(column.names) + column.codes
            radices.append(len(column.names))
        span = int(self["qid"].max()) + 2  # -1 is a queue id of samples
        code = code * span + self["qid"] + 1
        order = np.argsort(code, kind="stable")
        starts = np.flatnonzero(np.diff(code[order], prepend=-1))
        found = []
        for rows in np.split(order, starts[1:]):
            rest, qid = divmod(int(code[rows[0]]), span)
            texts = []
            for column, radix in zip(reversed(columns), reversed(radices), strict=True):
                rest, at = divmod(rest, radix)
                texts.append(column.names[at])
            found.append(((*reversed(texts), qid - 1), rows))
        return found

    def incarnations(
        self, t: Ints, lives: Mapping[str, Sequence[tuple[int, int | None, int]]]
    ) -> Ints:
        """``bootTimestamp`` of who answered at ``addr`` at ``t``; see History.incarnation_at."""
        found = np.full(self.count, NULL_NUMBER, np.int64)
        codes = self.codes("addr")
        for at, name in enumerate(codes.names):
            known = lives.get(name)
            if not known:
                continue
            rows = np.flatnonzero(codes.codes == at)
            first = np.array([life[0] for life in known], np.int64)
            until = np.array([_END if life[1] is None else life[1] for life in known], np.int64)
            boot = np.array([life[2] for life in known], np.int64)
            which = np.maximum(np.searchsorted(first, t[rows], "right") - 1, 0)
            found[rows] = np.where(t[rows] < until[which], boot[which], NULL_NUMBER)
        return found

    def epochs_at(self, t: Ints, events: Mapping[Queue, QueueEvents]) -> Ints:
        epochs = np.zeros(self.count, np.int64)
        if events:
            for (broker, topic, qid), rows in self.by_queue(("broker", "ptopic")):
                known = events.get(Queue(broker, topic, qid))
                if known is not None:
                    epochs[rows] = known.epoch_at(t[rows])
        return epochs

    def windows(
        self,
        names: Sequence[str],
        t: Ints,
        windows: Mapping[GroupQueue, Sequence[tuple[int, int, int]]],
    ) -> tuple[Ints, Ints] | None:
        """Rows inside the windows of their queue: row indices and window numbers."""
        which, numbers = [], []
        for key, rows in self.by_queue(names) if windows else ():
            for number, lo, hi in windows.get(GroupQueue(*key), ()):
                inside = rows[(t[rows] > lo) & (t[rows] <= hi)]
                which.append(inside)
                numbers.append(np.full(inside.size, number, np.int64))
        if not which:
            return None
        return np.concatenate(which), np.concatenate(numbers)


_END: Final = (1 << 63) - 1


def buckets(
    rows: Rows,
    names: Sequence[str],
    t: Ints,
    boundaries: Mapping[GroupQueue, Sequence[int]],
) -> Ints:
    """Bucket of each instant: i when boundary i-1 < t <= boundary i of the row's queue."""
    found = np.zeros(rows.count, np.int64)
    for key, where in rows.by_queue(names):
        edges = boundaries.get(GroupQueue(*key))
        if edges:
            found[where] = np.searchsorted(np.array(edges, np.int64), t[where], "left")
    return found


class Key:
    """The key columns of partial rows, as codes and numbers."""

    def __init__(self, **parts: Codes | Ints) -> None:
        self.parts: dict[str, Codes | Ints] = parts

    def and_(self, **more: Codes | Ints) -> Key:
        return Key(**{**self.parts, **more})

    def at(self, rows: NDArray[Any]) -> Key:
        """The keys of some rows only, by mask or index."""
        return Key(
            **{
                name: Codes(part.codes[rows], part.names) if isinstance(part, Codes) else part[rows]
                for name, part in self.parts.items()
            }
        )

    def packed(self, count: int) -> tuple[Ints, Ints]:
        """A dense code per row, and for each code a row that has it."""
        if not self.parts or not count:
            return np.zeros(count, np.int64), np.zeros(min(count, 1), np.int64)
        code, span = np.zeros(count, np.int64), 1
        for part in self.parts.values():
            values = part.codes if isinstance(part, Codes) else part
            least = int(values.min())
            width = int(values.max()) - least + 1
            if width == 1:
                continue  # the same everywhere
            if width > 4 * count + 1024:  # scattered numbers: their ranks are enough
                unique, values = np.unique(values, return_inverse=True)
                least, width = 0, unique.size
            if span * width > 4 * count + 1024:
                unique, code = np.unique(code, return_inverse=True)
                span = unique.size
            code = code * width + (values - least)
            span *= width
        if span == 1:
            return code, np.zeros(1, np.int64)
        if span > 4 * count + 1024:
            _, first, dense = np.unique(code, return_index=True, return_inverse=True)
            return dense, first
        seen = np.full(span, -1, np.int64)
        seen[code[::-1]] = np.arange(count - 1, -1, -1)
        present = seen >= 0
        rank = np.cumsum(present) - 1
        return rank[code], seen[present]


class Partials:
    """Collects partial rows."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []

    def intervals(self, family: str, key: Key, values: Ints, figure: NDArray[np.bool_]) -> None:
        """Runs of the values of each key; rows that are not in figures apart."""
        if not values.size:
            return
        number, example = key.packed(values.size)
        for counted in (True, False):
            chosen = figure if counted else ~figure
            if not chosen.any():
                continue
            runs = layers(number[chosen], values[chosen])
            weight = runs.weight
            self._add(
                INTERVAL,
                family,
                key,
                example[runs.number],
                runs.lo,
                runs.hi,
                weight,
                weight if counted else np.zeros_like(weight),
            )

    def values(self, op: int, family: str, key: Key, values: Ints) -> None:
        """One value per key, joined by ``op``."""
        if not values.size:
            return
        number, example = key.packed(values.size)
        if op == SUM:
            joined = np.zeros(example.size, np.int64)
            np.add.at(joined, number, values)
        elif op == MAX:
            joined = np.full(example.size, np.iinfo(np.int64).min)
            np.maximum.at(joined, number, values)
        else:
            joined = np.full(example.size, np.iinfo(np.int64).max)
            np.minimum.at(joined, number, values)
        nothing = np.zeros(joined.size, np.int64)
        self._add(op, family, key, example, joined, nothing, nothing, nothing)

    def _add(
        self,
        op: int,
        family: str,
        key: Key,
        example: Ints,
        lo: Ints,
        hi: Ints,
        weight: Ints,
        figure: Ints,
    ) -> None:
        count = lo.size
        columns: list[Any] = [
            np.full(count, op, np.int8),
            pa.array([family] * count, pa.utf8()),
        ]
        for name in NAMES:
            part = key.parts.get(name)
            if isinstance(part, Codes):
                taken = pa.array(part.names, pa.utf8()).take(pa.array(part.codes[example]))
                columns.append(taken)
            else:
                columns.append(pa.array([""] * count, pa.utf8()))
        for name in NUMBERS:
            part = key.parts.get(name)
            given = isinstance(part, np.ndarray)
            columns.append(part[example] if given else np.zeros(count, np.int64))  # type: ignore[index]
        self._tables.append(
            pa.table([*columns, lo, hi, weight, figure], names=SCHEMA.names).cast(SCHEMA)
        )

    def table(self) -> pa.Table:
        return pa.concat_tables(self._tables) if self._tables else SCHEMA.empty_table()
