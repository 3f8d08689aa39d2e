"""The local runner: rows that are grouped by part, in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from failback.analytics.analysis.engines import condensing, engine, local, row_blocks
from failback.analytics.analysis.engines.engine import Engine
from failback.analytics.analysis.engines.local import LocalRows, LocalRunner, local_engine
from failback.analytics.analysis.engines.repeated_ranges import RepeatedRanges
from failback.analytics.analysis.engines.repeats import CANDIDATES, PartReduction
from failback.analytics.lake.lake import Lake
from failback.analytics.run.definitions import DEFAULT, KEYS, Definitions
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.support.analytics.histories import random_history
from tests.support.analytics.run_analysis import Analysed, analysed
from tests.support.analytics.run_builder import merged

NUMBERS = pa.schema([("part", pa.int64()), ("kind", pa.int64()), ("total", pa.int64())])


def chunks(scratch: Path, seen: list[Path]) -> Iterator[pa.Table]:
    """Ten chunks of numbers, of two kinds, in parts by the number's remainder."""
    for at in range(10):
        n = np.arange(100 * at, 100 * at + 100)
        yield row_blocks.split(pa.table({"n": n}), n % 7, at % 2)
        seen += scratch.glob("failback-parts-*/*.arrow")


def total_of(part: pa.Table) -> pa.Table:
    found = [
        (part["part"][0].as_py(), kind, sum(sum(t["n"].to_pylist()) for t in mine))
        for kind in (0, 1)
        if (mine := row_blocks.unpacked(part, kind))
    ]
    return pa.table([pa.array(column) for column in zip(*found, strict=True)], schema=NUMBERS)


@pytest.mark.parametrize("spill_bytes", [1 << 30, 2000, 1])
def test_parts_are_the_same_in_memory_and_on_disk(
    spill_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[Path] = []
    rows = LocalRows(chunks(tmp_path, seen), row_blocks.BLOCKS, spill_bytes).by_part(
        total_of, NUMBERS
    )
    found = {(row["part"], row["kind"]): row["total"] for row in rows.whole().to_pylist()}
    n = np.arange(1000)
    assert found == {
        (part, kind): int(n[(n % 7 == part) & (n // 100 % 2 == kind)].sum())
        for part in range(7)
        for kind in (0, 1)
    }
    assert bool(seen) is (spill_bytes < 1 << 30)
    assert not list(tmp_path.iterdir()), "files of parts are gone at the end"


def spilling(lake: Lake) -> Engine:
    return Engine(LocalRunner(lake, spill_bytes=5_000), lake)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_counts_are_the_same_when_they_are_added_up_on_the_way(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = merged([random_history(Random(10 * seed + n), warmup=False) for n in range(5)])
    folder = whole.write(tmp_path / "run", parts=3, manifest=False)
    wanted = analysed(folder).counts
    chunks = Lake.chunks
    monkeypatch.setattr(
        Lake,
        "chunks",
        lambda one, table, columns=None, rows=0, wanted=None: chunks(
            one, table, columns, min(rows or 20, 20), wanted
        ),
    )
    monkeypatch.setattr(local, "MOST_PARTIALS", 30)
    found = analysed(folder).counts
    assert found.runs > wanted.runs  # of more chunks
    assert found.values.keys() == wanted.values.keys()
    assert found.depths.keys() == wanted.depths.keys()
    for name, table in (*found.values.items(), *found.depths.items()):
        assert table.equals({**wanted.values, **wanted.depths}[name]), name


@pytest.mark.few(1, 3)
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("seed", range(3))
def test_small_parts_say_what_a_large_one_says(
    key: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = merged([random_history(Random(10 * seed + n), warmup=False) for n in range(8)])
    folder = whole.write(tmp_path / "run", parts=3, manifest=False)
    check_in_parts(folder, Definitions(key), 20, monkeypatch)


@pytest.mark.few(1)
@pytest.mark.parametrize("shape", ["windows", "scattered", "tail"])
def test_small_parts_of_a_generated_run_say_what_a_large_one_says(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(rows=9_000, dup_shape=shape, truncations=2, foreign_share=0.05, seed=3)
    generate(plan, tmp_path / "run")
    check_in_parts(tmp_path / "run", DEFAULT, 200, monkeypatch)


def test_attempts_are_read_when_a_part_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counts may not say that some message has several copies."""
    generate(Plan(rows=3_000, dup_shape="scattered", seed=3), tmp_path / "run")
    wanted = analysed(tmp_path / "run")
    assert "APP_RESEND" in wanted.rows.column("cause").to_pylist()
    of = RepeatedRanges.of
    never = staticmethod(lambda counts: replace(of(counts), resent=False))
    monkeypatch.setattr(RepeatedRanges, "of", never)
    assert_equal_repeats(analysed(tmp_path / "run"), wanted)


@pytest.mark.full
def test_parts_are_no_larger_where_more_is_searched_than_came_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(Plan(rows=9_000, dup_share=0.1, dup_shape="scattered", seed=3), tmp_path / "run")
    monkeypatch.setattr(condensing, "MOST_RANGES", 2)
    monkeypatch.setattr(engine, "PART_ROWS", 500)
    monkeypatch.setattr(row_blocks, "_NEAR_BITS", 3)
    sizes: list[int] = []
    work = PartReduction.__call__

    def counted(one: PartReduction, part: pa.Table) -> pa.Table:
        sizes.append(sum(table.num_rows for table in row_blocks.unpacked(part, CANDIDATES)))
        return work(one, part)

    monkeypatch.setattr(PartReduction, "__call__", counted)
    analysed(tmp_path / "run")
    assert sum(sizes) > 8_000, "nearly all of them are searched"
    assert max(sizes) < 2 * 500


def check_in_parts(
    folder: Path, definitions: Definitions, part_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = analysed(folder, local_engine, definitions)
    monkeypatch.setattr(engine, "PART_ROWS", part_rows)
    assert wanted.rows.num_rows > 2 * part_rows
    assert_equal_repeats(analysed(folder, spilling, definitions), wanted)


def assert_equal_repeats(found: Analysed, wanted: Analysed) -> None:
    assert found.rows.equals(wanted.rows)
    assert found.repeats == wanted.repeats
