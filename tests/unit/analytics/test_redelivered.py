"""What each assignment delivered again, against a count by hand."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np

from failback.analytics.analysis.causes.windows import Redelivered, redelivered_of
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials.sums import Key, Partials
from failback.analytics.analysis.engines.joins import join_depths
from tests.support.common.counts import each_seed

Row = tuple[int, int]
"""Assignment, and an offset that it delivered again."""


def found_of(rows: list[Row], processed: list[int | None], parts: int) -> dict[int, Redelivered]:
    out = Partials()
    for part in range(parts):
        holder, qoff = np.array(rows[part::parts], np.int64).reshape(-1, 2).T
        key = Key(holder=holder)
        out.intervals(families.REDELIVERED, key, qoff, np.ones(qoff.size, bool))
    depths, _ = join_depths([out.table()])
    return redelivered_of(depths, {}, processed)


def by_hand(rows: list[Row], processed: list[int | None]) -> dict[int, Redelivered]:
    offsets: dict[int, set[int]] = defaultdict(set)
    for number, qoff in rows:
        offsets[number].add(qoff)
    found = {}
    for number, mine in offsets.items():
        frontier = processed[number]
        done = sum(frontier is not None and qoff < frontier for qoff in mine)
        found[number] = Redelivered(len(mine), min(mine), max(mine) + 1, done)
    return found


@each_seed(20)
def test_what_an_assignment_delivered_again_is_counted_once_an_offset(seed: int) -> None:
    rng = random.Random(seed)
    assignments = rng.choice([1, 3, 9])
    base = rng.choice([0, 1 << 40])
    processed = [rng.choice([None, base + rng.randrange(60)]) for _ in range(assignments)]
    rows = [
        (rng.randrange(assignments), base + rng.randrange(60))
        for _ in range(rng.choice([1, 5, 200]))
    ]
    assert found_of(rows, processed, rng.choice([1, 4])) == by_hand(rows, processed)


def test_nothing_delivered_again_is_nothing() -> None:
    assert found_of([], [], 1) == {}
