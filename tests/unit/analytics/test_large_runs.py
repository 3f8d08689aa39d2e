"""Runs with very many repeats: figures within their stated errors, of rows that do not grow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from failback.analytics.analysis.counting.partials import resolution
from failback.analytics.analysis.counting.partials.resolution import (
    AGE_EDGES_NS,
    AGE_ERROR,
    KEYS_ERROR,
    REGISTERS,
    Resolution,
)
from failback.analytics.analysis.engines.joins import join_depths, join_values
from failback.analytics.report.document import build_report
from failback.analytics.report.schema import report_bytes
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.support.analytics.repeating_runs import SHAPES, repeating_run
from tests.support.analytics.repeats_reduction import reduction
from tests.support.analytics.run_analysis import analysed

Row = dict[str, Any]
COARSE = Resolution(exact=False, omid_share=4)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", SHAPES)
def test_figures_differ_by_no_more_than_is_said(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = repeating_run(name, tmp_path / "run")
    exact, _ = build_report(analysed(run), "local")
    monkeypatch.setattr(resolution, "EXACT_CANDIDATES", 10)
    coarse, _ = build_report(analysed(run), "local")
    report_bytes(coarse)
    for mine, theirs in zip(coarse["groups"], exact["groups"], strict=True):
        check_ages(mine.pop("repeat_age_seconds"), theirs.pop("repeat_age_seconds"))
        check_dedupe(mine.pop("dedupe"), theirs.pop("dedupe"))
        assert mine["blast"].pop("keys_error") == KEYS_ERROR
        keys, wanted = mine["blast"].pop("keys"), theirs["blast"].pop("keys")
        assert abs(keys - wanted) <= max(1, KEYS_ERROR * wanted)
    error = coarse["divergence"].pop("conflicts_error")
    found, wanted = (each["divergence"].pop("conflicts") for each in (coarse, exact))
    assert abs(found - wanted) <= error
    for each in (coarse, exact):
        del each["created"], each["timings"]
    assert coarse == exact


def check_ages(coarse: Row, exact: Row) -> None:
    assert coarse.pop("error") == AGE_ERROR
    assert coarse.pop("histogram") == exact.pop("histogram")
    for point, value in exact.items():
        if value is None:
            assert coarse[point] is None
        else:
            assert value * (1 - AGE_ERROR) - 1e-6 <= coarse[point] <= value


def check_dedupe(coarse: Row, exact: Row) -> None:
    assert coarse["by_seconds"] == exact["by_seconds"]
    for mine, theirs in zip(coarse["by_keys"], exact["by_keys"], strict=False):
        assert mine["keys"] == theirs["keys"]
        most = mine["error"] + theirs["error"] + 2e-4  # rounded to four digits
        assert abs(mine["share"] - theirs["share"]) <= most


def twice_as_many(rows: pa.Table) -> pa.Table:
    """Each message as two neighbours that came to the same holders at about the same time."""
    other = rows
    changes: dict[str, Any] = {
        "did": [did + (1 << 50) for did in rows.column("did").to_pylist()],
        "omid": [bytes([255]) + omid[1:] for omid in rows.column("omid").to_pylist()],
        "okey": [f"{at}" for at in range(rows.num_rows)],
        "bt": [bt + at % 1000 for at, bt in enumerate(rows.column("bt").to_pylist())],
    }
    for name in ("lseq", "qoff"):
        twice = [2 * value for value in rows.column(name).to_pylist()]
        rows = replaced(rows, name, twice)
        changes[name] = [value + 1 for value in twice]
    for name, values in changes.items():
        other = replaced(other, name, values)
    return pa.concat_tables([rows, other])


def replaced(rows: pa.Table, name: str, values: list[Any]) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, name, pa.array(values, rows.schema.field(name).type))


@pytest.mark.full
def test_twice_as_many_repeats_make_no_more_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(Plan(rows=30_000, groups=2, dup_share=0.2, seed=5), tmp_path / "run")
    rows = analysed(tmp_path / "run").rows

    made, _ = reduction(tmp_path / "run", COARSE)
    made = replace(made, committed=[2 * offset for offset in made.committed])

    def sizes(rows: pa.Table, wanted: Resolution) -> dict[str, int]:
        found = [replace(made, resolution=wanted).counted(rows)]
        joined = {**join_values(found), **join_depths(found)[0]}
        return {family: table.num_rows for family, table in joined.items()}

    once, twice = sizes(rows, COARSE), sizes(twice_as_many(rows), COARSE)
    for bounded in (once, twice):
        assert bounded.pop("dup_key", 0) <= 2 * REGISTERS
    limit = 1_000
    monkeypatch.setattr(resolution, "EXACT_CANDIDATES", limit)
    sampled = sizes(twice_as_many(rows), Resolution.of(2 * rows.num_rows))
    for family in ("placed_least", "placed_most"):
        assert sampled[family] <= 2 * limit
        del once[family], twice[family]
    assert twice.keys() == once.keys()
    assert {f: n for f, n in twice.items() if n > 1.05 * once[f]} == {}
    exact = [sizes(each, Resolution())["dup_age"] for each in (rows, twice_as_many(rows))]
    assert exact[1] > 1.5 * exact[0]


@pytest.mark.parametrize("count", [1, 40, 3_000, 30_000, 60_000, 400_000])
def test_keys_are_counted_within_the_error(count: int) -> None:
    hashes = np.random.default_rng(count).integers(0, 1 << 62, count)
    number, value = COARSE.keys(np.repeat(hashes, 2))
    most = np.zeros(REGISTERS, np.int64)
    np.maximum.at(most, number, value)
    found = COARSE.distinct_keys(most[most > 0].tolist())
    assert abs(found - count) <= max(0.5, KEYS_ERROR * count)


def test_no_keys_are_none() -> None:
    assert COARSE.distinct_keys([]) == Resolution().distinct_keys([]) == 0


def test_ages_are_rounded_down_on_the_same_side_of_each_edge() -> None:
    rng = np.random.default_rng(1)
    edges = np.array(AGE_EDGES_NS)
    near = np.concatenate([edges - 1, edges, edges + 1, [0, 1, 255, 256, 257, 1 << 61]])
    ages = np.concatenate([near, 2 ** rng.integers(0, 60, 5_000) + rng.integers(0, 1 << 40, 5_000)])
    rounded = COARSE.ages(ages)
    assert (rounded <= ages).all()
    assert (rounded >= ages * (1 - AGE_ERROR)).all()
    assert (np.searchsorted(edges, rounded) == np.searchsorted(edges, ages)).all()
    assert np.unique(rounded).size < ages.size / 2
    assert (Resolution().ages(ages) == ages).all()
