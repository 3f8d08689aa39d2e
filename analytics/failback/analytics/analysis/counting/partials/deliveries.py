"""Counts deliveries: copies, messages, progress, rates. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.counting.partials.rows import Rows, buckets
from failback.analytics.analysis.counting.partials.sums import Key, Partials


def deliver_partials(batch: pa.Table, context: Context) -> pa.Table:
    """Of normalised deliveries (``tables.DELIVERY``): copies, messages, progress, rates.

    Rows with the flag ``left_out``, where there is one, are of no figure of duplicates.
    """
    rows = Rows(batch)
    out = Partials()
    if not rows.count:
        return out.table()
    grp, broker, topic = rows.codes("grp"), rows.codes("broker"), rows.codes("ptopic")
    qoff, bt, et = rows["qoff"], rows["bt"], rows["et"]
    ended = rows.valid("et")
    done = ended & rows.true("done")
    counted = ~rows.true("left_out") if rows.has("left_out") else np.ones(rows.count, bool)
    figure = context.in_figures(bt)
    # What a batch has few of: queues, holders, lanes. Found once, for all the keys below.
    of = Key(
        grp=grp, broker=broker, topic=topic, qid=rows["qid"], epoch=rows["epoch"], inc=rows["inc"],
        pqe=rows["pqe"],
    ).grouped(rows.count)  # fmt: skip
    queue = of.key("grp", "broker", "topic", "qid")
    epoch_queue = of.key("grp", "broker", "topic", "qid", "epoch")
    holder = of.key("grp", "broker", "topic", "qid", "inc", "pqe")
    group = of.key("grp")
    here = slice(None) if counted.all() else counted
    for family, key, values in (
        (families.COPY, epoch_queue, qoff),
        (families.MESSAGE, group.and_(lane=rows["lane"]), rows["lseq"]),
    ):
        out.intervals(family, key.at(counted), values[here], figure[here])
    # The fate of a message goes by the identity that its producer gave it.
    sent_lane, sent_seq = rows["sent_lane"], rows["sent_lseq"]
    sent = group.and_(lane=sent_lane)
    if not context.definitions.counts_all_by_lid:
        out.intervals(families.HANDED, sent, sent_seq, figure)
    out.intervals(families.DONE, sent.at(done), sent_seq[done], figure[done])
    bucket = buckets(rows, ("grp", "broker", "ptopic"), et, context.boundaries)
    out.values(families.PROGRESS, epoch_queue.and_(bucket=bucket).at(done), (qoff + 1)[done])
    begun, last = (context.seconds.last(t) for t in (bt, np.where(ended, et, bt)))
    by_second = queue.and_(second=begun)
    out.values(families.RATE, by_second, np.ones(rows.count, np.int64))
    out.values(families.DELIVERED_END, by_second, qoff + 1)
    out.values(families.FINISHED, holder.and_(second=last).at(ended), (qoff + 1)[ended])
    long = np.flatnonzero(ended & (last > begun))
    which, second = context.seconds.between(begun[long], last[long])
    which = long[which]
    out.values(families.UNFINISHED, holder.at(which).and_(second=second), qoff[which])
    figure &= counted
    done &= counted
    out.values(
        families.SUCCESSES,
        group.and_(bin=et // context.ok_bin_ns).at(done),
        np.ones(int(done.sum()), np.int64),
    )
    for family, each in (
        (families.DELIVERED, figure.astype(np.int64)),
        (families.HANDLER_NS, np.where(figure & ended, et - bt, 0)),
        (families.ABANDONED, (figure & ~ended).astype(np.int64)),
        (families.FOREIGN, (figure & (sent_lane < 0)).astype(np.int64)),
    ):
        out.values(family, group, each)
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
    queue = Key(broker=rows.codes("broker"), topic=rows.codes(topic), qid=rows["qid"])
    known = rows.valid(offset) & rows.valid("when_ms")
    for broker, times in boots.items():
        for boot_ms in times:
            before = known & rows.is_broker(broker) & (rows["when_ms"] < boot_ms)
            key = queue.and_(boot_ms=np.full(rows.count, boot_ms, np.int64))
            out.values(families.KNOWN_OFFSETS, key.at(before), rows[offset][before] + 1)
    return out.table()
