"""Random histories: the engine says what the brute-force oracle says."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from failback.analytics.engines.local import LocalEngine
from failback.analytics.lake import Lake
from tests.support.agreement import assert_agrees
from tests.support.histories import random_history
from tests.support.oracle import Oracle
from tests.support.run_analysis import analysed
from tests.support.run_builder import RunBuilder

SEEDS = st.integers(0, 1 << 32)
BOUNDED = settings(
    max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
FULL = settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))


def check(seed: int) -> None:
    builder = random_history(Random(seed))
    with tempfile.TemporaryDirectory() as folder:
        written = builder.write(Path(folder) / "r", parts=1 + seed % 3, manifest=False)
        assert_agrees(analysed(written), Oracle(builder))


@pytest.mark.unit
@BOUNDED
@given(seed=SEEDS)
@example(seed=116408393)  # two samples of one queue at the same instant
@example(seed=387696)  # a reset of one client of a broadcasting group
def test_local_engine_agrees(seed: int) -> None:
    check(seed)


@pytest.mark.soak
@FULL
@given(seed=SEEDS)
def test_local_engine_agrees_2000_times(seed: int) -> None:
    check(seed)


class Unrestricted(LocalEngine):
    """Stage B over everything: candidates are all rows."""

    def stage_b(self, context, messages, copies, inputs):  # type: ignore[no-untyped-def]
        import failback.analytics.engines.local as local
        from failback.analytics import tables
        from failback.analytics.normalise import Dropped

        found = [
            chunk.select(tables.DELIVERY.names).cast(tables.DELIVERY)
            for chunk in self.deliveries(context, Dropped(), full=True)
        ]
        candidates = local.pa.concat_tables(found)
        whole = local.replace(inputs, produced=self._produced(candidates))
        return local.classify(candidates, whole, context.clocks)


@pytest.mark.unit
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=SEEDS)
def test_leaving_singles_out_of_stage_b_changes_nothing(seed: int) -> None:
    builder: RunBuilder = random_history(Random(seed))
    with tempfile.TemporaryDirectory() as folder:
        written = builder.write(Path(folder) / "r", manifest=False)
        some, all_ = (analysed(written, make) for make in (LocalEngine, _unrestricted))
    kept = {row["did"]: row for row in some.repeats.to_pylist()}
    for row in all_.repeats.to_pylist():
        if row["did"] in kept:
            assert row == kept[row["did"]]
        else:
            assert (row["cls"], row["cause"]) == ("PRIMARY", None)


def _unrestricted(lake: Lake) -> LocalEngine:
    return Unrestricted(lake)
