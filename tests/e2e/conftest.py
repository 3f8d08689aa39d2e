"""One quick demo serves all tests of this folder that look at a real run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from failback.analytics.analysis.engines.spark.session import why_not
from tests.e2e.demo_run import Demo, run_demo
from tests.e2e.exposure_watch import Look, watched_runs


@pytest.fixture(scope="session")
def watched_demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Demo, Sequence[Look]]:
    """The demo below, and what a dashboard showed of it meanwhile."""
    if missing := why_not():
        pytest.skip(missing)
    with watched_runs(tmp_path_factory.mktemp("demo")) as (runs, looks):
        return run_demo(runs, "--quick", "--spark"), looks


@pytest.fixture(scope="session")
def demo(watched_demo: tuple[Demo, Sequence[Look]]) -> Demo:
    """``failback demo --quick --spark``, ended: counted here, and once more by Spark."""
    return watched_demo[0]
