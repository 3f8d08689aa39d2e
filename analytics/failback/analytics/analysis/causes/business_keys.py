"""Evidence about messages that are the same by business key. Pure, for workers.

Attempts and send-backs tell LAB_ID and UNIQ_KEY, but no KEYS; deliveries tell all three. So
deliveries link what was sent, known by LAB_ID or else by UNIQ_KEY, with the message by business
key that it belongs to: one message may have been sent several times. Links and evidence meet in
parts by what was sent, and what is found goes on to the part of its message.
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

ATTEMPTS_OF_LINKS: Final = tables.PRODUCED.append(pa.field("whole", pa.bool_()))
"""Per link what was sent of its message; ``whole``: whether its attempts are known."""


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


def attempts_by_key(links: pa.Table, produced: pa.Table) -> pa.Table:
    """What is known of the attempts of each link (:data:`ATTEMPTS_OF_LINKS`).

    Args:
        links: ``tables.LINKS``.
        produced: The attempts, summed up by what was sent (``tables.PRODUCED``).
    """
    known = Columns(produced)
    at = match(Columns(links), ("sent_lane", "sent_lseq"), known, ("lane", "lseq"))
    columns = [
        *(links.column(name) for name in ("grp", "lane", "lseq")),
        np.maximum(np.append(known.ints("ukeys"), 1)[at], 1),
        np.append(known.flags("doubtful"), False)[at],
        np.append(known.flags("degraded_then_more"), False)[at],
        at >= 0,
    ]
    return pa.table(columns, names=ATTEMPTS_OF_LINKS.names).cast(ATTEMPTS_OF_LINKS)


def produced_by_key(found: pa.Table) -> pa.Table:
    """Attempts by link (:data:`ATTEMPTS_OF_LINKS`) by business key (``tables.PRODUCED``).

    Per group: what another group got by the same key may be of another topic. What was sent under
    several LAB_IDs has as many UNIQ_KEYs at least. A message without attempts of something that
    was delivered of it has no row: its evidence is not whole.
    """
    columns = [("ukeys", "sum"), ("doubtful", "any"), ("degraded_then_more", "any")]
    summed = found.group_by(["grp", "lane", "lseq"]).aggregate([*columns, ("whole", "all")])
    names = ["grp", "lane", "lseq", *(f"{name}_{how}" for name, how in columns)]
    found = summed.filter(summed.column("whole_all")).select(names)
    return found.rename_columns(tables.PRODUCED.names).cast(tables.PRODUCED)


def send_backs_by_key(links: pa.Table, found: pa.Table) -> pa.Table:
    """Send-backs (``send_backs.SEND_BACKS``) as the messages they are of; one, unless KEYS differ.

    ``found`` has them by what was sent. What is of no link is left out.
    """
    sent = found.rename_columns({"lane": "sent_lane", "lseq": "sent_lseq"})
    key = ["grp", "sent_lane", "sent_lseq"]
    of_each = links.select([*key, "lane", "lseq"])
    return sent.join(of_each, key, join_type="inner", use_threads=False).select(found.column_names)
