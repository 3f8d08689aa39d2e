"""Spans of seconds: as many in a long run, each second in exactly one, whole near faults."""

from itertools import pairwise

import numpy as np
import pytest

from failback.analytics.analysis.counting.partials.seconds import MAX_SPANS, NS, Seconds

HOUR = 3_600
DAY = 24 * HOUR
MONTH = 30 * DAY


def spans_of(seconds: Seconds, lo: int, hi: int) -> list[tuple[int, int]]:
    """(first, last) of the spans of some seconds, looked up one by one."""
    every = np.arange(lo, hi, dtype=np.int64)
    last = seconds.last(every * NS + NS // 2)
    assert (last >= every).all()
    found = np.unique(last)
    firsts = seconds.firsts_of(found)
    return list(zip(firsts.tolist(), found.tolist(), strict=True))


@pytest.mark.parametrize("length", [1, 60, HOUR - 1])
def test_every_second_of_an_hour_is_a_span(length: int) -> None:
    seconds = Seconds.of(length * NS, [10 * NS])
    assert spans_of(seconds, -5, length) == [(at, at) for at in range(-5, length)]


def test_nothing_known_of_the_end_leaves_seconds() -> None:
    assert spans_of(Seconds(), 0, 100) == [(at, at) for at in range(100)]
    assert spans_of(Seconds.of(0, []), 0, 100) == [(at, at) for at in range(100)]


@pytest.mark.parametrize("length", [HOUR, 2 * HOUR + 1, DAY, MONTH])
def test_a_long_run_has_no_more_spans(length: int) -> None:
    faults = [length * NS // 2, length * NS // 2 + 30 * NS, 5 * NS]
    seconds = Seconds.of(length * NS, faults)
    found = np.unique(seconds.last(np.arange(0, length, dtype=np.int64) * NS))
    assert found.size <= MAX_SPANS + 2 * 300
    for fault in faults:
        at = fault // NS
        near = np.arange(max(0, at - 60), at + 120)
        assert np.array_equal(seconds.last(near * NS), near), "whole around faults"


def test_spans_follow_each_other_without_gap_or_overlap() -> None:
    length = 5 * HOUR
    seconds = Seconds.of(length * NS, [1000 * NS, 1100 * NS, 9_999 * NS, 17_950 * NS])
    found = spans_of(seconds, 0, length + HOUR)
    assert found[0][0] == 0
    assert all(later[0] == earlier[1] + 1 for earlier, later in pairwise(found))
    widths = seconds.widths_of(np.array([last for _, last in found]))
    assert [last - first + 1 for first, last in found] == widths.tolist()


def test_a_clock_that_ran_away_has_few_spans() -> None:
    seconds = Seconds.of(60 * NS, [])
    begun, ended = seconds.last(np.array([50 * NS, 29 * DAY * NS]))
    which, _ = seconds.between(np.array([begun]), np.array([ended]))
    assert which.size <= HOUR + 60 + 30


def test_spans_between_are_those_that_ended_in_between() -> None:
    length = 6 * HOUR
    seconds = Seconds.of(length * NS, [5_000 * NS, 12_345 * NS])
    seeded = np.random.default_rng(7)
    begin = seeded.integers(-30, length, 200) * NS
    end = begin + seeded.integers(0, 4_000, 200) * NS
    which, spans = seconds.between(seconds.last(begin), seconds.last(end))
    for number, (b, e) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        touched = np.unique(seconds.last(np.arange(b, e + 1, NS)))
        assert spans[which == number].tolist() == touched[:-1].tolist()
