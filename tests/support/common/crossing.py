"""Combinations of several lists that are fewer than their product."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any


def every_value(*axes: Iterable[Any], times: int = 1) -> list[tuple[Any, ...]]:
    """Return rows in which every value of every axis is, those of the longest ``times`` times.

    For things that do not depend on each other, such as damages and readers: each damage is read by
    some reader, and each reader sees some damage. Partners differ from one time to the next.
    """
    values = [list(axis) for axis in axes]
    longest = max(values, key=len)
    return [
        tuple(axis[(at + (axis is not longest) * shift) % len(axis)] for axis in values)
        for shift in range(times)
        for at in range(len(longest))
    ]


def every_pair(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return rows in which every two values of different axes are together at least once."""
    values = [list(axis) for axis in axes]
    left = {
        (one, first, other, second)
        for one, other in combinations(range(len(values)), 2)
        for first, second in product(range(len(values[one])), range(len(values[other])))
    }
    rows = list(product(*(range(len(axis)) for axis in values)))
    chosen = []
    while left:
        best = max(rows, key=lambda row: len(_pairs(row) & left))
        left -= _pairs(best)
        chosen.append(tuple(axis[at] for axis, at in zip(values, best, strict=True)))
    return chosen


def _pairs(row: tuple[int, ...]) -> set[tuple[int, int, int, int]]:
    return {(one, row[one], other, row[other]) for one, other in combinations(range(len(row)), 2)}
