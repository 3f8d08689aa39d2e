"""Row groups that cannot hold what is looked for are not read, and nothing is missed by that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from failback.analytics.analysis.arrays.intervals import IntervalSet
from failback.analytics.analysis.engines.candidates import Candidates, Sent, by_lane
from failback.analytics.lake import lake
from failback.analytics.lake.row_groups import RowGroup, Wanted, wanted_groups
from failback.analytics.run.definitions import KEYS, LID, MESSAGE_ID, Definitions
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.support.analytics.histories import random_history
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import merged


def row_groups(path: Path, columns: dict[str, Any], size: int, **options: Any) -> list[RowGroup]:
    pq.write_table(pa.table(columns), path, row_group_size=size, **options)
    found: list[RowGroup] = []

    def note(group: RowGroup) -> bool:
        found.append(group)
        return False

    with pq.ParquetFile(path) as file:
        wanted_groups(file, note)
    return found


def test_a_span_is_known_if_every_row_has_a_value(tmp_path: Path) -> None:
    columns = {"n": [3, 1, 2, None], "name": ["b", "a", None, None], "list": [[1], [2], [3], [4]]}
    first, second = row_groups(tmp_path / "f", columns, 2)
    assert (first.span("n"), first.span("name")) == ((1, 3), ("a", "b"))
    assert (second.span("n"), second.span("name")) == (None, None)
    assert (first.span("list"), first.span("absent")) == (None, None)
    (bare,) = row_groups(tmp_path / "g", {"n": [1]}, 2, write_statistics=False)
    assert bare.span("n") is None


@pytest.mark.parametrize(
    ("least", "greatest", "met"),
    [(0, 4, False), (0, 5, True), (9, 9, True), (10, 19, False), (10, 20, True), (21, 99, False)],
)
def test_a_set_meets_a_span(least: int, greatest: int, *, met: bool) -> None:
    assert IntervalSet([(5, 10), (20, 21)]).meets(least, greatest) is met
    assert not IntervalSet().meets(least, greatest)


@pytest.mark.parametrize("lanes", [[], [7], [7, 7, 8, 7], [3, 1] * 2000])
def test_lanes_are_found_in_any_order(lanes: Sequence[int]) -> None:
    column = np.array(lanes, np.int64)
    seen = np.zeros(column.size, np.int64)
    for lane, where in by_lane(column):
        assert (column[where] == lane).all()
        seen[where] += 1
    assert (seen == 1).all()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Of each file that is opened how many row groups are read, and how many it has."""
    counts: list[tuple[int, int]] = []

    def counting(file: pq.ParquetFile, wanted: Wanted | None) -> list[int]:
        numbers = wanted_groups(file, wanted)
        if wanted is not None:
            counts.append((len(numbers), file.num_row_groups))
        return numbers

    monkeypatch.setattr(lake, "wanted_groups", counting)
    return counts


def everything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake, "wanted_groups", lambda file, _: wanted_groups(file, None))
    monkeypatch.setattr(Candidates, "_near", lambda _, chunk: chunk)


def cut_smaller(folder: Path, rows: int) -> Path:
    """The same run with so many rows in a row group."""
    for path in folder.glob("lake/table=*/date=*/run=*/*.parquet"):
        pq.write_table(pq.read_table(path, partitioning=None), path, row_group_size=rows)
    return folder


PLANS = {
    "windows": Plan(rows=12_000, groups=2, seed=5),
    "tail": Plan(rows=12_000, queues=3, dup_shape="tail", seed=6),
    "truncated": Plan(rows=12_000, truncations=3, rate_skew="zipf:1.1", seed=7),
    "sent twice": Plan(rows=12_000, dup_shape="scattered", dup_share=0.002, seed=8),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", PLANS)
def test_nothing_is_missed_and_most_is_not_read(
    name: str, tmp_path: Path, read: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(PLANS[name], tmp_path / "run")
    folder = cut_smaller(tmp_path / "run", 100)
    some = analysed(folder).rows
    some_read, there = (sum(column) for column in zip(*read, strict=True))
    assert 0 < some_read < 0.6 * there
    everything_is_read(monkeypatch)
    assert some.equals(analysed(folder).rows)
    assert some.num_rows > 0


@pytest.mark.few(1)
@pytest.mark.parametrize("key", KEYS)
def test_messages_without_lab_id_are_found(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(rows=6_000, dup_shape="scattered", foreign_share=0.1, clock_error_ms=200, seed=9)
    generate(plan, tmp_path / "run")
    folder = cut_smaller(tmp_path / "run", 100)
    some = analysed(folder, definitions=Definitions(key)).rows
    everything_is_read(monkeypatch)
    assert some.equals(analysed(folder, definitions=Definitions(key)).rows)
    assert some.num_rows > 0


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_missed_of_any_history(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = merged([random_history(Random(4 * seed + n), warmup=False) for n in range(4)])
    folder = cut_smaller(whole.write(tmp_path / "run", manifest=False), 3)
    some = analysed(folder).rows
    everything_is_read(monkeypatch)
    assert some.equals(analysed(folder).rows)


def test_a_row_group_without_statistics_is_read(tmp_path: Path) -> None:
    nothing = IntervalSet([(1 << 40, 1 << 41)])
    sent = Sent({1 << 30: nothing}, LID)
    columns = {"lane": [1, 1], "lseq": [5, 6]}
    (plain,) = row_groups(tmp_path / "f", columns, 9)
    (bare,) = row_groups(tmp_path / "g", columns, 9, write_statistics=False)
    assert (sent.may_be_in(plain), sent.may_be_in(bare)) == (False, True)
    assert Sent({1: IntervalSet([(6, 7)])}, LID).may_be_in(plain)
    assert Sent({1 << 30: nothing}, MESSAGE_ID).may_be_in(plain)
