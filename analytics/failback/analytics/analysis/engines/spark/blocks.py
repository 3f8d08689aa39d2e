"""Tables that cross Spark as a few values: one block of Arrow IPC for each part of their rows.

A row of Spark's own with thirty columns, most of them names, costs several times what numpy does
with it: to write, to sort, and to write again for each step. A block costs next to nothing.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.arrays.intervals import Ints

BLOCKS: Final = pa.schema([("part", pa.int64()), ("block", pa.binary())])
_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1))


def parts_of(lane: Ints, lseq: Ints, parts: int) -> Ints:
    """The part, from 0, of each message: evenly, and the same in every process."""
    mixed = (lseq.view(np.uint64) * _MIXER) ^ lane.view(np.uint64)
    return np.asarray((mixed * _MIXER >> np.uint64(32)) % np.uint64(parts), np.int64)


def split(table: pa.Table, part: Ints) -> pa.Table:
    """The rows as one block for each part that has some (:data:`BLOCKS`)."""
    order = np.argsort(part, kind="stable")
    table, ordered = table.take(pa.array(order)), part[order]
    numbers, starts = np.unique(ordered, return_index=True)
    edges = pairwise([*starts.tolist(), ordered.size])
    blocks = [packed(table.slice(start, end - start)) for start, end in edges]
    return pa.table([pa.array(numbers, pa.int64()), pa.array(blocks, pa.binary())], schema=BLOCKS)


def packed(table: pa.Table) -> bytes:
    """A table as a block; of dictionaries it has only what its rows name."""
    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(at, field, _own(table.column(at), field.type))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table.unify_dictionaries().combine_chunks())
    return bytes(sink.getvalue())


def _own(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if sum(len(chunk.dictionary) for chunk in column.chunks) <= len(column):
        return column
    return column.cast(kind.value_type).dictionary_encode().cast(kind)


def unpacked(blocks: pa.Table) -> list[pa.Table]:
    """The tables of the blocks of :data:`BLOCKS`."""
    return [pa.ipc.open_stream(block.as_buffer()).read_all() for block in blocks.column("block")]
