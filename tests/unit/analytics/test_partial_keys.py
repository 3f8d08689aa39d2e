"""Keys of partial rows: which rows are of one key, whatever order the rows come in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials import sums
from failback.analytics.analysis.counting.partials.rows import Codes
from failback.analytics.analysis.engines.joins import join_values

Rows = NDArray[np.int64]
FAR = 1 << 40
"""Between two numbers whose ranks are taken, and not they themselves."""


def columns(seed: int, stretch: int, kinds: int, stretches: int = 90) -> tuple[Rows, Rows, Rows]:
    """Codes and two columns of numbers, of which one is scattered; equal over each stretch."""
    rng = np.random.default_rng(seed)
    codes, near, far = (rng.integers(0, kinds, stretches) for _ in range(3))
    lengths = rng.integers(1, 2 * stretch, stretches)
    return (
        np.repeat(codes, lengths),
        np.repeat(near + 5, lengths),
        np.repeat(far * FAR - FAR, lengths),
    )


def check(key: sums.Key, rows: list[Rows]) -> None:
    """The codes are dense, tell exactly unequal rows apart, and have an example each."""
    count = rows[0].size
    number, example = key.packed(count)
    tuples = list(zip(*(column.tolist() for column in rows), strict=True))
    distinct = set(tuples)
    assert len(set(zip(tuples, number.tolist(), strict=True))) == len(distinct) == example.size
    assert sorted(set(number.tolist())) == list(range(example.size))
    assert number[example].tolist() == list(range(example.size))


@given(
    seed=st.integers(0, 1 << 30),
    stretch=st.sampled_from([1, 3, 8, 40]),
    kinds=st.sampled_from([1, 2, 7, 60]),
)
def test_codes_of_keys_are_dense_and_tell_rows_apart(seed: int, stretch: int, kinds: int) -> None:
    codes, near, far = columns(seed, stretch, kinds)
    named = Codes(codes, [f"name-{at}" for at in range(kinds)])
    key = sums.Key(grp=named, n1=near)
    check(key, [codes, near])
    check(key.and_(n2=far), [codes, near, far])
    chosen = near % 3 == 0
    if chosen.any():
        check(key.and_(n2=far).at(chosen), [codes[chosen], near[chosen], far[chosen]])


@given(
    seed=st.integers(0, 1 << 30),
    stretch=st.sampled_from([1, 8, 40]),
    kinds=st.sampled_from([1, 2, 20]),
)
def test_what_was_grouped_once_gives_keys_of_fewer_columns(
    seed: int, stretch: int, kinds: int
) -> None:
    codes, near, far = columns(seed, stretch, kinds)
    named = Codes(codes, [f"name-{at}" for at in range(kinds)])
    grouping = sums.Key(grp=named, n1=near, n2=far).grouped(codes.size)
    check(grouping.key("grp", "n2"), [codes, far])
    check(grouping.key("n1"), [near])
    check(grouping.key("grp").and_(n1=near), [codes, near])


def test_no_rows_have_no_keys() -> None:
    number, example = sums.Key(n1=np.empty(0, np.int64)).packed(0)
    assert number.size == example.size == 0


def test_a_key_that_is_not_the_familys_is_refused() -> None:
    numbers = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="key of send_rate is tenth, not second"):
        sums.Partials().values(families.SEND_RATE, sums.Key(tenth=numbers), numbers)


def test_a_reader_gets_the_key_under_its_own_names() -> None:
    out = sums.Partials()
    one, seven = np.ones(1, np.int64), np.full(1, 7)
    out.values(families.SLOWEST_SENDS, sums.Key(result=Codes(0 * one, ["OK"]), tenth=seven), one)
    found = families.SLOWEST_SENDS.rows(join_values([out.table()]))
    assert found == [{"result": "OK", "tenth": 7, "value": 1}]
    assert families.SLOWEST_SENDS.rows({}) == []
