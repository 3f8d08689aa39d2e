"""Shapes of the tables between the engines and the report. The same from both engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.counting.families import NAMES, NUMBERS

KEY: Final = ("fam", *NAMES, *NUMBERS)

_KEY_FIELDS: Final = [
    ("fam", pa.utf8()),
    *((name, pa.utf8()) for name in NAMES),
    *((name, pa.int64()) for name in NUMBERS),
]

DEPTHS: Final = pa.schema(
    [*_KEY_FIELDS, *((name, pa.int64()) for name in ("lo", "hi", "depth", "figure"))]
)
"""Disjoint ranges of one history: ``depth`` in all rows, ``figure`` without the warm-up."""

VALUES: Final = pa.schema([*_KEY_FIELDS, ("value", pa.int64())])
"""One sum, maximum or minimum per key."""

DELIVERY: Final = pa.schema(
    [
        ("did", pa.int64()),
        ("proc_no", pa.int64()),
        ("host", pa.utf8()),
        ("grp", pa.utf8()),
        ("client_id", pa.utf8()),
        ("broker", pa.utf8()),
        ("ptopic", pa.utf8()),
        ("qid", pa.int64()),
        ("epoch", pa.int64()),
        ("epoch_end", pa.int64()),
        ("qoff", pa.int64()),
        ("omid", pa.binary()),
        ("lane", pa.int64()),
        ("lseq", pa.int64()),
        ("fkey", pa.utf8()),
        ("okey", pa.utf8()),
        ("rt", pa.int64()),
        ("inc", pa.int64()),
        ("pqe", pa.int64()),
        ("bt", pa.int64()),
        ("et", pa.int64()),
        ("status", pa.utf8()),
        ("store_ms", pa.int64()),
    ]
)
"""A normalised delivery: aligned times, its epoch, a message identity for foreign traffic too.

``lane`` is -1 (by UNIQ_KEY), -2 (by KEYS) or -3 (by copy) without a LAB_ID; ``lseq`` then is a
hash and ``fkey`` what was hashed (``""`` for messages with a LAB_ID).
"""

CODED: Final = pa.schema(
    [
        (
            field.name,
            pa.dictionary(pa.int32(), pa.utf8()) if field.type == pa.utf8() else field.type,
        )
        for field in DELIVERY
    ]
)
"""The same with names as numbers into a dictionary."""

CLASSIFIED: Final = pa.schema(
    [
        *DELIVERY,
        ("nth", pa.int64()),
        ("nth_of_copy", pa.int64()),
        ("prev_inc", pa.int64()),
        ("prev_pqe", pa.int64()),
        ("cls", pa.utf8()),
        ("cause", pa.utf8()),
        ("after_success", pa.bool_()),
        ("ambiguous", pa.bool_()),
        ("ok_end", pa.int64()),
    ]
)
"""A candidate: a delivery of a message or of an offset that occurs more than once."""

ATTRIBUTED: Final = pa.schema(
    [
        *CLASSIFIED,
        ("inherited", pa.bool_()),
        ("partial_view", pa.bool_()),
        ("fid", pa.utf8()),
        ("a_no", pa.int64()),
    ]
)
"""The same with its last cause, the fault behind it, and the number of its assignment."""

ORDER: Final = pa.schema(
    [
        ("grp", pa.utf8()),
        ("topic", pa.utf8()),
        ("ooo_first", pa.int64()),
        ("ooo_replay", pa.int64()),
        ("first_key", pa.utf8()),
    ]
)

ASSIGNED: Final = pa.schema(
    [
        ("grp", pa.utf8()),
        ("broker", pa.utf8()),
        ("ptopic", pa.utf8()),
        ("qid", pa.int64()),
        ("inc", pa.int64()),
        ("pqe", pa.int64()),
        ("a_no", pa.int64()),
        ("t", pa.int64()),
        ("src", pa.utf8()),
        ("src_bid", pa.int64()),
        ("src_binc", pa.int64()),
        ("end_t", pa.int64()),
        ("end_reason", pa.utf8()),
    ]
)
"""Assignments, numbered; what a delivery's group, queue, inc and pqe point to."""

COVER: Final = pa.schema(
    [
        ("a_no", pa.int64()),
        ("bid", pa.int64()),
        ("binc", pa.int64()),
        ("epoch", pa.int64()),
        ("off", pa.int64()),
    ]
)
"""Highest offset that each incarnation had received before an assignment, per epoch."""

RESET: Final = pa.schema(
    [
        ("a_no", pa.int64()),
        ("by_inc", pa.int64()),
        ("by_pqe", pa.int64()),
        ("r_t", pa.int64()),
        ("r_off", pa.int64()),
        ("taken", pa.int64()),
    ]
)
"""Resets before an assignment: by a holder's end (``by_inc``, ``by_pqe``) or by a tool (``r_off``),
and the highest offset committed with success between the reset and the assignment (or -1)."""

SENT_BACK: Final = pa.schema(
    [
        ("grp", pa.utf8()),
        ("lane", pa.int64()),
        ("lseq", pa.int64()),
        ("rt", pa.int64()),
        ("stored", pa.int64()),
        ("expired", pa.bool_()),
    ]
)
"""Send-backs per message and next attempt."""

PRODUCED: Final = pa.schema(
    [
        ("grp", pa.utf8()),
        ("lane", pa.int64()),
        ("lseq", pa.int64()),
        ("ukeys", pa.int64()),
        ("doubtful", pa.bool_()),
        ("degraded_then_more", pa.bool_()),
    ]
)
"""Send attempts of a candidate message, summed up; ``grp`` is null where that is for any group."""


LINKS: Final = pa.schema(
    [
        ("grp", pa.utf8()),
        *((name, pa.int64()) for name in ("lane", "lseq", "sent_lane", "sent_lseq")),
    ]
)
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
