"""What both engines do with one chunk of a large table, beside normalising and counting. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.intervals import IntervalSet
from failback.analytics.analysis.arrays.xxh64 import surrogates
from failback.analytics.analysis.counting.partials.deliveries import known_partials
from failback.analytics.analysis.counting.partials.rows import Rows
from failback.analytics.analysis.counting.partials.sends import GOOD_RESULTS
from failback.analytics.run.definitions import MESSAGE_ID
from failback.client.consumelog.schema import SEND_RESULTS, schema_of

KNOWN_COLUMNS: Final = {
    "deliver": ("broker", "ptopic", "qid", "qoff", "store_ms"),
    "produce": ("broker", "topic", "qid", "queue_offset", "wall_ns", "res"),
}
RESUMED_COLUMNS: Final = ("host", "broker", "res", "t0", "t1")
ATTEMPT_COLUMNS: Final = ("lane", "lseq", "att", "ukey", "res")
ATTEMPTS: Final = schema_of("lane l, lseq l, att l, ukey s, res s")
"""Send attempts of candidate messages."""


def known_of(table: str, chunk: pa.Table, boots: Mapping[str, Sequence[int]]) -> pa.Table:
    """Highest offsets before each start of a master, from ``deliver`` or ``produce``."""
    if table == "deliver":
        renamed = chunk.rename_columns(["broker", "ptopic", "qid", "qoff", "when_ms"])
        return known_partials(renamed, "qoff", "ptopic", boots)
    stored = chunk.filter(pa.array(Rows(chunk).one_of("res", GOOD_RESULTS)))
    when = pc.divide(stored.column("wall_ns"), 1_000_000)
    stored = stored.append_column("when_ms", when)
    return known_partials(stored, "queue_offset", "topic", boots)


def attempts_of(chunk: pa.Table, wanted: Mapping[int, IntervalSet], key: str) -> pa.Table:
    """Send attempts of what is wanted per lane, known by LAB_ID or by message id."""
    if key == MESSAGE_ID:
        chunk = _by_message_id(chunk)
    rows = Rows(chunk)
    chosen = np.zeros(rows.count, bool)
    lane, lseq = rows["lane"], rows["lseq"]
    known = rows.valid("lane") & rows.valid("lseq")
    for one in np.unique(lane).tolist() if rows.count else ():
        if one in wanted:
            here = np.flatnonzero(known & (lane == one))
            chosen[here] = wanted[one].contains(lseq[here])
    return _attempts(chunk.filter(pa.array(chosen)))


def all_attempts_of(chunk: pa.Table) -> pa.Table:
    """All send attempts, known by LAB_ID or else by UNIQ_KEY: attempts do not tell KEYS."""
    has = pc.and_(chunk.column("lane").is_valid(), chunk.column("lseq").is_valid())
    others = _by_message_id(chunk.filter(pc.invert(has)))
    return _attempts(pa.concat_tables([chunk.filter(has), others]))


def _attempts(chunk: pa.Table) -> pa.Table:
    found = chunk.select(ATTEMPTS.names).cast(ATTEMPTS)
    res = found.column("res")
    known = pc.if_else(pc.is_in(res, pa.array(SEND_RESULTS)), res, "UNKNOWN")
    return found.set_column(ATTEMPTS.get_field_index("res"), "res", known)


def _by_message_id(chunk: pa.Table) -> pa.Table:
    """Attempts with the identity that a delivery has by UNIQ_KEY; those without one left out."""
    chunk = chunk.filter(chunk.column("ukey").is_valid())
    lseq = pa.array(surrogates(chunk.column("ukey").to_pylist()))
    lane = pa.array(np.full(chunk.num_rows, -1, np.int64))
    for name, column in (("lane", lane), ("lseq", lseq)):
        chunk = chunk.set_column(chunk.schema.get_field_index(name), name, column)
    return chunk


def lanes_of(messages: Mapping[Any, IntervalSet]) -> dict[int, IntervalSet]:
    """What any group got more than once, per lane."""
    found: dict[int, IntervalSet] = {}
    for (_, lane), members in messages.items():
        found[lane] = found[lane] | members if lane in found else members
    return found
