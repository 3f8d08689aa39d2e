"""What both sends and pulls tell about an outage. Pure."""

from __future__ import annotations

import numpy as np

from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials.context import Outage
from failback.analytics.analysis.counting.partials.rows import Rows
from failback.analytics.analysis.counting.partials.sums import Key, Partials


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
