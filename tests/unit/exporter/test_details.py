"""Of which topics and groups more is asked."""

from __future__ import annotations

import pytest

from failback.analytics.exporter.details import furthest_behind

pytestmark = pytest.mark.unit

ENDS = {"T": {0: 100, 1: 100}, "U": {0: 10}}


def test_those_that_wait_are_asked_about_the_furthest_first() -> None:
    offsets = {
        "T@little": {0: 99, 1: 100},
        "T@none": {0: 100, 1: 100},
        "T@much": {0: 0, 1: 100},
        "U@never": {0: -1},
        "Gone@g": {0: 5},
    }
    found = furthest_behind(offsets, ENDS)
    assert found == [("T", "much"), ("U", "never"), ("T", "little")]


def test_of_very_many_a_few_hundred_are_asked() -> None:
    offsets = {f"T@g{number}": {0: number % 90} for number in range(1000)}
    found = furthest_behind(offsets, ENDS)
    assert len(found) == 200
    assert {offsets[f"{topic}@{group}"][0] for topic, group in found} < set(range(30))
