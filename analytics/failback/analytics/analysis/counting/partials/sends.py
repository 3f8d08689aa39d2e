"""Counts sends, scanned copies and pulls: what was sent, stored and pulled, and when. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials.context import QUIET_NS, Context, Outage
from failback.analytics.analysis.counting.partials.rows import Rows
from failback.analytics.analysis.counting.partials.sums import Key, Partials
from failback.client.consumelog.schema import SEND_RESULTS

LATENCY_BIN_NS: Final = 100_000
LATENCY_POINT_NS: Final = 100_000_000
TENTHS: Final = 10
GOOD_RESULTS: Final = frozenset({"OK", "OK_DEGRADED"})
DOUBTFUL_RESULTS: Final = frozenset({"TIMEOUT", "CONN", "UNKNOWN"})
PRODUCE_COLUMNS: Final = (
    "host", "topic", "broker", "qid", "bid", "addr", "lane", "lseq", "res", "due", "t0", "t1",
)  # fmt: skip
SCAN_COLUMNS: Final = ("ptopic", "lane", "lseq")


def produce_partials(batch: pa.Table, context: Context) -> pa.Table:
    """Of raw send attempts (:data:`PRODUCE_COLUMNS`): what was sent and acknowledged, and when."""
    rows = Rows(batch)
    out = Partials()
    if not rows.count:
        return out.table()
    shift = rows.shifts(context.clocks)
    due, t0, t1 = rows["due"] + shift, rows["t0"] + shift, rows["t1"] + shift
    topic, broker = rows.codes("topic"), rows.codes("broker")
    figure = context.in_figures(t0)
    unknown = rows.rename_unknown("res", frozenset(SEND_RESULTS), "UNKNOWN")
    good = rows.one_of("res", GOOD_RESULTS)
    known = rows.valid("lane") & rows.valid("lseq")
    impossible = (rows.valid("lane") != rows.valid("lseq")) | (
        known & ((rows["lane"] < 0) | (rows["lseq"] < 0))
    )
    known &= ~impossible
    unknown |= impossible
    lane = Key(topic=topic, lane=rows["lane"])
    doubtful = rows.one_of("res", DOUBTFUL_RESULTS)
    for family, chosen in (
        (families.SENT, known),
        (families.ACKED, known & rows.equals("res", "OK")),
        (families.DEGRADED, known & rows.equals("res", "OK_DEGRADED")),
        (families.DOUBTFUL, known & doubtful),
    ):
        out.intervals(family, lane.at(chosen), rows["lseq"][chosen], figure[chosen])
    ones = np.ones(rows.count, np.int64)
    out.values(families.UNKNOWN_RESULTS, Key().at(unknown), ones[unknown])
    result = Key(result=rows.codes("res"))
    out.values(families.ATTEMPTS, result.at(figure), ones[figure])
    answered = good & figure
    bins = Key(latency_bin=np.maximum(t1 - due, 0) // LATENCY_BIN_NS)
    out.values(families.SEND_LATENCIES, bins.at(answered), ones[answered])
    second = context.seconds.last(t1)
    wide = context.seconds.widths_of(second) > 1
    tenth = np.where(wide, second * TENTHS, t1 // LATENCY_POINT_NS)
    out.values(families.SLOWEST_SENDS, result.and_(tenth=tenth), np.maximum(t1 - due, 0))
    out.values(families.SEND_RATE, Key(second=second).at(good), ones[good])
    killed = np.array([outage.killed for outage in context.outages], np.int64)
    begun = np.searchsorted(killed, t1, "right") - 1
    bad = ~good & (begun >= 0)
    failed = Key(broker=broker, begun_outage=begun, quiet_bin=t0 // QUIET_NS).at(bad)
    for family in (families.FIRST_FAILED, families.LAST_FAILED):
        out.values(family, failed, t0[bad])
    for number, outage in enumerate(context.outages):
        here = rows.is_broker(outage.broker) & (t0 >= outage.killed)
        note_route(out, rows, outage, number, t0)
        if outage.accepted is not None:
            sent = here & good & (t0 >= outage.accepted) & (rows["bid"] == 0)
            out.values(families.FIRST_SEND, Key(outage=same(rows, number)).at(sent), t1[sent])
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
    good = rows.one_of("res", GOOD_RESULTS)
    for number, (outage, (first_bad, lo, hi)) in enumerate(
        zip(context.outages, forbidden, strict=True)
    ):
        at = np.searchsorted(lo, t0, "right") - 1
        inside = (at >= 0) & (t0 < hi[np.maximum(at, 0)]) if lo.size else np.zeros(t0.size, bool)
        kept = good & rows.is_broker(outage.broker) & (t1 > first_bad) & ~inside
        kept &= t1 >= outage.killed
        out.values(families.RESUMED, Key(outage=same(rows, number)).at(kept), t1[kept])
    return out.table()


def scan_partials(batch: pa.Table, context: Context) -> pa.Table:
    """Of scanned copies (:data:`SCAN_COLUMNS`): which messages are stored where."""
    rows = Rows(batch)
    out = Partials()
    if not rows.count:
        return out.table()
    known = rows.valid("lane") & rows.valid("lseq")
    lane = Key(topic=rows.codes("ptopic"), lane=rows["lane"])
    out.intervals(families.STORED, lane.at(known), rows["lseq"][known], known[known])
    return out.table()


def same(rows: Rows, number: int) -> Ints:
    return np.full(rows.count, number, np.int64)


def note_route(out: Partials, rows: Rows, outage: Outage, number: int, t0: Ints) -> None:
    """Note the last try at the dead address before the broker accepted again."""
    if outage.addr is None:
        return
    tried = rows.equals("addr", outage.addr) & (t0 > outage.killed)
    if outage.accepted is not None:
        tried &= t0 < outage.accepted
    out.values(families.OLD_ROUTE, Key(outage=same(rows, number)).at(tried), t0[tried])


PULL_COLUMNS: Final = (
    "host", "grp", "broker", "ptopic", "qid", "bid", "addr", "res", "t0", "t1",
)  # fmt: skip


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
        qid=rows["qid"],
    )
    bid = rows["bid"]
    known_bid = rows.valid("bid")
    for number, outage in enumerate(context.outages):
        here = rows.is_broker(outage.broker)
        marked = queue.and_(outage=same(rows, number))
        before = here & (t0 < outage.killed)
        out.values(families.PULLED_BEFORE, marked.at(before), t0[before])
        after = here & good & (t0 >= outage.killed)
        out.values(families.PULLED_AFTER, marked.at(after), t1[after])
        fault = Key(outage=same(rows, number))
        slave = after & known_bid & (bid > 0)
        out.values(families.FIRST_SLAVE_PULL, fault.at(slave), t1[slave])
        note_route(out, rows, outage, number, t0)
        if outage.accepted is not None:
            back = here & good & (t0 >= outage.accepted)
            out.values(families.PULLED_ACCEPTED, marked.at(back), t1[back])
            master = back & known_bid & (bid == 0)
            out.values(families.FIRST_MASTER_PULL, fault.at(master), t1[master])
    return out.table()
