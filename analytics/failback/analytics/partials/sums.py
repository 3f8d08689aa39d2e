"""Partial rows: what one batch contributes, small and order-free. Pure.

A partial row is ``op, fam, grp, broker, topic, n1..n6, lo, hi, weight, figure``. ``op`` says how
rows with an equal key are joined; ``lo`` is the value of all but interval rows. Absent names are
``""`` and absent numbers 0; ``NULL_NUMBER`` stands for a null that is part of a key.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from failback.analytics.intervals import Ints, layers
from failback.analytics.partials.rows import Codes

INTERVAL: Final = 0
SUM: Final = 1
MAX: Final = 2
MIN: Final = 3
NS: Final = 1_000_000_000
NAMES: Final = ("grp", "broker", "topic")
NUMBERS: Final = ("n1", "n2", "n3", "n4", "n5", "n6")
SCHEMA: Final = pa.schema(
    [
        ("op", pa.int8()),
        ("fam", pa.utf8()),
        *((name, pa.utf8()) for name in NAMES),
        *((name, pa.int64()) for name in NUMBERS),
        *((name, pa.int64()) for name in ("lo", "hi", "weight", "figure")),
    ]
)


class Key:
    """The key columns of partial rows, as codes and numbers."""

    def __init__(self, **parts: Codes | Ints) -> None:
        self.parts: dict[str, Codes | Ints] = parts

    def and_(self, **more: Codes | Ints) -> Key:
        return Key(**{**self.parts, **more})

    def at(self, rows: NDArray[Any]) -> Key:
        """The keys of some rows only, by mask or index."""
        return Key(
            **{
                name: Codes(part.codes[rows], part.names) if isinstance(part, Codes) else part[rows]
                for name, part in self.parts.items()
            }
        )

    def packed(self, count: int) -> tuple[Ints, Ints]:
        """A dense code per row, and for each code a row that has it."""
        if not self.parts or not count:
            return np.zeros(count, np.int64), np.zeros(min(count, 1), np.int64)
        code, span = np.zeros(count, np.int64), 1
        for part in self.parts.values():
            values = part.codes if isinstance(part, Codes) else part
            least = int(values.min())
            width = int(values.max()) - least + 1
            if width == 1:
                continue  # the same everywhere
            if width > 4 * count + 1024:  # scattered numbers: their ranks are enough
                unique, values = np.unique(values, return_inverse=True)
                least, width = 0, unique.size
            if span * width > 4 * count + 1024:
                unique, code = np.unique(code, return_inverse=True)
                span = unique.size
            code = code * width + (values - least)
            span *= width
        if span == 1:
            return code, np.zeros(1, np.int64)
        if span > 4 * count + 1024:
            _, first, dense = np.unique(code, return_index=True, return_inverse=True)
            return dense, first
        seen = np.full(span, -1, np.int64)
        seen[code[::-1]] = np.arange(count - 1, -1, -1)
        present = seen >= 0
        rank = np.cumsum(present) - 1
        return rank[code], seen[present]


class Partials:
    """Collects partial rows."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []

    def intervals(self, family: str, key: Key, values: Ints, figure: NDArray[np.bool_]) -> None:
        """Runs of the values of each key; rows that are not in figures apart."""
        if not values.size:
            return
        number, example = key.packed(values.size)
        for counted in (True, False):
            chosen = figure if counted else ~figure
            if not chosen.any():
                continue
            runs = layers(number[chosen], values[chosen])
            weight = runs.weight
            self._add(
                INTERVAL,
                family,
                key,
                example[runs.number],
                runs.lo,
                runs.hi,
                weight,
                weight if counted else np.zeros_like(weight),
            )

    def values(self, op: int, family: str, key: Key, values: Ints) -> None:
        """One value per key, joined by ``op``."""
        if not values.size:
            return
        number, example = key.packed(values.size)
        if op == SUM:
            joined = np.zeros(example.size, np.int64)
            np.add.at(joined, number, values)
        elif op == MAX:
            joined = np.full(example.size, np.iinfo(np.int64).min)
            np.maximum.at(joined, number, values)
        else:
            joined = np.full(example.size, np.iinfo(np.int64).max)
            np.minimum.at(joined, number, values)
        nothing = np.zeros(joined.size, np.int64)
        self._add(op, family, key, example, joined, nothing, nothing, nothing)

    def _add(
        self,
        op: int,
        family: str,
        key: Key,
        example: Ints,
        lo: Ints,
        hi: Ints,
        weight: Ints,
        figure: Ints,
    ) -> None:
        count = lo.size
        columns: list[Any] = [
            np.full(count, op, np.int8),
            pa.array([family] * count, pa.utf8()),
        ]
        for name in NAMES:
            part = key.parts.get(name)
            if isinstance(part, Codes):
                taken = pa.array(part.names, pa.utf8()).take(pa.array(part.codes[example]))
                columns.append(taken)
            else:
                columns.append(pa.array([""] * count, pa.utf8()))
        for name in NUMBERS:
            part = key.parts.get(name)
            given = isinstance(part, np.ndarray)
            columns.append(part[example] if given else np.zeros(count, np.int64))  # type: ignore[index]
        self._tables.append(
            pa.table([*columns, lo, hi, weight, figure], names=SCHEMA.names).cast(SCHEMA)
        )

    def table(self) -> pa.Table:
        return pa.concat_tables(self._tables) if self._tables else SCHEMA.empty_table()
