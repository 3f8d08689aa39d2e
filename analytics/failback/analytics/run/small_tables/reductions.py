"""Reading a table chunk by chunk, with what was kept of the chunks before in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import pyarrow as pa

from failback.analytics.lake.lake import Lake

CHUNK_ROWS: Final = 1 << 18
FOLD_ROWS: Final = 1 << 17
"""Kept rows of several chunks, before they are reduced together."""


class Reduction(Protocol):
    """Keeps some rows of a chunk. Picklable: workers may be other processes."""

    @property
    def schema(self) -> pa.Schema:
        """Of what is kept."""

    def __call__(self, chunk: pa.Table) -> pa.Table:
        """What is kept of raw rows."""

    def again(self, kept: pa.Table) -> pa.Table:
        """What is kept of rows that were kept of several chunks."""


Read = Callable[[str, Sequence[str], Reduction], Iterable[pa.Table]]
"""What a reduction keeps of the chunks of a table, given the columns to read."""


def in_this_process(lake: Lake) -> Read:
    """Reads the lake here, in the order of its files."""
    return lambda table, columns, reduction: map(reduction, lake.chunks(table, columns, CHUNK_ROWS))


def reduced(read: Read, table: str, columns: Sequence[str], reduction: Reduction) -> pa.Table:
    """What a reduction keeps of a whole table.

    Memory holds one chunk, and at most twice the rows that are kept in the end or
    :data:`FOLD_ROWS`, whichever is more.
    """
    held, count, most = [reduction.schema.empty_table()], 0, FOLD_ROWS
    for kept in read(table, columns, reduction):
        held.append(kept)
        count += kept.num_rows
        if count > most:
            held = [reduction.again(pa.concat_tables(held))]
            count = held[0].num_rows
            most = max(FOLD_ROWS, 2 * count)
    return reduction.again(pa.concat_tables(held))
