"""Numbers of spans of seconds per queue, as columns, and curves with fewer points. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.run.history import GroupQueue

QUEUE: Final = ("grp", "broker", "topic", "qid")


class Curve(NamedTuple):
    """Last seconds of spans, ascending, and the number of each; spans without one are left out."""

    at: Ints
    value: Ints

    def within(self, window: range) -> Curve:
        """What lies in a window of consecutive seconds."""
        lo, hi = np.searchsorted(self.at, [window.start, window.stop])
        return Curve(self.at[lo:hi], self.value[lo:hi])

    def total(self) -> int:
        return int(self.value.sum())

    def most(self) -> int:
        return int(self.value.max(initial=0))

    def highest(self, seconds: Ints) -> Ints:
        """The highest number up to and with each of ``seconds``; 0 before the first."""
        return last_at(self.at, np.maximum.accumulate(self.value), seconds)


def last_at(at: Ints, values: Ints, wanted: Ints) -> Ints:
    """The value of the last of ``at``, ascending, at or before each wanted one; else 0."""
    return np.append(values, 0)[np.searchsorted(at, wanted, "right") - 1]


def curves_of(table: pa.Table) -> dict[GroupQueue, Curve]:
    """Per queue its ``value`` by second."""
    found = _split(table, QUEUE)
    return {GroupQueue(*names): curve for names, curve in found.items()}


def held_curves_of(table: pa.Table) -> dict[GroupQueue, dict[tuple[int, int], Curve]]:
    """Per queue and holder (``inc``, ``pqe``) its ``value`` by second."""
    found: dict[GroupQueue, dict[tuple[int, int], Curve]] = {}
    for (*names, inc, pqe), curve in _split(table, (*QUEUE, "inc", "pqe")).items():
        found.setdefault(GroupQueue(*names), {})[inc, pqe] = curve
    return found


def summed(curves: Iterable[Curve]) -> Curve:
    """The sum of curves, second by second."""
    mine = list(curves)
    if not mine:
        return Curve(np.empty(0, np.int64), np.empty(0, np.int64))
    at, place = np.unique(np.concatenate([each.at for each in mine]), return_inverse=True)
    value = np.zeros(at.size, np.int64)
    np.add.at(value, place, np.concatenate([each.value for each in mine]))
    return Curve(at, value)


def _split(table: pa.Table, key: tuple[str, ...]) -> dict[tuple[Any, ...], Curve]:
    c = Columns(table)
    if not c.count:
        return {}
    code = c.dense(*key)
    order = np.lexsort((c.ints("second"), code))
    begins = np.flatnonzero(np.diff(code[order], prepend=-1))
    at, value = (np.split(c.ints(name)[order], begins[1:]) for name in ("second", "value"))
    names = zip(*(c.take(name, order[begins]).to_pylist() for name in key), strict=True)
    return {mine: Curve(*pair) for mine, *pair in zip(names, at, value, strict=True)}


def extremes(values: Sequence[float] | NDArray[np.generic], limit: int) -> Ints:
    """Places of the least and greatest of each of ``limit / 2`` equal spans, ascending.

    All places where there are no more than ``limit``.
    """
    every = np.asarray(values)
    if every.size <= limit:
        return np.arange(every.size)
    span = -(-every.size // (limit // 2))
    # The last span is filled up with its own last value, which adds no new place.
    filled = np.pad(every, (0, -every.size % span), mode="edge").reshape(-1, span)
    starts = np.arange(0, every.size, span)
    return np.unique([starts + filled.argmin(axis=1), starts + filled.argmax(axis=1)])
