"""Evidence about messages that are the same by business key. Pure, for both engines.

Attempts and send-backs tell LAB_ID and UNIQ_KEY, but no KEYS; deliveries tell all three. So
deliveries link what was sent, known by LAB_ID or else by UNIQ_KEY, with the message by business
key that it belongs to: one message may have been sent several times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.arrays.columns import Columns, match
from failback.analytics.analysis.arrays.intervals import IntervalSet
from failback.analytics.analysis.counting import tables
from failback.analytics.analysis.counting.partials.rows import Rows

COUNTED_LINKS: Final = tables.LINKS.append(pa.field("times", pa.int64()))
"""Links with how many deliveries they are of."""


def links_of(chunk: pa.Table, repeated: Mapping[Any, IntervalSet]) -> pa.Table:
    """What was sent of some messages, from normalised rows (:data:`COUNTED_LINKS`).

    Args:
        chunk: Normalised by business key.
        repeated: The messages, per (group, lane).
    """
    rows = Rows(chunk)
    chosen = np.zeros(rows.count, bool)
    grp = rows.codes("grp")
    for (group, lane), members in repeated.items():
        if group in grp.names:
            mine = (grp.codes == grp.names.index(group)) & (rows["lane"] == lane)
            here = np.flatnonzero(mine)
            chosen[here] = members.contains(rows["lseq"][here])
    found = chunk.select(tables.LINKS.names).cast(tables.LINKS)
    counts = ~rows.true("left_out") if rows.has("left_out") else np.ones(rows.count, bool)
    found = found.append_column("times", pa.array(counts.astype(np.int64)))
    return _summed(found.filter(pa.array(chosen)))


def links_of_repeated(found: Sequence[pa.Table]) -> pa.Table:
    """Of all links of some messages (:data:`COUNTED_LINKS`) those of what came more than once."""
    links = _summed(pa.concat_tables([COUNTED_LINKS.empty_table(), *found]))
    c = Columns(links)
    message = c.dense("grp", "lane", "lseq")
    again = np.bincount(message, c.ints("times"))[message] > 1 if c.count else np.empty(0, bool)
    return links.select(tables.LINKS.names).filter(pa.array(again))


def _summed(links: pa.Table) -> pa.Table:
    summed = links.group_by(tables.LINKS.names).aggregate([("times", "sum")])
    return summed.rename_columns(COUNTED_LINKS.names).cast(COUNTED_LINKS)


def joined_links(parts: Sequence[pa.Table]) -> pa.Table:
    """Each link once, sorted."""
    whole = pa.concat_tables([tables.LINKS.empty_table(), *parts])
    return tables.sorted_table(whole.group_by(tables.LINKS.names).aggregate([]), tables.LINKS)


def sent_of(links: pa.Table) -> dict[int, IntervalSet]:
    """What was sent, per lane."""
    return members_of(Columns(links), "sent_lane", "sent_lseq")


def members_of(c: Columns, lane: str, lseq: str) -> dict[int, IntervalSet]:
    """Sequences per lane, of the rows of a table."""
    lanes, numbers = c.ints(lane), c.ints(lseq)
    order = np.argsort(lanes, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(lanes[order])) + 1) if lanes.size else ()
    return {int(lanes[part[0]]): IntervalSet.of(numbers[part], numbers[part] + 1) for part in parts}


def links_to(messages: pa.Table, links: pa.Table) -> pa.Table:
    """The links of some messages (``lane``, ``lseq``), of any group."""
    key = ("lane", "lseq")
    at = match(Columns(links), key, Columns(messages), key)
    return links.filter(pa.array(at >= 0))


def produced_by_key(produced: pa.Table, links: pa.Table) -> pa.Table:
    """Attempts summed up by what was sent as attempts by business key (``tables.PRODUCED``).

    Per group: what another group got by the same key may be of another topic. What was sent under
    several LAB_IDs has as many UNIQ_KEYs at least. A message without attempts of something that
    was delivered of it has no row: its evidence is not whole.
    """
    known = Columns(produced)
    if not known.count or not links.num_rows:
        return tables.PRODUCED.empty_table()
    at = match(Columns(links), ("sent_lane", "sent_lseq"), known, ("lane", "lseq"))
    where = np.maximum(at, 0)
    of_each = pa.table(
        {
            "grp": links.column("grp"),
            "lane": links.column("lane"),
            "lseq": links.column("lseq"),
            "ukeys": np.maximum(known.ints("ukeys")[where], 1),
            "doubtful": known.flags("doubtful")[where],
            "degraded": known.flags("degraded_then_more")[where],
            "whole": at >= 0,
        }
    )
    summed = of_each.group_by(["grp", "lane", "lseq"]).aggregate(
        [("ukeys", "sum"), ("doubtful", "any"), ("degraded", "any"), ("whole", "all")]
    )
    names = ["grp", "lane", "lseq", "ukeys_sum", "doubtful_any", "degraded_any"]
    found = summed.filter(summed.column("whole_all")).select(names)
    return found.rename_columns(tables.PRODUCED.names).cast(tables.PRODUCED)
