"""Columns of a table as numpy arrays; numbers for keys of several columns, and joins. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from failback.analytics.analysis.arrays.intervals import Ints

NULL_NUMBER: Final = -(1 << 62)
"""In place of null in a column of whole numbers."""


Flags = NDArray[np.bool_]

_MAX_SPAN = 1 << 62


class Columns:
    """Columns of a table as numpy arrays, converted on first use."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table.combine_chunks()
        self.count: int = table.num_rows
        self._ints: dict[str, Ints] = {}
        self._codes: dict[str, tuple[Ints, pa.Array]] = {}

    def _column(self, name: str) -> pa.Array:
        column = self._table.column(name)
        return column.chunk(0) if column.num_chunks else pa.array([], column.type)

    def ints(self, name: str) -> Ints:
        """Nulls are 0: ask :meth:`valid` beside it."""
        found = self._ints.get(name)
        if found is None:
            column = self._column(name)
            filled = column.fill_null(0) if column.null_count else column
            found = np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)
            self._ints[name] = found
        return found

    def valid(self, name: str) -> Flags:
        column = self._column(name)
        if not column.null_count:
            return np.ones(self.count, bool)
        return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)

    def flags(self, name: str) -> Flags:
        """Nulls are false."""
        column = self._column(name).fill_null(False)
        return np.asarray(column.to_numpy(zero_copy_only=False), bool)

    def texts(self, name: str) -> NDArray[np.object_]:
        return np.array(self._column(name).to_pylist(), object)

    def named(self, name: str) -> tuple[Ints, pa.Array]:
        """A text or binary column as numbers into its distinct values; null is -1."""
        found = self._codes.get(name)
        if found is None:
            column = self._column(name)
            if not pa.types.is_dictionary(column.type):
                column = column.dictionary_encode()
            indices = column.indices.fill_null(-1) if column.null_count else column.indices
            codes = np.asarray(indices.to_numpy(zero_copy_only=False))  # as narrow as they are
            found = self._codes[name] = (codes, column.dictionary)
        return found[0], found[1]

    def codes(self, name: str) -> Ints:
        """Numbers that are equal where the values are."""
        if pa.types.is_integer(self._table.schema.field(name).type):
            return self.ints(name)
        return self.named(name)[0]

    def one_of(self, name: str, values: Iterable[Any]) -> Flags:
        """Rows whose text is one of ``values``."""
        codes, names = self.named(name)
        wanted = set(values)
        hit = np.array([value in wanted for value in names.to_pylist()] + [False], bool)
        return hit[codes]

    def starts_with(self, name: str, prefix: str) -> Flags:
        codes, names = self.named(name)
        hit = [value.startswith(prefix) for value in names.to_pylist()]
        return np.array([*hit, False], bool)[codes]

    def dense(self, *names: str) -> Ints:
        """One number per distinct combination, from 0 without holes."""
        return dense_of([self.codes(name) for name in names])

    def dense_with(self, code: Ints, *names: str) -> Ints:
        return dense_of([code, *(self.codes(name) for name in names)])

    def take(self, name: str, rows: Ints) -> pa.Array:
        return self._column(name).take(pa.array(rows))


def dense_of(columns: Sequence[Ints]) -> Ints:
    """One number per distinct combination, from 0 without holes."""
    return ranks_of(packed_of(columns))


def ranks_of(values: Ints) -> Ints:
    """The place of each value among the distinct ones, from 0.

    Rows mostly come in stretches that ascend, as they lie in files: a stable sort goes by them.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    changed = np.zeros(values.size, np.int64)
    changed[1:] = ordered[1:] != ordered[:-1]
    found = np.empty(values.size, np.int64)
    found[order] = np.cumsum(changed)
    return found


def packed_of(columns: Sequence[Ints]) -> Ints:
    """One number per distinct combination, any."""
    if not columns or not columns[0].size:
        return np.empty(0, np.int64)
    code, span = np.zeros(columns[0].size, np.int64), 1
    for column in columns:
        least = int(column.min())
        width = int(column.max()) - least + 1
        if width == 1:
            continue
        values = column - least if width < _MAX_SPAN else column
        if width >= _MAX_SPAN:
            values = ranks_of(column)
            width = int(values.max()) + 1
        if span > _MAX_SPAN // width:
            code = ranks_of(code)
            span = int(code.max()) + 1
        if span > _MAX_SPAN // width:
            values = ranks_of(values)
            width = int(values.max()) + 1
        code = code * width + values
        span *= width
    return code


def match(left: Columns, names: Sequence[str], right: Columns, keys: Sequence[str]) -> Ints:
    """For each row of ``left`` a row of ``right`` with an equal key, or -1.

    Where several have it, it is the last. Meant for a small ``right``.
    """
    return match_codes([_joint(left, a, right, b) for a, b in zip(names, keys, strict=True)])


def match_codes(pairs: Sequence[tuple[Ints, Ints]]) -> Ints:
    """As :func:`match`, of (left, right) numbers per key column."""
    size = pairs[0][0].size
    if not pairs[0][1].size:
        return np.full(size, -1, np.int64)
    known = np.ones(size, bool)
    code_left, code_right = np.zeros(size, np.int64), np.zeros(pairs[0][1].size, np.int64)
    for left, right in pairs:
        values, right = np.unique(right, return_inverse=True)
        at = np.minimum(np.searchsorted(values, left), values.size - 1)
        known &= values[at] == left
        code_left = code_left * values.size + at
        code_right = code_right * values.size + right
        # As many numbers as the right side has rows are enough; what it lacks cannot match.
        kept, code_right = np.unique(code_right, return_inverse=True)
        at = np.minimum(np.searchsorted(kept, code_left), kept.size - 1)
        known &= kept[at] == code_left
        code_left = at
    last = np.zeros(int(code_right.max()) + 1, np.int64)
    last[code_right] = np.arange(code_right.size)
    return np.where(known, last[code_left], -1)


def _joint(left: Columns, a: str, right: Columns, b: str) -> tuple[Ints, Ints]:
    if pa.types.is_integer(left._table.schema.field(a).type):
        return left.ints(a), right.ints(b)
    left_codes, left_names = left.named(a)
    right_codes, right_names = right.named(b)
    where = pc.index_in(left_names.cast(right_names.type), right_names)
    known = np.asarray(where.fill_null(-2).to_numpy(zero_copy_only=False), np.int64)
    # Null equals null: both are -1, which the appended entry keeps.
    return np.append(known, -1)[left_codes], right_codes


class Ordered:
    """Rows in the order of begin time and did: sorts many keys with one comparison of times."""

    def __init__(self, bt: Ints, did: Ints) -> None:
        self._when = np.lexsort((did, bt))
        self._place = np.empty(bt.size, np.int64)
        self._place[self._when] = np.arange(bt.size)

    def ranks(self, key: Ints) -> tuple[Ints, Ints]:
        """Place of each row inside its key, from 1; and the row before it, or -1.

        Args:
            key: From 0 without large holes: below 2**62 when multiplied by the number of rows.
        """
        size = key.size
        packed = np.sort(key * size + self._place, kind="stable")
        of, place = packed // size, packed % size
        order = self._when[place]
        new = np.ones(size, bool)
        new[1:] = of[1:] != of[:-1]
        position = np.arange(size)
        start = np.maximum.accumulate(np.where(new, position, 0))
        rank, previous = np.empty(size, np.int64), np.empty(size, np.int64)
        rank[order] = position - start + 1
        previous[order[0]] = -1
        previous[order[1:]] = np.where(new[1:], -1, order[:-1])
        return rank, previous
