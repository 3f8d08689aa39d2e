"""Which rows gave the instants of a recovery's phases: the evidence beside the figure. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.families import Family
from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.counting.partials.rows import Codes, Rows
from failback.analytics.analysis.counting.partials.sends import GOOD_RESULTS
from failback.analytics.analysis.counting.partials.sums import Key, Partials

PHASE_TABLES: Final = ("produce", "pull")
PHASE_COLUMNS: Final = ("host", "proc_no", "seq", "broker", "addr", "bid", "res", "t0", "t1")
_GOOD_PULLS: Final = frozenset({"FOUND", "NO_NEW_MSG"})


class Phase(NamedTuple):
    """An instant that was found for an outage, and in which way."""

    outage: int
    name: str
    t: int


class Way(NamedTuple):
    """Which rows may give a phase its instant."""

    tables: Sequence[str]
    column: str
    slave: bool | None
    """``None``: the address tells which broker was asked; else whether its id was above 0."""
    family: Family
    """Holds the phase's instant."""


PHASES: Final = {
    "last_old_route_use": Way(PHASE_TABLES, "t0", None, families.OLD_ROUTE),
    "first_pull_on_slave": Way(("pull",), "t1", True, families.FIRST_SLAVE_PULL),
    "first_send_ok": Way(("produce",), "t1", False, families.FIRST_SEND),
    "first_pull_on_master": Way(("pull",), "t1", False, families.FIRST_MASTER_PULL),
}


def phase_partials(
    table: str, batch: pa.Table, context: Context, wanted: Sequence[Phase]
) -> pa.Table:
    """First row of each process for each wanted phase.

    Args:
        table: ``produce`` or ``pull``.
        batch: Raw rows with :data:`PHASE_COLUMNS`.
        context: As everywhere.
        wanted: The instants that counting found.
    """
    rows = Rows(batch)
    out = Partials()
    if not rows.count:
        return out.table()
    shift = rows.shifts(context.clocks)
    times = {"t0": rows["t0"] + shift, "t1": rows["t1"] + shift}
    sends = table == "produce"
    good = rows.one_of("res", GOOD_RESULTS if sends else _GOOD_PULLS)
    for outage, name, t in wanted:
        way, of = PHASES[name], context.outages[outage]
        if table not in way.tables:
            continue
        hit = times[way.column] == t
        if way.slave is None:
            hit &= rows.equals("addr", of.addr or "")
        else:
            hit &= good & rows.is_broker(of.broker) & rows.valid("bid")
            hit &= (rows["bid"] > 0) == way.slave
        at = np.flatnonzero(hit)
        # The table is part of the key: both may have the instant, and the row's name has it.
        label = Codes(np.zeros(at.size, np.int64), [f"{name}/{table}"])
        key = Key(phase=label, outage=np.full(at.size, outage), proc_no=rows["proc_no"][at])
        out.values(families.PHASE_ROWS, key, rows["seq"][at])
    return out.table()
