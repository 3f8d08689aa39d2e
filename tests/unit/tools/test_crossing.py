"""Combinations and counts that tests choose instead of all."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import pytest

from tests.support.common.counts import each_seed, some
from tests.support.common.crossing import every_pair, every_value


def test_every_value_has_as_many_partners_as_wanted() -> None:
    assert every_value("abc", [1, 2]) == [("a", 1), ("b", 2), ("c", 1)]
    rows = every_value("abcd", [1, 2, 3], times=2)
    assert len(set(rows)) == 8
    assert {first: sum(row[0] == first for row in rows) for first in "abcd"} == dict.fromkeys(
        "abcd", 2
    )
    assert {second for _, second in rows} == {1, 2, 3}


def test_every_pair_is_there_in_fewer_rows_than_all() -> None:
    axes: list[list[Any]] = [[*range(5)], [*range(10)], [*"abcd"], [False, True]]
    rows = every_pair(*axes)
    for one, other in combinations(range(4), 2):
        assert {(row[one], row[other]) for row in rows} == set(product(axes[one], axes[other]))
    assert 50 <= len(rows) < 60
    assert rows == every_pair(*axes)


@pytest.mark.few(2)
@pytest.mark.parametrize("number", range(4))
def test_cases_beyond_the_first_few_are_full(number: int, request: pytest.FixtureRequest) -> None:
    assert bool(request.node.get_closest_marker("full")) == (number >= 2)


def test_of_some_values_the_others_are_full() -> None:
    found = [(each.values, [mark.name for mark in each.marks]) for each in some("abcd", 3)]
    assert found == [(("a",), []), (("b",), ["full"]), (("c",), ["full"]), (("d",), [])]
    assert some([(1, 2)], 1)[0].values == (1, 2)


def test_a_failure_names_its_seed() -> None:
    tried = []

    def check(seed: int, limit: int) -> None:
        tried.append(seed)
        assert seed < limit

    with pytest.raises(AssertionError) as failed:
        each_seed(9)(check)(seeds=range(5), limit=3)
    assert tried == [0, 1, 2, 3]
    assert failed.value.__notes__ == ["seed 3"]
