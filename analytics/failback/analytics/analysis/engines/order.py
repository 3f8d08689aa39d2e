"""Order inversions: deliveries that began after a later message of their key had begun. Pure.

A message may be re-consumed under any offset, so whether a delivery is the first of its message is
found out in parts of whole messages, and what began before it in parts of whole keys. All
deliveries of one key are in one part, however many there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays import columns
from failback.analytics.analysis.arrays.columns import Columns, Flags
from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.arrays.xxh64 import surrogates
from failback.analytics.analysis.counting import tables
from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.counting.partials.rows import Rows
from failback.analytics.analysis.engines import row_blocks
from failback.analytics.analysis.engines.candidates import Candidates
from failback.client.consumelog.schema import schema_of
from failback.protocol.message import RETRY_PREFIX

COLUMNS: Final = (
    "host", "did", "grp", "client_id", "ptopic", "ltopic", "okey", "kseq", "bt", "et", "qoff",
)  # fmt: skip
INVERSION_ROWS: Final = schema_of("grp s, topic s, okey s, kseq l, bt l, did l, later b")
"""Deliveries of ordered topics; ``later``: not the first of its message."""
_MESSAGE: Final = ("grp", "lane", "lseq", "fkey")


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """Finds deliveries of ordered topics, and brings them to the part of their key."""

    topics: frozenset[str]
    context: Context
    candidates: Candidates
    """Of messages that were delivered more than once."""
    parts: int

    def of_others(self, chunk: pa.Table) -> pa.Table:
        """Those of messages that were delivered once, by key (``row_blocks.BLOCKS``)."""
        rows = self._of(chunk)
        again = Columns(self.candidates.of(chunk)).ints("did")
        once = ~np.isin(Columns(rows).ints("did"), again)
        return self._by_key(rows.filter(pa.array(once)), np.zeros(int(once.sum()), bool))

    def of_candidates(self, chunk: pa.Table) -> pa.Table:
        """All deliveries of the other messages, by message; what is not of a topic has no key."""
        found = self.candidates.of(chunk).select([*_MESSAGE, "bt", "did"])
        rows = self._of(chunk)
        c = Columns(found)
        at = pa.array(columns.match(c, ["did"], Columns(rows), ["did"]))
        at = pc.if_else(pc.less(at, 0), None, at)
        for name in ("topic", "okey", "kseq"):
            found = found.append_column(name, rows.column(name).take(at))
        return row_blocks.by_message(found, self.parts)

    def marked(self, part: pa.Table) -> pa.Table:
        """One part of :meth:`of_candidates`, by key."""
        found = pa.concat_tables(row_blocks.unpacked(part)).unify_dictionaries()
        c = Columns(found)
        nth, _ = columns.Ordered(c.ints("bt"), c.ints("did")).ranks(c.dense(*_MESSAGE))
        ordered = c.valid("kseq")
        return self._by_key(found.filter(pa.array(ordered)), nth[ordered] > 1)

    def _of(self, chunk: pa.Table) -> pa.Table:
        """Deliveries of ordered topics, times aligned (``INVERSION_ROWS`` without ``later``)."""
        rows = Rows(chunk)
        shift = rows.shifts(self.context.clocks)
        bt, et = rows["bt"] + shift, rows["et"] + shift
        rows.rename_broadcast(self.context.broadcasting)
        keep = rows.one_of("ltopic", self.topics) & rows.valid("okey") & rows.valid("kseq")
        keep &= (rows["qoff"] >= 0) & ~(rows.valid("et") & (et < bt))
        if self.context.definitions.ignore_retry_topics:
            keep &= ~rows.starts_with("ptopic", RETRY_PREFIX)
        found = {}
        for name, column in (("grp", "grp"), ("topic", "ltopic"), ("okey", "okey")):
            codes = rows.codes(column)
            found[name] = pa.array(codes.names, pa.utf8()).take(pa.array(codes.codes))
        numbers = {"kseq": rows["kseq"], "bt": bt, "did": rows["did"]}
        return pa.table(found | numbers).filter(pa.array(keep))

    def _by_key(self, rows: pa.Table, later: Flags) -> pa.Table:
        rows = rows.select(INVERSION_ROWS.names[:-1]).append_column("later", pa.array(later))
        rows = rows.cast(INVERSION_ROWS)
        c = Columns(rows)
        group = _hashes(c, "grp") * 31 + _hashes(c, "topic")
        return row_blocks.split(rows, row_blocks.scattered(group, _hashes(c, "okey"), self.parts))


def _hashes(c: Columns, name: str) -> Ints:
    codes, names = c.named(name)
    return surrogates(names.to_pylist())[codes] if c.count else np.empty(0, np.int64)


def inversions(part: pa.Table, context: Context) -> pa.Table:
    """What of one part of keys came too late: of firsts, and of repeats (``tables.ORDER``)."""
    rows = pa.concat_tables(row_blocks.unpacked(part))
    c = Columns(rows)
    key = c.dense("grp", "topic", "okey")
    bt, did, kseq = c.ints("bt"), c.ints("did"), c.ints("kseq")
    order = np.lexsort((did, bt, key))
    # A running maximum per key: keys are ascending here, so lifting each key above all values of
    # the one before lets one running maximum serve them all.
    ranks = columns.ranks_of(kseq)
    lifted = ranks[order] + key[order] * (int(ranks.max()) + 1)
    before = np.concatenate(([-1], np.maximum.accumulate(lifted)[:-1]))
    late = np.empty(c.count, bool)
    late[order] = lifted < before
    late &= context.in_figures(bt)
    repeat = c.flags("later")
    okey = pa.array(c.texts("okey"), pa.utf8(), mask=~(late & ~repeat))
    counts = [pa.array((late & which).astype(np.int64)) for which in (~repeat, repeat)]
    found = [rows.column("grp"), rows.column("topic"), *counts, okey]
    return summed(pa.table(found, schema=tables.ORDER))


def summed(found: pa.Table) -> pa.Table:
    """Inversions added up by group and topic, sorted (``tables.ORDER``)."""
    joined = found.group_by(["grp", "topic"]).aggregate(
        [("ooo_first", "sum"), ("ooo_replay", "sum"), ("first_key", "min")]
    )
    names = ["grp", "topic", "ooo_first_sum", "ooo_replay_sum", "first_key_min"]
    return tables.sorted_table(
        joined.select(names).rename_columns(tables.ORDER.names), tables.ORDER
    )
