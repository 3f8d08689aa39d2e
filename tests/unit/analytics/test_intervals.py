"""Counting by intervals: depth is multiplicity, however the rows are split."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.analytics.analysis.arrays.intervals import (
    VALUE_BITS,
    IntervalSet,
    Runs,
    layers,
    sweep,
)

WIDE = st.sampled_from((0, 1, 2, 1 << 40, (1 << 62) - 1, -1, -(1 << 62)))
WIDE_KEYS = st.lists(st.tuples(st.sampled_from((0, 1, 1 << 19, 1 << 40)), WIDE), max_size=30)
KEYS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=60)
PAIRS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12)


def of(keys: list[tuple[int, int]], shift: int = 0) -> Runs:
    numbers = np.array([number for number, _ in keys], np.int64)
    values = np.array([value + shift for _, value in keys], np.int64)
    return layers(numbers, values)


def counted(runs: Runs) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    swept = sweep(runs.number, runs.lo, runs.hi, runs.weight, runs.weight)
    for number, lo, hi, depth, figure in zip(*(c.tolist() for c in swept), strict=True):
        assert figure == depth
        for value in range(lo, hi):
            found[number, value] += depth
    return found


@given(keys=KEYS)
def test_depth_is_multiplicity(keys: list[tuple[int, int]]) -> None:
    assert counted(of(keys)) == Counter(keys)


@given(keys=KEYS, cuts=st.lists(st.integers(0, 60), max_size=5), seed=st.randoms())
def test_depth_does_not_depend_on_split_or_order(
    keys: list[tuple[int, int]], cuts: list[int], seed: object
) -> None:
    shuffled = list(keys)
    seed.shuffle(shuffled)  # type: ignore[attr-defined]
    edges = sorted({0, len(keys), *(cut for cut in cuts if cut <= len(keys))})
    parts = [of(shuffled[lo:hi]) for lo, hi in pairwise(edges)] or [of([])]
    joined = Runs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    assert counted(joined) == Counter(keys)


@pytest.mark.parametrize("shift", [-5, 1 << VALUE_BITS, (1 << 62)])
def test_values_beyond_the_packed_range_take_the_two_column_path(shift: int) -> None:
    keys = [(0, 1), (0, 1), (0, 2), (1, 2), (700_000, 3), (700_000, 4)]
    assert counted(of(keys, shift)) == Counter((n, v + shift) for n, v in keys)


@given(keys=WIDE_KEYS)
def test_keys_of_any_size_are_counted(keys: list[tuple[int, int]]) -> None:
    found: Counter[tuple[int, int]] = Counter()
    for number, lo, hi, weight in zip(*(column.tolist() for column in of(keys)), strict=True):
        found.update({(number, value): weight for value in range(lo, hi)})
    assert found == Counter(keys)


def test_scattered_keys_are_kept_as_counts() -> None:
    keys = [(0, 2 * n) for n in range(100)] + [(0, 0)] * 7
    runs = of(keys)
    assert runs.lo.size == 100
    assert int(runs.weight.max()) == 8
    assert counted(runs) == Counter(keys)


@pytest.mark.parametrize("often", [63, 64, 65, 66, 200])
def test_keys_that_come_very_often_are_counted(often: int) -> None:
    keys = [(0, n) for n in range(10_000)] + [(0, 5), (0, 6), (1, 9)] * often
    assert counted(of(keys)) == Counter(keys)


def test_a_dense_history_is_one_run() -> None:
    runs = of([(0, n) for n in range(1000)])
    assert (runs.lo.tolist(), runs.hi.tolist()) == ([0], [1000])


def test_neighbouring_histories_do_not_run_together() -> None:
    assert counted(of([(0, 19), (1, 0), (1, 19), (2, 0)])) == Counter(
        [(0, 19), (1, 0), (1, 19), (2, 0)]
    )


def test_the_empty_batch_gives_nothing() -> None:
    assert counted(of([])) == Counter()


def test_rows_outside_figures_count_in_depth_only() -> None:
    one = np.array([1], np.int64)
    swept = sweep(
        np.array([0, 0]), np.array([0, 2]), np.array([4, 6]), np.array([1, 1]), np.array([1, 0])
    )
    assert list(zip(*(c.tolist() for c in swept), strict=True)) == [
        (0, 0, 2, 1, 1),
        (0, 2, 4, 2, 1),
        (0, 4, 6, 1, 0),
    ]
    assert one.size == 1


@given(a=PAIRS, b=PAIRS)
def test_interval_sets_behave_as_sets(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    def members(pairs: list[tuple[int, int]]) -> set[int]:
        return {value for lo, hi in pairs for value in range(lo, hi)}

    x, y = IntervalSet(a), IntervalSet(b)
    for found, expected in (
        (x, members(a)),
        (x | y, members(a) | members(b)),
        (x & y, members(a) & members(b)),
        (x - y, members(a) - members(b)),
    ):
        assert {v for lo, hi in found for v in range(lo, hi)} == expected
        assert len(found) == len(expected)
        assert found == IntervalSet([(v, v + 1) for v in expected])
        probe = np.arange(-1, 32)
        assert found.contains(probe).tolist() == [value in expected for value in probe.tolist()]
        assert found.first(5) == sorted(expected)[:5]


def test_adding_tells_what_was_there_before() -> None:
    seen, again = IntervalSet([(0, 10)]).add(5, 15)
    assert (list(seen), list(again)) == ([(0, 15)], [(5, 10)])
