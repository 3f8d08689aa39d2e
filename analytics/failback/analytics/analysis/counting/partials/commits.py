"""Counts commits: the highest offset that each incarnation received. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.arrays.columns import NULL_NUMBER
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.counting.partials.rows import Rows, buckets
from failback.analytics.analysis.counting.partials.sums import Key, Partials
from failback.client.consumelog.schema import COMMIT_KINDS

TAKEN_RESULTS: Final = frozenset({"OK", "SENT", *COMMIT_KINDS})
"""Results of commits that nothing contradicts: one-way ones are only known to have been sent."""
_PULLS: Final = frozenset({"PULL"})
COMMIT_COLUMNS: Final = (
    "host", "proc_no", "seq", "grp", "client_id", "broker", "ptopic", "qid", "off", "addr", "bid",
    "binc", "t", "sent", "result", "kind",
)  # fmt: skip


def commit_partials(batch: pa.Table, context: Context) -> pa.Table:
    """Of raw commits (:data:`COMMIT_COLUMNS`): the highest offset per incarnation."""
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
        qid=rows["qid"],
    )
    bid = np.where(rows.valid("bid"), rows["bid"], NULL_NUMBER)
    place = queue.and_(bucket=bucket, epoch=epoch)
    out.values(families.COVERED, place.and_(bid=bid, binc=binc).at(sent), off[sent])
    taken = sent & (~rows.valid("result") | rows.one_of("result", TAKEN_RESULTS))
    out.values(families.TAKEN, queue.and_(bucket=bucket).at(taken), off[taken])
    out.values(families.MEMORY, queue.and_(second=context.seconds.last(t)).at(sent), off[sent])
    lost = sent & rows.valid("addr") & (binc == NULL_NUMBER)
    out.values(families.UNKNOWN_INCARNATIONS, Key().at(lost), np.ones(int(lost.sum()), np.int64))
    windows = rows.windows(names, t, context.resume_windows)
    if windows is not None:
        which, number = windows
        near = sent[which]
        key = queue.at(which).and_(assignment=number, off=off[which], bid=bid[which])
        key = key.and_(binc=binc[which], proc_no=rows["proc_no"][which])
        out.values(families.RESUME_COMMITS, key.at(near), rows["seq"][which][near])
    windows = rows.windows(names, t, context.owner_windows)
    if windows is not None:
        which, number = windows
        near = (sent & rows.valid("bid") & (rows["bid"] == 0))[which]
        key = queue.at(which).and_(assignment=number, off=off[which], binc=binc[which])
        key = key.and_(pull=rows.one_of("kind", _PULLS)[which].astype(np.int64))
        out.values(families.OWNER_COMMITS, key.at(near), rows["seq"][which][near])
    return out.table()
