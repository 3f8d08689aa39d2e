"""Columns of a chunk as numpy arrays, with numbers for names and for keys of several columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from failback.analytics.run.align import Clocks

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

NULL: Final = -(1 << 62)
_MOST: Final = 1 << 62
_TABLE: Final = 1 << 22
"""Keys up to this number are counted in a table, not sorted."""


class Columns:
    """Columns of a chunk."""

    def __init__(self, chunk: pa.Table) -> None:
        self.count: int = chunk.num_rows
        self._chunk = chunk.unify_dictionaries().combine_chunks()

    def array(self, name: str) -> pa.Array:
        column = self._chunk.column(name)
        return column.chunk(0) if column.num_chunks else pa.array([], column.type)

    def ints(self, name: str) -> Ints:
        """Null is :data:`NULL`."""
        column = self.array(name).cast(pa.int64())
        filled = column.fill_null(NULL) if column.null_count else column
        return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)

    def named(self, name: str) -> tuple[Ints, list[Any]]:
        """Numbers into distinct values; null is a value."""
        column = self.array(name)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        names = column.dictionary.to_pylist()
        codes = pc.fill_null(column.indices, len(names))
        return np.asarray(codes.to_numpy(zero_copy_only=False), np.int64), [*names, None]

    def key(self, *names: str) -> tuple[Ints, Ints]:
        """A number per row, from 0 without holes, equal where all columns are; a row of each."""
        code, span = np.zeros(self.count, np.int64), 1
        for name in names:
            column = self._chunk.schema.field(name).type
            values = self.ints(name) if pa.types.is_integer(column) else self.named(name)[0]
            values, width = _from_zero(values)
            if span > _MOST // width:
                code, rows = _dense(code, span)
                span = rows.size
            code = code * width + values
            span *= width
        return _dense(code, span)

    def shifts(self, clocks: Clocks) -> Ints:
        """What to add to each row's times."""
        codes, hosts = self.named("host")
        return np.array([clocks.shift_of(host) for host in hosts], np.int64)[codes]

    def rows(self, number: Ints, schema: pa.Schema, **other: Ints) -> pa.Table:
        """Some rows, with a schema; ``other`` are columns that the chunk has differently."""
        at = pa.array(number)
        return pa.table(
            [
                pa.array(other[f.name][number], f.type)
                if f.name in other
                else self.array(f.name).take(at).cast(f.type)
                for f in schema
            ],
            schema=schema,
        )


def _from_zero(values: Ints) -> tuple[Ints, int]:
    if not values.size:
        return values, 1
    least, most = int(values.min()), int(values.max())
    if most - least >= _TABLE:
        known, values = np.unique(values, return_inverse=True)
        return values.astype(np.int64), known.size
    return values - least, most - least + 1


def _dense(code: Ints, span: int) -> tuple[Ints, Ints]:
    if span > _TABLE:
        _, first, dense = np.unique(code, return_index=True, return_inverse=True)
        return dense.astype(np.int64), first.astype(np.int64)
    row = np.full(span, -1, np.int64)
    row[code[::-1]] = np.arange(code.size - 1, -1, -1)  # the last one written stays: the first row
    known = row >= 0
    return (np.cumsum(known) - 1)[code], row[known]


def changes(*columns: Ints) -> Ints:
    """Rows that differ from the row before them; the first row does."""
    return np.flatnonzero(changed(*columns))


def changed(*columns: Ints | Flags) -> Flags:
    """The same as a flag of each row."""
    found = np.ones(columns[0].size, bool)
    if found.size:
        found[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return found


def slots(key: Ints, asked: Sequence[Ints], t: Ints) -> Ints:
    """Numbers that differ where an instant lies between two rows of a key.

    An instant parts what is at or before it from what is after it. Rows of one key have ascending
    numbers in the order of time.

    Args:
        key: Of each row, from 0.
        asked: The instants of each key.
        t: Of each row.
    """
    every = np.unique(np.concatenate([np.empty(0, np.int64), *asked]))
    width = every.size + 1
    found = [number * width + np.searchsorted(every, mine) for number, mine in enumerate(asked)]
    edges = np.sort(np.concatenate([np.empty(0, np.int64), *found]))
    return np.searchsorted(edges, key * width + np.searchsorted(every, t)).astype(np.int64)


def telling(series: Ints, slot: Ints, state: Ints, t: Ints, value: Ints, *, falls: bool) -> Ints:
    """Row numbers, ascending, of the ends and the highest value of every stretch.

    A stretch is a part of a series with one slot and one state. Rows of two chunks are told apart
    as if they had been in one, where the chunks' rows of a series follow each other in time.

    Args:
        series: What each row is of.
        slot: Numbers that ascend with time in a series.
        state: Something that changes seldom, as the life of a process.
        t: When.
        value: How much.
        falls: Also the two rows of every step down: between them a series only grows.
    """
    if not t.size:
        return np.empty(0, np.int64)
    order = _in_time(series, t, value)
    of, at, what, when, much = (each[order] for each in (series, slot, state, t, value))
    same = of[1:] == of[:-1]
    new = np.append(True, ~same | (at[1:] != at[:-1]) | (what[1:] != what[:-1]))
    first = np.flatnonzero(new)
    last = np.append(first[1:], new.size) - 1
    stretch = np.cumsum(new) - 1
    # Of several rows at one end the readers take the least or the greatest.
    keep = (when == when[first][stretch]) | (when == when[last][stretch])
    highest = np.flatnonzero(much == np.maximum.reduceat(much, first)[stretch])
    once = np.append(True, np.diff(stretch[highest]) != 0)
    keep[highest[once]] = True
    if falls:
        down = same & (much[1:] < much[:-1])
        keep[1:] |= down
        keep[:-1] |= down
    return np.sort(order[keep])


def _in_time(series: Ints, t: Ints, value: Ints) -> Ints:
    """Rows by series, time and value; mostly each series is in order already."""
    order = np.argsort(series, kind="stable")
    of, when, much = series[order], t[order], value[order]
    later = (when[1:] > when[:-1]) | ((when[1:] == when[:-1]) & (much[1:] >= much[:-1]))
    if (later | (of[1:] != of[:-1])).all():
        return order
    return np.lexsort((value, t, series))
