"""Shapes of the tables between the engines and the report. The same from both engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.counting.families import NAMES, NUMBERS
from failback.client.consumelog.schema import arrow_type, schema_of

KEY: Final = ("fam", *NAMES, *NUMBERS)

_KEY_FIELDS: Final = [
    ("fam", pa.utf8()),
    *((name, pa.utf8()) for name in NAMES),
    *((name, pa.int64()) for name in NUMBERS),
]

DEPTHS: Final = pa.schema([*_KEY_FIELDS, *schema_of("lo l, hi l, depth l, figure l")])
"""Disjoint ranges of one history: ``depth`` in all rows, ``figure`` without the warm-up."""

VALUES: Final = pa.schema([*_KEY_FIELDS, ("value", pa.int64())])
"""One sum, maximum or minimum per key."""

DELIVERY: Final = schema_of(
    """did l, proc_no l, host s, grp s, client_id s, broker s, ptopic s, qid l, epoch l,
    epoch_end l, qoff l, omid x, lane l, lseq l, fkey s, okey s, rt l, inc l, pqe l, bt l, et l,
    status s, store_ms l"""
)
"""A normalised delivery: aligned times, its epoch, a message identity for foreign traffic too.

``lane`` is -1 (by UNIQ_KEY), -2 (by KEYS) or -3 (by copy) without a LAB_ID; ``lseq`` then is a
hash and ``fkey`` what was hashed (``""`` for messages with a LAB_ID).
"""

CODED: Final = pa.schema(
    [(f.name, arrow_type("N") if f.type == pa.utf8() else f.type) for f in DELIVERY]
)
"""The same with names as numbers into a dictionary."""

_CLASS: Final = schema_of(
    """nth l, nth_of_copy l, prev_inc l, prev_pqe l, cls s, cause s, after_success b, ambiguous b,
    ok_end l"""
)
CLASSIFIED: Final = pa.schema([*DELIVERY, *_CLASS])
"""A candidate: a delivery of a message or of an offset that occurs more than once."""

ATTRIBUTED: Final = pa.schema(
    [*CLASSIFIED, *schema_of("inherited b, partial_view b, fid s, a_no l")]
)
"""The same with its last cause, the fault behind it, and the number of its assignment."""

ORDER: Final = schema_of("grp s, topic s, ooo_first l, ooo_replay l, first_key s")

ASSIGNED: Final = schema_of(
    """grp s, broker s, ptopic s, qid l, inc l, pqe l, a_no l, t l, src s, src_bid l, src_binc l,
    end_t l, end_reason s"""
)
"""Assignments, numbered; what a delivery's group, queue, inc and pqe point to."""

COVER: Final = schema_of("a_no l, bid l, binc l, epoch l, off l")
"""Highest offset that each incarnation had received before an assignment, per epoch."""

RESET: Final = schema_of("a_no l, by_inc l, by_pqe l, r_t l, r_off l, taken l")
"""Resets before an assignment: by a holder's end (``by_inc``, ``by_pqe``) or by a tool (``r_off``),
and the highest offset committed with success between the reset and the assignment (or -1)."""

SENT_BACK: Final = schema_of("grp s, lane l, lseq l, rt l, stored l, expired b")
"""Send-backs per message and next attempt."""

PRODUCED: Final = schema_of("grp s, lane l, lseq l, ukeys l, doubtful b, degraded_then_more b")
"""Send attempts of a candidate message, summed up; ``grp`` is null where that is for any group."""


LINKS: Final = schema_of("grp s, lane l, lseq l, sent_lane l, sent_lseq l")
"""What was sent (by LAB_ID, else UNIQ_KEY) of the messages by business key that a group got."""


def sorted_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table in its schema and in one order, the same from each engine."""
    return sorted_away(columns_of(table), schema)


def columns_of(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def sorted_away(columns: dict[str, pa.ChunkedArray], schema: pa.Schema) -> pa.Table:
    """As :func:`sorted_table`, of columns that are taken out of ``columns`` one by one.

    So a table of gigabytes is in memory once, and one column of it twice, if nothing else
    refers to it.
    """
    order = _ascending({name: columns[name] for name in schema.names})
    taken = [contiguous(columns.pop(f.name).take(order).cast(f.type)) for f in schema]
    return pa.table(taken, schema=schema)


def _ascending(columns: Mapping[str, pa.ChunkedArray]) -> pa.Array:
    """The order of the rows by all columns: by the first alone where that is a number of each."""
    first = next(iter(columns.values()))
    if pa.types.is_integer(first.type) and not first.null_count:
        numbers = first.to_numpy()
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        if (ordered[1:] > ordered[:-1]).all():
            return pa.array(order)
    plain = {name: plain_names(column) for name, column in columns.items()}
    return pc.sort_indices(pa.table(plain), sort_keys=[(name, "ascending") for name in plain])


def plain_names(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without a dictionary."""
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column


def contiguous(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in one piece, if that is not beyond what one piece holds."""
    return pa.table({"": column}).combine_chunks().column(0)
