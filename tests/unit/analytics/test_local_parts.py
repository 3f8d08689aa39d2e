"""The local runner: rows that are grouped by part, in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from failback.analytics.analysis.engines import blocks, engine, local
from failback.analytics.analysis.engines.engine import Engine
from failback.analytics.analysis.engines.local import LocalRows, LocalRunner, local_engine
from failback.analytics.lake.lake import Lake
from failback.analytics.run.definitions import DEFAULT, KEYS, Definitions
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.support.analytics.histories import random_history
from tests.support.analytics.repeats_pass import InParts
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import merged

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
    here = analysed(tmp_path / "run", local_engine).rows
    monkeypatch.setattr(engine, "PART_ROWS", 50)
    spilled = analysed(tmp_path / "run", spilling).rows
    assert here.num_rows > 0
    assert spilled.equals(here)


def spilling(lake: Lake) -> Engine:
    return Engine(LocalRunner(lake, spill_bytes=1), lake)


@pytest.mark.parametrize("seed", range(4))
def test_counts_are_the_same_when_they_are_added_up_on_the_way(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = merged([random_history(Random(10 * seed + n), warmup=False) for n in range(5)])
    folder = whole.write(tmp_path / "run", parts=3, manifest=False)
    wanted = analysed(folder).counts
    monkeypatch.setattr(Lake, "chunks", partialmethod(Lake.chunks, rows=20))
    monkeypatch.setattr(local, "MOST_PARTIALS", 30)
    found = analysed(folder).counts
    assert found.runs > wanted.runs  # of more chunks
    assert found.values.keys() == wanted.values.keys()
    assert found.depths.keys() == wanted.depths.keys()
    for name, table in (*found.values.items(), *found.depths.items()):
        assert table.equals({**wanted.values, **wanted.depths}[name]), name


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("seed", range(3))
def test_what_parts_say_of_repeats_is_what_the_whole_says(
    key: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = merged([random_history(Random(10 * seed + n), warmup=False) for n in range(8)])
    folder = whole.write(tmp_path / "run", parts=3, manifest=False)
    monkeypatch.setattr(engine, "PART_ROWS", 20)
    check_in_parts(folder, tmp_path, Definitions(key))


@pytest.mark.parametrize("shape", ["windows", "scattered", "tail"])
def test_what_parts_say_of_a_generated_run_is_what_the_whole_says(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(rows=9_000, dup_shape=shape, truncations=2, foreign_share=0.05, seed=3)
    generate(plan, tmp_path / "run")
    monkeypatch.setattr(engine, "PART_ROWS", 200)
    check_in_parts(tmp_path / "run", tmp_path, DEFAULT)


def test_attempts_are_read_when_a_part_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counts may miss it."""
    monkeypatch.setattr(engine, "may_be_resent", lambda *_: False)
    generate(Plan(rows=3_000, dup_shape="scattered", seed=3), tmp_path / "run")
    found = check_in_parts(tmp_path / "run", tmp_path, DEFAULT)
    assert "APP_RESEND" in found.column("cause").to_pylist()


def check_in_parts(folder: Path, scratch: Path, definitions: Definitions) -> pa.Table:
    (scratch / "rows").mkdir()
    made: list[InParts] = []

    def make(lake: Lake) -> Engine:
        made.append(InParts(LocalRunner(lake, spill_bytes=5_000), lake, scratch / "rows"))
        return made[0]

    analysed(folder, make, definitions)
    made[0].check()
    assert made[0].whole.num_rows > 0
    return made[0].whole
