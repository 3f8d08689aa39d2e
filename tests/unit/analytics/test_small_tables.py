"""What is kept of samples, polls, rebalances and routes says all that the whole tables say."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from failback.analytics.lake.lake import Lake
from failback.analytics.report.document import build_report
from failback.analytics.run import history_reading
from failback.analytics.run.align import clocks_of
from failback.analytics.run.history import GroupQueue, Series
from failback.analytics.run.small_tables import occurrences, offset_looks, reductions, samples
from failback.analytics.run.small_tables.columns import slots, telling
from failback.analytics.run.small_tables.reductions import Read, Reduction
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.sampled import sampled_history
from tests.support.common.counts import examples

SEEDS = st.integers(0, 1 << 32)
PLAIN = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
CHANGING = ("created", "timings")


def in_pieces(size: int) -> Callable[[Lake], Read]:
    """Reads so few rows at a time, and reduces what is kept of every other chunk again."""

    def each(
        lake: Lake, table: str, columns: Sequence[str], reduction: Reduction
    ) -> Iterable[pa.Table]:
        for chunk in lake.chunks(table, columns):
            for number, at in enumerate(range(0, chunk.num_rows, size)):
                kept = reduction(chunk.slice(at, size))
                yield reduction.again(kept) if number % 2 else kept

    return lambda lake: partial(each, lake)


def everything(series: Any, slot: Any, state: Any, t: Any, value: Any, *, falls: bool) -> Any:
    return np.arange(t.size)


def reported(folder: Path) -> tuple[str, list[Any]]:
    """The report and its points, without what changes from one to the next."""
    document, points = build_report(analysed(folder), "local")
    kept = {key: value for key, value in document.items() if key not in CHANGING}
    return json.dumps(kept, sort_keys=True), points.to_pylist()


@pytest.mark.full
@settings(PLAIN, max_examples=6)
@given(seed=SEEDS)
def test_reports_are_those_of_the_whole_tables(seed: int) -> None:
    builder = sampled_history(Random(seed))
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = builder.write(Path(name) / "run", manifest=False)
        patch.setattr(samples, "telling", everything)
        patch.setattr(occurrences, "telling", everything)
        whole = reported(folder)
        patch.undo()
        assert reported(folder) == whole
        patch.setattr(history_reading, "in_this_process", in_pieces(1 + seed % 50))
        patch.setattr(reductions, "FOLD_ROWS", 8)
        assert reported(folder) == whole


Point = tuple[int, int, int, int]
"""Series, state, time and value."""
POINTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 40), st.integers(0, 9)),
    max_size=60,
)
ASKED = st.lists(st.lists(st.integers(-1, 41), max_size=4), min_size=3, max_size=3)


def kept_of(points: Sequence[Point], asked: Sequence[Sequence[int]]) -> list[Point]:
    columns = np.array(points, np.int64).reshape(-1, 4).T
    series, state, t, value = columns
    slot = slots(series, [np.array(sorted(set(each)), np.int64) for each in asked], t)
    return [points[at] for at in telling(series, slot, state, t, value, falls=True)]


def answers(points: Sequence[Point], asked: Sequence[Sequence[int]]) -> list[Any]:
    """What readers ask: the least at the first time, the greatest at the last, the highest."""
    found: list[Any] = []
    for series, instants in enumerate(asked):
        mine = sorted((t, value, state) for of, state, t, value in points if of == series)
        for state in (0, 1):
            for at in [*instants, 100]:
                before = [(t, v) for t, v, of in mine if of == state and t <= at]
                after = [(t, v) for t, v, of in mine if of == state and t > at]
                highest = max((v for _, v in before), default=None)
                found.append((max(before, default=None), min(after, default=None), highest))
                found.append(max((v for t, v in after if t == after[0][0]), default=None))
        falls = [(a, b) for a, b in itertools.pairwise(mine) if b[1] < a[1]]
        found.append([(a[1], b[0], b[1]) for a, b in falls])
    return found


@settings(PLAIN, max_examples=examples(200))
@given(points=POINTS, asked=ASKED)
def test_kept_rows_answer_what_all_rows_answer(points: list[Point], asked: list[list[int]]) -> None:
    assert answers(kept_of(points, asked), asked) == answers(points, asked)


@settings(PLAIN, max_examples=examples(200))
@given(points=POINTS, asked=ASKED, cuts=st.lists(st.integers(0, 40), max_size=3))
def test_pieces_that_follow_each_other_are_reduced_as_one(
    points: list[Point], asked: list[list[int]], cuts: list[int]
) -> None:
    whole = kept_of(points, asked)
    edges = [-1, *sorted(cuts), 100]
    parts = [
        kept_of([p for p in points if lo < p[2] <= hi], asked)
        for lo, hi in itertools.pairwise(edges)
    ]
    again = kept_of([point for part in parts for point in part], asked)
    assert sorted(again) == sorted(whole)


def test_rows_that_grow_steadily_are_few() -> None:
    points = [(0, 0, t, t) for t in range(1_000)]
    assert len(kept_of(points, [[100, 500], [], []])) == 6


class Curve:
    """Looks at the offset of one queue, given to a reader chunk by chunk."""

    KEY: Series = (GroupQueue("g", "b", "T", 0), "file", 0)

    def __init__(self, looks: Sequence[tuple[int, int]], size: int) -> None:
        n, self.size = len(looks), size
        texts = {"host": "h", "source": "file", "grp": "g", "broker": "b", "ptopic": "T"}
        self.table = pa.table(
            {name: pa.repeat(text, n).dictionary_encode() for name, text in texts.items()}
            | {name: pa.array([0] * n, pa.int32()) for name in ("qid", "bid")}
            | {"t": pa.array([t for t, _ in looks], pa.int64())}
            | {"off": pa.array([off for _, off in looks], pa.int64())}
        )
        self.looks = offset_looks.OffsetLooks(self._read, clocks_of([], 0), [self.KEY])

    def _read(self, table: str, columns: Sequence[str], reduction: Reduction) -> Iterable[pa.Table]:
        for at in range(0, self.table.num_rows, self.size):
            yield reduction(self.table.select(columns).slice(at, self.size))

    def whole(self, near: Sequence[tuple[int, int]] = ()) -> list[tuple[int, int]]:
        t, off = self.looks.curves({self.KEY[0]}, near)[self.KEY]
        return list(zip(t.tolist(), off.tolist(), strict=True))


@settings(PLAIN, max_examples=examples(100))
@given(seed=SEEDS, size=st.integers(1, 30))
def test_what_a_copy_held_at_instants_is_found(seed: int, size: int) -> None:
    r = Random(seed)
    looks = sorted((r.randrange(100), r.randrange(9)) for _ in range(r.randrange(1, 50)))
    instants = np.array(sorted(r.sample(range(100), r.randrange(1, 9))), np.int64)
    t, off = Curve(looks, size).looks.held_at(instants)[Curve.KEY]
    held = [
        max((each for each in looks if each[0] <= at), default=None) for at in instants.tolist()
    ]
    places = np.searchsorted(t, instants, "right") - 1
    assert held == [None if at < 0 else (int(t[at]), int(off[at])) for at in places]
    assert t.size <= instants.size


def test_a_curve_is_whole_until_it_is_long_and_then_thinned_alike_in_all_pieces() -> None:
    r = Random(5)
    short = [(10 * n, r.randrange(1 << 40)) for n in range(offset_looks.MAX_SPANS)]
    assert Curve(short, 700).whole() == short
    long = [(10 * n, r.randrange(1 << 40)) for n in range(10 * offset_looks.MAX_SPANS)]
    near = [(4_000, 9_000)]
    found = Curve(long, 700).whole(near)
    assert found == Curve(long, len(long)).whole(near) == Curve(long, 9_999).whole(near)
    assert offset_looks.MAX_SPANS < len(found) < 4 * offset_looks.MAX_SPANS + 500
    values = [off for _, off in long]
    assert {long[0], long[-1]} <= set(found)
    assert {min(values), max(values)} <= {off for _, off in found}
    assert [each for each in found if 4_000 <= each[0] < 9_000] == long[400:900]
