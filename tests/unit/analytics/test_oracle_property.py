"""Random histories: the engine says what the brute-force oracle says."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from failback.analytics.analysis.causes.classify import CauseInputs
from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.engines.base import Joined
from failback.analytics.analysis.engines.engine import Engine
from failback.analytics.analysis.engines.local import LocalRunner, local_engine
from failback.analytics.analysis.engines.repeated_ranges import RepeatedRanges
from failback.analytics.analysis.engines.repeats import Reduce, RowsTo
from failback.analytics.lake.lake import Lake
from tests.support.analytics.histories import random_history
from tests.support.analytics.oracle import Oracle
from tests.support.analytics.oracle_check import assert_agrees
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import MS, RunBuilder, merged

SEEDS = st.integers(0, 1 << 32)
ALONE, TOGETHER, FULL_TOGETHER = 20, 2, 120
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Hundreds of small files per example: not on the disk, where there is a file system in memory."""
AT_ONCE = 40
"""Histories that share a run: reading and writing files is what an example costs."""
PLAIN = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def check(seed: int) -> None:
    builder = random_history(Random(seed))
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        written = builder.write(Path(folder) / "r", parts=1 + seed % 3, manifest=False)
        assert_agrees(analysed(written), Oracle(builder))


def check_together(first: int) -> None:
    """As many histories as groups of one run, each what it is alone."""
    builders = [random_history(Random(first + n), warmup=False) for n in range(AT_ONCE)]
    warmup = Random(first).choice((None, 20 * MS))
    for builder in builders:
        builder.run["warmup_end_ns"] = warmup
    whole = merged(builders)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        written = whole.write(Path(folder) / "r", manifest=False)
        assert_agrees(analysed(written), Oracle(whole))


@settings(PLAIN, max_examples=ALONE)
@given(seed=SEEDS)
@example(seed=116408393)  # two samples of one queue at the same instant
@example(seed=387696)  # a reset of one client of a broadcasting group
def test_local_engine_agrees(seed: int) -> None:
    check(seed)


@pytest.mark.full
@settings(PLAIN, max_examples=TOGETHER)
@given(first=SEEDS)
def test_local_engine_agrees_on_80_histories(first: int) -> None:
    check_together(first)


@pytest.mark.soak
@settings(PLAIN, derandomize=False, max_examples=FULL_TOGETHER)
@given(first=SEEDS)
def test_local_engine_agrees_on_4800_histories(first: int) -> None:
    check_together(first)


@pytest.mark.soak
@settings(PLAIN, derandomize=False, max_examples=400)
@given(seed=SEEDS)
def test_local_engine_agrees_on_400_runs(seed: int) -> None:
    check(seed)


class Unrestricted(Engine):
    """Classifies everything: each row is a candidate."""

    def repeats(
        self,
        context: Context,
        again: RepeatedRanges,
        inputs: CauseInputs,
        reduce: Reduce,
        rows: RowsTo | None = None,
    ) -> Joined:
        wide = replace(again, messages=everything(again.messages), copies=everything(again.copies))
        return super().repeats(context, wide, inputs, reduce, rows)


def everything(depths: pa.Table) -> pa.Table:
    """The same histories, with all their keys."""
    for name, value in (("lo", -(1 << 62)), ("hi", 1 << 62)):
        at = depths.schema.get_field_index(name)
        depths = depths.set_column(at, name, pa.array([value] * depths.num_rows, pa.int64()))
    return depths


@pytest.mark.full
@settings(PLAIN, max_examples=10)
@given(seed=SEEDS)
def test_leaving_singles_out_of_classifying_changes_nothing(seed: int) -> None:
    builder: RunBuilder = random_history(Random(seed))
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        written = builder.write(Path(folder) / "r", manifest=False)
        some, all_ = (analysed(written, make) for make in (local_engine, _unrestricted))
    kept = {row["did"]: row for row in some.rows.to_pylist()}
    for row in all_.rows.to_pylist():
        if row["did"] in kept:
            assert row == kept[row["did"]]
        else:
            assert (row["cls"], row["cause"]) == ("PRIMARY", None)


def _unrestricted(lake: Lake) -> Engine:
    return Unrestricted(LocalRunner(lake), lake)
