"""What was sent back of the messages of a part, for the causes of their retry copies. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.arrays.xxh64 import surrogates_of
from failback.analytics.analysis.counting import tables
from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.counting.partials.rows import Rows
from failback.analytics.run.definitions import MESSAGE_ID
from failback.client.consumelog.schema import schema_of

SEND_BACK_COLUMNS: Final = (
    "host", "proc_no", "seq", "grp", "client_id", "lane", "lseq", "ukey", "omid", "rt_next",
    "reason", "path", "ok", "t0",
)  # fmt: skip
SEND_BACKS: Final = schema_of(
    "grp s, lane l, lseq l, rt_next l, proc_no l, seq l, omid x, reason s, path s, ok b, t0 l"
)
"""Send-backs by the message that each is of; times are ns after run zero."""


def send_backs_of(chunk: pa.Table, context: Context) -> pa.Table:
    """Raw rows (:data:`SEND_BACK_COLUMNS`) by message (:data:`SEND_BACKS`).

    A send-back tells LAB_ID and UNIQ_KEY: the message is the LAB_ID's, else the surrogate of
    UNIQ_KEY, by message id the latter alone. By business key that is what was sent of a message
    (``business_keys``). What nothing names is left out.
    """
    rows = Rows(chunk)
    lane, lseq = rows["lane"], rows["lseq"]
    named = rows.valid("lane") & rows.valid("lseq")
    if context.definitions.key == MESSAGE_ID:
        named[:] = False
    foreign = np.flatnonzero(~named)
    if foreign.size:
        ukey = rows.column("ukey").take(pa.array(foreign))
        lane, lseq = lane.copy(), lseq.copy()
        lane[foreign], lseq[foreign] = -1, surrogates_of(ukey)
        named[foreign] = np.array([bool(text) for text in ukey.to_pylist()], bool)
    t0 = rows["t0"] + rows.shifts(context.clocks)
    rows.rename_broadcast(context.broadcasting)
    grp = rows.codes("grp")
    columns = {
        "grp": pa.array(grp.names, pa.utf8()).take(pa.array(grp.codes)),
        "lane": pa.array(lane),
        "lseq": pa.array(lseq),
        "t0": pa.array(t0),
    }
    return pa.table(
        [columns.get(f.name, rows.column(f.name)).cast(f.type) for f in SEND_BACKS],
        schema=SEND_BACKS,
    ).filter(pa.array(named))


def sent_back_table(send_backs: pa.Table) -> pa.Table:
    """Send-backs (:data:`SEND_BACKS`) per message and next attempt (``tables.SENT_BACK``).

    ``stored`` counts those that were stored; of rows that repeat one way of sending one failed
    handling back (same process, copy, reason and path) only the last one counts.
    """
    c = Columns(send_backs)
    if not c.count:
        return tables.SENT_BACK.empty_table()
    attempt = c.dense("grp", "lane", "lseq", "rt_next")
    _, first = np.unique(attempt, return_index=True)
    ok = np.flatnonzero(c.flags("ok"))
    _, once = np.unique(
        c.dense_with(attempt, "proc_no", "omid", "reason", "path")[ok], return_index=True
    )
    stored = np.bincount(attempt[ok[once]], minlength=first.size)
    expired = np.bincount(attempt, c.one_of("reason", ["EXPIRE"]), first.size) > 0
    found = send_backs.take(pa.array(first)).select(["grp", "lane", "lseq", "rt_next"])
    columns = [*found.columns, pa.array(stored), pa.array(expired)]
    return pa.table(columns, names=tables.SENT_BACK.names).cast(tables.SENT_BACK)
