"""What each assignment delivered again, against a count by hand."""

from __future__ import annotations

import random
from collections import defaultdict

import pyarrow as pa
import pytest

from failback.analytics.analysis.causes.windows import Redelivered, redelivered_of

Row = tuple[int | None, int, int]
"""Assignment, offset, and which delivery of the copy it is."""


def repeats(rows: list[Row]) -> pa.Table:
    names = ("a_no", "qoff", "nth_of_copy")
    columns = {
        name: pa.array([row[at] for row in rows], pa.int64()) for at, name in enumerate(names)
    }
    absent = {"prev_inc": 7, "prev_pqe": 7, "inc": 8, "pqe": 8}
    columns |= {name: pa.array([value] * len(rows), pa.int64()) for name, value in absent.items()}
    return pa.table(columns)


def by_hand(rows: list[Row], processed: list[int | None]) -> dict[int, Redelivered]:
    offsets: dict[int, set[int]] = defaultdict(set)
    for number, qoff, nth in rows:
        if number is not None and nth > 1:
            offsets[number].add(qoff)
    found = {}
    for number, mine in offsets.items():
        frontier = processed[number]
        done = sum(frontier is not None and qoff < frontier for qoff in mine)
        found[number] = Redelivered(len(mine), min(mine), max(mine) + 1, done)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_what_an_assignment_delivered_again_is_counted_once_an_offset(seed: int) -> None:
    rng = random.Random(seed)
    assignments = rng.choice([1, 3, 9])
    base = rng.choice([0, 1 << 40])
    processed = [rng.choice([None, base + rng.randrange(60)]) for _ in range(assignments)]
    rows = [
        (
            rng.choice([None, *range(assignments)]),
            base + rng.randrange(60),
            rng.choice([1, 2, 2, 3]),
        )
        for _ in range(rng.choice([1, 5, 200]))
    ]
    assert redelivered_of(repeats(rows), processed) == by_hand(rows, processed)


def test_nothing_delivered_again_is_nothing() -> None:
    assert redelivered_of(repeats([]), []) == {}
    assert redelivered_of(repeats([(None, 3, 2), (0, 3, 1)]), [5]) == {}
