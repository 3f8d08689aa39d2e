"""Stage A of deliveries: copies, messages, progress, rates. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.counting.partials.rows import Rows, buckets
from failback.analytics.analysis.counting.partials.sums import MAX, MIN, NS, SUM, Key, Partials

DELIVER_COLUMNS: Final = (
    "grp", "broker", "ptopic", "qid", "epoch", "qoff", "lane", "lseq", "sent_lane", "sent_lseq",
    "inc", "pqe", "bt", "et", "done",
)  # fmt: skip


def deliver_partials(batch: pa.Table, context: Context) -> pa.Table:
    """Of normalised deliveries (:data:`DELIVER_COLUMNS`): copies, messages, progress, rates.

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
        grp=grp, broker=broker, topic=topic, n1=rows["qid"], n2=rows["epoch"], n3=rows["inc"],
        n4=rows["pqe"],
    ).grouped(rows.count)  # fmt: skip
    queue = of.key(grp="grp", broker="broker", topic="topic", n1="n1")
    epoch_queue = of.key(grp="grp", broker="broker", topic="topic", n1="n1", n2="n2")
    holder = of.key(grp="grp", broker="broker", topic="topic", n1="n1", n2="n3", n3="n4")
    group = of.key(grp="grp")
    here = slice(None) if counted.all() else counted
    for family, key, values in (
        ("copy", epoch_queue, qoff),
        ("message", group.and_(n1=rows["lane"]), rows["lseq"]),
    ):
        out.intervals(family, key.at(counted), values[here], figure[here])
    # What became of a message is told by the identity that its producer gave it.
    sent_lane, sent_seq = rows["sent_lane"], rows["sent_lseq"]
    sent = group.and_(n1=sent_lane)
    if not context.definitions.counts_all_by_lid:
        out.intervals("handed", sent, sent_seq, figure)
    out.intervals("done", sent.at(done), sent_seq[done], figure[done])
    bucket = buckets(rows, ("grp", "broker", "ptopic"), et, context.boundaries)
    out.values(MAX, "progress", epoch_queue.and_(n3=bucket).at(done), (qoff + 1)[done])
    by_second = queue.and_(n2=bt // NS)
    out.values(SUM, "rate", by_second, np.ones(rows.count, np.int64))
    out.values(MAX, "front", by_second, qoff + 1)
    out.values(MAX, "finished", holder.and_(n4=et // NS).at(ended), (qoff + 1)[ended])
    spans = ended & (et // NS > bt // NS)
    for_seconds = np.flatnonzero(spans)
    if for_seconds.size:
        length = (et // NS - bt // NS)[for_seconds]
        which = np.repeat(for_seconds, length)
        step = np.arange(which.size) - np.repeat(np.cumsum(length) - length, length)
        second = bt[which] // NS + step
        out.values(MIN, "open", holder.at(which).and_(n4=second), qoff[which])
    figure &= counted
    done &= counted
    out.values(
        SUM,
        "ok_bin",
        group.and_(n1=et // context.ok_bin_ns).at(done),
        np.ones(int(done.sum()), np.int64),
    )
    for name, each in (
        ("delivered", figure.astype(np.int64)),
        ("handler_ns", np.where(figure & ended, et - bt, 0)),
        ("abandoned", (figure & ~ended).astype(np.int64)),
        ("foreign", (figure & (sent_lane < 0)).astype(np.int64)),
    ):
        out.values(SUM, name, group, each)
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
