"""Rows on their way to their part: one block of Arrow IPC for those that a chunk has of it.

A row of Spark's own with thirty columns, most of them names, costs several times what numpy does
with it: to write, to sort, and to write again for each step. A block costs next to nothing, and on
disk, where the local runner puts what is too much, it is as small.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.arrays.intervals import Ints
from failback.client.consumelog.schema import schema_of

BLOCKS: Final = schema_of("part l, kind l, block x")
"""``kind`` tells blocks of several schemas in one part apart."""
_NEAR_BITS: Final = 10
_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1))


def parts_of(lane: Ints, lseq: Ints, parts: int) -> Ints:
    """The part, from 0, of each message: evenly, and the same in every process.

    Neighbours of a lane stay together, so that what they have in common stays a few runs. Without
    a LAB_ID (``lane`` below 0) ``lseq`` is a hash.
    """
    return scattered(lane, np.where(lane < 0, lseq, lseq >> _NEAR_BITS), parts)


def scattered(a: Ints, b: Ints, parts: int) -> Ints:
    """The part, from 0, of each pair of numbers: evenly, and the same in every process."""
    mixed = (b.view(np.uint64) * _MIXER) ^ a.view(np.uint64)
    return np.asarray((mixed * _MIXER >> np.uint64(32)) % np.uint64(parts), np.int64)


def split(table: pa.Table, part: Ints, kind: int = 0) -> pa.Table:
    """The rows as one block for each part that has some (:data:`BLOCKS`)."""
    order = np.argsort(part, kind="stable")
    table, ordered = table.take(pa.array(order)), part[order]
    numbers, starts = np.unique(ordered, return_index=True)
    edges = pairwise([*starts.tolist(), ordered.size])
    blocks = [packed(table.slice(start, end - start)) for start, end in edges]
    kinds = np.full(numbers.size, kind, np.int64)
    return pa.table(
        [pa.array(numbers, pa.int64()), kinds, pa.array(blocks, pa.binary())], schema=BLOCKS
    )


def by_message(
    found: pa.Table, parts: int, kind: int = 0, lane: str = "lane", lseq: str = "lseq"
) -> pa.Table:
    """The rows as blocks, by the part of the message that two columns name (:data:`BLOCKS`)."""
    c = Columns(found)
    return split(found, parts_of(c.ints(lane), c.ints(lseq), parts), kind)


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


def unpacked(blocks: pa.Table, kind: int = 0) -> list[pa.Table]:
    """The tables of one kind of the blocks of :data:`BLOCKS`."""
    mine = blocks.filter(pc.equal(blocks.column("kind"), kind)).column("block")
    return [pa.ipc.open_stream(block.as_buffer()).read_all() for block in mine]
