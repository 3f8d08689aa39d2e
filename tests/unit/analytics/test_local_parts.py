"""The local runner: rows that are grouped by part, in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from failback.analytics.analysis.engines import blocks, engine
from failback.analytics.analysis.engines.engine import Engine
from failback.analytics.analysis.engines.local import LocalRows, LocalRunner, local_engine
from failback.analytics.lake.lake import Lake
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.support.analytics.run_analysis import analysed

NUMBERS = pa.schema([("part", pa.int64()), ("kind", pa.int64()), ("total", pa.int64())])


def chunks(scratch: Path, seen: list[Path]) -> Iterator[pa.Table]:
    """Ten chunks of numbers, of two kinds, in parts by the number's remainder."""
    for at in range(10):
        n = np.arange(100 * at, 100 * at + 100)
        yield blocks.split(pa.table({"n": n}), n % 7, at % 2)
        seen += scratch.glob("failback-parts-*/*.arrow")


def total_of(part: pa.Table) -> pa.Table:
    found = [
        (part["part"][0].as_py(), kind, sum(sum(t["n"].to_pylist()) for t in mine))
        for kind in (0, 1)
        if (mine := blocks.unpacked(part, kind))
    ]
    return pa.table([pa.array(column) for column in zip(*found, strict=True)], schema=NUMBERS)


@pytest.mark.parametrize("spill_bytes", [1 << 30, 2000, 1])
def test_parts_are_the_same_in_memory_and_on_disk(
    spill_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[Path] = []
    rows = LocalRows(chunks(tmp_path, seen), blocks.BLOCKS, spill_bytes).by_part(total_of, NUMBERS)
    found = {(row["part"], row["kind"]): row["total"] for row in rows.whole().to_pylist()}
    n = np.arange(1000)
    assert found == {
        (part, kind): int(n[(n % 7 == part) & (n // 100 % 2 == kind)].sum())
        for part in range(7)
        for kind in (0, 1)
    }
    assert bool(seen) is (spill_bytes < 1 << 30)
    assert not list(tmp_path.iterdir()), "files of parts are gone at the end"


@pytest.mark.parametrize("shape", ["windows", "scattered"])
def test_a_run_is_the_same_with_its_candidates_on_disk(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(rows=6_000, groups=2, dup_shape=shape, truncations=1, foreign_share=0.05, seed=4)
    generate(plan, tmp_path / "run")
    here = analysed(tmp_path / "run", local_engine).repeats
    monkeypatch.setattr(engine, "PART_ROWS", 50)
    spilled = analysed(tmp_path / "run", spilling).repeats
    assert here.num_rows > 0
    assert spilled.equals(here)


def spilling(lake: Lake) -> Engine:
    return Engine(LocalRunner(lake, spill_bytes=1), lake)
