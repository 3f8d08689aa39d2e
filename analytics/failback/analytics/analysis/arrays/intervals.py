"""Histories as intervals: the arithmetic behind counting duplicates. Pure.

Offsets of a queue and sequences of a lane are dense integers, and deliveries mostly run forward. So
a history of millions of rows is a few half-open intervals ``[lo, hi)``, and a repeat is an overlap.

:func:`layers` turns one batch of keys into intervals, :func:`sweep` adds intervals up to depths. A
key that occurs m times in a batch lies in intervals whose weights sum to exactly m. So the depth of
a key in the union over *any* split of the rows into batches is its multiplicity. That is why both
engines, with different batches, find the same repeats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

VALUE_BITS: Final = 44
NUMBER_BITS: Final = 19
_MAX_PACKED_VALUE: Final = (1 << VALUE_BITS) - 1  # exclusive, so that no run crosses two numbers
# More runs than this share of the rows: single keys with counts say the same in less room.
_SCATTERED_SHARE: Final = 0.25
# Keys that come more often than this in one batch are counted, not stripped one by one.
_MAX_LAYERS: Final = 64


class Runs(NamedTuple):
    """Intervals of several histories: history ``number`` has ``weight`` more keys in [lo, hi)."""

    number: Ints
    lo: Ints
    hi: Ints
    weight: Ints


class Depths(NamedTuple):
    """Disjoint intervals with how often their keys occur: in all rows, and in rows of figures."""

    number: Ints
    lo: Ints
    hi: Ints
    depth: Ints
    figure_depth: Ints


def layers(numbers: Ints, values: Ints) -> Runs:
    """Runs of the 1st, 2nd, ... occurrence of each (number, value); the rows may come in any order.

    Args:
        numbers: Which history a key belongs to, >= 0.
        values: The key inside it. Keys outside the packed range take a slower path.
    """
    if values.size == 0:
        nothing = np.empty(0, np.int64)
        return Runs(nothing, nothing, nothing, nothing)
    packable = (
        int(numbers.min()) >= 0
        and int(numbers.max()) < 1 << NUMBER_BITS
        and int(values.min()) >= 0
        and int(values.max()) < _MAX_PACKED_VALUE
    )
    if packable:
        keys = numbers << VALUE_BITS | values
        if (keys[1:] < keys[:-1]).any():  # files of the lake are in order
            keys.sort(kind="stable")  # several of them ascend one after the other
        return _layers(keys)
    order = np.lexsort((values, numbers))
    number, value = numbers[order], values[order]
    # Ranks of the pairs are as good as keys: neighbours stay neighbours, all else gets a gap.
    step = np.ones(value.size, np.int64)
    step[1:] = np.where(
        number[1:] != number[:-1], 2, np.minimum(np.diff(value).view(np.uint64), 2).view(np.int64)
    )
    rank = np.cumsum(step)
    found = _layers(rank)
    at = np.searchsorted(rank, found.lo)
    last = np.searchsorted(rank, found.hi - 1)
    return Runs(number[at], value[at], value[last] + 1, found.weight)


def _layers(keys: Ints) -> Runs:
    """Layers of ascending packed keys: strip one occurrence of every key at a time."""
    total, parts = keys.size, []
    for _ in range(_MAX_LAYERS):
        step = np.diff(keys)
        breaks = np.flatnonzero(step != 1)
        gaps = step[breaks]
        doubled = breaks[gaps == 0] + 1
        if doubled.size:
            once = np.ones(keys.size, bool)
            once[doubled] = False
            again, keys = keys[doubled], keys[once]
            breaks = np.flatnonzero(np.diff(keys) != 1)
        else:
            again = keys[:0]
        lo = keys[np.concatenate(([0], breaks + 1))]
        hi = keys[np.concatenate((breaks, [keys.size - 1]))] + 1
        parts.append((lo, hi, np.ones(lo.size, np.int64)))
        keys = again
        if not keys.size:
            break
    if keys.size:  # a few keys that come very often
        lo, weight = np.unique(keys, return_counts=True)
        parts.append((lo, lo + 1, weight))
    lo, hi, weight = (np.concatenate(column) for column in zip(*parts, strict=True))
    if lo.size > _SCATTERED_SHARE * total:
        lo, hi, weight = _counted(lo, hi, weight)
    mask = (1 << VALUE_BITS) - 1
    # A run never crosses two numbers, so its end has the number of its last key.
    return Runs(lo >> VALUE_BITS, lo & mask, ((hi - 1) & mask) + 1, weight)


def _counted(lo: Ints, hi: Ints, weight: Ints) -> tuple[Ints, Ints, Ints]:
    """The same as single keys with counts."""
    length = hi - lo
    of = np.repeat(np.arange(lo.size), length)
    key = lo[of] + np.arange(of.size) - np.repeat(np.cumsum(length) - length, length)
    keys, at = np.unique(key, return_inverse=True)
    counts = np.bincount(at, weights=weight[of], minlength=keys.size).astype(np.int64)
    return keys, keys + 1, counts


def sweep(number: Ints, lo: Ints, hi: Ints, weight: Ints, figure_weight: Ints) -> Depths:
    """Depth of every key: +weight at ``lo``, -weight at ``hi``, prefix sums per history.

    Neighbours of equal depth are joined, so the result does not depend on how the rows were cut.
    ``figure_weight`` is what of the weight counts in figures (0 for rows of the warm-up).
    """
    if lo.size == 0:
        nothing = np.empty(0, np.int64)
        return Depths(nothing, nothing, nothing, nothing, nothing)
    at = np.concatenate((lo, hi))
    of = np.concatenate((number, number))
    order = np.lexsort((at, of))
    at, of = at[order], of[order]
    # Every history's changes sum to zero, so one prefix sum over all of them is right for each.
    depth = np.cumsum(np.concatenate((weight, -weight))[order])
    figure = np.cumsum(np.concatenate((figure_weight, -figure_weight))[order])
    last_here = np.ones(at.size, bool)
    last_here[:-1] = (at[1:] != at[:-1]) | (of[1:] != of[:-1])
    at, of, depth, figure = at[last_here], of[last_here], depth[last_here], figure[last_here]
    changed = np.ones(at.size, bool)
    changed[1:] = (depth[1:] != depth[:-1]) | (figure[1:] != figure[:-1]) | (of[1:] != of[:-1])
    at, of, depth, figure = at[changed], of[changed], depth[changed], figure[changed]
    inside = np.flatnonzero(depth[:-1] > 0)  # the last position of a history has depth 0
    return Depths(of[inside], at[inside], at[inside + 1], depth[inside], figure[inside])


def joined(history: Ints, lo: Ints, hi: Ints) -> tuple[Ints, Ints, Ints]:
    """Ranges of one history that follow each other as one: a row of each, ``lo`` and ``hi``."""
    order = np.lexsort((lo, history))
    history, lo, hi = history[order], lo[order], hi[order]
    begins = np.ones(order.size, bool)
    begins[1:] = (history[1:] != history[:-1]) | (lo[1:] != hi[:-1])
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], order.size) - 1
    return order[starts], lo[starts], hi[ends]


class IntervalSet:
    """A set of integers as sorted, disjoint, non-touching half-open intervals. Immutable."""

    __slots__ = ("hi", "lo")

    def __init__(self, pairs: Sequence[tuple[int, int]] = ()) -> None:
        lo = np.array([pair[0] for pair in pairs], np.int64)
        hi = np.array([pair[1] for pair in pairs], np.int64)
        merged = self.of(lo, hi)
        self.lo: Ints = merged.lo
        self.hi: Ints = merged.hi

    @classmethod
    def of(cls, lo: Ints, hi: Ints) -> Self:
        """From intervals in any order, overlapping or not; empty ones vanish."""
        full = hi > lo
        lo, hi = lo[full], hi[full]
        order = np.argsort(lo, kind="stable")
        lo, reach = lo[order], np.maximum.accumulate(hi[order]) if lo.size else hi
        start = np.ones(lo.size, bool)
        start[1:] = lo[1:] > reach[:-1]
        starts = np.flatnonzero(start)
        made = object.__new__(cls)
        made.lo = lo[starts]
        made.hi = reach[np.append(starts[1:], lo.size) - 1] if lo.size else lo
        return made

    def __len__(self) -> int:
        return int((self.hi - self.lo).sum())

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.lo.tolist(), self.hi.tolist(), strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"IntervalSet({list(self)})"

    def contains(self, values: Ints) -> NDArray[np.bool_]:
        """Which of ``values`` are members."""
        at = np.searchsorted(self.lo, values, "right") - 1
        inside = at >= 0
        inside[inside] = values[inside] < self.hi[at[inside]]
        return inside

    def meets(self, least: int, greatest: int) -> bool:
        """Whether some member is one of ``least`` to ``greatest``."""
        at = np.searchsorted(self.hi, least, "right")
        return bool(at < self.lo.size and self.lo[at] <= greatest)

    def __or__(self, other: IntervalSet) -> IntervalSet:
        return IntervalSet.of(
            np.concatenate((self.lo, other.lo)), np.concatenate((self.hi, other.hi))
        )

    def __and__(self, other: IntervalSet) -> IntervalSet:
        return self._where(other, lambda mine, theirs: mine & theirs)

    def __sub__(self, other: IntervalSet) -> IntervalSet:
        return self._where(other, lambda mine, theirs: mine & ~theirs)

    def _where(self, other: IntervalSet, keep: object) -> IntervalSet:
        edges = np.unique(np.concatenate((self.lo, self.hi, other.lo, other.hi)))
        kept = keep(self.contains(edges[:-1]), other.contains(edges[:-1]))  # type: ignore[operator]
        return IntervalSet.of(edges[:-1][kept], edges[1:][kept])

    def add(self, lo: int, hi: int) -> tuple[IntervalSet, IntervalSet]:
        """The set with [lo, hi) in it, and what of that was there already (the repeat)."""
        new = IntervalSet([(lo, hi)])
        return self | new, self & new

    def first(self, count: int) -> list[int]:
        """The ``count`` smallest members."""
        found: list[int] = []
        for lo, hi in self:
            found.extend(range(lo, min(hi, lo + count - len(found))))
            if len(found) >= count:
                break
        return found
