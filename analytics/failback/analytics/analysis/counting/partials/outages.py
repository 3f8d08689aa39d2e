"""What both sends and pulls tell about an outage. Pure."""

from __future__ import annotations

import numpy as np

from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.counting.partials.context import Outage
from failback.analytics.analysis.counting.partials.rows import Rows
from failback.analytics.analysis.counting.partials.sums import MAX, Key, Partials


def same(rows: Rows, number: int) -> Ints:
    return np.full(rows.count, number, np.int64)


def note_route(out: Partials, rows: Rows, outage: Outage, number: int, t0: Ints) -> None:
    """When somebody last tried the dead address before it was back."""
    if outage.addr is None:
        return
    tried = rows.equals("addr", outage.addr) & (t0 > outage.killed)
    if outage.accepted is not None:
        tried &= t0 < outage.accepted
    out.values(MAX, "old_route", Key(n1=same(rows, number)).at(tried), t0[tried])
