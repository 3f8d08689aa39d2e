"""Runs on real brokers with one cause each: the report must say that one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chaos.cause_catalogue import NOT_PROVOKED, RUNS
from tests.support.chaos.cause_runs import CauseRun, carry_out, carry_out_on, cluster_of
from tests.support.chaos.chaos_lab import LocalCluster

QUICK = [run for run in RUNS if run.quick]
REST = [run for run in RUNS if not run.quick]
SAMPLE, *OTHERS = QUICK


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """The cluster of the runs that want the same one; a run begins where the last one ended."""
    assert len({run.wants for run in QUICK}) == 1
    with cluster_of(QUICK[0], tmp_path_factory.mktemp("causes")) as cluster:
        yield cluster


@pytest.mark.few(1, 1)
@pytest.mark.parametrize("run", [pytest.param(SAMPLE, marks=pytest.mark.sample), *OTHERS], ids=str)
def test_a_sample_gets_the_label_of_what_was_done(
    shared: LocalCluster, run: CauseRun, tmp_path: Path
) -> None:
    result = carry_out_on(shared, run, tmp_path / "run")
    print(f"\n{result}")
    assert result.total >= run.least, result
    assert result.share >= run.bar, result


@pytest.mark.soak
@pytest.mark.parametrize("run", REST, ids=str)
def test_duplicates_get_the_label_of_what_was_done(run: CauseRun, tmp_path: Path) -> None:
    result = carry_out(run, tmp_path)
    print(f"\n{result}")
    assert result.total >= run.least, result
    assert result.share >= run.bar, result


def test_every_label_is_provoked_or_it_is_said_why_not() -> None:
    from failback.analytics.analysis.causes.labels import CAUSES

    assert {run.label for run in RUNS} | set(NOT_PROVOKED) == set(CAUSES)
