"""Partial rows: what one batch contributes, small and order-free. Pure.

A partial row is ``op, fam, grp, broker, topic, n1..n6, lo, hi, weight, figure``. ``op`` says how
rows with an equal key are joined. ``fam`` names the family
(:mod:`failback.analytics.analysis.counting.families`), which says what is in the key's columns.
``lo`` is the value of all but interval rows. Absent names are ``""`` and absent numbers 0;
``NULL_NUMBER`` is a null that is part of a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from failback.analytics.analysis.arrays.intervals import Ints, layers
from failback.analytics.analysis.counting.families import MAX, NAMES, NUMBERS, SUM, Family
from failback.analytics.analysis.counting.partials.rows import Codes

_STRETCH: Final = 8
"""Rows a stretch of equal keys has at least on average for its keys to be looked at once."""
SCHEMA: Final = pa.schema(
    [
        ("op", pa.int8()),
        ("fam", pa.utf8()),
        *((name, pa.utf8()) for name in NAMES),
        *((name, pa.int64()) for name in NUMBERS),
        *((name, pa.int64()) for name in ("lo", "hi", "weight", "figure")),
    ]
)


@dataclass(frozen=True, slots=True)
class _Part:
    """A key column: numbers, with names if they are codes, of all rows or of chosen ones."""

    values: Ints
    names: Sequence[str] | None = None
    where: Ints | None = None

    def rows(self) -> Ints:
        return self.values if self.where is None else self.values[self.where]

    def at(self, rows: Ints) -> _Part:
        where = rows if self.where is None else self.where[rows]
        return _Part(self.values, self.names, where)

    def pick(self, rows: Ints) -> Ints:
        return self.values[rows if self.where is None else self.where[rows]]


class Key:
    """The key columns of partial rows, as codes and numbers."""

    def __init__(self, **parts: Codes | Ints) -> None:
        self.parts = {name: _part(part) for name, part in parts.items()}
        self._grouped: tuple[_Part, int, frozenset[str]] | None = None

    def _made(
        self, parts: dict[str, _Part], grouped: tuple[_Part, int, frozenset[str]] | None
    ) -> Key:
        made = Key()
        made.parts, made._grouped = parts, grouped
        return made

    def and_(self, **more: Codes | Ints) -> Key:
        added = {name: _part(part) for name, part in more.items()}
        return self._made({**self.parts, **added}, self._grouped)

    def at(self, rows: NDArray[Any]) -> Key:
        """The keys of some rows only, by mask or index."""
        if rows.dtype == np.bool_:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)
        grouped = self._grouped
        if grouped is not None:
            grouped = (grouped[0].at(rows), *grouped[1:])
        return self._made({name: part.at(rows) for name, part in self.parts.items()}, grouped)

    def grouped(self, count: int) -> Grouping:
        """The same, with the distinct keys of its rows found out once, for keys of some parts."""
        number, example = self.packed(count)
        return Grouping(self, number, example)

    def packed(self, count: int) -> tuple[Ints, Ints]:
        """A dense code per row, and for each code a row that has it."""
        if not self.parts or not count:
            return np.zeros(count, np.int64), np.zeros(min(count, 1), np.int64)
        covered: frozenset[str] = self._grouped[2] if self._grouped else frozenset()
        columns = [part.rows() for name, part in self.parts.items() if name not in covered]
        code: Ints | None = None
        span = 1
        if self._grouped is not None and self._grouped[1] > 1:
            code, span = self._grouped[0].rows(), self._grouped[1]
        heads = _heads(columns if code is None else [code, *columns], count)
        if heads is None:
            return _packed(code, span, columns, count)
        few = None if code is None else code[heads]
        code, example = _packed(few, span, [values[heads] for values in columns], heads.size)
        return np.repeat(code, np.diff(heads, append=count)), heads[example]


def _heads(columns: Sequence[Ints], count: int) -> Ints | None:
    """The first row of each stretch of equal rows, or None where stretches are short."""
    changes = np.zeros(count, bool)
    changes[0] = True
    for values in columns:
        changes[1:] |= values[1:] != values[:-1]
        if np.count_nonzero(changes) > count // _STRETCH:
            return None
    return np.flatnonzero(changes)


def _packed(code: Ints | None, span: int, columns: Sequence[Ints], count: int) -> tuple[Ints, Ints]:
    for values in columns:
        least = int(values.min())
        width = int(values.max()) - least + 1
        if width == 1:
            continue  # the same everywhere
        if width > 4 * count + 1024:  # scattered numbers: their ranks are enough
            unique, values = np.unique(values, return_inverse=True)
            least, width = 0, unique.size
        if code is None:
            code, span = values - least, width
            continue
        if span * width > 4 * count + 1024:
            unique, code = np.unique(code, return_inverse=True)
            span = unique.size
        code = code * width + (values - least)
        span *= width
    if code is None or span == 1:
        return np.zeros(count, np.int64), np.zeros(1, np.int64)
    if span > 4 * count + 1024:
        _, first, dense = np.unique(code, return_index=True, return_inverse=True)
        return dense, first
    seen = np.full(span, -1, np.int64)
    seen[code[::-1]] = np.arange(count - 1, -1, -1)
    present = seen >= 0
    if present.all():
        return code, seen
    rank = np.cumsum(present) - 1
    return rank[code], seen[present]


class Grouping:
    """Rows by the distinct values of a key: other keys of the same columns follow from it."""

    def __init__(self, key: Key, number: Ints, example: Ints) -> None:
        self._key = key
        self._number = number
        self._example = example

    def key(self, *names: str) -> Key:
        """A key of some of the columns."""
        parts = {name: self._key.parts[name] for name in names}
        few = Key()
        few.parts = {name: _Part(part.pick(self._example)) for name, part in parts.items()}
        code, example = few.packed(self._example.size)
        same = code.size == example.size and (code[1:] > code[:-1]).all()
        number = self._number if same else code[self._number]
        made = Key()
        made.parts = parts
        made._grouped = (_Part(number), example.size, frozenset(parts))
        return made


def _part(part: Codes | Ints) -> _Part:
    return _Part(part.codes, part.names) if isinstance(part, Codes) else _Part(part)


class Partials:
    """Collects partial rows."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []

    def intervals(self, family: Family, key: Key, values: Ints, figure: NDArray[np.bool_]) -> None:
        """Runs of the values of each key; rows that are not in figures apart."""
        if not values.size:
            return
        number, example = key.packed(values.size)
        for counted in (True, False):
            chosen = figure if counted else ~figure
            if not chosen.any():
                continue
            whole = bool(chosen.all())
            runs = layers(*(x if whole else x[chosen] for x in (number, values)))
            weight = runs.weight
            self._add(
                family,
                key,
                example[runs.number],
                runs.lo,
                runs.hi,
                weight,
                weight if counted else np.zeros_like(weight),
            )

    def values(self, family: Family, key: Key, values: Ints) -> None:
        """One value per key, joined by the family's operation."""
        if not values.size:
            return
        number, example = key.packed(values.size)
        if family.op == SUM:
            joined = np.zeros(example.size, np.int64)
            np.add.at(joined, number, values)
        elif family.op == MAX:
            joined = np.full(example.size, np.iinfo(np.int64).min)
            np.maximum.at(joined, number, values)
        else:
            joined = np.full(example.size, np.iinfo(np.int64).max)
            np.minimum.at(joined, number, values)
        nothing = np.zeros(joined.size, np.int64)
        self._add(family, key, example, joined, nothing, nothing, nothing)

    def _add(
        self,
        family: Family,
        key: Key,
        example: Ints,
        lo: Ints,
        hi: Ints,
        weight: Ints,
        figure: Ints,
    ) -> None:
        if key.parts.keys() != family.stored.keys():
            wanted = ", ".join(family.stored)
            raise ValueError(f"key of {family.name} is {', '.join(key.parts)}, not {wanted}")
        count = lo.size
        columns: list[Any] = [
            np.full(count, family.op, np.int8),
            pa.array([family.name] * count, pa.utf8()),
        ]
        parts = {stored: key.parts[name] for stored, name in family.held.items()}
        for name in NAMES:
            part = parts.get(name)
            if part is not None and part.names is not None:
                columns.append(pa.array(part.names, pa.utf8()).take(pa.array(part.pick(example))))
            else:
                columns.append(pa.array([""] * count, pa.utf8()))
        for name in NUMBERS:
            part = parts.get(name)
            columns.append(np.zeros(count, np.int64) if part is None else part.pick(example))
        self._tables.append(pa.table([*columns, lo, hi, weight, figure], schema=SCHEMA))

    def table(self) -> pa.Table:
        return pa.concat_tables(self._tables) if self._tables else SCHEMA.empty_table()
