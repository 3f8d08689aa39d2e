"""Ranges that are too many become sums: the figures are those of the ranges."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials.rows import Codes
from failback.analytics.analysis.counting.partials.sums import Key, Partials
from failback.analytics.analysis.engines import condensing, local
from failback.analytics.analysis.engines.condensing import Condensing
from failback.analytics.analysis.engines.joins import condensed, join_depths, swept_runs
from failback.analytics.analysis.engines.local import local_engine
from failback.analytics.report.document import build_report
from failback.analytics.report.schema import report_bytes
from failback.analytics.run.definitions import BUSINESS_KEY, LID, MESSAGE_ID, Definitions
from tests.support.analytics.repeating_runs import SHAPES, repeating_run
from tests.support.analytics.run_analysis import Analysed, analysed

Row = dict[str, Any]


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two ranges in 256 numbers, or in a fourth of all hashes, be too many."""
    monkeypatch.setattr(condensing, "MOST_RANGES", 1)
    monkeypatch.setattr(condensing, "MOST_OF_HASHES", 1)
    monkeypatch.setattr(condensing, "BLOCK_BITS", 8)
    monkeypatch.setattr(condensing, "HASH_BITS", 60)


def figures_of(analysis: Analysed) -> Row:
    document, _ = build_report(analysis, "local")
    report_bytes(document)
    for name in ("created", "timings", "quality"):
        del document[name]
    return document


@pytest.mark.few(3, 6)
@pytest.mark.parametrize(
    ("name", "key", "spilled"),
    [
        (name, key, (row + column) % 2 == 1)  # pairs: every two values meet
        for row, key in enumerate((LID, MESSAGE_ID, BUSINESS_KEY))
        for column, name in enumerate(SHAPES)
    ],
)
def test_figures_are_those_of_all_ranges(
    name: str,
    key: str,
    spilled: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    run = repeating_run(name, tmp_path / "run")
    exact = analysed(run, local_engine, Definitions(key))
    request.getfixturevalue("crowded")
    if spilled:
        monkeypatch.setattr(local, "MOST_PARTIALS", 20)
    found = analysed(run, local_engine, Definitions(key))
    assert "message_times" in found.counts.values or name == "windows"
    check_rows(found.rows, exact.rows)
    mine, theirs = figures_of(found), figures_of(exact)
    check_conflicts(mine["divergence"], theirs["divergence"])
    check_queues(mine.pop("queues"), theirs.pop("queues"))
    assert mine == theirs


def check_rows(found: pa.Table, exact: pa.Table) -> None:
    """All of repeated messages; what a cut log put at the offset of another may be missing."""
    missing = set(exact.column("did").to_pylist()) - set(found.column("did").to_pylist())
    chosen = pc.is_in(exact.column("did"), pa.array(sorted(missing), pa.int64()))
    assert set(exact.filter(chosen).column("cls").to_pylist()) <= {"PRIMARY"}
    assert len(missing) < exact.num_rows / 20
    assert found.equals(exact.filter(pc.invert(chosen)))


def check_conflicts(mine: Row, theirs: Row) -> None:
    if mine.pop("conflicts_at_least", False):
        for name in ("conflicts", "truncation_artefacts"):
            assert mine.pop(name) <= theirs.pop(name)


def check_queues(mine: list[Row], theirs: list[Row]) -> None:
    """All of them, but for ranges and windows, of which it is said how many were left out."""
    for one, other in zip(mine, theirs, strict=True):
        one.pop("depth_ranges_left_out", 0)
        left_out = one.pop("windows_left_out", 0)
        windows, wanted = one.pop("windows"), other.pop("windows")
        assert len(windows) + left_out >= len(wanted)
        covered = {at for window in wanted for at in range(window["lo"], window["hi"])}
        assert {at for window in windows for at in range(window["lo"], window["hi"])} <= covered
        ranges, wanted = one.pop("depth_ranges"), other.pop("depth_ranges")
        assert times(ranges).items() <= times(wanted).items()
        assert one == other


def times(ranges: list[Row]) -> dict[tuple[int, int], int]:
    return {(r["epoch"], at): r["depth"] for r in ranges for at in range(r["lo"], r["hi"])}


def ranges_of(seed: int, numbers: tuple[int, ...], most: int) -> pa.Table:
    """Interval rows of messages of some lanes, one after the other."""
    random, out = np.random.default_rng(seed), Partials()
    for number in numbers:
        lseq = random.integers(0, 1 << 62 if number < 0 else most, 1_000)
        grp = random.integers(0, 2, lseq.size)
        key = Key(grp=Codes(grp, ["a", "b"]), lane=np.full(lseq.size, number))
        out.intervals(families.MESSAGE, key, lseq, grp == 0)
    return out.table()


@pytest.mark.parametrize("bits", [3, 5, 20])
def test_cut_ranges_are_the_same_ranges_in_one_block_each(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(condensing, "BLOCK_BITS", bits)
    ranges = ranges_of(bits, (0, 1, -1), 60)
    found = condensing.cut(ranges)
    assert (found.num_rows > ranges.num_rows) == (bits < 20)
    for row in found.to_pylist():
        size = condensing.HASH_BITS if row["n1"] < 0 else bits
        assert row["lo"] < row["hi"]
        assert row["lo"] >> size == row["hi"] - 1 >> size
    assert join_depths([found])[0] == join_depths([ranges])[0]


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("count", [1, 3, 50])
def test_any_split_by_buckets_condenses_to_the_same(count: int) -> None:
    ranges = ranges_of(count, (0, 1, -1), 20_000)
    whole = condensed([Condensing()(swept_runs(ranges))])
    pieces = condensing.cut(ranges)
    bucket = condensing.buckets(pieces, count)
    parts = [pieces.filter(pa.array(bucket == number)) for number in range(count)]
    assert sum(part.num_rows > 0 for part in parts) > count // 2
    found = condensed([Condensing()(swept_runs(part)) for part in parts if part.num_rows])
    assert found == whole
    assert whole[0]["message_times"].num_rows > 2


@pytest.mark.full
def test_how_many_ranges_stay_does_not_depend_on_the_rows() -> None:
    """Of scattered repeats of 262,144 messages, and of half a million hashes."""

    def left(numbers: tuple[int, ...], rows: int) -> int:
        random = np.random.default_rng(rows)
        lane = np.full(rows, numbers[0])
        lseq = (
            random.integers(0, 1 << 62, rows)
            if numbers[0] < 0
            else random.choice(1 << 18, rows, replace=False)
        )
        out = Partials()
        for some in (lseq, lseq[::2]):  # half of them twice
            key = Key(grp=Codes(np.zeros(some.size, np.int64), ["g"]), lane=lane[: some.size])
            out.intervals(families.MESSAGE, key, some, np.ones(some.size, bool))
        values, depths = condensed([Condensing()(swept_runs(out.table()))])
        counts: Counter[int] = Counter()
        for row in families.MESSAGE_TIMES.rows(values):
            counts[row["depth"]] += row["value"]
        for row in families.MESSAGE.rows(depths):
            counts[row["depth"]] += row["hi"] - row["lo"]
        assert counts == {1: rows // 2, 2: rows // 2}
        return sum(table.num_rows for name, table in depths.items() if name != "handed")

    assert left((0,), 20_000) == left((0,), 100_000) == 1
    assert left((-1,), 300_000) == left((-1,), 600_000) == 256
    assert left((-1,), 30_000) > 20_000  # few are exact
