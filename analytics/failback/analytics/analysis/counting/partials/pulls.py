"""Counts pulls: when each queue was served again after each outage. Pure."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.counting.partials.outages import note_route, same
from failback.analytics.analysis.counting.partials.rows import Rows
from failback.analytics.analysis.counting.partials.sums import Key, Partials

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
